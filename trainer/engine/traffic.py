"""Requests on their way to servers, and back: who gets which, and what happens when one fails.

A request goes to the server with the fewest in flight. When its server is lost, or gives no good
answer, it is drawn again elsewhere: the tokens are a function of weights, prompt and seed, so a
second draw under the same weights is the first one. After `TRIES` it comes back as an error, and
its rollout is left out.

    waiting ─ send ─► in flight ─ land ─► finished
       ▲                  │ fail, expire, server lost
       └──────────────────┘
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainer.engine.base import Completion, Request
from trainer.engine.fleet import Crew, Server
from trainer.engine.messages import GENERATE, UnknownWeights, read_answer, write_request
from trainer.engine.wire import Connection, ServerFault
from trainer.errors import EngineError

__all__ = ["Ticket", "Traffic"]

TRIES = 4
STRIKES = 3  # failed requests in a row after which a server that still answers is given up
FOREVER_S = 1e6  # `expire` ends calls: it knows of pauses, and a socket does not


@dataclass(eq=False)
class Ticket:
    """A request on its way."""

    request: Request
    tries: int = 0
    server: Server | None = None
    failed_at: Server | None = None
    sent: float = 0.0
    connections: list[Connection] = field(default_factory=list)


class Traffic:
    """All requests of an engine.

    Parameters
    ----------
    servers : sequence of Server
    crew : Crew
    slots : int
        Requests in flight to one server.
    deadline_s : float
        Seconds that an answer may take.
    """

    def __init__(
        self, servers: Sequence[Server], crew: Crew, *, slots: int, deadline_s: float
    ) -> None:
        self.servers, self.crew = servers, crew
        self.slots, self.deadline = slots, deadline_s
        self.changed = threading.Condition(threading.RLock())
        self.outstanding: dict[int, Ticket] = {}
        self.finished: list[Completion] = []
        self.notices: list[str] = []
        self.error: EngineError | None = None
        self.labels: dict[str, int] = {}  # of weights that were sent, to their versions
        self.salt = "0"
        self._waiting: deque[Ticket] = deque()
        self._held_since: float | None = None

    # ------------------------------------------------------------------ from the caller

    @property
    def up(self) -> list[Server]:
        """Servers that take requests."""
        return [server for server in self.servers if server.up]

    @property
    def held(self) -> bool:
        """Nothing is sent: the servers are paused."""
        return self._held_since is not None

    def submit(self, requests: Sequence[Request]) -> None:
        """Take requests."""
        with self.changed:
            tickets = [Ticket(request) for request in requests]
            self.outstanding.update((ticket.request.id, ticket) for ticket in tickets)
            self._waiting.extend(tickets)
            self.send()

    def take(self) -> list[Completion]:
        """What has finished since the last call."""
        with self.changed:
            finished, self.finished = self.finished, []
            return finished

    def hold(self) -> None:
        """Send nothing until `release`; time that passes meanwhile does not count."""
        self._held_since = self._held_since or time.monotonic()

    def release(self) -> None:
        """Go on."""
        with self.changed:
            paused = time.monotonic() - (self._held_since or time.monotonic())
            self._held_since = None
            for ticket in self.outstanding.values():
                ticket.sent += paused
            for server in self.servers:
                server.heard += paused
            self.send()

    # ------------------------------------------------------------------ to and from servers

    def send(self) -> None:
        """Send what waits, each to the server with the fewest in flight."""
        with self.changed:
            while self._waiting and not self.held:
                free = [s for s in self.up if len(s.tickets) < self.slots]
                if not free:
                    return
                ticket = self._waiting.popleft()
                server = _least_loaded(free, ticket)
                ticket.server, ticket.sent = server, time.monotonic()
                ticket.connections.clear()
                if not server.tickets:
                    server.heard = ticket.sent  # an idle server has nothing to say
                server.tickets.add(ticket)
                self.crew.submit(self._call, ticket, server, ticket.tries)

    def _call(self, ticket: Ticket, server: Server, tries: int) -> None:
        """One request, in a thread of its own."""
        body = write_request(ticket.request, self.salt)
        try:
            answer = server.wire.call(
                "generation", GENERATE, body, deadline=FOREVER_S, holds=ticket.connections.append
            )
            completion = read_answer(ticket.request, answer, self.labels)
        except ServerFault as fault:
            self._fail(ticket, server, tries, fault)
        except UnknownWeights as e:
            reason = f"it has other weights ({e.args[0]}): it was restarted, or another run uses it"
            self.lose(server, ServerFault("generation", server.address, reason))
        except (KeyError, IndexError, TypeError, ValueError) as e:
            reason = f"the answer is not whole ({type(e).__name__}: {e})"
            fault = ServerFault("generation", server.address, reason, 500)
            self._fail(ticket, server, tries, fault)
        else:
            self._land(ticket, server, tries, completion)

    def _land(self, ticket: Ticket, server: Server, tries: int, completion: Completion) -> None:
        with self.changed:
            server.heard, server.strikes = time.monotonic(), 0
            self._note_no_numbers(server, completion)
            if ticket.server is server and ticket.tries == tries:  # else it has been drawn again
                self._finish(ticket, completion)
                self.send()

    def _note_no_numbers(self, server: Server, completion: Completion) -> None:
        """Say, once an update, that log-probabilities are not finite; such tokens are left out."""
        if server.noted != self.salt and not math.isfinite(sum(completion.logprobs)):
            server.noted = self.salt
            self.notices.append(
                f"generation: {server.address}: log-probabilities that are no numbers; with good "
                "weights elsewhere, start this server again"
            )

    def _fail(self, ticket: Ticket, server: Server, tries: int, fault: ServerFault) -> None:
        """Redraw; a server that does not answer, or fails several times in a row, is lost."""
        with self.changed:
            if ticket.server is not server or ticket.tries != tries:
                return
            if fault.refused:
                self.error = fault
                self.changed.notify_all()
                return
            server.strikes += 1
            if fault.status is None or server.strikes >= STRIKES:
                self.lose(server, fault)
            else:
                self._redraw(ticket, str(fault))
                self.send()

    def expire(self) -> None:
        """Redraw requests that have waited for longer than the deadline."""
        now = time.monotonic()
        if self.held:
            return
        with self.changed:
            for ticket in [t for s in self.servers for t in s.tickets]:
                server = ticket.server
                if server is None or now - ticket.sent <= self.deadline:
                    continue
                reason = f"no completion in {self.deadline:g} s"
                if now - server.heard > self.deadline:
                    self.lose(server, ServerFault("generation", server.address, reason))
                else:
                    self.notices.append(
                        f"generation: {server.address}: a request was lost ({reason}); redrawn"
                    )
                    self._redraw(ticket, reason)
                    for connection in ticket.connections:
                        connection.cut()
            self.send()

    def lose(self, server: Server, fault: ServerFault) -> None:
        """Give a server up until it is in good health again; its requests go elsewhere."""
        with self.changed:
            if not server.up:
                return
            server.up, server.answers = False, False
            server.fault, server.lost_at, server.strikes = fault, time.monotonic(), 0
            tickets = list(server.tickets)
            for ticket in sorted(tickets, key=lambda t: t.request.id, reverse=True):
                self._redraw(ticket, str(fault))
            self.notices.append(
                f"{fault}; {len(self.up)} of {len(self.servers)} servers are left"
                + (f", {len(tickets)} requests are drawn again" if tickets else "")
            )
            server.wire.cut()
            self.send()
            self.changed.notify_all()

    def _redraw(self, ticket: Ticket, why: str) -> None:
        assert ticket.server is not None
        ticket.server.tickets.discard(ticket)
        ticket.failed_at = ticket.server
        ticket.tries += 1
        if ticket.tries < TRIES:
            ticket.server = None
            self._waiting.appendleft(ticket)
            return
        error = f"{ticket.tries} tries; the last one: {why}"
        self._finish(ticket, Completion(ticket.request.id, [], [], "error", [], error))

    def _finish(self, ticket: Ticket, completion: Completion) -> None:
        if ticket.server is not None:
            ticket.server.tickets.discard(ticket)
        ticket.server = None
        self.outstanding.pop(ticket.request.id, None)
        self.finished.append(completion)
        self.changed.notify_all()


def _least_loaded(free: list[Server], ticket: Ticket) -> Server:
    """The server with the fewest requests, and not the one that this one failed at."""
    return min(free, key=lambda server: (server is ticket.failed_at, len(server.tickets)))
