"""Point fits by (weighted) least squares: no starting values, no local minima to fall into.

`least_squares` checks its input, lets `projection.Search` find the shape (variable projection) and
returns a `PointFit`: the curve, without uncertainty.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from curvefit.errors import InputError
from curvefit.laws import LAWS, curve
from curvefit.marginal import Bounds, log_compute, shape_box
from curvefit.projection import Search

__all__ = ["PointFit", "least_squares"]

FloatArray = NDArray[np.float64]

UNBOUNDED = Bounds(-float("inf"), float("inf"))


class PointFit(NamedTuple):
    """A fitted curve without uncertainty.

    Attributes
    ----------
    law : str
    A, B, C_mid, R0 : float
        For laws other than the sigmoid, C_mid is the scale c.
    rss : float
        (Weighted) residual sum of squares.
    edges : tuple of str
        The parameters that ended on a limit of their range.
    """

    law: str
    A: float
    B: float
    C_mid: float
    R0: float
    rss: float
    edges: tuple[str, ...] = ()

    def __call__(self, C: ArrayLike) -> FloatArray:
        """Score at compute C."""
        return curve(C, self.A, self.B, self.C_mid, self.R0, law=self.law)

    def reach(self, score: float) -> float:
        """Compute at which the curve reaches a score; infinite if it never does."""
        if score <= min(self.R0, self.A):
            return 0.0
        if score >= self.A:
            return float("inf")
        q = np.array((score - self.R0) / (self.A - self.R0))
        ln_C = np.log(self.C_mid) + LAWS[self.law].inverse(q, np.array(self.B))
        return float(np.exp(ln_C))


def least_squares(
    C: ArrayLike,
    y: ArrayLike,
    *,
    law: str = "sigmoid",
    weights: ArrayLike | None = None,
    r0: float | None = None,
    bounds: Bounds = UNBOUNDED,
) -> PointFit:
    """Fit a law by (weighted) least squares.

    Parameters
    ----------
    C : array_like, shape (n,)
        Compute, not negative, not all equal.
    y : array_like, shape (n,)
        Scores.
    law : str
        A key of `LAWS`.
    weights : array_like of shape (n,), optional
        Inverse variances, up to a common factor; n_eval serves.
    r0 : float, optional
        Fixes R0.
    bounds : Bounds
        low ≤ R0, A ≤ high.

    Returns
    -------
    PointFit

    Raises
    ------
    InputError
        If there are fewer than 3 points or all are at one compute.

    Examples
    --------
    >>> C = [0, 1000, 2000, 4000, 8000, 16000]
    >>> y = curve(C, A=0.61, B=1.92, C_mid=2542, R0=0.3)
    >>> fit = least_squares(C, y)
    >>> round(fit.A, 6), round(fit.B, 6), round(fit.C_mid, 3), round(fit.R0, 6)
    (0.61, 1.92, 2542.0, 0.3)
    """
    C, y = np.asarray(C, dtype=float), np.asarray(y, dtype=float)
    x = log_compute(C)
    ordered = np.sort(x)
    if len(C) < 3 or ordered[0] == ordered[-1]:
        raise InputError(f"{len(C)} points at one compute or fewer than 3: nothing to fit")
    root_w = None if weights is None else np.sqrt(np.asarray(weights, dtype=float))
    box = shape_box(ordered, law)
    u, b, best = Search(law, x, y, root_w, r0, bounds, box).run()
    edges = ["A"] * (best.A == bounds.high) + ["R0"] * (r0 is None and best.R0 == bounds.low)
    edges += ["C_mid"] * (u in box[:2]) + ["B"] * (box[2] < box[3] and b in box[2:])
    return PointFit(law, best.A, math.exp(b), math.exp(u), best.R0, best.rss, tuple(edges))
