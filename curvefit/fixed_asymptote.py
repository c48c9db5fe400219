"""B of two recipes that agree in A: ScaleRL's refit with the mean A, and its straight line.

If two asymptotes lie within the margin of 0.02, all are refitted with their mean and B is compared
(arXiv 2510.13786, appendix A.5). With A fixed the curve is F(R) = (C / C_mid)^B in the odds of the
gain, and the paper draws ln F against ln C, a line of slope B (its leave-one-out figure).

The refit is the ordinary search mirrored: 1 − s(C; c, B) is a sigmoid in 1/C, in which A is the
score at zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from curvefit.estimate import PointFit
from curvefit.fitted import Fit
from curvefit.laws import LAWS
from curvefit.marginal import log_compute
from curvefit.normal import normal_cdf, normal_quantile
from curvefit.projection import Search
from curvefit.runs import Run
from curvefit.window import bounds_of

__all__ = ["MARGIN", "FixedA", "compare_at_fixed_A", "linearised", "refit"]

FloatArray = NDArray[np.float64]

MARGIN = 0.02  # asymptotes this close count as equal
WITHIN = (2.0, 1.0)  # e-folds below the first and above the last compute, searched densely
SPARSE = 8.0  # e-folds that the search covers sparsely at the far end of its box


class FixedA(NamedTuple):
    """B of two recipes with A held at their mean; `ratio` is first over second."""

    A: float
    B_first: float
    B_second: float
    ratio: float
    low: float
    high: float
    probability: float


def refit(run: Run, A: float) -> PointFit:
    """Fit B, C_mid and R0 of the sigmoid by least squares with A held fixed."""
    x = log_compute(run.compute)
    positive = x[np.isfinite(x)]
    low, high = LAWS["sigmoid"].B_range
    box = (
        -float(positive[-1]) - WITHIN[1],
        -float(positive[0]) + WITHIN[0] + SPARSE,
        math.log(low),
        math.log(high),
    )
    mirrored = np.where(np.isfinite(x), -x, 1000.0)
    u, b, found = Search("sigmoid", mirrored, run.score, None, A, bounds_of(run), box).run()
    return PointFit("sigmoid", A, math.exp(b), math.exp(-u), found.A, found.rss)


def linearised(run: Run, point: PointFit) -> tuple[FloatArray, FloatArray]:
    """The points (ln C, ln F(R)) of a run; those outside (R0, A), which have no F, are left out.

    F(R) = C_mid^B / ((A − R0)/(R − R0) − 1), so that ln F = B ln C on the curve.
    """
    C, y = run.compute, run.score
    inside = (C > 0) & (y > point.R0) & (y < point.A)
    odds = (y[inside] - point.R0) / (point.A - y[inside])
    return np.log(C[inside]), point.B * math.log(point.C_mid) + np.log(odds)


def compare_at_fixed_A(
    first: Sequence[Fit], second: Sequence[Fit], A: float, spread: float, level: float
) -> FixedA:
    """Compare B of two recipes, each a sequence of seeds, with A held at `A`.

    The value is the refit's, averaged over seeds in ln B. Its error is the part of ln B's posterior
    spread that A does not explain, and `spread`, the seed spread of ln B, taken as normal.
    """
    (b1, v1), (b2, v2) = (_ln_B(fits, A, spread) for fits in (first, second))
    sd = math.sqrt(v1 + v2)
    z = float(normal_quantile(np.array([0.5 + level / 2.0]))[0])
    gap = b1 - b2
    low, high = math.exp(gap - z * sd), math.exp(gap + z * sd)
    probability = float(normal_cdf(np.array([gap / sd]))[0])
    return FixedA(A, math.exp(b1), math.exp(b2), math.exp(gap), low, high, probability)


def _ln_B(fits: Sequence[Fit], A: float, spread: float) -> tuple[float, float]:
    """Mean of ln B over seeds at fixed A, and its variance."""
    values = [math.log(refit(fit.run, A).B) for fit in fits]
    variances = [_left_by_A(fit) + spread**2 for fit in fits]
    return sum(values) / len(values), sum(variances) / len(values) ** 2


def _left_by_A(fit: Fit) -> float:
    """Variance of ln B given A: what a straight line in A leaves of it."""
    a = fit.sigmoid
    assert a is not None
    dA, db = a.A - a.weight @ a.A, np.log(a.B) - a.weight @ np.log(a.B)
    var_A, var_b, cov = (float(a.weight @ v) for v in (dA * dA, db * db, dA * db))
    return max(var_b - cov**2 / var_A, 0.0) if var_A > 0 else var_b
