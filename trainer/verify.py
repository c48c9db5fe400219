"""Rewards from processes that can be killed: a deadline for each answer, an error never a zero.

A verifier may loop for ever in C or in sympy, leak, or die. So answers are scored in child
processes; the one that exceeds the deadline is killed with its process, the others of its lot go
to a fresh one. What cannot be scored has no reward and says why ("timeout", "crash: ...").
"""

from __future__ import annotations

import mmap
import resource
import tempfile
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from trainer.child import Child, ChildDied
from trainer.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.connection import Connection

__all__ = ["Answer", "Verdict", "Verifier"]

LOT = 64  # answers sent at once
FLUSH_S = 0.02  # a worker reports at least so often
MEMORY = 8 << 30  # bytes a worker may map; beyond it the answer ends in MemoryError
START_S = 120.0  # a worker may take so long to import its task
BUSY = 16  # bits of a clock's word that hold the answer's number, plus one


class Answer(NamedTuple):
    """A completion's text to be scored; `key` is the caller's and comes back."""

    key: Any
    text: str
    question: Any
    answer: Any


class Verdict(NamedTuple):
    """Reward in 0..1, or None and the reason."""

    key: Any
    reward: float | None
    error: str | None = None


class _Clock:
    """Which answer a worker is at, and since when, in a word shared with the parent.

    Milliseconds of the monotonic clock above, the answer's number plus one (0 for none) below. One
    aligned store of eight bytes cannot be read half-written; `struct.pack_into`, which zeroes its
    bytes before it fills them, can: a reader then sees answer 0, begun at the machine's start.
    """

    def __init__(self, file: int) -> None:
        self._word = memoryview(mmap.mmap(file, 8)).cast("q")

    def set(self, number: int | None) -> float:
        """Say what begins now; the time."""
        now = time.monotonic()
        self._word[0] = int(now * 1000) << BUSY | (0 if number is None else number + 1)
        return now

    def read(self) -> tuple[int | None, float]:
        """The answer's number, or None between answers; when it began, in seconds."""
        word = self._word[0]
        number = word & (1 << BUSY) - 1
        return number - 1 if number else None, (word >> BUSY) / 1000


@dataclass
class _Worker:
    """A child, what it has been given, and where its clock stands."""

    child: Child
    clock: _Clock
    lot: dict[int, Answer]
    ready: bool = False
    since: float = 0.0


