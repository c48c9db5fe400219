"""Whether a moving average explains a series better than any noise of a run does.

A moving average over k rows leaves a covariance that no run noise has: it falls linearly and is 0
from lag k on. Both hypotheses are normal with a free variance, so that one likelihood ratio, each
side at its best, decides. An exponential moving average is an AR(1) process, which is what run
noise is: no statistic of the rows can tell the two apart.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["moving_average"]

FloatArray = NDArray[np.float64]

MOST_ROWS = 80  # the last rows suffice, and bound the cost
RHO = (0.5, 0.7, 0.85, 0.95, 0.99)
SHARES = (0.3, 0.6, 0.85, 0.97, 1.0)  # of run noise in the variance
WIDEST = 20


def moving_average(r: FloatArray) -> tuple[int, float]:
    """Return the likeliest window k ≥ 3, and its log likelihood ratio to the best run noise.

    Parameters
    ----------
    r : ndarray, shape (n,)
        Residuals, n ≥ 9, not all 0.

    Returns
    -------
    k : int
    nats : float
        Above 0 when the moving average is the likelier explanation.
    """
    r = r[-MOST_ROWS:]
    n = len(r)
    windows = range(3, min(n // 3, WIDEST) + 1)
    noise, average = _noise_factors(n), _average_factors(n)
    likelihood = _log_likelihood(average, r / np.abs(r).max())
    best = int(likelihood.argmax())
    nats = likelihood[best] - _log_likelihood(noise, r / np.abs(r).max()).max()
    return windows[best % len(windows)], float(nats)


def _log_likelihood(factors: FloatArray, r: FloatArray) -> FloatArray:
    """−½ ln|V| − n/2 ln(rᵀV⁻¹r / n), the variance profiled out, for each V = LLᵀ."""
    n = len(r)
    white = np.linalg.solve(factors, np.broadcast_to(r[:, None], (len(factors), n, 1)))[..., 0]
    log_det = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
    return np.asarray(-log_det - 0.5 * n * np.log(np.mean(white**2, axis=1)))


@lru_cache(maxsize=8)
def _noise_factors(n: int) -> FloatArray:
    """Cholesky factors of white noise and of AR(1) plus white noise, shape (26, n, n)."""
    lag = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    one = np.eye(n)
    mixed = [share * rho**lag + (1.0 - share) * one for rho in RHO for share in SHARES]
    return np.asarray(np.linalg.cholesky(np.array([one, *mixed])))


@lru_cache(maxsize=8)
def _average_factors(n: int) -> FloatArray:
    """The same of averages over k rows, the first rows over k too, or over what there is."""
    i = np.arange(n)
    lag = np.abs(np.subtract.outer(i, i))
    tiny = 1e-6 * np.eye(n)
    windows = range(3, min(n // 3, WIDEST) + 1)
    full = [np.maximum(k - lag, 0) / k + tiny for k in windows]
    growing = []
    for k in windows:
        size = np.minimum(i + 1, k)
        start = i + 1 - size
        shared = np.minimum.outer(i, i) + 1 - np.maximum.outer(start, start)
        growing.append(k * np.maximum(shared, 0) / np.outer(size, size) + tiny)
    return np.asarray(np.linalg.cholesky(np.array([*full, *growing])))
