"""Generation by servers, on this or other machines: one or several, as one engine.

The servers speak vLLM 0.32's own routes; `trainer.engine.server` is the local engine behind the
same ones. Requests go to the least loaded server (`traffic`), weights to all (`transfer`,
`collective`). Threads wait for the answers, so that servers generate while the learner works.

What fails, and what follows:

* a server that refuses, resets, hangs beyond the deadline or fails several times in a row is
  *lost*: its requests are drawn again on the others, and a notice says so;
* a lost server that is healthy again is given the present weights, and only then requests;
* with no server left the engine waits for one, for a deadline; then the run ends, and the error
  names the phase and the address;
* weights that did not arrive whole (`verify`) are sent once more; a server that still differs is
  barred, and when all are, the run ends at once.

Every label of weights carries a number drawn at the start, so that a server that was restarted, or
that another run feeds, is found out by the first completion it returns.
"""

from __future__ import annotations

import secrets
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trainer.engine.base import Completion, Request, Score, check_requests
from trainer.engine.decoder import load_config
from trainer.engine.fleet import Crew, Server, ask_each
from trainer.engine.greeting import check_alike, greet
from trainer.engine.messages import digest
from trainer.engine.scoring import check_score
from trainer.engine.traffic import Traffic
from trainer.engine.transfer import FileTransfer, Transfer
from trainer.engine.weights import check_weights, stored_shapes
from trainer.engine.wire import ServerFault
from trainer.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

__all__ = ["ServedEngine"]

BEAT_S = 0.5  # between looks at servers that were lost
GLANCE_S = 2.0  # for a lost server to say that it is well
TRIES = 10  # times that a server which answers, and then fails, is tried within the deadline
RESYNCS = 1  # times that weights which did not arrive are sent again


