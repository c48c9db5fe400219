"""What is known of each recipe's curve, its seeds pooled: the score at one compute, or everywhere.

All of it takes forecasts through `predictive`, so that every law and whatever else the forecast
allows for reaches comparisons and allocations alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from curvefit.atoms import STRIDE
from curvefit.fit_doubts import span
from curvefit.fitted import Fit
from curvefit.pooling import SEED_SCORE, Pool, SpreadPrior, pool, pool_curves
from curvefit.predictive import curves
from curvefit.results import Estimate

__all__ = [
    "clip_to_bounds",
    "estimate",
    "last_compute",
    "recipe_curves",
    "score_pool",
    "seed_margin",
]

FloatArray = NDArray[np.float64]
Groups = Sequence[Sequence[Fit]]


def last_compute(groups: Groups) -> float:
    """The last compute of the longest run."""
    return max(float(f.run.compute[-1]) for group in groups for f in group)


def seed_margin(groups: Groups) -> SpreadPrior:
    """What is believed of the seed spread of a score, in the unit of these runs."""
    unit = float(np.median([span(f) for group in groups for f in group]))
    return SEED_SCORE._replace(median=SEED_SCORE.median * unit)


def score_pool(groups: Groups, at: float) -> Pool:
    """Each recipe's score at one compute: equally likely values of the mean over its seeds."""
    here = np.array([at])
    own = [np.array([curves(f, here)[:, 0] for f in group]) for group in groups]
    scores = pool(own, seed_margin(groups))
    clip_to_bounds(scores.draws, groups)
    return scores


def recipe_curves(groups: Groups, ln_C: FloatArray, spread: FloatArray, at: float) -> FloatArray:
    """Each recipe's whole curve: equally likely ones, shape (recipes, M, K).

    Parameters
    ----------
    groups : sequence of sequence of Fit
        The fits of each recipe.
    ln_C : ndarray, shape (K,)
    spread : ndarray, shape (STRIDE · M,)
        The seed spread of the score at compute `at`, from `score_pool`.
    at : float
    """
    C = np.exp(ln_C)
    own = [np.array([curves(f, C, every=STRIDE) for f in group]) for group in groups]
    return pool_curves(own, spread[::STRIDE], _growth(own, groups, at))


def _growth(own: Sequence[FloatArray], groups: Groups, at: float) -> FloatArray:
    """The seed spread at each compute of the grid as a share of that at `at`: as gain to gain."""
    fits = [f for group in groups for f in group]
    seeds = np.concatenate([np.median(group, axis=1) for group in own])
    start = np.array([f.params["R0"].value for f in fits])
    gain = np.maximum(seeds - start[:, None], 0.0).mean(axis=0)
    there = float(np.maximum([float(f([at])[0]) for f in fits] - start, 0.0).mean())
    return np.minimum(gain / there, 2.0) if there > 0 else np.ones_like(gain)


def clip_to_bounds(values: FloatArray, groups: Groups) -> None:
    """Keep scores within 0 and 1, in place, where all runs are pass rates."""
    if all(f.run.bounded for group in groups for f in group):
        np.clip(values, 0.0, 1.0, out=values)


def estimate(values: FloatArray, level: float) -> Estimate:
    """Median and interval of equally likely values."""
    tail = (1.0 - level) / 2.0
    low, middle, high = np.quantile(values, (tail, 0.5, 1.0 - tail), method="hazen").tolist()
    return Estimate(middle, low, high)
