"""Two recipes: differences with their probability, and where one curve crosses the other.

All of it counts pairs of equally likely values. Given the seed spread two recipes are independent,
so every value of one may meet every value of the other; the values stand in the order of the
spread, and each meets `PAIRINGS` of the other's whose spread is nearly its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Crossing",
    "Difference",
    "best_shares",
    "crossing",
    "difference",
    "ln_reach",
    "pairings_for",
    "ratio",
]

FloatArray = NDArray[np.float64]

PAIRINGS = 16
WORK = 1000  # pairs times pairings, at most, but for one pairing each
STEP = 3
NAN = float("nan")


class Difference(NamedTuple):
    """First minus second (or first over second): median, interval, P(first is the larger)."""

    value: float
    low: float
    high: float
    probability: float


class Crossing(NamedTuple):
    """Where two curves cross for the last time, one having led before and the other leading after.

    `probability` is that of such a crossing within the range looked at; `compute`, `low` and `high`
    are quantiles over the pairs that cross; `first_ahead` is the share of those in which the first
    is ahead beyond the crossing.
    """

    probability: float
    compute: float
    low: float
    high: float
    first_ahead: float


def pairings_for(recipes: int) -> int:
    """How many of the other's values each value meets: fewer where there are many recipes."""
    return max(1, min(PAIRINGS, WORK // max(recipes * (recipes - 1) // 2, 1)))


def _shifts(pairings: int) -> list[int]:
    return [STEP * k for k in range(-(pairings // 2), pairings - pairings // 2)]


def _pairs(a: FloatArray, b: FloatArray, pairings: int) -> FloatArray:
    """Differences of a and b, each of shape (M,), over all pairings; −∞ − (−∞) counts as 0."""
    with np.errstate(invalid="ignore"):
        gaps = np.concatenate([a - np.roll(b, shift) for shift in _shifts(pairings)])
    return np.where(np.isnan(gaps), 0.0, gaps)


def difference(a: FloatArray, b: FloatArray, level: float, pairings: int = PAIRINGS) -> Difference:
    """How much larger a is than b, and how probably.

    >>> difference(np.array([1.0, 1.0]), np.array([0.0, 0.0]), 0.9)
    Difference(value=1.0, low=1.0, high=1.0, probability=1.0)
    """
    gaps = _pairs(a, b, pairings)
    probability = float((gaps > 0).mean() + 0.5 * (gaps == 0).mean())
    tail = (1.0 - level) / 2.0
    at = [min(int(p * len(gaps)), len(gaps) - 1) for p in (tail, 0.5, 1.0 - tail)]
    picks = np.partition(gaps, at)[at].tolist()
    low, middle, high = (float(v) if np.isfinite(v) else NAN for v in picks)
    return Difference(middle, low, high, probability)


def ratio(ln_a: FloatArray, ln_b: FloatArray, level: float, pairings: int = PAIRINGS) -> Difference:
    """How many times larger a is than b, given their logarithms; infinite ones included."""
    d = difference(ln_a, ln_b, level, pairings)
    value, low, high = np.exp([d.value, d.low, d.high]).tolist()
    return Difference(value, low, high, d.probability)


def best_shares(draws: FloatArray) -> FloatArray:
    """The probability of each recipe to be the highest, from draws of shape (recipes, M)."""
    R = len(draws)
    wins = np.zeros(R)
    for shift in _shifts(PAIRINGS):
        moved = np.array(
            [np.roll(row, shift * r % (STEP * PAIRINGS)) for r, row in enumerate(draws)]
        )
        wins += np.bincount(moved.argmax(axis=0), minlength=R)
    return wins / wins.sum()


def crossing(
    a: FloatArray, b: FloatArray, ln_C: FloatArray, level: float, lead: float = 0.0
) -> Crossing:
    """Where curves a and b, each of shape (M, K) at ln C of shape (K,), cross for the last time.

    A crossing counts if one curve was ahead by more than `lead` before it, and the other is after
    it: curves that start together and part only once have not crossed.
    """
    gap = a - b
    ahead = gap * np.sign(gap[:, -1:])
    changes = gap[:, :-1] * gap[:, 1:] < 0.0
    crosses = changes.any(axis=1) & (ahead.min(axis=1) < -lead) & (ahead[:, -1] > lead)
    if not crosses.any():
        return Crossing(0.0, NAN, NAN, NAN, NAN)
    rows = np.flatnonzero(crosses)
    last = changes.shape[1] - 1 - changes[rows, ::-1].argmax(axis=1)
    before, after = gap[rows, last], gap[rows, last + 1]
    at = ln_C[last] + (ln_C[last + 1] - ln_C[last]) * before / (before - after)
    tail = (1.0 - level) / 2.0
    low, middle, high = np.exp(np.quantile(at, (tail, 0.5, 1.0 - tail))).tolist()
    return Crossing(float(crosses.mean()), middle, low, high, float((after > 0).mean()))


def ln_reach(R: FloatArray, ln_C: FloatArray, y: float | FloatArray) -> FloatArray:
    """Ln of the compute at which each curve of R, (M, K), first reaches y; ∞ if it does not.

    y is one score, or one a curve, shape (M,). A curve that begins above y reaches it at the first
    compute.
    """
    above = np.reshape(y, (-1, 1)) <= R
    k = above.argmax(axis=1)
    rows, after = np.arange(len(R)), np.maximum(k, 1)
    low, high = R[rows, after - 1], R[rows, after]
    with np.errstate(divide="ignore", invalid="ignore"):
        part = (y - low) / (high - low)
    at = ln_C[after - 1] + part * (ln_C[after] - ln_C[after - 1])
    at = np.where(k == 0, ln_C[0], at)
    return np.where(above.any(axis=1), at, np.inf)
