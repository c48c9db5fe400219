"""Reasoning Gym by generator name, alone or mixed; only right answers are paid for.

    [task]
    name = "reasoning-gym"
    args = {generators = ["chain_sum", "countdown"], weights = [2.0, 1.0],
            settings = {chain_sum = {max_terms = 4}}}

Items are a function of (seed, generator, index); which split a question belongs to is a matter of
its text, so that a generator that repeats itself cannot leak. Two habits of the library are not
taken over: scores between 0 and 1 are partial credit, some of it for an answer that merely contains
the right one, so they count only with `partial`; and the empty answer scores 0 everywhere.
"""

from __future__ import annotations

import difflib
import functools
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainer.engine.base import derive_seed
from trainer.errors import TaskError
from trainer.tasks.base import Item, Split, final_answer, split_of

__all__ = ["ReasoningGym"]

TRIES = 400  # numbers tried for an item of a split; one in ten is held out
GOLD_KEYS = ("possible_answer", "example_answer", "example_correct_answer")


@dataclass(frozen=True)
class ReasoningGym:
    """A mixture of Reasoning Gym's generators.

    Parameters
    ----------
    generators : list of str
    weights : list of float
        Shares of the mixture; equal when empty.
    settings : dict of str to dict
        Settings of a generator, as its own configuration takes them.
    items : int
        Training prompts; a tenth as many are held out.
    partial : bool
        Pay the library's scores between 0 and 1.
    unchecked : bool
        Accept generators that give no answer to check the verifier with.
    instruction : str
        Appended to every question.
    """

    generators: list[str] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    items: int = 1_000_000
    partial: bool = False
    unchecked: bool = False
    instruction: str = "Give the final answer between <answer> and </answer>."
    seed: int = 0
    name: str = "reasoning-gym"
    listed = False

    def __post_init__(self) -> None:
        """Check names, weights and settings by building each generator."""
        if not self.generators:
            raise TaskError("reasoning-gym: no generators; set task.args.generators = [...]")
        if self.weights and len(self.weights) != len(self.generators):
            raise TaskError(
                f"reasoning-gym: {len(self.weights)} weights for {len(self.generators)} generators"
            )
        if self.weights and (min(self.weights) < 0 or sum(self.weights) <= 0):
            raise TaskError(f"reasoning-gym: weights {self.weights} must be positive")
        for name in (*self.generators, *self.settings):
            _check_name(name, self.generators if name in self.settings else None)
        for name in self.generators:
            self._dataset(name)

    def size(self, split: Split) -> int:
        """Items of a split: virtual, nothing is generated before it is asked for."""
        return self.items if split == "train" else max(1, self.items // 10)

    def item(self, split: Split, index: int) -> Item:
        """The first question of the numbers that belong to `index` and fall into the split."""
        generator = self._generator(split, index)
        for attempt in range(TRIES):
            number = derive_seed(self.seed, index, attempt) % 2**31
            entry = _entry(generator, self._frozen(generator), number)
            if split_of(entry["question"]) == split:
                return Item(
                    id=f"{generator}:{split}:{index}",
                    text=f"{entry['question']}\n\n{self.instruction}",
                    question=[generator, number],
                    answer=_gold(entry),
                )
        raise TaskError(
            f"reasoning-gym: {generator} has no {split} question in {TRIES} numbers; it has too "
            "few different questions for two splits"
        )

    def score(self, text: str, question: Any, answer: Any) -> float:
        """The library's score of the final answer; only 1 counts, unless `partial`."""
        given = final_answer(text)
        if not given:
            return 0.0
        generator, number = question
        entry = _entry(generator, self._frozen(generator), number)
        score = float(self._dataset(generator).score_answer(given, entry))
        return min(1.0, score) if self.partial or score >= 1.0 else 0.0

    def gold(self, item: Item) -> str:
        """The generator's own answer, or an example of one where several are right."""
        if item.answer is None:
            if not self.unchecked:
                raise TaskError(
                    f"reasoning-gym: {item.question[0]} gives no answer to check its verifier "
                    "with; leave it out, or set task.args.unchecked = true"
                )
            return ""
        return f"<answer>{item.answer}</answer>"

    def _generator(self, split: Split, index: int) -> str:
        weights = np.array(self.weights or [1.0] * len(self.generators))
        edges = np.cumsum(weights) / weights.sum()
        level = derive_seed(self.seed, index, len(split)) / 2**63
        return self.generators[int(np.searchsorted(edges, level, side="right"))]

    def _frozen(self, generator: str) -> str:
        return json.dumps(self.settings.get(generator, {}), sort_keys=True)

    def _dataset(self, generator: str) -> Any:
        return _dataset(generator, self._frozen(generator))


@functools.cache
def _dataset(generator: str, settings: str) -> Any:
    import reasoning_gym

    try:
        return reasoning_gym.create_dataset(generator, seed=0, size=2**31, **json.loads(settings))
    except (AssertionError, TypeError, ValueError) as e:
        raise TaskError(f"reasoning-gym: {generator} refuses its settings: {e}") from e


@functools.lru_cache(maxsize=4096)
def _entry(generator: str, settings: str, number: int) -> dict[str, Any]:
    """Question, answer and metadata of a generator's item: a function of its number alone."""
    return dict(_dataset(generator, settings)[number])


def _gold(entry: dict[str, Any]) -> str | None:
    if entry["answer"] is not None:
        return str(entry["answer"])
    for key in GOLD_KEYS:
        if key in entry["metadata"]:
            value = entry["metadata"][key]
            return value if isinstance(value, str) else json.dumps(value)
    return None


def _check_name(name: str, among: list[str] | None) -> None:
    try:
        from reasoning_gym.factory import DATASETS
    except ImportError as e:
        raise TaskError("task reasoning-gym needs the package: pip install reasoning-gym") from e
    known = list(DATASETS) if among is None else among
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        where = "generator" if among is None else "settings for a generator that is not used,"
        raise TaskError(f"reasoning-gym: unknown {where} {name!r}{hint}")
