"""`skip="auto"`: the early transient of a run, found or not, and what leaving it out is based on.

The first evaluations of a run may stand off the curve that all later ones follow: a dip while the
policy unlearns its old format, a plateau while learning rate and optimiser warm up, a spike. Early
are the points with 0 < C ≤ 0.25 C_mid, never step 0, and never more than the first quarter of the
data. A fit of all the others, step 0 among them, predicts them, with the spread of its curves and
its noise; then

- their Mahalanobis distance from the prediction, as an F ratio, exceeds its 90 % point: some early
  point is off; or
- one offset that decays over 0.5 to 8 evaluations lies 2.2 of its standard errors from 0: all are
  off together, each by little.

Either makes a transient. Left out are the first points up to the last that must go for the early
ones that remain to agree with the prediction. Both thresholds were set on simulated runs, where
either fires in 2 to 4 % of clean ones (`benchmarks/transients.py` measures that, and the power).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from curvefit.atoms import STRIDE
from curvefit.digits import compute, significant
from curvefit.noise import evaluation_distance
from curvefit.predictive import curves, forecaster_of
from curvefit.runs import Dropped, Note, Run
from curvefit.units import x_words
from curvefit.window import TRANSIENT
from curvefit.wording import count

if TYPE_CHECKING:
    from curvefit.fitted import Fit

__all__ = ["EARLY", "without_transient"]

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]

EARLY = 0.25  # of C_mid, and of the last compute
MIN_OTHERS = 8  # points that predict the early ones
DECAYS = (0.5, 1.0, 2.0, 4.0, 8.0)  # evaluations
OFF_Z, OFFSET_Z = 1.28, 2.2  # that make a transient
AGREE_Z, AGREE_OFFSET_Z = 0.4, 1.0  # below which what is left agrees


class Expected(NamedTuple):
    """What the other points say of k early ones: mean (k,), covariance (k, k), how many say so."""

    mean: FloatArray
    covariance: FloatArray
    others: int


def without_transient(run: Run, fit: Callable[..., Fit]) -> Run:
    """Return the run without its early transient, if one is found, and with a note either way.

    Parameters
    ----------
    run : Run
    fit : callable
        `curvefit.fit`, which fits the other points.
    """
    early = _early(run, float(fit(run, law="sigmoid").params["C_mid"].value))
    if not early.any() or len(run) - early.sum() < MIN_OTHERS:
        return _noted(run, f"skip auto: {_too_few(run, early)}, so no transient is looked for")
    others = fit(run.take(~early), law="sigmoid")
    still = early & _early(run, float(others.params["C_mid"].value))
    if still.any() and (still != early).any():
        early, others = still, fit(run.take(~still), law="sigmoid")
    off = run.score[early] - (expected := _expected(others, run, early)).mean
    k = _length(off, expected)
    if k == 0:
        among = f"{count(len(off), 'early point')} (up to {_compute(run, early, -1)})"
        return _noted(run, f"skip auto: no early transient in {among}")
    return _left_out(run, early, k, float(off[:k][np.abs(off[:k]).argmax()]))


def _early(run: Run, C_mid: float) -> Mask:
    C = run.compute
    return np.asarray((C > 0.0) & (C <= EARLY * min(C_mid, float(C[-1]))))


def _compute(run: Run, early: Mask, i: int) -> str:
    """The compute of the i-th early point in words."""
    return f"{compute(float(run.compute[early][i]))} {x_words(run)}"


def _too_few(run: Run, early: Mask) -> str:
    if early.any():
        return f"only {len(run) - int(early.sum())} points lie beyond {EARLY:g} C_mid"
    return f"no point lies between 0 and {EARLY:g} C_mid"


def _noted(run: Run, message: str) -> Run:
    return replace(run, notes=(*run.notes, Note(TRANSIENT, message)))


def _left_out(run: Run, early: Mask, k: int, worst: float) -> Run:
    """The run without its first k early points, and why."""
    first = np.flatnonzero(early)[:k]
    keep = np.ones(len(run), dtype=bool)
    keep[first] = False
    others = "step 0 and the later points" if run.compute[0] == 0.0 else "the later points"
    side = "above" if worst > 0 else "below"
    off = f"up to {significant(abs(worst), 2)} {side} what {others} predict"
    message = (
        f"skip auto: early transient, {count(k, 'point')} left out (up to "
        f"{_compute(run, early, k - 1)}), {off}"
    )
    why = f"early transient, {off} (skip auto)"
    dropped = tuple(Dropped(int(row), why) for row in run.row[first])
    kept = run.take(keep)
    return _noted(replace(kept, dropped=(*kept.dropped, *dropped)), message)


# ---------------------------------------------------------------- prediction and test


def _expected(others: Fit, run: Run, early: Mask) -> Expected:
    """What a fit of the other points predicts for the early evaluations.

    The covariance over curves plus that of the noise, averaged over curves. What the neighbouring
    points say of the run noise is left out, which makes the prediction a little too wide.
    """
    curve = curves(others, run.compute[early], every=STRIDE)
    off = curve - curve.mean(axis=0)
    a = forecaster_of(others)
    at = np.append(0.0, np.cumsum(evaluation_distance(run.compute)))[early]
    apart = np.abs(at[:, None] - at)
    noise = float(a.white.mean()) * np.eye(len(at))
    for rho in np.unique(a.rho[a.run > 0.0]).tolist():
        noise += float(np.where(a.rho == rho, a.run, 0.0).mean()) * rho**apart
    return Expected(curve.mean(axis=0), off.T @ off / len(off) + noise, len(others.run))


def _length(off: FloatArray, expected: Expected) -> int:
    """How many of the first early points are a transient, 0 if there is none."""
    distance, offset = _scores(off, expected)
    if distance <= OFF_Z and offset <= OFFSET_Z:
        return 0
    for k in range(1, len(off)):
        rest = Expected(expected.mean[k:], expected.covariance[k:, k:], expected.others)
        distance, offset = _scores(off[k:], rest)
        if distance <= AGREE_Z and offset <= AGREE_OFFSET_Z:
            return k
    return len(off)


def _scores(off: FloatArray, expected: Expected) -> tuple[float, float]:
    """Normal scores of the distance and of the largest decaying offset.

    The squared distance over k is taken for an F ratio of k and (others − 4) degrees of freedom
    and turned into a normal score by Paulson's cube root (Annals of Mathematical Statistics 13
    (1942) 233). The generalised least-squares estimate of an offset t has the score
    tᵀS⁻¹off / √(tᵀS⁻¹t).
    """
    k = len(off)
    templates = np.exp(-np.arange(k) / np.array(DECAYS)[:, None])
    solved = np.linalg.solve(expected.covariance, np.column_stack([off, templates.T]))
    F = float(off @ solved[:, 0]) / k
    a, b = 2.0 / (9.0 * k), 2.0 / (9.0 * (expected.others - 4))
    root = F ** (1.0 / 3.0)
    distance = ((1.0 - b) * root - (1.0 - a)) / np.sqrt(b * root**2 + a)
    size = np.einsum("tk,kt->t", templates, solved[:, 1:])
    return float(distance), float(np.abs(templates @ solved[:, 0] / np.sqrt(size)).max())
