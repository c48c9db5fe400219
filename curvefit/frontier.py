"""Which setting leads where, and where one overtakes another: from equally likely curves.

A setting *leads* at a compute if it is the best there with at least a stated probability; where
none is, the matter is not decided. Neighbouring computes with the same answer form a region.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from curvefit.pairs import best_shares, crossing

__all__ = ["Frontier", "Overtaking", "Region", "Share", "frontier", "overtakings", "regions"]

FloatArray = NDArray[np.float64]

ALL_PAIRS = 12  # up to so many settings are paired with each other


class Frontier(NamedTuple):
    """Every setting's score at compute of shape (K,); the other arrays have shape (settings, K).

    `score`, `low` and `high` are the median and the interval; `probability` is that of the setting
    to be the best.
    """

    compute: FloatArray
    score: FloatArray
    low: FloatArray
    high: FloatArray
    probability: FloatArray


class Share(NamedTuple):
    """A setting and its probability to be the best."""

    setting: str
    probability: float


class Region(NamedTuple):
    """A stretch of compute with one answer.

    `shares` holds the settings, the likeliest first, with their mean probability over the stretch
    (as a budget drawn from it on a log scale would meet it); `least` and `most` bound that of the
    first, which leads if `decided`.
    """

    low: float
    high: float
    decided: bool
    shares: tuple[Share, ...]
    least: float
    most: float


class Overtaking(NamedTuple):
    """One setting passing another for good, within the range of compute looked at.

    `probability` is that of it happening there at all, with a lead of `pairs.crossing`'s size on
    either side; `compute`, `low` and `high` are quantiles over the cases in which it does.
    """

    setting: str
    passes: str
    probability: float
    compute: float
    low: float
    high: float


def frontier(curves: FloatArray, C: FloatArray, level: float) -> Frontier:
    """Summarise equally likely curves, shape (settings, M, K), at compute C of shape (K,)."""
    tail = (1.0 - level) / 2.0
    p = (0.5, tail, 1.0 - tail)
    middle, low, high = np.quantile(curves, p, axis=1, method="hazen")
    shares = np.array([best_shares(curves[:, :, k]) for k in range(len(C))]).T
    return Frontier(C, middle, low, high, shares)


def regions(names: Sequence[str], f: Frontier, level: float) -> tuple[Region, ...]:
    """Cut the range of compute where the answer changes.

    Parameters
    ----------
    names : sequence of str
        The settings, in the order of the frontier.
    f : Frontier
    level : float
        Probability from which a setting leads.
    """
    first = f.probability.argmax(axis=0)
    answer = np.where(f.probability.max(axis=0) >= level, first, -1)
    changes = np.flatnonzero(np.diff(answer)) + 1
    starts, stops = [0, *changes.tolist()], [*changes.tolist(), len(answer)]
    edges = np.sqrt(f.compute[changes - 1] * f.compute[changes])
    ends = [float(f.compute[0]), *edges.tolist(), float(f.compute[-1])]
    found = []
    for k, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        inside = f.probability[:, start:stop]
        mean = inside.mean(axis=1)
        order = np.argsort(-mean, kind="stable").tolist()
        shares = tuple(Share(names[i], float(mean[i])) for i in order)
        least, most = float(inside[order[0]].min()), float(inside[order[0]].max())
        found.append(Region(ends[k], ends[k + 1], bool(answer[start] >= 0), shares, least, most))
    return tuple(found)


def overtakings(
    names: Sequence[str], curves: FloatArray, ln_C: FloatArray, level: float, lead: float
) -> Iterator[Overtaking]:
    """Yield, for each two settings either way round, where the first passes the second for good.

    Of more than twelve settings only those are looked at that may be the best somewhere (1 %).

    Parameters
    ----------
    names : sequence of str
    curves : ndarray, shape (settings, M, K)
    ln_C : ndarray, shape (K,)
    level : float
        Probability content of the interval of the place.
    lead : float
        By how much the second must have led before, and the first must lead after.
    """
    for i, j in permutations(_contenders(curves), 2):
        ahead = curves[i, :, -1] > curves[j, :, -1]
        if ahead.any():
            x = crossing(curves[i, ahead], curves[j, ahead], ln_C, level, lead)
            share = x.probability * float(ahead.mean())
            yield Overtaking(names[i], names[j], share, x.compute, x.low, x.high)
        else:
            yield Overtaking(names[i], names[j], 0.0, *[float("nan")] * 3)


def _contenders(curves: FloatArray) -> list[int]:
    """The settings worth pairing: all of a few; of many, those that may be the best somewhere."""
    if len(curves) <= ALL_PAIRS:
        return list(range(len(curves)))
    best = curves.argmax(axis=0)
    return [i for i in range(len(curves)) if (best == i).mean(axis=0).max() >= 0.01]
