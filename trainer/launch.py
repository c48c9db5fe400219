"""Servers as children: started together, waited for until healthy, ended with the run.

Each stands in a session of its own under a lifeline (`trainer.lifeline`), so that a terminal's
Ctrl-C does not reach it before the run has let go, and so that it ends when the run does, killed
or not. One that ends before is started again, a few times. What a server writes goes to
``servers/N.log`` in the run's folder.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trainer.child import PACKAGE_ROOT
from trainer.errors import EngineError
from trainer.lifeline import GRACE_S

__all__ = ["Order", "Servers", "free_port"]

POLL_S = 0.2
REVIVALS = 3  # times that one server is started again; then something is wrong with it
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy


class Order(NamedTuple):
    """A server to start: its command, its whole environment, and where it will listen."""

    command: list[str]
    environment: dict[str, str]
    address: str


class Servers:
    """Running servers.

    Parameters
    ----------
    orders : sequence of Order
    folder : Path
        Of their logs.
    deadline_s : float
        Within which every one must answer ``GET /health``.

    Raises
    ------
    EngineError
        One ended or the deadline passed; none is left running.
    """

    def __init__(self, orders: Sequence[Order], folder: Path, deadline_s: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._orders = list(orders)
        self._revived = [0] * len(orders)
        self._notices: list[str] = []
        self.addresses = [order.address for order in orders]
        self.logs = [folder / f"{i}.log" for i in range(len(orders))]
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            for order, log in zip(orders, self.logs, strict=True):
                self.processes.append(_start(order, log))
            self._await(time.monotonic() + deadline_s, deadline_s)
        except BaseException:
            self.close()
            raise

    def revive(self) -> None:
        """Start those again that have ended; they need a while, and the present weights, then."""
        for i, process in enumerate(self.processes):
            if process.poll() is None or self._revived[i] == REVIVALS:
                continue
            self._revived[i] += 1
            self._notices.append(
                f"start of servers: {self._epitaph(i)}; started again "
                f"({self._revived[i]} of {REVIVALS} times)"
            )
            _end_group(process)
            self.processes[i] = _start(self._orders[i], self.logs[i])

    def notices(self) -> list[str]:
        """What was done about servers since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def close(self) -> None:
        """End them, politely first, and reap them. Calling it twice is fine."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()  # the lifeline
        end = time.monotonic() + GRACE_S + 2
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            _end_group(process)

    def _await(self, end: float, deadline_s: float) -> None:
        waiting = list(range(len(self.processes)))
        while waiting:
            for i in list(waiting):
                if self.processes[i].poll() is not None:
                    raise EngineError(f"start of servers: {self._epitaph(i)}")
                if healthy(self.addresses[i]):
                    waiting.remove(i)
            if waiting and time.monotonic() > end:
                late = ", ".join(f"{self.addresses[i]} (log: {self.logs[i]})" for i in waiting)
                raise EngineError(
                    f"start of servers: not healthy within {deadline_s:g} s: {late}; raise "
                    "engine.start_s or read the log"
                )
            if waiting:
                time.sleep(POLL_S)

    def _epitaph(self, i: int) -> str:
        words = self.logs[i].read_text(errors="replace").strip().splitlines()
        last = words[-1][:200] if words else "it said nothing"
        code = self.processes[i].returncode
        return f"{self.addresses[i]} ended with code {code}: {last} (log: {self.logs[i]})"


def _end_group(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    with suppress(ProcessLookupError):  # nobody of the group is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _start(order: Order, log: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([PACKAGE_ROOT, *filter(None, [order.environment.get("PYTHONPATH")])])
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "trainer.lifeline", *order.command],
            env={**order.environment, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def healthy(address: str, timeout: float = 2.0) -> bool:
    """Whether the server answers its health check with 200."""
    try:
        with DIRECT.open(f"http://{address}/health", timeout=timeout) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):  # refused, reset, late or an error status
        return False


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