class Verifier:
    """A pool of processes that score completions of one task.

    Parameters
    ----------
    name, options, seed
        The task, as for `trainer.tasks.registry.make_task`.
    workers : int
    deadline_s : float
        Seconds for one answer.
    """

    def __init__(
        self,
        name: str,
        options: dict[str, Any] | None = None,
        *,
        seed: int = 0,
        workers: int = 1,
        deadline_s: float = 10.0,
    ) -> None:
        self._task = (name, options or {}, seed)
        self._deadline = deadline_s
        self._queue: deque[Answer] = deque()
        self._verdicts: list[Verdict] = []
        self._workers = [self._start() for _ in range(workers)]
        self.kills = 0

    @property
    def pending(self) -> int:
        """Answers submitted whose verdict has not been returned."""
        return len(self._queue) + len(self._verdicts) + sum(len(w.lot) for w in self._workers)

    def submit(self, answers: Iterable[Answer]) -> None:
        """Take answers; scoring starts at once."""
        self._queue.extend(answers)
        self._feed()

    def poll(self, timeout: float = 0.0) -> list[Verdict]:
        """Verdicts that are there, waiting up to `timeout` seconds for the first."""
        until = time.monotonic() + timeout
        while True:
            self._advance()
            verdicts, self._verdicts = self._verdicts, []
            left = until - time.monotonic()
            if verdicts or left <= 0 or not self.pending:
                return verdicts
            self._wait(min(left, 0.05))

    def score(self, answers: Iterable[Answer]) -> list[Verdict]:
        """Score all and wait: verdicts in the order of the answers."""
        answers = list(answers)
        self.submit(answer._replace(key=i) for i, answer in enumerate(answers))
        done: dict[int, Verdict] = {}
        while len(done) < len(answers):
            done.update((verdict.key, verdict) for verdict in self.poll(1.0))
        return [done[i]._replace(key=answer.key) for i, answer in enumerate(answers)]

    def close(self) -> None:
        """Kill the workers. Calling it twice is fine."""
        for worker in self._workers:
            worker.child.close()
        self._workers = []
        self._queue.clear()

    def _start(self) -> _Worker:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the map keeps its own descriptor
        file.truncate(8)
        clock = _Clock(file.fileno())
        child = Child("trainer.verify:work", self._task, file.fileno(), files=(file.fileno(),))
        file.close()
        return _Worker(child, clock, {}, since=time.monotonic())

    def _feed(self) -> None:
        """Give every idle worker a lot."""
        for worker in self._workers:
            if not worker.lot and self._queue:
                lot = [self._queue.popleft() for _ in range(min(LOT, len(self._queue)))]
                worker.lot = dict(enumerate(lot))
                worker.since = worker.clock.set(None)
                with suppress(ChildDied):  # seen by _advance, which replaces it
                    worker.child.send([(i, *a[1:]) for i, a in worker.lot.items()])

    def _wait(self, timeout: float) -> None:
        from multiprocessing.connection import wait

        wait([worker.child.connection for worker in self._workers], timeout)

    def _advance(self) -> None:
        """Take results in, replace workers that died or hang, hand out work."""
        for i, worker in enumerate(self._workers):
            error = self._read(worker)
            if error is None and worker.lot:
                error = self._overdue(worker)
            if error is not None:
                self._workers[i] = self._replace(worker, error)
        self._feed()

    def _read(self, worker: _Worker) -> str | None:
        try:
            while worker.child.poll(0):
                results = worker.child.receive()
                worker.ready = True
                worker.since = time.monotonic()
                for i, reward, error in results:
                    key = worker.lot.pop(i).key
                    self._verdicts.append(Verdict(key, reward, error))
        except ChildDied as e:
            return f"crash: {e}"
        return None

    def _overdue(self, worker: _Worker) -> str | None:
        """Whether the answer being scored, or the start of the worker, takes too long."""
        number, began = worker.clock.read()
        limit = self._deadline if worker.ready else max(self._deadline, START_S)
        since = worker.since if number is None else began
        return "timeout" if time.monotonic() - since > limit else None

    def _replace(self, worker: _Worker, error: str) -> _Worker:
        """Kill a worker; the answer it was at has its verdict, the rest go back to the queue."""
        worker.child.close()
        if not worker.ready:
            raise TaskError(f"the verifier of task {self._task[0]} did not start: {error}")
        self.kills += 1
        number, _ = worker.clock.read()
        guilty = None if number is None else worker.lot.pop(number, None)
        if guilty is not None:
            self._verdicts.append(Verdict(guilty.key, None, error))
        self._queue.extendleft(reversed(worker.lot.values()))
        return self._start()


def _checked(reward: float) -> float:
    if not 0.0 <= reward <= 1.0:  # false for NaN too
        raise ValueError(f"reward {reward} is not within 0 and 1")
    return float(reward)


def work(connection: Connection, task: tuple[str, dict[str, Any], int], clock_file: int) -> None:
    """What a worker does: score lots, say what it is at, report every now and then."""
    from trainer.tasks.registry import make_task

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    clock = _Clock(clock_file)
    name, options, seed = task
    scorer = make_task(name, options, seed=seed)
    connection.send([])  # ready
    while True:
        results: list[tuple[int, float | None, str | None]] = []
        flushed = time.monotonic()
        for number, text, question, answer in connection.recv():
            if time.monotonic() - flushed > FLUSH_S:
                connection.send(results)
                results, flushed = [], time.monotonic()
            clock.set(number)
            try:
                results.append((number, _checked(scorer.score(text, question, answer)), None))
            except Exception as e:  # an error of the verifier is the result here
                results.append((number, None, f"{type(e).__name__}: {e}"[:200]))
        clock.set(None)
        connection.send(results)
