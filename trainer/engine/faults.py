"""What a server of the tests does wrong, and when: the faults that a client must survive.

Given to `trainer.engine.server.Server` by whoever makes one; no command line reaches this.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Fault", "Faults"]

KINDS = ("hang", "500", "die", "stale", "nan", "garble")


@dataclass(frozen=True)
class Fault:
    """One fault.

    Parameters
    ----------
    route : str
        Path that it happens on.
    kind : str
        hang (no answer), 500, die (the process is gone at once), stale (yes is said and nothing
        done); of a completion, nan (no log-probability is a number) and garble (no tokens).
    after : int
        Calls that go well before.
    times : int
        Calls that it happens on.
    """

    route: str
    kind: str
    after: int = 0
    times: int = 1_000_000

    def __post_init__(self) -> None:
        assert self.kind in KINDS, self.kind


class Faults:
    """Faults, the first that applies; `heal` ends them and lets go of what hangs."""

    def __init__(self, *faults: Fault) -> None:
        self.faults = list(faults)
        self.calls: dict[str, int] = {}
        self.healed = threading.Event()
        self._lock = threading.Lock()

    def add(self, *faults: Fault) -> None:
        """Do more wrong; calls are counted from here on."""
        with self._lock:
            self.calls.clear()
            self.faults.extend(faults)

    def heal(self) -> None:
        """Do nothing wrong from here on."""
        self.faults.clear()
        self.healed.set()

    def apply(self, route: str, work: Callable[[], Any]) -> Any:
        """The answer of a route that does its `work`, or does not."""
        kind = self._due(route)
        if kind == "hang":
            self.healed.wait()
            raise ConnectionAbortedError(f"{route} hung")
        if kind == "500":
            raise RuntimeError(f"{route} fails, as the test asks")
        if kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "stale":
            return {}
        answer = work()
        if kind == "nan":
            for entry in answer["choices"][0]["logprobs"]["content"]:
                entry["logprob"] = -9999.0
        if kind == "garble":
            answer["choices"][0].pop("token_ids")
        return answer

    def _due(self, route: str) -> str:
        with self._lock:
            seen = self.calls[route] = self.calls.get(route, 0) + 1
            for fault in self.faults:
                if fault.route == route and 0 < seen - fault.after <= fault.times:
                    return fault.kind
        return ""
