"""Where the growth that a law promises ends: real runs stall before their law does.

Beyond the data an atom's growth stops for good at a random compute. The hazard in an e-fold of
compute is

    h = exp(−e/θ) / λ,    e = d ln s / d ln C,

e the local exponent of the gain so far: a run that still doubles its gain with every other doubling
of compute goes on, one that creeps along a tail stops after λ e-folds on average. λ and θ were
chosen on real runs, by what forecasts held-out sources best (docs/log.md, "The forecast learns from
real runs"); simulated runs that follow a law to its end are still covered.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from curvefit.laws import LAWS

__all__ = ["stops"]

FloatArray = NDArray[np.float64]

LENGTH = 1.0  # λ, e-folds
EXPONENT = 0.4  # θ
TINY = 1e-12  # shares of the gain below which its exponent is lost in rounding: nothing stops there
AHEAD = np.concatenate([np.arange(0.0, 2.0, 0.2), np.arange(2.0, 5.0, 0.5), np.arange(5.0, 13.0)])


def stops(law: str, ln_c: FloatArray, B: FloatArray, end: float, luck: FloatArray) -> FloatArray:
    """Ln C at which growth stops, +∞ where it does not within reach: shape (M,).

    Parameters
    ----------
    law : str
    ln_c, B : ndarray, shape (M,)
        The atoms' shapes.
    end : float
        ln C of the last evaluation.
    luck : ndarray, shape (M,)
        Uniform numbers: growth stops where the cumulated hazard reaches −ln(1 − luck).
    """
    s = LAWS[law].s(end + AHEAD[:, None] - ln_c, B)
    width = np.diff(AHEAD)[:, None]
    rising = s[:-1] > TINY
    ratio = np.where(rising, s[1:], 1.0) / np.where(rising, s[:-1], 1.0)
    exponent = np.log(np.maximum(ratio, 1.0)) / width
    hazard = np.where(rising, np.exp(-exponent / EXPONENT) / LENGTH, 0.0)
    cumulated = np.vstack([np.zeros(len(ln_c)), np.cumsum(hazard * width, axis=0)])
    wanted = -np.log1p(-luck)
    cell = (cumulated <= wanted).sum(axis=0) - 1
    inside = np.minimum(cell, len(width) - 1)
    atom = np.arange(len(ln_c))
    into = (wanted - cumulated[inside, atom]) / np.maximum(hazard[inside, atom], TINY)
    stop = AHEAD[inside] + into
    return np.where(cell < len(width), end + stop, np.inf)
