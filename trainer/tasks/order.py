"""The order in which a mixture's tasks take turns: blocks in which each has its share, evenly.

With shares 3 : 2 : 1 a block of six is

    0 1 0 2 1 0

A task with s of P places should have had t s / P of them after t. Its j-th is due within the places
from floor(j P / s) to ceil((j + 1) P / s) - 1: then it is never a whole place ahead or behind, and
giving each place to the one that is due first keeps every task in time (Baruah, Cohen, Plaxton and
Varvel, "Proportionate progress", Algorithmica 15, 1996, on one processor). Where a task stands at
an index, and at which of its items, is arithmetic from there on: nothing is drawn or remembered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = ["Order", "block"]


def block(shares: Sequence[int]) -> list[tuple[int, int]]:
    """Task and number of the visit, of each place of a block.

    >>> [task for task, _ in block([3, 2, 1])]
    [0, 1, 0, 2, 1, 0]
    """
    P, visits = sum(shares), [0] * len(shares)
    places = []
    for t in range(P):
        open_ = [k for k, s in enumerate(shares) if visits[k] * P < (t + 1) * s]
        k = min(open_, key=lambda k: _window(visits[k], P, shares[k]))
        places.append((k, visits[k]))
        visits[k] += 1
    return places


def _window(j: int, P: int, s: int) -> tuple[int, int]:
    """First place too late for visit j, and the first that is not too early: urgent ones first."""
    return -(-(j + 1) * P // s), j * P // s


class Span(NamedTuple):
    """Blocks that are alike: index and number of the first, and what each of them holds."""

    start: int
    first: int
    places: list[tuple[int, int]]


class Order:
    """Items of several tasks, none of them twice.

    Parameters
    ----------
    shares : sequence of int
        Items of each task in a block.
    lengths : sequence of int
        Items of each task; one that has no more leaves its places to the others.

    >>> order = Order([1, 1], [2, 4])
    >>> [order[i] for i in range(len(order))]
    [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2), (1, 3)]
    """

    def __init__(self, shares: Sequence[int], lengths: Sequence[int]) -> None:
        self.shares = shares
        self._spans: list[Span] = []
        self._size = 0
        whole, pairs = block(shares), list(zip(shares, lengths, strict=True))
        edges = {0, *(n // s for s, n in pairs), *(-(-n // s) for s, n in pairs)}
        for first, end in pairwise(sorted(edges)):  # between edges no task runs out
            places = [(k, j) for k, j in whole if first * shares[k] + j < lengths[k]]
            self._spans.append(Span(self._size, first, places))
            self._size += (end - first) * len(places)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> tuple[int, int]:
        """Task at `index`, and which of its items."""
        span = self._spans[bisect_right(self._spans, index, key=lambda s: s.start) - 1]
        blocks, place = divmod(index - span.start, len(span.places))
        task, visit = span.places[place]
        return task, (span.first + blocks) * self.shares[task] + visit
