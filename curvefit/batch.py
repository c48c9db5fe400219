"""Many point fits at once: thousands of series on one compute axis, or resamples of one run.

The search is that of `projection`, carried out for all rows together (`batch_search`) on shapes
compressed to a few points (`compressed`), so that a row costs microseconds. Rows that end in doubt
are fitted one by one: the result is the same as fitting each alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from curvefit.batch_search import Task, compress_rows, fit_rows, grid_start
from curvefit.compressed import Box, compress
from curvefit.errors import InputError
from curvefit.estimate import UNBOUNDED, PointFit, least_squares
from curvefit.laws import LAWS
from curvefit.marginal import Bounds, log_compute, shape_box
from curvefit.projection import ZERO_COMPUTE

__all__ = ["PointFits", "bootstrap", "least_squares_many"]

FloatArray = NDArray[np.float64]

BLOCK = 1000  # rows worked on together: what fits in the cache


@dataclass(frozen=True, slots=True, eq=False)
class PointFits:
    """Fitted curves without uncertainty; every array has shape (R,).

    Attributes
    ----------
    law : str
    A, B, C_mid, R0 : ndarray
        For laws other than the sigmoid, C_mid is the scale c.
    rss : ndarray
        (Weighted) residual sums of squares.
    """

    law: str
    A: FloatArray
    B: FloatArray
    C_mid: FloatArray
    R0: FloatArray
    rss: FloatArray

    def __len__(self) -> int:
        return len(self.A)

    def __getitem__(self, i: int) -> PointFit:
        """The fit of row i."""
        A, B, C_mid, R0, rss = (
            float(v[i]) for v in (self.A, self.B, self.C_mid, self.R0, self.rss)
        )
        return PointFit(self.law, A, B, C_mid, R0, rss)


def least_squares_many(
    C: ArrayLike,
    Y: ArrayLike,
    *,
    law: str = "sigmoid",
    weights: ArrayLike | None = None,
    r0: float | None = None,
    bounds: Bounds = UNBOUNDED,
) -> PointFits:
    """Fit a law to each row of scores by (weighted) least squares.

    Parameters
    ----------
    C : array_like, shape (n,)
        Compute, not negative, not all equal, shared by all rows.
    Y : array_like, shape (R, n)
        Scores.
    law, weights, r0, bounds
        As in `estimate.least_squares`, the same for all rows.

    Raises
    ------
    InputError
        If the shapes do not fit together, or there are fewer than 3 points.

    Examples
    --------
    >>> from curvefit.laws import curve
    >>> C = [0, 1000, 2000, 4000, 8000, 16000]
    >>> Y = [curve(C, A=A, B=1.92, C_mid=2542, R0=0.3) for A in (0.58, 0.61)]
    >>> least_squares_many(C, Y).A.round(6)
    array([0.58, 0.61])
    """
    x, Y = log_compute(np.asarray(C, dtype=float)), np.asarray(Y, dtype=float)
    if Y.ndim != 2 or Y.shape[1:] != x.shape:
        raise InputError(f"scores of shape {Y.shape} do not fit {len(x)} computes: give (R, n)")
    ordered = np.sort(x)
    if len(x) < 3 or ordered[0] == ordered[-1]:
        raise InputError(f"{len(x)} points at one compute or fewer than 3: nothing to fit")
    box = shape_box(ordered, law)
    root_w = None if weights is None else np.sqrt(np.asarray(weights, dtype=float))
    task = Task(law, x, root_w, r0, bounds, box, box)
    space = compress(LAWS[law], x, root_w, box)
    blocks = []
    for block in _blocks(Y):
        rows = compress_rows(space, block, root_w)
        blocks.append(fit_rows(task, space, block, rows, *grid_start(task, space, rows)))
    return _point_fits(law, np.concatenate(blocks, axis=1))


def _blocks(Y: FloatArray) -> list[FloatArray]:
    return [Y[i : i + BLOCK] for i in range(0, max(len(Y), 1), BLOCK)]


def bootstrap(
    C: ArrayLike,
    y: ArrayLike,
    *,
    count: int = 1000,
    seed: int = 0,
    law: str = "sigmoid",
    weights: ArrayLike | None = None,
    r0: float | None = None,
    bounds: Bounds = UNBOUNDED,
) -> PointFits:
    """Refit resampled residuals (Efron 1979): the spread of the fits, were the noise independent.

    Evaluations of one run are not independent; see `curvefit.fit` for an interval that holds. With
    weights, the residuals are resampled in units of their standard deviations.

    Parameters
    ----------
    C, y : array_like, shape (n,)
    count : int
        Number of resamples.
    seed : int
        Of the resampling: the same seed gives the same fits.
    law, weights, r0, bounds
        As in `estimate.least_squares`.

    Returns
    -------
    PointFits
        `count` rows.
    """
    C, y = np.asarray(C, dtype=float), np.asarray(y, dtype=float)
    fit = least_squares(C, y, law=law, weights=weights, r0=r0, bounds=bounds)
    root_w = None if weights is None else np.sqrt(np.asarray(weights, dtype=float))
    x = log_compute(C)
    middle = fit(C)
    residual = y - middle if root_w is None else (y - middle) * root_w
    drawn = residual[np.random.default_rng(seed).integers(0, len(y), (count, len(y)))]
    noise = drawn if root_w is None else drawn / root_w
    box = shape_box(np.sort(x), law)
    task = Task(law, x, root_w, r0, bounds, box, box)
    u, b = _response(task, fit, noise)
    task = task._replace(near=_around(u, b, box))
    space = compress(LAWS[law], x, root_w, task.near)
    u, b = np.clip(u, *task.near[:2]), np.clip(b, *task.near[2:])
    blocks = []
    for i, block in zip(range(0, count, BLOCK), _blocks(middle + noise), strict=True):
        rows = compress_rows(space, block, root_w)
        part = slice(i, i + BLOCK)
        blocks.append(fit_rows(task, space, block, rows, u[part], b[part]))
    return _point_fits(law, np.concatenate(blocks, axis=1))


def _point_fits(law: str, values: FloatArray) -> PointFits:
    A, B, C_mid, R0, rss = values
    return PointFits(law, A, B, C_mid, R0, rss)


def _response(task: Task, fit: PointFit, noise: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ln c and ln B that each row of noise would lead to, were the fit linear in its parameters."""
    u, b = math.log(fit.C_mid), math.log(fit.B)
    x = np.maximum(task.x, ZERO_COMPUTE)
    rows = np.empty((3, len(x)))
    LAWS[task.law].gradient(x - u, fit.B, rows)
    s, g, h = rows
    J = np.stack([-(fit.A - fit.R0) * g, (fit.A - fit.R0) * h, s, 1.0 - s])
    free = [True, task.box[2] < task.box[3], fit.A < task.bounds.high]
    free.append(task.r0 is None and fit.R0 > task.bounds.low)
    J[~np.array(free)] = 0.0
    one = np.ones(len(x)) if task.root_w is None else task.root_w
    J = J * one
    gain = np.linalg.pinv(J @ J.T, rcond=1e-12, hermitian=True)[:2] @ J * one
    du, db = gain @ noise.T
    return u + np.clip(du, -2.0, 2.0), b + np.clip(db, -1.0, 1.0)


def _around(u: FloatArray, b: FloatArray, box: Box) -> Box:
    """The part of the box that holds the starts, with room on every side."""
    du, db = 0.5 * float(np.ptp(u)) + 1e-3, 0.5 * float(np.ptp(b)) + 1e-3
    return (
        max(float(u.min()) - du, box[0]),
        min(float(u.max()) + du, box[1]),
        max(float(b.min()) - db, box[2]),
        min(float(b.max()) + db, box[3]),
    )
