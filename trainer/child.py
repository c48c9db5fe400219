"""A Python process of our own: a pipe, a lifeline and a deadline on every wait.

Started with `subprocess`, not with `multiprocessing`: nothing of the caller's main module is
imported again, so that any script may use it. The child stands in its own process group, which is
killed whole; when the parent dies, however it dies, the lifeline breaks and the child ends.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

__all__ = ["Child", "ChildDied"]

PACKAGE_ROOT = str(Path(__file__).parent.parent)
START = "import sys; sys.path[:] = {path!r}; from trainer.child import main; main()"


class ChildDied(Exception):
    """The other process is gone; the message says how it ended and its last words."""


class Child:
    """A process that runs ``function(connection, *args)`` and ends when it returns.

    Parameters
    ----------
    target : str
        ``"package.module:function"``.
    args : picklable
    files : tuple of int
        File descriptors that the child needs; they keep their numbers.
    """

    def __init__(self, target: str, *args: Any, files: tuple[int, ...] = ()) -> None:
        ours, theirs = socket.socketpair()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                START.format(path=[PACKAGE_ROOT, *sys.path]),
                str(theirs.fileno()),
            ],
            pass_fds=(theirs.fileno(), *files),
            stdin=subprocess.PIPE,  # the lifeline: never written to, closed when we end
            stdout=self._words,
            stderr=self._words,
            start_new_session=True,
        )
        theirs.close()
        self.connection = Connection(ours.detach())
        self.send((target, args))

    def send(self, message: Any) -> None:
        """Send; raises ChildDied when nobody is left to read."""
        try:
            self.connection.send(message)
        except (BrokenPipeError, ConnectionResetError) as e:
            raise ChildDied(self._epitaph()) from e

    def poll(self, timeout: float) -> bool:
        """Whether a message is there within `timeout` seconds; true, too, when the child died."""
        return self.connection.poll(max(0.0, timeout))

    def receive(self) -> Any:
        """Next message; raises ChildDied when there will be none."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError) as e:
            raise ChildDied(self._epitaph()) from e

    def close(self) -> None:
        """Kill the child and all it started, reap it, and close the pipe."""
        if self.connection.closed:
            return
        with suppress(ProcessLookupError):  # it has ended, and so has everything it started
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.connection.close()
        self._words.close()

    def _epitaph(self) -> str:
        code = self.process.wait(timeout=10)
        ended = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        return f"{ended}: {lines[-1]}" if lines else ended


def main() -> None:
    """What the child runs: take the order, do it, and die with the parent."""
    threading.Thread(target=_die_with_parent, daemon=True).start()
    connection = Connection(int(sys.argv[1]))
    target, args = connection.recv()
    module, _, function = target.partition(":")
    # the parent may close its end at any time: then there is nobody left to work for
    with suppress(BrokenPipeError, ConnectionResetError, EOFError):
        getattr(importlib.import_module(module), function)(connection, *args)


def _die_with_parent() -> None:
    os.read(0, 1)
    os.kill(0, signal.SIGKILL)  # the whole group
