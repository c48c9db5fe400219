"""Recipes in order, and whether the order can be told from chance."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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


def rank(
    by: str,
    words: str,
    names: Sequence[str],
    draws: FloatArray,
    unknown: Collection[str] = (),
) -> Ranking:
    """Rank recipes by a quantity of which higher is better.

    A recipe whose quantity the data do not identify is neither surely ahead of another nor surely
    behind: its draws are the prior's, and a probability computed from them decides nothing.

    Parameters
    ----------
    by, words : str
        The quantity as a key and in words.
    names : sequence of str
    draws : ndarray, shape (recipes, M)
        In the order of the seed spread, from `pooling.pool`.
    unknown : collection of str
        Recipes whose quantity is not identified.
    """
    R = len(names)
    known = np.array([name not in unknown for name in names])
    ahead, pairings = np.full((R, R), 0.5), pairings_for(R)
    for i in range(R):
        for j in range(i):
            ahead[i, j] = difference(draws[i], draws[j], 0.9, pairings).probability
            ahead[j, i] = 1.0 - ahead[i, j]
    sure = (ahead >= SURE) & known & known[:, None]
    ranks = 1 + sure.sum(axis=0)
    shares = best_shares(draws)
    order = sorted(range(R), key=lambda i: (ranks[i], -np.median(draws[i]), i))
    places = tuple(Place(names[i], int(ranks[i]), float(shares[i])) for i in order)
    rivals = [j for j in order if j != order[0]]
    if rivals and sure[order[0], rivals].all():
        least = probability(float(ahead[order[0], rivals].min()))
        lead = f"ahead of each other recipe with at least {least}"
        sentence = f"by {words}, {places[0].recipe} is best: {lead}"
        return Ranking(by, places, True, sentence)
    return Ranking(by, places, False, _inconclusive(words, places, unknown))


def _inconclusive(words: str, places: Sequence[Place], unknown: Collection[str]) -> str:
    if len(places) < 2:
        return f"by {words}: nothing to rank"
    likely = sorted(places, key=lambda p: -p.best)[:3]
    shares = ", ".join(f"{p.recipe} {probability(p.best)}" for p in likely)
    behind = [p.recipe for p in places if p.rank > 1]
    out = f"; surely behind: {listed(behind, 5)}" if behind else ""
    where = ", where both are identified" if unknown else ""
    return (
        f"by {words}, inconclusive: best is {shares}; a lead counts from {percent(SURE)} in each "
        f"pair{where}{out}"
    )
