"""What a task is: items by split and index, a score for a completion's text, and gold answers.

An item is a function of (options, seed, split, index) alone, so that a run resumes by numbers. The
two splits never share a question: not by luck of seeds, by construction or by the question's hash.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

__all__ = ["SPLITS", "Item", "Split", "Task", "coprime", "final_answer", "split_of", "spread"]

Split = Literal["train", "held-out"]
SPLITS: tuple[Split, ...] = ("train", "held-out")

HELD_OUT_SHARE = 10  # one question in ten
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class Item:
    """One question.

    Parameters
    ----------
    id : str
        The same in every run with the same options.
    text : str
        What the model is asked, before any chat template.
    question, answer : Any
        What `Task.score` needs; plain data, because it travels to another process.
    label : str
        Which task of a mixture it belongs to; empty where there is one.
    """

    id: str
    text: str
    question: Any
    answer: Any
    label: str = ""


class Task(Protocol):
    """A source of questions with a verifier."""

    name: str
    listed: bool  # a finite list of the user's, every line of which is checked at the start

    def size(self, split: Split) -> int:
        """Number of items of a split."""
        ...

    def item(self, split: Split, index: int) -> Item:
        """The item at `index`, 0 <= index < size(split)."""
        ...

    def score(self, text: str, question: Any, answer: Any) -> float:
        """Reward of a completion, 0 to 1; an empty or missing answer is 0."""
        ...

    def gold(self, item: Item) -> str:
        """A completion that must score 1."""
        ...


def split_of(question: str) -> Split:
    """Split of a question by the hash of its text, so that no question is in both.

    >>> {split_of(str(n)) for n in range(100)} == {"train", "held-out"}
    True
    """
    digest = hashlib.blake2b(question.encode(), digest_size=8).digest()
    return "held-out" if int.from_bytes(digest, "big") % HELD_OUT_SHARE == 0 else "train"


def spread(size: int, number: int) -> list[int]:
    """Up to `number` indices below `size` that show all of a list, whatever its period.

    Even steps would see one level of a task whose difficulty goes by index: 256 steps of 14 through
    the 3,600 items of ``mixed`` meet two of its four levels. These are multiples, modulo `size`, of
    a number that shares no factor with it, so they meet the remainders of each divisor in turn.

    >>> spread(12, 4), {i % 4 for i in spread(12, 4)}, spread(3, 9)
    ([0, 2, 7, 9], {0, 1, 2, 3}, [0, 1, 2])
    """
    step = coprime(size)
    return sorted(i * step % size for i in range(min(number, size)))


def coprime(modulus: int) -> int:
    """A multiplier that permutes 0..modulus-1 and scatters neighbours."""
    start = max(1, int(GOLDEN_RATIO * modulus))
    return next(k for k in range(start, start + modulus + 1) if math.gcd(k, modulus) == 1)


def final_answer(text: str) -> str:
    r"""The one answer that a completion commits to; empty when there is none.

    What is thought does not count: only text behind the last ``</think>`` is read, and none when a
    ``<think>`` was never closed. Of what remains, the last ``<answer>...</answer>`` or, without
    one, the last ``\boxed{...}`` is the answer.

    >>> final_answer("<think>7? 8?</think>So <answer> 8 </answer>")
    '8'
    >>> final_answer(r"thus \boxed{\frac{1}{2}}")
    '\\frac{1}{2}'
    >>> final_answer("<think>it is <answer>8</answer>"), final_answer("8")
    ('', '')
    """
    _, closed, rest = text.rpartition("</think>")
    if not closed and "<think>" in text:
        return ""
    _, opened, tail = rest.rpartition("<answer>")
    if opened:
        inside, closed, _ = tail.partition("</answer>")
        return inside.strip() if closed else ""
    return _last_boxed(rest).strip()


def _last_boxed(text: str) -> str:
    r"""Content of the last ``\boxed{...}`` with balanced braces."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return ""
    depth, begin = 1, start + len("\\boxed{")
    for end in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[begin:end]
    return ""
