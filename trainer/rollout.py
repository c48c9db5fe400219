"""Prompts in, verified groups out: generation, forced interruption and rewards, all overlapping.

A worker keeps any number of groups on their way: while some rollouts are generated, finished ones
are already being verified in other processes. A group comes out when all its rollouts are in.

Forced interruption (ScaleRL, arXiv:2510.13786, section 2): a rollout that is still thinking when
its thinking budget is spent gets a phrase that ends the thinking, and then the answer's budget. The
phrase was not drawn by the policy, so its tokens carry mask 0 and log-probability 0. Done in two
requests, ids in and ids out, so that it works on every engine. Interrupted is not truncated: a
truncated rollout has used up the answer's budget too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trainer.engine.base import Completion, Engine, Request, SamplingParams, derive_seed
from trainer.errors import EngineError, TaskError
from trainer.types import Group, Prompt, Rollout
from trainer.verify import Answer, Verifier

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Interruption", "RolloutWorker"]

GLANCE_S = 0.001  # for completions, while answers are being verified: verdicts come that soon


@dataclass(frozen=True)
class Interruption:
    """When and how thinking is ended.

    Parameters
    ----------
    thinking_tokens, answer_tokens : int
        A rollout may use `thinking_tokens`; then, unless it has finished, `answer_tokens` more.
    phrase_ids : tuple of int
        Inserted when the thinking has not ended by then.
    end_ids : tuple of int
        What ends the thinking, usually the tokens of ``</think>``.
    """

    thinking_tokens: int
    answer_tokens: int
    phrase_ids: tuple[int, ...]
    end_ids: tuple[int, ...]

    @classmethod
    def from_text(
        cls, tokenizer: Any, *, thinking_tokens: int, answer_tokens: int, phrase: str, end: str
    ) -> Interruption:
        """Encode phrase and end mark, refusing a phrase that this tokenizer cannot write."""
        for text in (phrase, end):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            if not ids or tokenizer.decode(ids).split() != text.split():
                raise TaskError(
                    f"the tokenizer cannot write {text!r} of the interruption; set sample.phrase "
                    "and sample.stop to text in its vocabulary"
                )
        if end not in phrase:
            raise TaskError(f"the phrase {phrase!r} does not end the thinking: it lacks {end!r}")
        phrase_ids, end_ids = (
            tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (phrase, end)
        )
        return cls(thinking_tokens, answer_tokens, phrase_ids, end_ids)

    def thought_ended(self, ids: Sequence[int]) -> bool:
        """Whether the end mark stands among `ids`."""
        width = len(self.end_ids)
        return any(tuple(ids[i : i + width]) == self.end_ids for i in range(len(ids) - width + 1))


@dataclass
class _Flight:
    """A group on its way."""

    group: Group
    params: SamplingParams
    seed: tuple[int, ...]
    missing: int
    held: bool  # `sample` waits for it: not for `poll`
    parts: dict[int, Rollout] = field(default_factory=dict)  # sample: what there is of it


class RolloutWorker:
    """Generates and verifies groups with one engine and one verifier, both its own.

    Parameters
    ----------
    engine : Engine
    verifier : Verifier
    tokenizer : transformers tokenizer
        Decodes completions for the verifier, and only for it.
    group_size : int
        Rollouts of a training group.
    params : SamplingParams
        Of training rollouts; its seed is replaced by one derived from `seed`, group and sample.
    seed : int
    interruption : Interruption or None
        When given, its two budgets stand in for ``params.max_tokens``.
    """

    def __init__(
        self,
        engine: Engine,
        verifier: Verifier,
        tokenizer: Any,
        *,
        group_size: int,
        params: SamplingParams,
        seed: int = 0,
        interruption: Interruption | None = None,
    ) -> None:
        self.engine, self.verifier, self.tokenizer = engine, verifier, tokenizer
        self.group_size, self.params, self.seed = group_size, params, seed
        self.interruption = interruption
        self._flights: dict[int, _Flight] = {}
        self._requests: dict[int, tuple[_Flight, int]] = {}
        self._ready: list[Group] = []  # complete, not yet polled
        self._held: list[Group] = []  # complete, of `sample`
        self._next_request = 0

    @property
    def running(self) -> int:
        """Training groups started and not yet returned by `poll`."""
        return len(self._ready) + sum(not flight.held for flight in self._flights.values())

    def start(self, prompts: Sequence[tuple[int, Prompt]]) -> None:
        """Start training groups, (group id, prompt) each.

        Their tokens depend on the weights, the worker's seed and the group's id alone.
        """
        self._launch(prompts, self.group_size, self.params, (self.seed,), held=False)

    def poll(self, timeout: float = 0.0) -> list[Group]:
        """Training groups that are complete, waiting up to `timeout` seconds for the first."""
        until = time.monotonic() + timeout
        while True:
            left = until - time.monotonic()
            if not self._ready and self._flights:
                self._advance(max(0.0, left))
            if self._ready or left <= 0 or not self.running:
                groups, self._ready = self._ready, []
                return groups

    def sample(
        self, prompts: Sequence[Prompt], n: int, params: SamplingParams, *, seed: tuple[int, ...]
    ) -> list[Group]:
        """Groups of `n` rollouts for evaluation, in the order of `prompts`.

        Training groups on their way go on, and wait for the next `poll`.
        """
        numbered = [(-1 - i, prompt) for i, prompt in enumerate(prompts)]
        self._launch(numbered, n, params, seed, held=True)
        while len(self._held) < len(prompts):
            self._advance(1.0)
        groups, self._held = self._held, []
        return sorted(groups, key=lambda group: -group.id)

    def close(self) -> None:
        """Close engine and verifier; groups on their way are lost."""
        self.engine.close()
        self.verifier.close()

    # ------------------------------------------------------------------ generation

    def _launch(
        self,
        prompts: Sequence[tuple[int, Prompt]],
        n: int,
        params: SamplingParams,
        seed: tuple[int, ...],
        *,
        held: bool,
    ) -> None:
        requests = []
        for group_id, prompt in prompts:
            if group_id in self._flights:
                raise EngineError(f"group {group_id} is on its way already; number visits apart")
            flight = _Flight(Group(group_id, prompt), params, (*seed, group_id), n, held)
            self._flights[group_id] = flight
            requests += [self._request(flight, i, prompt.ids) for i in range(n)]
        self.engine.submit(requests)

    def _request(self, flight: _Flight, sample: int, ids: tuple[int, ...]) -> Request:
        """The first request of a rollout, or the second when it has a part already."""
        budget, phase = flight.params.max_tokens, int(sample in flight.parts)
        if self.interruption:
            budget = (self.interruption.thinking_tokens, self.interruption.answer_tokens)[phase]
        number, self._next_request = self._next_request, self._next_request + 1
        self._requests[number] = flight, sample
        seed = derive_seed(*flight.seed, sample, phase)
        params = replace(flight.params, max_tokens=budget, seed=seed)
        return Request(number, ids, params)

    def _advance(self, timeout: float) -> None:
        """One round: tokens, continuations, verdicts."""
        if self.engine.running:
            wait = min(timeout, GLANCE_S) if self.verifier.pending else timeout
            self._take(self.engine.collect(wait))
            timeout = 0.0
        for verdict in self.verifier.poll(timeout):
            flight, sample = verdict.key
            rollout = flight.parts[sample]
            rollout.reward, rollout.reward_error = verdict.reward, verdict.error
            self._settle(flight)

    def _take(self, completions: list[Completion]) -> None:
        """Join completions to their rollouts; go on with those that have a budget left."""
        finished: list[tuple[_Flight, int]] = []
        second: list[Request] = []
        for completion in completions:
            flight, sample = self._requests.pop(completion.id)
            first = sample not in flight.parts
            rollout = flight.parts.setdefault(sample, _empty(flight.group))
            _extend(rollout, completion)
            if first and self.interruption and completion.finish_reason == "length":
                self._interrupt(rollout)
                ids = (*rollout.prompt_ids, *rollout.ids)
                second.append(self._request(flight, sample, ids))
            elif completion.finish_reason == "error":
                self._settle(flight)
            else:
                finished.append((flight, sample))
        if second:
            self.engine.submit(second)
        self._verify(finished)

    def _interrupt(self, rollout: Rollout) -> None:
        """Insert the phrase, masked, unless the thinking has ended by itself."""
        assert self.interruption is not None
        if self.interruption.thought_ended(rollout.ids):
            return
        phrase = self.interruption.phrase_ids
        rollout.ids += phrase
        rollout.mask += [0] * len(phrase)
        rollout.logprobs += [0.0] * len(phrase)
        version, start, end = rollout.versions[-1]
        rollout.versions[-1] = (version, start, end + len(phrase))
        rollout.interrupted = True

    # ------------------------------------------------------------------ verification

    def _verify(self, finished: list[tuple[_Flight, int]]) -> None:
        rollouts = [flight.parts[sample] for flight, sample in finished]
        texts = _decode(self.tokenizer, [rollout.ids for rollout in rollouts])
        self.verifier.submit(
            Answer((flight, sample), text, flight.group.prompt.question, flight.group.prompt.answer)
            for (flight, sample), text in zip(finished, texts, strict=True)
        )

    def _settle(self, flight: _Flight) -> None:
        """Count a rollout that is done; hand the group over with the last of them."""
        flight.missing -= 1
        if flight.missing == 0:
            del self._flights[flight.group.id]
            flight.group.rollouts = [flight.parts[i] for i in sorted(flight.parts)]
            (self._held if flight.held else self._ready).append(flight.group)


def _decode(tokenizer: Any, ids: list[list[int]]) -> list[str]:
    """Text without special tokens; straight from the Rust side, where a batch takes no time."""
    if tokenizer.is_fast:
        texts: list[str] = tokenizer.backend_tokenizer.decode_batch(ids, skip_special_tokens=True)
        return texts
    return list(tokenizer.batch_decode(ids, skip_special_tokens=True))


def _empty(group: Group) -> Rollout:
    return Rollout(
        group=group.id,
        prompt_id=group.prompt.id,
        prompt_ids=list(group.prompt.ids),
        ids=[],
        logprobs=[],
        mask=[],
        finish_reason="error",
        versions=[],
    )


def _extend(rollout: Rollout, completion: Completion) -> None:
    """Append a completion's tokens; joining spans of one version."""
    offset = len(rollout.ids)
    rollout.ids += completion.ids
    rollout.logprobs += completion.logprobs
    rollout.mask += [1] * len(completion.ids)
    rollout.finish_reason = completion.finish_reason
    for version, start, end in completion.spans:
        start += offset
        if rollout.versions and rollout.versions[-1][0] == version:
            start = rollout.versions.pop()[1]
        rollout.versions.append((version, start, end + offset))
    if completion.error:
        rollout.reward_error = completion.error