class ServedEngine:
    """An `Engine` (see `trainer.engine.base`) made of HTTP servers.

    Parameters
    ----------
    directory : path
        Model directory, as the servers were started with: read for names and shapes alone.
    addresses : sequence of str
        ``host:port`` each.
    deadline_s : float
        Seconds that any phase may take at a server, and that the engine waits for a server.
    transfer : {"file", "nccl"}
        How weights travel.
    folder : str
        Of transfer = file: one that every server sees; empty: a temporary one.
    slots : int
        Requests in flight to one server; further ones wait here.
    max_length : int or None
        Longest prompt plus completion; the servers' own limit when None.
    version : int
        Of the servers' weights until the first update.

    Raises
    ------
    EngineError
        A server cannot be reached or used; the message says what to do.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        addresses: Sequence[str],
        deadline_s: float = 300.0,
        transfer: str = "file",
        folder: str = "",
        slots: int = 512,
        max_length: int | None = None,
        version: int = 0,
    ) -> None:
        if not addresses:
            raise EngineError("start: no servers: set engine.addresses to host:port of each")
        config = load_config(directory)
        self._tied = bool(config.tie_word_embeddings)
        self._shapes = stored_shapes(directory, tied=self._tied)
        self._vocabulary = config.get_text_config().vocab_size
        self._deadline, self._version = deadline_s, version
        self._run, self._updates = secrets.token_hex(4), 0
        self._score: Score | None = None
        self._closed = threading.Event()
        self._crew = Crew()
        self._servers = [Server(address) for address in addresses]
        self._traffic = Traffic(self._servers, self._crew, slots=slots, deadline_s=deadline_s)
        self._sent = False  # weights, ever
        self._weights: Mapping[str, Tensor] = {}  # the last ones, where they may be needed again
        self._alone_since: float | None = None  # no server is left
        try:
            self._greet_all()
            limit = min(s.card.max_length for s in self._servers if s.card)
            self._max_length = min(limit, max_length or limit)
            self._transfer = self._open_transfer(transfer, folder)
            self._label(self._servers, self._new_label(version))
            for server in self._servers:
                if server.fault is not None:
                    raise server.fault
        except BaseException:
            self._hang_up()
            raise
        threading.Thread(target=self._watch, daemon=True).start()

    # ------------------------------------------------------------------ the protocol

    @property
    def version(self) -> int:
        """Version of the weights that draw the next token."""
        return self._version

    @property
    def running(self) -> int:
        """Requests submitted and not yet returned."""
        return len(self._traffic.outstanding) + len(self._traffic.finished)

    def submit(self, requests: Sequence[Request]) -> None:
        """Send requests off, each to the server with the fewest."""
        with self._traffic.changed:
            taken = {*self._traffic.outstanding, *(c.id for c in self._traffic.finished)}
        check_requests(
            requests, vocabulary=self._vocabulary, max_length=self._max_length, taken=taken
        )
        self._traffic.submit(requests)

    def collect(self, timeout: float = 0.0) -> list[Completion]:
        """Completions that have arrived, waiting up to `timeout` seconds for the first."""
        until = time.monotonic() + timeout
        traffic = self._traffic
        while True:
            self._tend()
            with traffic.changed:
                left = until - time.monotonic()
                if traffic.finished or left <= 0 or not traffic.outstanding:
                    return traffic.take()
                traffic.changed.wait(min(left, BEAT_S))

    def pause(self, *, keep_cache: bool = True) -> None:
        """Stop every server between two tokens."""
        self._traffic.hold()
        self._pause(self._traffic.up, keep_cache)

    def update(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Give every server the weights; they are checked first."""
        if not self._traffic.held:
            raise EngineError("update of a running engine; call pause() first")
        check_weights(weights, self._shapes, tied=self._tied)
        label = self._new_label(version)
        self._sent, self._score = True, None
        self._weights = weights if self._transfer.together else {}
        self._lose(self._transfer.send(self._traffic.up, weights, label))
        self._label(self._traffic.up, label)
        self._version = version

    def resume(self) -> None:
        """Go on with the running requests."""
        self._resume(self._traffic.up)
        self._traffic.release()

    def verify(self, score: Callable[[], Score]) -> None:
        """Have every server score the learner's fixed sequence; what differs shows in `collect`.

        With nothing running it waits for the verdicts, so that no request meets wrong weights.
        """
        self._score = score()
        verdicts = [self._crew.submit(self._check, server) for server in self._traffic.up]
        if not self.running:
            for verdict in verdicts:
                with suppress(TimeoutError):  # it goes on in its thread, under its own deadline
                    verdict.result(self._deadline)
            self._tend()

    def notices(self) -> list[str]:
        """What went wrong and was dealt with since the last call."""
        with self._traffic.changed:
            notices, self._traffic.notices = self._traffic.notices, []
            return notices

    def sleep(self) -> None:
        """Nothing: the servers' memory is their own."""

    def wake(self) -> None:
        """Nothing, as for `sleep`."""

    def close(self) -> None:
        """End all calls; the servers live on, with the last weights. Calling it twice is fine."""
        if not self._closed.is_set():
            self._hang_up()
            self._transfer.close()

    def describe(self) -> dict[str, Any]:
        """Addresses and software, for the log's header."""
        cards = {s.address: s.card.software for s in self._servers if s.card}
        return {"addresses": list(cards), "software": next(iter(cards.values()))}

    # ------------------------------------------------------------------ start and end

    def _greet_all(self) -> None:
        cards, faults = ask_each(self._crew, self._servers, "start", self._greet, self._deadline)
        for fault in faults.values():
            raise fault
        for server, card in cards.items():
            server.card = card
        check_alike(self._servers, [cards[server] for server in self._servers])

    def _greet(self, server: Server) -> Any:
        return greet(
            server,
            vocabulary=self._vocabulary,
            shapes=digest(self._shapes),
            deadline=self._deadline,
        )

    def _open_transfer(self, kind: str, folder: str) -> Transfer:
        if kind == "file":
            return FileTransfer(folder, self._crew, self._deadline)
        from trainer.engine.collective import CollectiveTransfer

        return CollectiveTransfer(kind, self._servers, self._crew, self._deadline)

    def _hang_up(self) -> None:
        self._closed.set()
        for server in self._servers:
            server.wire.close()

    # ------------------------------------------------------------------ steps of an update

    def _new_label(self, version: int) -> str:
        """Name the next weights; requests from now on share no prefix with earlier ones."""
        self._updates += 1
        label = f"{self._run}-{self._updates}"
        self._traffic.labels[label] = version
        self._traffic.salt = self._present = label
        return label

    def _pause(self, servers: Sequence[Server], keep_cache: bool) -> None:
        path = f"/pause?mode=keep&clear_cache={str(not keep_cache).lower()}"
        self._each(servers, "pause", path)

    def _resume(self, servers: Sequence[Server]) -> None:
        self._each(servers, "resume", "/resume")

    def _label(self, servers: Sequence[Server], label: str) -> None:
        alive = [server for server in servers if server.up]
        self._each(alive, "update", "/update_weight_version", {"new_version": label})

    def _each(self, servers: Sequence[Server], phase: str, path: str, body: Any = None) -> None:
        def post(server: Server) -> None:
            server.post(phase, path, body, deadline=self._deadline)

        self._lose(ask_each(self._crew, servers, phase, post, self._deadline)[1])

    def _lose(self, faults: Mapping[Server, ServerFault]) -> None:
        for server, fault in faults.items():
            self._traffic.lose(server, fault)

    # ------------------------------------------------------------------ parity

    def _check(self, server: Server) -> None:
        """Score the fixed sequence on one server; in a thread of the crew."""
        score, label = self._score, self._present
        assert score is not None
        try:
            told = check_score(server, score, label, self._deadline)
        except ServerFault as fault:
            self._traffic.lose(server, fault)
            return
        if told is None:
            server.resyncs = 0
            return
        with self._traffic.changed:
            server.barred = server.resyncs >= RESYNCS
            server.resyncs += 1
            self._traffic.lose(server, ServerFault("parity", server.address, told))
            server.answers = True

    # ------------------------------------------------------------------ lost servers

    def _watch(self) -> None:
        """Look after lost servers; what is to be done with them is done in `_tend`."""
        asked: dict[Server, Future[Any]] = {}
        while not self._closed.wait(BEAT_S):
            for server in self._servers:
                idle = server not in asked or asked[server].done()
                rested = time.monotonic() - server.tried_at > self._deadline / TRIES
                if idle and rested and not (server.up or server.barred or server.answers):
                    asked[server] = self._crew.submit(self._look, server)

    def _look(self, server: Server) -> None:
        with suppress(EngineError):  # it is lost, and stays so
            server.get("health", "/health", deadline=GLANCE_S)
            with self._traffic.changed:
                server.answers = not server.up
                self._traffic.changed.notify_all()

    def _tend(self) -> None:
        """Deal with what threads have found: in the caller's thread, between its calls."""
        if self._traffic.error is not None:
            raise self._traffic.error
        self._traffic.expire()
        for server in self._servers:
            if server.answers and not (server.up or server.barred):
                self._take_back(server)
        if self._traffic.up:
            self._alone_since = None
        else:
            self._wait_for_one()

    def _wait_for_one(self) -> None:
        """Raise when there is nothing to wait for, or no more time."""
        last = max(self._servers, key=lambda server: server.lost_at)
        self._alone_since = self._alone_since or last.lost_at
        waited = time.monotonic() - self._alone_since
        barred = all(server.barred for server in self._servers)
        if barred or waited > self._deadline:
            tried = f", the last try: {last.last_try.reason}" if last.last_try else ""
            hope = f"no server came back in {waited:.0f} s{tried}"
            raise EngineError(
                f"{last.fault}; {'no server is left' if barred else hope} "
                f"({len(self._servers)} in engine.addresses): start them again and resume the run"
            )

    def _take_back(self, server: Server) -> None:
        """Give a server that is well again the present weights, then requests."""
        held, first = self._traffic.held, server.fault
        server.answers, server.tried_at = False, time.monotonic()
        others = self._traffic.up if self._transfer.together and self._sent else []
        server.up = True  # for the calls below; requests wait until all is done
        self._traffic.hold()
        try:
            server.card = self._greet(server)
            self._pause([server, *others], keep_cache=False)
            self._give_present([s for s in [server, *others] if s.up])
            if not held:
                self._resume([s for s in [server, *others] if s.up])
        except ServerFault as fault:
            self._traffic.lose(server, fault)
        if server.up and not held and self._score is not None:
            self._check(server)
        if not server.up:
            server.fault, server.last_try = first, server.fault
        if not held:
            self._traffic.release()
        if server.up:
            server.last_try = None
            with self._traffic.changed:
                self._traffic.notices.append(
                    f"{server.address} is back with the weights of version {self._version}; "
                    f"{len(self._traffic.up)} of {len(self._servers)} servers"
                )

    def _give_present(self, servers: Sequence[Server]) -> None:
        if self._sent and self._transfer.together:
            self._lose(self._transfer.send(servers, self._weights, self._present))
        elif self._sent:
            self._lose(self._transfer.repeat(servers))
        self._label(servers, self._present)
