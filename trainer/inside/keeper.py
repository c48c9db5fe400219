"""Process 1 of the sandbox: for each test a fresh process, watched, killed and reaped.

It reads one order, never runs a line of the program's or of the tests', and writes a frame a test.
What it forks runs under resource limits and a system-call filter and can fork nothing itself. As
process 1 of its namespace it cannot be signalled from within, and when it ends, all ends.

A frame is ``index, outcome, length`` (`FRAME`) and so many bytes of output; a frame with index END
closes the report.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import marshal
import os
import resource
import select
import struct
import time

from trainer.inside import program

TYPE_CHECKING = False  # typing is slow to import, and nothing runs before this is imported
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Job = Callable[[], None]

__all__ = ["END", "FRAME", "OUTCOMES", "keep"]

FRAME = struct.Struct("<IBI")
END = 0xFFFFFFFF
OUTCOMES = ("ok", "error", "timeout", "output", "unrun")
OK, ERROR, TIMEOUT, OUTPUT, UNRUN = range(5)
KILL = 9
SET_DUMPABLE, SET_SECCOMP, SET_NO_NEW_PRIVS, FILTER_MODE = 4, 22, 38, 2


def keep(order_file: int, secret_file: int) -> Job:
    """Carry out the order; in a forked process, return what that process has to do.

    Parameters
    ----------
    order_file : int
        Descriptor of a marshalled dict: program, mode, tests, limits, filter.
    secret_file : int
        Descriptor of the marshalled test scripts, which only a test's own process reads.
    """
    order = marshal.loads(_whole(order_file))
    os.close(order_file)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(SET_DUMPABLE, 0, 0, 0, 0):  # no process here may look into another
        os._exit(1)
    order["libc"], order["null"] = libc, os.open("/dev/null", os.O_RDWR)
    if order["mode"] != "stdin":
        program.load()
    gc.freeze()  # what is here is shared by all, and never garbage
    start = {"stdin": _stdin, "call": _call, "assert": _assert}[order["mode"]]
    end = time.monotonic() + order["total_s"]
    for index in range(order["count"]):
        seconds = min(order["test_s"], end - time.monotonic())
        if seconds <= 0:
            _report(index, UNRUN)
            continue
        job = start(order, secret_file, index, seconds)
        if job is not None:
            return job
    _report(END, OK)
    os._exit(0)


# -------------------------------------------------------------------- one test


def _stdin(order: dict[str, Any], _: int, index: int, seconds: float) -> Job | None:
    """Run the program with the test as standard input and take its output."""
    source = os.memfd_create("input")
    with os.fdopen(os.dup(source), "wb") as file:
        file.write(order["tests"][index])
    os.lseek(source, 0, os.SEEK_SET)
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        become(order, stdin=source, stdout=theirs)
        return lambda: program.run(order["program"])
    os.close(source)
    os.close(theirs)
    _report(index, *_watch(child, ours, seconds, order["output"]))
    return None


def _call(order: dict[str, Any], _: int, index: int, seconds: float) -> Job | None:
    """Call the program's function with the test's arguments and take its result."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        become(order, stdout=order["null"], pipes=(order["null"], theirs))
        return lambda: program.call(order["program"], order["name"], order["tests"][index])
    os.close(theirs)
    _report(index, *_watch(child, ours, seconds, order["output"]))
    return None


def _assert(order: dict[str, Any], secret: int, index: int, seconds: float) -> Job | None:
    """Two processes: the program, and the test that calls it and alone says whether it passed."""
    (asked, asks), (answered, answers) = os.pipe(), os.pipe()
    tested = os.fork()
    if tested == 0:
        become(order, stdout=order["null"], pipes=(asked, answers))
        return lambda: program.offer(order["program"])
    judge = os.fork()
    if judge == 0:
        test = marshal.loads(_whole(secret))[index]
        become(order, stdout=order["null"], pipes=(answered, asks))
        return lambda: program.judge(*test)
    for file in (asked, asks, answered, answers):
        os.close(file)
    outcome, _ = _watch(judge, None, seconds, 0)
    _end(tested)
    _report(index, outcome)
    return None


def become(
    order: dict[str, Any], *, stdout: int, stdin: int | None = None, pipes: tuple[int, ...] = ()
) -> None:
    """Turn this forked process into one that may run anything: streams, limits, filter."""
    null = order["null"]
    streams = (null if stdin is None else stdin, stdout, null, *pipes)
    # copies with numbers that no stream or pipe will take
    copies = [fcntl.fcntl(file, fcntl.F_DUPFD, 16) for file in streams]
    for number, file in enumerate(copies):
        os.dup2(file, number)
    if order["filter"]:  # the probe without one shows that nothing outlives the sandbox, files open
        os.closerange(len(copies), 1024)
    for name, value in order["limits"].items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    if order["filter"]:
        _install(order["libc"], order["filter"])


def _install(libc: ctypes.CDLL, code: bytes) -> None:
    """Put the system-call filter into force, or end the process."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))

    given = Program(len(code) // 8, code)
    if libc.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        SET_SECCOMP, FILTER_MODE, ctypes.byref(given), 0, 0
    ):
        os._exit(1)


# -------------------------------------------------------------------- watching


def _watch(child: int, pipe: int | None, seconds: float, most: int) -> tuple[int, bytes]:
    """Wait for a process and its output; kill and reap it, however it goes."""
    end = time.monotonic() + seconds
    handle = os.pidfd_open(child)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if pipe is not None:
        poll.register(pipe, select.POLLIN)
    output, outcome, over = bytearray(), None, False
    while outcome is None:
        left = end - time.monotonic()
        ready = [file for file, _ in poll.poll(max(0.0, left * 1e3))]
        over = over or handle in ready
        if pipe in ready and pipe is not None:
            chunk = os.read(pipe, 1 << 16)
            output += chunk
            if not chunk:
                poll.unregister(pipe)
        elif over:  # nothing is left to read
            break
        if len(output) > most:
            outcome = OUTPUT
        elif left <= 0:
            outcome = TIMEOUT
    status = _end(child)
    os.close(handle)
    if pipe is not None:
        os.close(pipe)
    if outcome is None:
        outcome = OK if status == 0 else ERROR
    return outcome, bytes(output) if outcome == OK else b""


def _end(child: int) -> int:
    os.kill(child, KILL)
    return os.waitpid(child, 0)[1]


def _report(index: int, outcome: int, output: bytes = b"") -> None:
    view = memoryview(FRAME.pack(index, outcome, len(output)) + output)
    while view:
        view = view[os.write(1, view) :]


def _whole(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)
