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

from curvefit.batch_search import Rows, Task, compress_rows, fit_rows, grid_start
from curvefit.compressed import compress
from curvefit.errors import InputError
from curvefit.estimate import UNBOUNDED, PointFit, least_squares
from curvefit.laws import LAWS
from curvefit.marginal import Bounds, log_compute, shape_box
from curvefit.projection import ZERO_COMPUTE

__all__ = ["PointFits", "bootstrap", "least_squares_many"]

FloatArray = NDArray[np.float64]

BLOCK = 1000  # rows worked on together: what fits in the cache
DEVIATIONS = 6.0  # of the spread of resamples that the compressed shapes cover


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
        start = grid_start(task, space, rows)
        blocks.append(fit_rows(task, space, rows, *start, block.__getitem__))
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
    box = shape_box(np.sort(x), law)
    task = Task(law, x, root_w, r0, bounds, box, box)
    resampler = _Resampler(task, fit, y, fit(C))
    rng = np.random.default_rng(seed)
    blocks = [resampler.fit(rng, min(BLOCK, count - i)) for i in range(0, count, BLOCK)]
    return _point_fits(law, np.concatenate(blocks, axis=1))


class _Resampler:
    """Draws rows of residuals, adds them to the fitted curve, and fits again.

    Rows are never written out: with residuals D (in units of their standard deviations) all that a
    fit needs of the row m + D is D times a few columns.
    """

    def __init__(self, task: Task, fit: PointFit, y: FloatArray, middle: FloatArray) -> None:
        self.root_w = np.ones(len(y)) if task.root_w is None else task.root_w
        self.middle, self.residual = middle, (y - middle) * self.root_w
        self.u, self.b = math.log(fit.C_mid), math.log(fit.B)
        self.response = _response(task, fit, self.root_w)
        spread = DEVIATIONS * np.sqrt(np.mean(self.residual**2) * (self.response**2).sum(axis=1))
        du, db = np.clip(spread, 1e-3, 2.0)
        u0, u1, b0, b1 = task.box
        near = (
            max(self.u - du, u0),
            min(self.u + du, u1),
            max(self.b - db, b0),
            min(self.b + db, b1),
        )
        self.task = task._replace(near=near)
        self.space = compress(LAWS[task.law], task.x, task.root_w, near)
        self.level = float(self.root_w**2 @ middle) / self.space.n
        self.centred = (middle - self.level) * self.root_w

    def fit(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Fit `count` resamples: A, B, c, R0 and RSS, shape (5, count)."""
        n, space = len(self.middle), self.space
        D = self.residual[rng.integers(0, n, (count, n), dtype=np.uint16)]
        columns = np.concatenate([space.E.T, self.response, self.root_w[None], self.centred[None]])
        product = columns @ D.T
        shift = product[-2] / space.n
        z = product[:-4] + (self.centred @ space.E)[:, None] - np.outer(space.sums, shift)
        yy = np.einsum("ij,ij->i", D, D) + 2.0 * product[-1] - space.n * shift * shift
        rows = Rows(z, self.level + shift, yy + float(self.centred @ self.centred))
        near = self.task.near
        u = np.clip(self.u + product[-4], near[0], near[1])
        b = np.clip(self.b + product[-3], near[2], near[3])
        return fit_rows(self.task, space, rows, u, b, lambda i: self.middle + D[i] / self.root_w)


def _response(task: Task, fit: PointFit, root_w: FloatArray) -> FloatArray:
    """Change of ln c and ln B per unit of (weighted) noise at each point, shape (2, n)."""
    x = np.maximum(task.x, ZERO_COMPUTE)
    s, g, h = rows = np.empty((3, len(x)))
    LAWS[task.law].gradient(x - math.log(fit.C_mid), fit.B, rows)
    rise = fit.A - fit.R0
    J = np.stack([-rise * g, rise * h, s, 1.0 - s]) * root_w
    held = [False, task.box[2] == task.box[3], fit.A >= task.bounds.high]
    held.append(task.r0 is not None or fit.R0 <= task.bounds.low)
    J[np.array(held)] = 0.0
    gram = J @ J.T
    gram += np.diag(1e-12 * np.diag(gram) + 1e-300 + np.array(held))
    return np.asarray(np.linalg.solve(gram, J)[:2], dtype=float)


def _point_fits(law: str, values: FloatArray) -> PointFits:
    A, B, C_mid, R0, rss = values
    return PointFits(law, A, B, C_mid, R0, rss)
