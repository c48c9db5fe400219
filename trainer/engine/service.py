"""The local engine in a thread of its own, as one object that many threads may call.

Commands run between two tokens, completions go to whoever asked. Weights carry the label that a
client gave them; the numbers that the local engine keeps are ours alone.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from trainer.engine.base import Completion
from trainer.engine.messages import read_request
from trainer.engine.weights import load_weights
from trainer.errors import EngineError

if TYPE_CHECKING:
    from trainer.engine.local import LocalEngine

__all__ = ["Service"]


class Service:
    """An engine that serves.

    Parameters
    ----------
    engine : LocalEngine
        From here on this object's own.
    """

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.label = "default"
        self.paused = False
        self._labels: dict[int, str] = {engine.version: self.label}
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._waiting: dict[int, Future[Completion]] = {}
        self._numbers = itertools.count()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def complete(self, body: dict[str, Any]) -> Completion:
        """The completion of a request, as `trainer.engine.messages` writes it.

        Raises
        ------
        KeyError, TypeError, ValueError
            The request cannot be served.
        """
        number = next(self._numbers)
        request = read_request(number, body)
        done: Future[Completion] = Future()

        def start() -> None:
            self.engine.submit([request])
            self._waiting[number] = done

        self.do(start)
        return done.result()

    def score(self, ids: list[int]) -> list[float]:
        """Log-probabilities of ``ids[1:]`` at temperature 1."""
        return self.do(lambda: _score(self.engine.decoder, ids))

    def spans(self, completion: Completion) -> list[tuple[str, int, int]]:
        """Spans of a completion by label; neighbours of one label are one."""
        spans: list[tuple[str, int, int]] = []
        for version, start, end in completion.spans:
            label = self._labels[version]
            if spans and spans[-1][0] == label:
                start = spans.pop()[1]
            spans.append((label, start, end))
        return spans

    def pause(self, keep_cache: bool) -> None:
        """Stop between two tokens."""

        def stop() -> None:
            self.engine.pause(keep_cache=keep_cache)
            self.paused = True

        self.do(stop)

    def resume(self) -> None:
        """Go on."""

        def go_on() -> None:
            self.engine.resume()
            self.paused = False

        self.do(go_on)

    def load(self, path: str) -> None:
        """Take the weights of a folder; they keep the label of now until they get their own."""

        def update() -> None:
            if not self.paused:
                raise EngineError("reload_weights while generating: pause first")
            version = self.engine.version + 1
            self.engine.update(version, load_weights(path, tied=False))
            self._labels[version] = self.label

        self.do(update)

    def name(self, label: str) -> None:
        """Label the weights of now."""

        def rename() -> None:
            self.label = self._labels[self.engine.version] = label

        self.do(rename)

    def do(self, job: Callable[[], Any]) -> Any:
        """The result of `job`, which runs between two tokens."""
        future: Future[Any] = Future()
        self._jobs.put((future, job))
        return future.result()

    def _work(self) -> None:
        while True:
            self._obey(block=self.paused or not self.engine.running)
            for completion in self.engine.collect(0.0):
                self._waiting.pop(completion.id).set_result(completion)

    def _obey(self, *, block: bool) -> None:
        """Do what is asked for, waiting for it when there is nothing to generate."""
        while True:
            try:
                future, job = self._jobs.get(block)
            except Empty:
                return
            try:
                future.set_result(job())
            except Exception as e:  # handed to the thread that asked
                future.set_exception(e)
            block = False


def _score(decoder: Any, ids: list[int]) -> list[float]:
    """Feed the sequence token by token through a cache of its own."""
    import torch

    width = -(-len(ids) // 32) * 32
    with torch.inference_mode():
        cache, found = decoder.new_cache(1, width), []
        for i, (token, following) in enumerate(itertools.pairwise(ids)):
            place = torch.tensor([i], device=decoder.device)
            fed = torch.tensor([token], device=decoder.device)
            logits = decoder.step(fed, place, cache, i + 1)
            found.append(float(torch.log_softmax(logits[0], -1)[following]))
    return found
