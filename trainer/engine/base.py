"""What every engine is: requests in, completions with log-probabilities and weight versions out.

One protocol for the in-process sampler (`local`), the same sampler in a process of its own
(`process`), vLLM in this process (`vllm`) and servers (`served`), so that the loop never asks which
one it talks to. Token ids in, token ids out: no engine sees text.

The life of a swap in flight::

    engine.pause(keep_cache=True)          requests stay where they are
    engine.update(version, weights)        every parameter, the tied head included
    engine.resume()                        tokens from here on carry the new version

``keep_cache=True`` leaves keys and values of the old weights in place (PipelineRL,
arXiv:2509.19128); ``False`` computes them again under the new weights before the next token.
Either way the log-probability returned is the one with which the token was drawn.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from trainer.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

__all__ = [
    "Completion",
    "Engine",
    "FinishReason",
    "Request",
    "SamplingParams",
    "Score",
    "Span",
    "check_requests",
    "derive_seed",
    "generate",
]

FinishReason = Literal["stop", "length", "error"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request is sampled.

    Parameters
    ----------
    max_tokens : int
        Budget of new tokens; reaching it finishes the request with reason "length".
    temperature : float
        Logits are divided by it; 0 takes the most likely token (log-probabilities then are those
        of temperature 1).
    stop_ids : tuple of int
        Any of these ends the request with reason "stop"; the stop token is part of the completion.
    seed : int
        The tokens are a function of (weights, prompt, seed), whatever else is being generated.
    top_p : float
        Below 1 only the likeliest tokens that together have this probability are drawn, and
        log-probabilities are those among them: for evaluations, since no learner sees the same.
        At temperature 0 it means nothing.
    """

    max_tokens: int
    temperature: float = 1.0
    stop_ids: tuple[int, ...] = ()
    seed: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a budget, a temperature or a top_p that cannot be sampled with."""
        if self.max_tokens < 1:
            raise EngineError(f"max_tokens is {self.max_tokens}; give at least 1")
        if not 0.0 <= self.temperature < float("inf"):
            raise EngineError(f"temperature is {self.temperature}; give a number from 0 upwards")
        if not 0.0 < self.top_p <= 1.0:
            raise EngineError(f"top_p is {self.top_p}; give a number above 0 and up to 1")


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to be continued; ``id`` is the caller's and unique among those running."""

    id: int
    ids: tuple[int, ...]
    params: SamplingParams


class Span(NamedTuple):
    """Tokens start..end-1 of a completion were drawn by weights ``version``."""

    version: int
    start: int
    end: int


class Score(NamedTuple):
    """What the learner's weights of now give a fixed sequence.

    Parameters
    ----------
    ids : tuple of int
    logprobs : tuple of float
        Of ``ids[1:]``, at temperature 1.
    limit : float
        Greatest difference that rounding explains.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    limit: float


@dataclass(frozen=True, slots=True)
class Completion:
    """What became of a request.

    Parameters
    ----------
    id : int
        The request's.
    ids : list of int
        New tokens, the stop token included.
    logprobs : list of float
        Natural log of the probability with which each token was drawn (temperature and top_p
        applied). Not
        finite when the weights gave no distribution; the learner leaves such tokens out.
    finish_reason : {"stop", "length", "error"}
    spans : list of Span
        Weight versions in order, covering the completion.
    error : str or None
        What went wrong, when the reason is "error".
    """

    id: int
    ids: list[int]
    logprobs: list[float]
    finish_reason: FinishReason
    spans: list[Span] = field(default_factory=list)
    error: str | None = None


class Engine(Protocol):
    """Ten calls and two numbers; every engine passes the same behavioural test-suite."""

    @property
    def version(self) -> int:
        """Version of the weights that draw the next token."""
        ...

    @property
    def running(self) -> int:
        """Requests submitted and not yet returned."""
        ...

    def submit(self, requests: Sequence[Request]) -> None:
        """Take requests; they start as soon as there is room."""
        ...

    def collect(self, timeout: float = 0.0) -> list[Completion]:
        """Return what has finished.

        Generates (or waits) until something has finished or `timeout` seconds have passed; with
        0 it advances by at most one token and returns at once. Paused engines do not advance.
        """
        ...

    def pause(self, *, keep_cache: bool = True) -> None:
        """Stop between two tokens; running requests stay."""
        ...

    def update(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Replace all weights: names as in ``model.state_dict()``, tied head included."""
        ...

    def resume(self) -> None:
        """Go on with the running requests."""
        ...

    def verify(self, score: Callable[[], Score]) -> None:
        """Check that an update has arrived: servers score the learner's sequence too.

        Engines in this process or beside it share memory with the learner, and do nothing.
        """
        ...

    def notices(self) -> list[str]:
        """What went wrong and was dealt with since the last call, a line each."""
        ...

    def sleep(self) -> None:
        """Give the learner's device its memory back until the next weights or requests.

        Nothing may be running. Engines with memory of their own do nothing.
        """
        ...

    def wake(self) -> None:
        """Take that memory again; `update` and `submit` do it by themselves."""
        ...

    def close(self) -> None:
        """Give everything back; running requests are lost. Calling it twice is fine."""
        ...


def check_requests(
    requests: Sequence[Request], *, vocabulary: int, max_length: int, taken: set[int]
) -> None:
    """Refuse requests that can never be served; `taken` are the ids that run already."""
    for request in requests:
        length = len(request.ids) + request.params.max_tokens
        if not request.ids:
            raise EngineError(f"request {request.id}: the prompt is empty")
        if length > max_length:
            raise EngineError(
                f"request {request.id}: prompt {len(request.ids)} + budget "
                f"{request.params.max_tokens} exceeds the limit of {max_length} tokens"
            )
        if min(request.ids) < 0 or max(request.ids) >= vocabulary:
            raise EngineError(f"request {request.id}: a token id is outside the vocabulary")
        if request.id in taken:
            raise EngineError(f"request {request.id} is running already; use another id")
        taken.add(request.id)


def generate(
    engine: Engine, requests: Sequence[Request], *, deadline: float = 600.0
) -> list[Completion]:
    """Submit requests and wait for all of them, in the order given.

    For callers that have nothing else running on the engine.

    Raises
    ------
    EngineError
        When `deadline` seconds pass without any request finishing.
    """
    engine.submit(requests)
    done: dict[int, Completion] = {}
    last = time.monotonic()
    while len(done) < len(requests):
        finished = engine.collect(1.0)
        now = time.monotonic()
        if finished:
            last = now
            done.update((completion.id, completion) for completion in finished)
        elif now - last > deadline:
            raise EngineError(
                f"generation: no request finished for {deadline:g} s "
                f"({len(done)} of {len(requests)} done); raise the deadline or the budget's speed"
            )
    return [done[request.id] for request in requests]


def derive_seed(*numbers: int) -> int:
    """A 63-bit seed from any integers, the same on every machine and in every Python.

    >>> derive_seed(1, 2) == derive_seed(1, 2), derive_seed(1, 2) == derive_seed(2, 1)
    (True, False)
    """
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
