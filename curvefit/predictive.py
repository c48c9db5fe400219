"""What a fit expects of compute still to come, as equally likely values, one an atom.

The one place where backtests, comparisons and decisions take forecasts from a `Fit`: whatever the
forecast learns to allow for reaches all three through here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from curvefit.atoms import Atoms
from curvefit.errors import InputError
from curvefit.fitted import Fit
from curvefit.marginal import log_compute

__all__ = ["crps", "curves", "forecaster_of", "mean_observed", "quantiles"]

FloatArray = NDArray[np.float64]


def forecaster_of(fit: Fit) -> Atoms:
    """Return the equally weighted atoms that forecast.

    Raises
    ------
    InputError
        If the method gives none.
    """
    if fit.forecaster is None:
        raise InputError(f"method {fit.method!r} gives no probabilities; use method='posterior'")
    return fit.forecaster


def curves(fit: Fit, C: FloatArray, *, every: int = 1) -> FloatArray:
    """Score of equally likely mean curves at compute C of shape (k,): shape (M, k).

    `every` > 1 takes a fair part of the curves: the first 1/`every` of them.
    """
    atoms = forecaster_of(fit)
    if every > 1:
        atoms = atoms.take(np.arange(len(atoms) // every))
    return atoms.curve(log_compute(C))


def mean_observed(fit: Fit, C: FloatArray) -> FloatArray:
    """What the mean of evaluations, one at each compute of C, may turn out to be: shape (2M,).

    The mean curve over C, the run noise that the last evaluation hands on and that neighbouring
    evaluations share, and the evaluation noise, which averages out. Each atom errs by its own draw
    and by its opposite. C lies beyond the data.
    """
    atoms = forecaster_of(fit)
    mean, spread = atoms.curve(log_compute(C)).mean(axis=1), atoms.white / len(C)
    ahead = _evaluations_ahead(fit, C)
    for rho in np.unique(atoms.rho):
        chosen = atoms.rho == rho
        memory = rho**ahead
        fresh = rho ** np.abs(ahead[:, None] - ahead) - memory[:, None] * memory
        kept = float(memory.mean())
        mean[chosen] += atoms.last[chosen] * kept
        spread[chosen] += atoms.last_var[chosen] * kept**2 + atoms.run[chosen] * fresh.mean()
    error = atoms.draw * np.sqrt(spread)
    values = np.concatenate([mean + error, mean - error])
    return np.clip(values, 0.0, 1.0) if fit.run.bounded else values


def _evaluations_ahead(fit: Fit, C: FloatArray) -> FloatArray:
    """Distance of each compute from the last evaluation, in typical spacings."""
    seen = fit.run.compute
    spacing = max(float(np.median(np.diff(seen))), 1e-300)
    return np.asarray(np.clip((C - seen[-1]) / spacing, 0.0, 1e4))


def quantiles(values: FloatArray, *p: float) -> tuple[float, ...]:
    """Quantiles of equally likely values."""
    return tuple(np.quantile(values, p, method="hazen").tolist())


def crps(values: FloatArray, y: float) -> float:
    """Continuous ranked probability score of equally likely values when y is seen; 0 is best.

    E|X − y| − ½ E|X − X′|, in the unit of y (Gneiting and Raftery, JASA 102 (2007) 359, eq. 21).

    >>> crps(np.array([0.0, 1.0]), 0.5)
    0.25
    """
    x = np.sort(values)
    M = len(x)
    rank = 2.0 * np.arange(1, M + 1) - M - 1.0
    return float(np.abs(x - y).mean() - (rank @ x) / M**2)
