"""The servers of a run: who is up, who was lost and why, and calls that go to several at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from trainer.engine.wire import ServerFault, Wire

if TYPE_CHECKING:
    from trainer.engine.greeting import Card
    from trainer.engine.traffic import Ticket

__all__ = ["Crew", "Server", "ask_each"]

MARGIN_S = 0.25  # a call that is given its deadline and this is cut


class Server:
    """One server and what is known of it; fields change under the traffic's lock.

    Parameters
    ----------
    address : str
        ``host:port``.
    """

    def __init__(self, address: str) -> None:
        self.wire = Wire(address)
        self.address = self.wire.address
        self.card: Card | None = None
        self.up = True
        self.barred = False  # for good: it does not take the weights
        self.answers = False  # lost, and in good health again
        self.fault: ServerFault | None = None  # why it was lost
        self.last_try: ServerFault | None = None  # why it could not be taken back
        self.lost_at = 0.0
        self.tried_at = float("-inf")  # when it was last to be taken back
        self.heard = time.monotonic()
        self.strikes = 0  # failed requests in a row
        self.resyncs = 0  # weights sent again because they had not arrived
        self.noted = ""  # update under which its log-probabilities were noted as no numbers
        self.tickets: set[Ticket] = set()

    def post(self, phase: str, path: str, body: Any = None, *, deadline: float) -> dict[str, Any]:
        """The answer to a POST."""
        return self.wire.call(phase, path, body, deadline=deadline)

    def get(self, phase: str, path: str, *, deadline: float) -> dict[str, Any]:
        """The answer to a GET."""
        return self.wire.call(phase, path, deadline=deadline, method="GET")


class Crew:
    """Threads for calls that wait: as many as there are calls at a time, and none keeps us alive.

    An executor's threads are waited for when Python ends; a call to a hanging server would hold
    the whole run.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = (
            SimpleQueue()
        )
        self._free = threading.Semaphore(0)

    def submit(self, job: Callable[..., Any], *args: Any) -> Future[Any]:
        """Run ``job(*args)`` in a thread that is free, or in a new one."""
        future: Future[Any] = Future()
        self._jobs.put((future, job, args))
        if not self._free.acquire(blocking=False):
            threading.Thread(target=self._work, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            future, job, args = self._jobs.get()
            try:
                future.set_result(job(*args))
            except BaseException as e:  # handed to whoever waits for the future
                future.set_exception(e)
            self._free.release()


def ask_each(
    crew: Crew,
    servers: Sequence[Server],
    phase: str,
    call: Callable[[Server], Any],
    deadline: float,
) -> tuple[dict[Server, Any], dict[Server, ServerFault]]:
    """Call every server at once; answers and faults after `deadline` seconds at the latest."""
    futures = {server: crew.submit(call, server) for server in servers}
    until = time.monotonic() + deadline + MARGIN_S
    answers: dict[Server, Any] = {}
    faults: dict[Server, ServerFault] = {}
    for server, future in futures.items():
        try:
            answers[server] = future.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            server.wire.cut()
            reason = f"no answer in {deadline:g} s"
            faults[server] = ServerFault(phase, server.address, reason)
        except ServerFault as fault:
            faults[server] = fault
    return answers, faults
