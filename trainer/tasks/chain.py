"""Chains of additions modulo 10, the task of the tiny model.

    3+5+9+2=   <think>8,7,9</think>9

A chain of n digits has 10^n questions. A fixed permutation puts them in blocks of ten; one of each
block, picked by a hash, is held out. So the splits are disjoint, every index is another question,
and all this costs nothing at 10^9 questions. Difficulty goes by index: the number of terms cycles
from `min_terms` to `max_terms`.

With one length a tiny model reaches a pass rate of 1. With several (task `mixed`) the place where a
digit stands no longer tells which sum it belongs to; how far a model gets is then a matter of its
size and of the recipe, and the ceiling stays clearly below 1.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer.errors import TaskError
from trainer.tasks.base import Item, Split, coprime

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Chain", "step_error"]

BLOCK = 10


@dataclass(frozen=True)
class Chain:
    """Sums of `min_terms` to `max_terms` digits modulo 10.

    Parameters
    ----------
    min_terms, max_terms : int
    seed : int
        Where in the order of questions index 0 stands; which questions are held out does not
        depend on it.
    """

    min_terms: int = 4
    max_terms: int = 4
    seed: int = 0
    name: str = "chain"
    listed = False

    def __post_init__(self) -> None:
        """Refuse chains without a sum, and levels in the wrong order."""
        if not 2 <= self.min_terms <= self.max_terms <= 18:
            raise TaskError(
                f"{self.name}: min_terms {self.min_terms} and max_terms {self.max_terms} must be "
                "in order and within 2 and 18"
            )

    def size(self, split: Split) -> int:
        """Items: each level contributes as many as the smallest has."""
        blocks = 10 ** (self.min_terms - 1)
        return self._levels * blocks * (1 if split == "held-out" else BLOCK - 1)

    @property
    def _levels(self) -> int:
        return self.max_terms - self.min_terms + 1

    def item(self, split: Split, index: int) -> Item:
        """The question at `index`; its answer is one digit."""
        if not 0 <= index < self.size(split):
            raise TaskError(f"{self.name}: no {split} item {index}; there are {self.size(split)}")
        rank, level = divmod(index, self._levels)
        terms = self.min_terms + level
        digits = _digits(terms, _number(terms, split, rank, self.seed))
        text = "+".join(map(str, digits)) + "="
        return Item(id=text, text=text, question=text, answer=sum(digits) % 10)

    def score(self, text: str, question: Any, answer: Any) -> float:
        """1 when what follows the one ``</think>`` is the answer and nothing else."""
        _, closed, rest = text.partition("</think>")
        return float(bool(closed) and rest.strip() == str(answer))

    def gold(self, item: Item) -> str:
        """The demonstration without errors."""
        return self.demonstration(item, None, 0.0)

    def demonstration(self, item: Item, rng: np.random.Generator | None, error: float) -> str:
        """A worked completion whose written sums are each wrong with probability `error`.

        A wrong sum is carried on, as a reader of it would.
        """
        digits = [int(digit) for digit in item.text[:-1].split("+")]
        total, sums = digits[0], []
        for digit in digits[1:]:
            total = (total + digit) % 10
            if rng is not None and rng.random() < error:
                total = (total + int(rng.integers(1, 10))) % 10
            sums.append(str(total))
        return f"<think>{','.join(sums)}</think>{sums[-1]}"


def step_error(pass_rate: float, steps: int) -> float:
    r"""Chance of error per written sum that makes chains of `steps` sums pass at `pass_rate`.

    An error shifts a sum by 1 to 9, all equally likely, so after m sums the shift is uniform but
    for a part λ^m at zero, λ = 1 − (10/9)·error: pass rate = (1 + 9 λ^m) / 10.

    >>> round(step_error(0.2, 3), 4)
    0.4673
    >>> error = step_error(0.2, 1)  # one sum: wrong four times in five
    >>> round(error, 4)
    0.8
    """
    if not 0.1 < pass_rate <= 1.0:
        raise TaskError(f"pass rate {pass_rate} must be above 0.1, the rate of blind guessing")
    shift = ((10 * pass_rate - 1) / 9) ** (1 / steps)
    return (1 - shift) * 9 / 10


def _digits(terms: int, number: int) -> list[int]:
    return [int(digit) for digit in f"{number:0{terms}d}"]


def _number(terms: int, split: Split, rank: int, seed: int) -> int:
    """Number of the question: its digits are the terms."""
    blocks = 10 ** (terms - 1)
    within, other = (rank, None) if split == "held-out" else divmod(rank, BLOCK - 1)
    block = (within * coprime(blocks) + seed * 7919) % blocks
    digest = hashlib.blake2b(f"chain:{terms}:{block}".encode(), digest_size=8).digest()
    held = int.from_bytes(digest, "big") % BLOCK
    place = held if other is None else other + (other >= held)
    space = 10**terms
    return (BLOCK * block + place) * coprime(space) % space
