"""The local engine in a process of its own, so that generation and learning overlap.

Requests and completions go through a pipe; weights through shared memory: the learner writes them
into an unlinked file that both sides map, and the engine copies them out between two tokens. Every
wait has a deadline, and a failure names its phase: start, submit, pause, update, resume or
generation. A silent or dead process, and a request that got lost, end in an `EngineError`.
"""

from __future__ import annotations

import mmap
import tempfile
import time
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

import torch

from trainer.child import Child, ChildDied
from trainer.engine.base import Completion, Request, SamplingParams, Span, check_requests
from trainer.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path

    from torch import Tensor

    from trainer.engine.base import Score

__all__ = ["ProcessEngine"]

BEAT_S = 0.5  # a working engine speaks at least so often
ITEM = 4  # bytes of a float32


class ProcessEngine:
    """An `Engine` (see `trainer.engine.base`) that runs a `LocalEngine` in another process.

    Parameters
    ----------
    directory : path
        Model directory to start from.
    deadline_s : float
        Seconds that any phase may take, and that a generating engine may be silent.
    start_s : float
        Seconds for the start: imports and loading.
    options
        As for `LocalEngine.from_directory`, and ``threads`` (torch threads, 1).
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        deadline_s: float = 300.0,
        start_s: float = 300.0,
        **options: Any,
    ) -> None:
        self._deadline = deadline_s
        self._version = int(options.get("version", 0))
        self._outstanding: set[int] = set()
        self._finished: list[Completion] = []
        self._sent = 0  # submissions
        self._heard = time.monotonic()
        self._paused = False
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        number = self._file.fileno()
        args = (str(directory), options, number)
        self.child = Child("trainer.engine.process:serve", *args, files=(number,))
        try:
            self._limits = self._await("start", start_s)
        except EngineError:
            self.close()
            raise
        self._layout = self._limits.pop("shapes")
        self._file.truncate(sum(map(_size, self._layout.values())) * ITEM)
        self._shared = _views(number, self._layout)

    @property
    def version(self) -> int:
        """Version of the weights that draw the next token."""
        return self._version

    @property
    def running(self) -> int:
        """Requests submitted and not yet returned."""
        return len(self._outstanding) + len(self._finished)

    def submit(self, requests: Sequence[Request]) -> None:
        """Send requests off; the engine takes them up between two tokens."""
        taken = self._outstanding | {completion.id for completion in self._finished}
        check_requests(requests, taken=taken, **self._limits)
        if not self._outstanding:
            self._heard = time.monotonic()  # an idle engine has nothing to say
        self._outstanding.update(request.id for request in requests)
        self._sent += 1
        params = [request.params for request in requests]
        self._send(
            "submit",
            [(r.id, r.ids) for r in requests],
            [(p.max_tokens, p.temperature, p.stop_ids, p.seed, p.top_p) for p in params],
        )

    def collect(self, timeout: float = 0.0) -> list[Completion]:
        """Completions that have arrived, waiting up to `timeout` seconds for the first."""
        until = time.monotonic() + timeout
        while True:
            self._drain()
            left = until - time.monotonic()
            if self._finished or left <= 0 or not self._outstanding:
                finished, self._finished = self._finished, []
                return finished
            self.child.poll(min(left, BEAT_S))
            self._check_silence()

    def pause(self, *, keep_cache: bool = True) -> None:
        """Stop between two tokens; returns when the engine has stopped."""
        self._call("pause", keep_cache)
        self._paused = True

    def update(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Write all weights to the shared memory and have the engine take them."""
        if not self._paused:
            raise EngineError("update of a running engine; call pause() first")
        missing = sorted(self._layout.keys() - weights.keys())
        if missing:
            raise EngineError(f"update: weights lack {missing[0]!r} ({len(missing)} missing)")
        for name, view in self._shared.items():
            if weights[name].shape != view.shape:
                raise EngineError(
                    f"update: weight {name!r} is {tuple(weights[name].shape)}, not "
                    f"{tuple(view.shape)}"
                )
            view.copy_(weights[name].detach())
        self._call("update", version)
        self._version = version

    def resume(self) -> None:
        """Go on with the running requests."""
        self._call("resume")
        self._paused = False
        self._heard = time.monotonic()

    def verify(self, score: Callable[[], Score]) -> None:
        """Nothing: both sides read the same memory, and every evaluation compares."""

    def notices(self) -> list[str]:
        """Nothing: what goes wrong here ends the run."""
        return []

    def sleep(self) -> None:
        """Nothing: its memory is another process's."""

    def wake(self) -> None:
        """Nothing, as for `sleep`."""

    def close(self) -> None:
        """Kill the process. Calling it twice is fine."""
        self.child.close()
        self._outstanding.clear()
        self._finished.clear()
        self._file.close()

    # ------------------------------------------------------------------ messages

    def _send(self, phase: str, *args: Any) -> None:
        try:
            self.child.send((phase, *args))
        except ChildDied as e:
            raise EngineError(f"{phase}: the engine process {e}") from e

    def _call(self, phase: str, *args: Any) -> None:
        self._send(phase, *args)
        self._await(phase, self._deadline)

    def _await(self, phase: str, deadline: float) -> Any:
        """The answer to `phase`; completions that come in between are kept."""
        until = time.monotonic() + deadline
        while True:
            if not self.child.poll(until - time.monotonic()):
                raise EngineError(f"{phase}: no answer from the engine process in {deadline:g} s")
            kind, *rest = self._receive(phase)
            if kind == phase:
                return rest[0]
            self._take(kind, rest)

    def _receive(self, phase: str) -> tuple[Any, ...]:
        try:
            message: tuple[Any, ...] = self.child.receive()
        except ChildDied as e:
            raise EngineError(f"{phase}: the engine process {e}") from e
        self._heard = time.monotonic()
        return message

    def _drain(self) -> None:
        while self.child.poll(0):
            kind, *rest = self._receive("generation")
            self._take(kind, rest)

    def _take(self, kind: str, rest: list[Any]) -> None:
        """Completions or a sign of life; an idle engine that owes us something has lost it."""
        if kind == "error":
            raise EngineError(f"{rest[0]}: {rest[1]}")
        completions, running, seen = rest
        for number, ids, logprobs, reason, spans in completions:
            self._outstanding.discard(number)
            spans = [Span(*span) for span in spans]
            self._finished.append(Completion(number, ids, logprobs, reason, spans))
        if seen == self._sent and running != len(self._outstanding):
            lost = len(self._outstanding) - running
            raise EngineError(f"generation: the engine process lost {lost} requests")

    def _check_silence(self) -> None:
        silence = time.monotonic() - self._heard
        if not self._paused and silence > self._deadline:
            raise EngineError(f"generation: the engine process is silent for {silence:.0f} s")


