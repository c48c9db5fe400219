"""Several seeds of each recipe pooled: what is known of the recipes' means, and of the seed spread.

A two-level normal model (Gelman et al., Bayesian Data Analysis, 3rd ed., section 5.4): a seed's
true value scatters about its recipe's, and the run shows the seed's with an error of its own ::

    θ_rs ~ N(μ_r, τ²),    data of run (r, s)  ⇒  θ_rs = m_rs ± √v_rs

The means μ_r have flat priors. The seed spread τ is one for all recipes; it is integrated over a
grid, ln τ with a normal prior. Given τ, a recipe's mean is the seeds' weighted by 1/(v_rs + τ²), so
that a seed that ended early counts by what it knows.

What this assumes: recipes scatter alike from seed to seed; seeds are independent; and with several
seeds only the first two moments of each run's posterior matter. A single seed keeps its posterior's
whole shape, and τ is then what the prior says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from curvefit.normal import normal_quantile

__all__ = ["SEED_B", "SEED_SCORE", "Pool", "SpreadPrior", "pool", "pool_curves", "spread_posterior"]

FloatArray = NDArray[np.float64]

GRID = 41
REACH = 4.0  # standard deviations of ln τ that the grid covers


class SpreadPrior(NamedTuple):
    """Ln τ ~ N(ln median, log_sd²): what is believed of the seed spread before any seed is seen."""

    median: float
    log_sd: float


# Three seeds of ScaleRL ended with A within ±0.015, and ±0.02 was adopted as the margin of A
# (arXiv 2510.13786, appendix A.5): two standard deviations of 0.01, uncertain by a factor of 1.65.
SEED_SCORE = SpreadPrior(0.01, 0.5)
# ln B and ln C_mid. The paper calls the margin of B hard to state: 10 %, within a factor of e.
SEED_B = SpreadPrior(0.1, 1.0)


class Pool(NamedTuple):
    """Equally likely values of each recipe's mean, all in ascending order of the spread.

    Attributes
    ----------
    draws : ndarray, shape (recipes, M)
        Given the spread, recipes are independent: any draw of one may be paired with a draw of
        another whose spread is nearly the same.
    spread : ndarray, shape (M,)
        τ of each draw, ascending.
    """

    draws: FloatArray
    spread: FloatArray


def spread_posterior(
    means: Sequence[FloatArray], variances: Sequence[FloatArray], prior: SpreadPrior
) -> tuple[FloatArray, FloatArray]:
    """The seed spread τ: a grid, shape (T,), and its posterior weights (BDA eq. 5.21).

    Parameters
    ----------
    means, variances : sequence of ndarray, each of shape (seeds of the recipe,)
        What each run says of its own value.
    prior : SpreadPrior
    """
    z = np.linspace(-REACH, REACH, GRID)
    tau = prior.median * np.exp(prior.log_sd * z)
    log_p = -0.5 * z * z
    for m, v in zip(means, variances, strict=True):
        total = v[:, None] + tau**2
        precision = (1.0 / total).sum(axis=0)
        mean = (m[:, None] / total).sum(axis=0) / precision
        log_p -= 0.5 * (np.log(total) + (m[:, None] - mean) ** 2 / total).sum(axis=0)
        log_p -= 0.5 * np.log(precision)
    weight = np.exp(log_p - log_p.max())
    return tau, weight / weight.sum()


def pool(seeds: Sequence[FloatArray], prior: SpreadPrior) -> Pool:
    """Pool the seeds of each recipe.

    Parameters
    ----------
    seeds : sequence of ndarray, each of shape (seeds of the recipe, M)
        Equally likely values of each run's own quantity, in any order.
    prior : SpreadPrior
    """
    means = [values.mean(axis=1) for values in seeds]
    variances = [values.var(axis=1) for values in seeds]
    tau, weight = spread_posterior(means, variances, prior)
    M = seeds[0].shape[1]
    spread = stratified(tau, weight, M)
    draws = np.empty((len(seeds), M))
    for r, values in enumerate(seeds):
        w = 1.0 / (variances[r][:, None] + spread**2)
        w /= w.sum(axis=0)
        draws[r] = 0.0
        for s, own in enumerate(values):
            draws[r] += w[s] * (own[shuffle(M, r, s, 0)] + spread * scatter(M, r, s))
    return Pool(draws, spread)


def pool_curves(seeds: Sequence[FloatArray], spread: FloatArray, growth: FloatArray) -> FloatArray:
    """Pool whole curves: equally likely curves of each recipe, shape (recipes, M, K).

    Parameters
    ----------
    seeds : sequence of ndarray, each of shape (seeds of the recipe, M, K)
        Equally likely curves of each run.
    spread : ndarray, shape (M,)
        The seed spread of the score at one compute, ascending, from `pool`.
    growth : ndarray, shape (K,)
        The spread at each compute in units of that: seeds part as the score rises.
    """
    tau = spread[:, None] * growth
    pooled = np.zeros((len(seeds), *tau.shape))
    for r, of_recipe in enumerate(seeds):
        w = 1.0 / (of_recipe.var(axis=1)[:, None, :] + tau**2 + 1e-300)
        w /= w.sum(axis=0)
        for s, own in enumerate(of_recipe):
            z = scatter(len(tau), r, s)[:, None]
            pooled[r] += w[s] * (own[shuffle(len(tau), r, s, 0)] + tau * z)
    return pooled


def stratified(tau: FloatArray, weight: FloatArray, M: int) -> FloatArray:
    """M equally likely values of τ, ascending, ln τ linear between the grid's nodes."""
    middle = np.cumsum(weight) - 0.5 * weight
    return np.exp(np.interp((np.arange(M) + 0.5) / M, middle, np.log(tau)))


def shuffle(M: int, *which: int) -> NDArray[np.int64]:
    """A fixed order of M values, independent of that of any other `which`."""
    return np.random.default_rng([2510_13786, *which]).permutation(M)


def scatter(M: int, r: int, s: int) -> FloatArray:
    """M standard normal values, those of seed s of recipe r, in a fixed order."""
    p = (np.arange(M) + 0.5) / M
    return normal_quantile(p)[shuffle(M, r, s, 1)]
