"""The probe: a program that tries to get out of a sandbox, in earnest, before any other may run.

Twice: without the system-call filter, so that the namespaces are tried on their own, and with it. A
single success refuses the sandbox. The program reports by name; `probe` itself holds what it tries
to reach: a listening port, a file, a variable of the environment, a pipe that a process which
outlives the sandbox would keep open.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.errors import SandboxError

if TYPE_CHECKING:
    from trainer.sandbox import Result, Sandbox

__all__ = ["probe"]

LINGER_S = 1.0  # a process left behind is given so long to die

ATTEMPT = """
import ctypes, os, resource, socket, sys, time
mark, port, path, home = sys.stdin.read().split("\\n")
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, action):
    try:
        action()
    except (OSError, MemoryError, EOFError):
        return
    print(name)
def raw(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
def no_interface():
    if {name for _, name in socket.if_nameindex()} <= {"lo"}:
        raise OSError
def hidden():
    if mark not in os.environ.values():
        raise OSError
"""

NAKED = """
attempt("the host's network is reachable", lambda: socket.create_connection(("127.0.0.1", port), 1))
attempt("the host's network is visible", no_interface)
attempt("a socket of the host's is reachable",
        lambda: socket.socket(socket.AF_UNIX).connect("\\0" + mark))
attempt("a file of the host's is visible", lambda: open(path))
attempt("/etc can be written", lambda: open("/etc/" + mark, "w"))
for folder in ("/etc", os.path.dirname(path), home):  # the host looks whether anything arrived
    try:
        open(folder + "/" + mark, "w").close()
    except OSError:
        pass
attempt("processes are visible", lambda: os.listdir("/proc/self"))
attempt("the environment is visible", hidden)
attempt("capabilities are left", lambda: os.chroot("/tmp"))
attempt("capabilities are left", lambda: socket.sethostname(socket.gethostname()))
if os.fork() == 0:
    os.setsid()
    time.sleep(20)
"""

FILTERED = """
attempt("a process can be started", lambda: os.fork() or os._exit(0))
attempt("files can be executed", lambda: raw("execv", sys.executable.encode(), None))
attempt("namespaces can be made", lambda: raw("unshare", 0x10000000))
attempt("other processes can be read", lambda: raw("ptrace", 16, 1, 0, 0))
attempt("memory has no limit", lambda: bytearray(resource.getrlimit(resource.RLIMIT_AS)[0]))
attempt("/tmp has no limit", lambda: open("/tmp/x", "wb").truncate(1 << 40))
"""

DONE = "\nprint('done', mark)\n"


def probe(sandbox: Sandbox) -> None:
    """Let the hostile program try.

    Raises
    ------
    SandboxError
        One line: the sandbox cannot be made here and why, or what is open.
    """
    mark = f"probe-{secrets.token_hex(8)}"
    try:
        found = [*_naked(sandbox, mark), *_filtered(sandbox, mark)]
    except SandboxError as e:
        raise SandboxError(
            f"{sandbox.bwrap} cannot isolate model-written code here ({e}); allow user namespaces: "
            "sysctl kernel.unprivileged_userns_clone=1, on Ubuntu 24.04 "
            "kernel.apparmor_restrict_unprivileged_userns=0, in Docker --security-opt "
            "seccomp=unconfined --security-opt apparmor=unconfined; nothing runs unsandboxed"
        ) from e
    if found:
        raise SandboxError(
            f"{sandbox.bwrap} does not isolate model-written code here: {', '.join(found)}; "
            "look for a wrapper in bwrap's place, or install bubblewrap 0.8 or newer; nothing runs "
            "unsandboxed"
        )


def _naked(sandbox: Sandbox, mark: str) -> list[str]:
    """What the namespaces alone leave open."""
    home = Path.home()
    here, there = os.pipe()  # EOF when the last process that holds the other end is gone
    with (
        open(here, "rb") as end,
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        closing(socket.socket(socket.AF_UNIX)) as abstract,
        tempfile.NamedTemporaryFile(prefix=mark) as file,
    ):
        abstract.bind(f"\0{mark}")
        abstract.listen()
        known = "\n".join([mark, str(server.getsockname()[1]), file.name, str(home)])
        program, inputs = ATTEMPT + NAKED + DONE, [known.encode()]
        with open(there, "wb"):
            cell = sandbox.start(
                program, "stdin", inputs, filtered=False, files=(there,), env={"PROBE": mark}
            )
        try:
            with closing(cell):
                found = _reported(next(cell.results(1)), mark)
        finally:
            written = _taken_back(mark, [Path("/etc"), Path(file.name).parent, home])
        found += [f"the host's {folder} can be written" for folder in written]
        poll = select.poll()
        poll.register(end, select.POLLIN)
        if not poll.poll(LINGER_S * 1e3):
            found.append("a process outlives the sandbox")
    return found


def _filtered(sandbox: Sandbox, mark: str) -> list[str]:
    """What limits and filter leave open."""
    with closing(
        sandbox.run(ATTEMPT + FILTERED + DONE, "stdin", [f"{mark}\n\n\n".encode()])
    ) as results:
        return _reported(next(results), mark)


def _reported(result: Result, mark: str) -> list[str]:
    *found, last = result.output.decode(errors="replace").splitlines() or [""]
    if result.outcome != "ok" or last != f"done {mark}":
        raise SandboxError(f"its probe did not end as it must: {result.outcome}")
    return found


def _taken_back(mark: str, folders: list[Path]) -> list[Path]:
    """Folders of the host in which the program left its file; it is removed."""
    written = [folder for folder in folders if os.path.lexists(folder / mark)]
    for folder in written:
        (folder / mark).unlink(missing_ok=True)  # two of them may be one
    return written
