"""Recipes in order, and whether the order can be told from chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from curvefit.digits import percent, probability
from curvefit.pairs import best_shares, difference, pairings_for
from curvefit.wording import listed

__all__ = ["SURE", "Place", "Ranking", "rank"]

FloatArray = NDArray[np.float64]

# A lead counts from here: two recipes that are the same are then called different, either way
# round, at most once in twenty.
SURE = 0.975


class Place(NamedTuple):
    """Where a recipe stands: its rank is one more than the number of recipes surely ahead."""

    recipe: str
    rank: int
    best: float


class Ranking(NamedTuple):
    """Recipes by one quantity, the likeliest first; conclusive if one is surely ahead of all."""

    by: str
    places: tuple[Place, ...]
    conclusive: bool
    sentence: str


def rank(by: str, words: str, names: Sequence[str], draws: FloatArray) -> Ranking:
    """Rank recipes by a quantity of which higher is better.

    Parameters
    ----------
    by, words : str
        The quantity as a key and in words.
    names : sequence of str
    draws : ndarray, shape (recipes, M)
        In the order of the seed spread, from `pooling.pool`.
    """
    R = len(names)
    ahead, pairings = np.full((R, R), 0.5), pairings_for(R)
    for i in range(R):
        for j in range(i):
            ahead[i, j] = difference(draws[i], draws[j], 0.9, pairings).probability
            ahead[j, i] = 1.0 - ahead[i, j]
    ranks = 1 + (ahead >= SURE).sum(axis=0)
    shares = best_shares(draws)
    order = sorted(range(R), key=lambda i: (ranks[i], -np.median(draws[i]), i))
    places = tuple(Place(names[i], int(ranks[i]), float(shares[i])) for i in order)
    first = order[0]
    least = min((float(ahead[first, j]) for j in range(R) if j != first), default=0.5)
    return Ranking(by, places, least >= SURE, _sentence(words, places, least))


def _sentence(words: str, places: Sequence[Place], least: float) -> str:
    if len(places) < 2:
        return f"by {words}: nothing to rank"
    first = places[0]
    if least >= SURE:
        return (
            f"by {words}, {first.recipe} is best: ahead of each other recipe with at least "
            f"{probability(least)}"
        )
    likely = sorted(places, key=lambda p: -p.best)[:3]
    shares = ", ".join(f"{p.recipe} {probability(p.best)}" for p in likely)
    behind = [p.recipe for p in places if p.rank > 1]
    out = f"; surely behind: {listed(behind, 5)}" if behind else ""
    return (
        f"by {words}, inconclusive: best is {shares}; a lead counts from {percent(SURE)} in each "
        f"pair{out}"
    )