def _size(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())


def _views(file: int, layout: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Float32 tensors, one behind the other, in the memory that both processes map."""
    flat = torch.frombuffer(mmap.mmap(file, 0), dtype=torch.float32)
    parts = flat.split([_size(shape) for shape in layout.values()])
    return {
        name: part.view(shape) for (name, shape), part in zip(layout.items(), parts, strict=True)
    }


# ---------------------------------------------------------------------- the other process


def serve(connection: Connection, directory: str, options: dict[str, Any], file: int) -> None:
    """What the process runs: commands between two tokens, tokens between two commands."""
    from trainer.engine.local import LocalEngine

    torch.set_num_threads(options.pop("threads", 1))
    _Server(LocalEngine.from_directory(directory, **options), connection, file).run()


class _Server:
    """The engine and its end of the pipe."""

    def __init__(self, engine: Any, connection: Connection, file: int) -> None:
        self.engine, self.connection, self.file = engine, connection, file
        self.outbox: SimpleQueue[Any] = SimpleQueue()
        Thread(target=self._post, daemon=True).start()
        self.weights: dict[str, Tensor] = {}
        self.paused = False
        self.seen = 0
        self.spoke = time.monotonic()

    def run(self) -> None:
        """Until the pipe breaks."""
        decoder = self.engine.decoder
        limits = {"vocabulary": decoder.vocabulary, "max_length": self.engine.max_length}
        self.outbox.put(("start", {"shapes": decoder.shapes, **limits}))
        while True:
            while self.connection.poll(None if self.paused or not self.engine.running else 0):
                self._obey(*self.connection.recv())
            finished = self.engine.collect(0.0)
            if finished or time.monotonic() - self.spoke > BEAT_S:
                self._tell(finished)

    def _tell(self, finished: list[Completion]) -> None:
        packed = [
            (c.id, c.ids, c.logprobs, c.finish_reason, list(map(tuple, c.spans))) for c in finished
        ]
        self.outbox.put(("done", packed, self.engine.running, self.seen))
        self.spoke = time.monotonic()

    def _obey(self, command: str, *args: Any) -> None:
        try:
            getattr(self, f"_{command}")(*args)
        except EngineError as e:
            self.outbox.put(("error", command, str(e)))
            return
        if command != "submit":
            self.outbox.put((command, None))

    def _post(self) -> None:
        """Send in a thread, so that a learner that does not read does not stop generation."""
        while True:
            self.connection.send(self.outbox.get())

    def _submit(self, prompts: list[Any], params: list[Any]) -> None:
        self.seen += 1
        self.engine.submit(
            [
                Request(number, ids, SamplingParams(*values))
                for (number, ids), values in zip(prompts, params, strict=True)
            ]
        )

    def _pause(self, keep_cache: bool) -> None:
        self.engine.pause(keep_cache=keep_cache)
        self.paused = True

    def _update(self, version: int) -> None:
        self.weights = self.weights or _views(self.file, self.engine.decoder.shapes)
        self.engine.update(version, self.weights)

    def _resume(self) -> None:
        self.engine.resume()
        self.paused = False
