"""Whether a second rise explains a run better than one law and correlated noise do.

Run noise with a correlation of 0.9 from one evaluation to the next looks like a slow drift, and a
slow drift looks like run noise: residuals alone cannot tell. Here both explanations compete under
the same noise models. The score is R0 + a·s(C) + b·s₂(C), with s the shape of any law that fits and
s₂ a rise with its midpoint in the later part of the run; noise as in `noise`. Compared are

    ln mean over s₂ of  Σ over noise of max over s of the likelihood with b > 0
    ln               Σ over noise of max over s of the likelihood with b = 0

R0, a and b by generalised least squares. The mean over s₂ charges for having chosen among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from curvefit.laws import LAWS
from curvefit.marginal import log_compute
from curvefit.noise import e_folds, evaluation_distance, noise_grid, whiten

if TYPE_CHECKING:
    from curvefit.fitted import Fit
    from curvefit.runs import Run

__all__ = ["SecondRise", "second_rise"]

FloatArray = NDArray[np.float64]

MOST_POINTS = 240  # longer runs are thinned to fewer
ATOMS = 64  # curves of the forecast whose shapes are tried for the first rise
FIRST_MIDPOINTS, FIRST_STEEPNESS = 16, (0.7, 1.1, 1.8, 3.0, 5.0)
SECOND_MIDPOINTS, SECOND_STEEPNESS = 14, (1.5, 4.0, 8.0)
LATER, BEYOND = 0.42, 0.5  # from this part of the range of ln C on, to so many e-folds beyond it
LIKE = 1e-3  # a second rise that is so much like the first is none


class SecondRise(NamedTuple):
    """The second rise that explains most: its midpoint, its size, and what it is worth.

    `nats` is the logarithm of the ratio of likelihoods, averaged over second rises.
    """

    midpoint: float
    size: float
    nats: float


class _Explained(NamedTuple):
    """What columns explain of the data after whitening, the mean taken out.

    `first` and `second` have shapes (J, n, r); `score` (J, n).
    """

    first: FloatArray
    second: FloatArray
    score: FloatArray


def second_rise(fit: Fit) -> SecondRise:
    """Weigh a second rise against one law; `fit` has a posterior."""
    every = -(-len(fit.run) // MOST_POINTS)
    run = fit.run.take(slice(None, None, every))
    x = log_compute(run.compute)
    ln_c, first, second = _shapes(fit, x)
    noise = noise_grid(run.score, run.n_eval if run.bounded else None)
    columns = np.column_stack([np.ones(len(x)), run.score - run.score.mean(), first, second])
    white = whiten(noise, evaluation_distance(run.compute), e_folds(x), columns)
    rss, rss_both, size = _residuals(_centred(white.columns, first.shape[1]))
    constant = (noise.log_prior - 0.5 * white.log_det)[:, None]
    one = constant[:, 0] + _log_likelihood(rss, run, noise.scale_known).max(axis=1)
    both = np.where(size > 0.0, _log_likelihood(rss_both, run, noise.scale_known), -np.inf)
    each = np.logaddexp.reduce(constant + both.max(axis=1), axis=0)
    j, i, k = np.unravel_index((constant[:, :, None] + both).argmax(), both.shape)
    nats = np.logaddexp.reduce(each) - np.log(len(each)) - np.logaddexp.reduce(one)
    return SecondRise(float(np.exp(ln_c[k])), float(size[j, i, k]), float(nats))


def _shapes(fit: Fit, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Midpoints (ln) of the second rises; shapes of the first and of the second rise, (n, r)."""
    assert fit.forecaster is not None
    low, high = float(x[np.isfinite(x)][0]), float(x[-1])
    atoms = fit.forecaster.take(np.arange(ATOMS))
    first = []
    for i, law in enumerate(LAWS.values()):
        of_law = atoms.law == i
        first.append(law.s(x[:, None] - atoms.ln_c[of_law], atoms.B[of_law]))
    s = LAWS["sigmoid"].s
    u, B = np.meshgrid(np.linspace(low - 1.0, high + 1.0, FIRST_MIDPOINTS), FIRST_STEEPNESS)
    first.append(s(x[:, None] - u.ravel(), B.ravel()))
    start, end = low + LATER * (high + BEYOND - low), high + BEYOND
    u, B = np.meshgrid(np.linspace(start, end, SECOND_MIDPOINTS), SECOND_STEEPNESS)
    return u.ravel(), np.concatenate(first, axis=1), s(x[:, None] - u.ravel(), B.ravel())


def _centred(white: FloatArray, firsts: int) -> _Explained:
    """Take R0 out of the whitened columns (1, score, shapes), shape (J, n, r)."""
    one, rest = white[:, :, :1], white[:, :, 1:]
    of_one = np.swapaxes(one, 1, 2) @ rest / (one * one).sum(axis=1, keepdims=True)
    rest = rest - one * of_one
    return _Explained(rest[:, :, 1 : 1 + firsts], rest[:, :, 1 + firsts :], rest[:, :, 0])


def _residuals(e: _Explained) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Residual sums of squares with the first rise (J, r₁), with both, and b (J, r₁, r₂)."""
    y = e.score[:, :, None]
    of_y, of_first, of_second = ((v * v).sum(axis=1) for v in (y, e.first, e.second))
    first_y = (np.swapaxes(e.first, 1, 2) @ y)[:, :, 0]
    second_y = (np.swapaxes(e.second, 1, 2) @ y)[:, :, 0]
    cross = np.swapaxes(e.first, 1, 2) @ e.second
    of_first = np.maximum(of_first, 1e-12)
    left = of_second[:, None, :] - cross**2 / of_first[:, :, None]
    distinct = left > LIKE * of_second[:, None, :]
    left = np.where(distinct, left, 1.0)
    more = np.where(distinct, second_y[:, None, :] - cross * (first_y / of_first)[:, :, None], 0.0)
    rising = of_y - np.maximum(first_y, 0.0) ** 2 / of_first
    free = of_y - first_y**2 / of_first
    return rising, free[:, :, None] - more**2 / left, more / left


def _log_likelihood(rss: FloatArray, run: Run, scale_known: bool) -> FloatArray:
    """Ln likelihood but for constants of the noise model; an unknown scale at its maximum."""
    if scale_known:
        return -0.5 * rss
    floor = len(run) * (1e-6 * float(np.ptp(run.score))) ** 2
    return -0.5 * len(run) * np.log(rss + floor)
