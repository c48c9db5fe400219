"""Small statistics of a series of scores or residuals, free of any model.

Each function takes an array of shape (n,) and returns plain numbers. None depends on the unit: a
series and its multiple give the same correlations, runs and ratios.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["SignRuns", "jitter", "lag_1", "rms_jitter", "roughness", "sign_runs"]

FloatArray = NDArray[np.float64]

NORMAL_MAD = 0.6744897501960817  # median |z| of a standard normal number


class SignRuns(NamedTuple):
    """Stretches of residuals of one sign, their expected number, and the standard score."""

    seen: int
    expected: float
    z: float


def _unit(series: FloatArray) -> FloatArray:
    """The series in units of its largest magnitude, so that squares neither vanish nor overflow."""
    largest = float(np.abs(series).max()) if len(series) else 0.0
    return series / largest if largest > 0.0 else series


def jitter(y: FloatArray) -> float:
    """Standard deviation of independent noise from the median second difference, 0 below 4 points.

    Var(y_i − 2 y_{i+1} + y_{i+2}) = 6 σ² for white noise; a smooth trend hardly enters, and the
    median ignores single jumps.
    """
    if len(y) < 4:
        return 0.0
    return float(np.median(np.abs(np.diff(y, 2))) / (NORMAL_MAD * np.sqrt(6.0)))


def rms_jitter(y: FloatArray) -> float:
    """The same from the mean square, steadier on clean rows; a jump makes it larger."""
    if len(y) < 4:
        return 0.0
    largest = float(np.abs(y - y[0]).max())
    return largest * float(np.sqrt(np.mean(np.diff(_unit(y - y[0]), 2) ** 2) / 6.0))


def lag_1(r: FloatArray) -> float:
    """Correlation of neighbouring residuals, Σ r_i r_{i+1} / Σ r_i²; 0 when all vanish."""
    r = _unit(r)
    total = float(r @ r)
    return float(r[1:] @ r[:-1]) / total if total > 0.0 else 0.0


def sign_runs(r: FloatArray) -> SignRuns:
    """Wald and Wolfowitz's (1940) count of runs of sign among n residuals.

    Given n₊ positive and n₋ other residuals in random order, the count has mean
    μ = 1 + 2 n₊ n₋ / n and variance (μ − 1)(μ − 2)/(n − 1); z is 0 when fewer than 2 of either.
    """
    positive = r > 0
    n, plus = len(r), int(positive.sum())
    count = 1 + int((positive[1:] != positive[:-1]).sum())
    mean = 1.0 + 2.0 * plus * (n - plus) / n
    if min(plus, n - plus) < 2:
        return SignRuns(count, mean, 0.0)
    sd = np.sqrt((mean - 1.0) * (mean - 2.0) / (n - 1))
    return SignRuns(count, mean, float((count - mean) / sd))


def roughness(r: FloatArray) -> float:
    """Mean squared third over mean squared second difference.

    10/3 for white noise, 3 for a random walk and for a boxcar average, below 1 for what a spline
    or a Gaussian kernel made even. Infinite when the second differences vanish.
    """
    second = np.diff(_unit(r), 2)
    total = float(np.mean(second**2))
    return float(np.mean(np.diff(second) ** 2)) / total if total > 0.0 else float("inf")
