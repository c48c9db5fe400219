"""The laws: how far a run has come, s, between nothing (0) and everything it will reach (1).

Every law of the field has the form ::

    R(C) = R0 + (A − R0) · s(C; c, B)

A      asymptote: the score that the run approaches (same unit as the score, at most 1 for rates)
R0     the score at zero compute
c      scale: a compute; for the sigmoid it is C_mid, where half of A − R0 is gained
B      steepness: for the sigmoid the slope of the log-odds of s against ln C

Here c is a compute in the unit of the run and enters as ``ln_c``; B enters as ``ln_B``, so that
both coordinates run over the whole real line. `s` rises from 0 at C = 0 to 1 at C = ∞.

==============  ==========================  ====================================================
law             s(C)                        source
==============  ==========================  ====================================================
sigmoid         1 / (1 + (c/C)^B)           ScaleRL, arXiv 2510.13786, eq. 1 (Hill, log-logistic)
power           1 − (1 + C/c)^(−B)          shifted power law, its tail is A − D·C^(−B)
exponential     1 − exp(−C/c)               arXiv 2507.18014 (revision of December 2025)
weibull         1 − exp(−(C/c)^B)           Janoschek growth curve
gompertz        exp(−(c/C)^B)               Gompertz in ln C (Fréchet)
==============  ==========================  ====================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LAWS", "Law", "curve"]

FloatArray = NDArray[np.float64]
ShapeFunction = Callable[[FloatArray, FloatArray], FloatArray]

Z_MAX = 40.0  # |z| beyond this is s = 0 or 1 to the last digit, far from over- and underflow


class Law(NamedTuple):
    """One law as functions of d = ln C − ln c (any shape) and of B (broadcast against d).

    Attributes
    ----------
    name : str
    s : callable
        s(d, B), shape of the broadcast, in [0, 1].
    gradient : callable
        gradient(d, B, out) writes s, ds/dd (the gain per e-fold of compute) and ds/d(ln B) into
        the rows of out, shape (3, *d.shape); d is finite, B broadcasts against it.
    inverse : callable
        The d at which s reaches q, given (q, B), 0 < q < 1.
    B_range : tuple of float
        The steepness that fits and posteriors admit; equal ends mean that B is fixed.
    """

    name: str
    s: ShapeFunction
    gradient: Callable[[FloatArray, FloatArray | float, FloatArray], None]
    inverse: ShapeFunction
    B_range: tuple[float, float]

    @property
    def free_B(self) -> bool:
        """Whether the law has a steepness to fit."""
        return self.B_range[0] < self.B_range[1]


def _z(d: FloatArray, B: FloatArray | float) -> FloatArray:
    return np.minimum(np.maximum(B * d, -Z_MAX), Z_MAX)


def _sigmoid(d: FloatArray, B: FloatArray) -> FloatArray:
    s = np.tanh(0.5 * B * d)
    s *= 0.5
    s += 0.5
    return s


def _sigmoid_gradient(d: FloatArray, B: FloatArray | float, out: FloatArray) -> None:
    s, slope, bend = out
    np.multiply(d, 0.5 * B, out=bend)
    np.tanh(bend, out=s)
    s *= 0.5
    s += 0.5
    np.subtract(1.0, s, out=slope)
    slope *= s
    bend *= slope
    bend *= 2.0
    slope *= B


def _weibull(d: FloatArray, B: FloatArray) -> FloatArray:
    return -np.expm1(-np.exp(_z(d, B)))


def _weibull_gradient(d: FloatArray, B: FloatArray | float, out: FloatArray) -> None:
    z = _z(d, B)
    power = np.exp(z)
    out[0] = -np.expm1(-power)
    per_z = power * (1.0 - out[0])
    out[1], out[2] = B * per_z, z * per_z


def _exponential_gradient(d: FloatArray, B: FloatArray | float, out: FloatArray) -> None:
    _weibull_gradient(d, B, out)
    out[2] = 0.0


def _gompertz(d: FloatArray, B: FloatArray) -> FloatArray:
    return np.exp(-np.exp(-_z(d, B)))


def _gompertz_gradient(d: FloatArray, B: FloatArray | float, out: FloatArray) -> None:
    z = _z(d, B)
    power = np.exp(-z)
    out[0] = np.exp(-power)
    per_z = power * out[0]
    out[1], out[2] = B * per_z, z * per_z


def _power(d: FloatArray, B: FloatArray) -> FloatArray:
    return -np.expm1(-B * np.logaddexp(0.0, d))


def _power_gradient(d: FloatArray, B: FloatArray | float, out: FloatArray) -> None:
    folds = np.logaddexp(0.0, d)
    left = np.exp(-B * folds)
    share = np.exp(d - folds)
    out[0] = -np.expm1(-B * folds)
    out[1], out[2] = B * left * share, B * folds * left


LAWS: dict[str, Law] = {
    law.name: law
    for law in (
        Law(
            "sigmoid",
            _sigmoid,
            _sigmoid_gradient,
            inverse=lambda q, B: np.log(q / (1.0 - q)) / B,
            B_range=(0.25, 8.0),
        ),
        Law(
            "power",
            _power,
            _power_gradient,
            inverse=lambda q, B: np.log(np.expm1(-np.log1p(-q) / B)),
            B_range=(0.1, 8.0),
        ),
        Law(
            "exponential",
            _weibull,
            _exponential_gradient,
            inverse=lambda q, B: np.log(-np.log1p(-q)) / B,
            B_range=(1.0, 1.0),
        ),
        Law(
            "weibull",
            _weibull,
            _weibull_gradient,
            inverse=lambda q, B: np.log(-np.log1p(-q)) / B,
            B_range=(0.25, 8.0),
        ),
        Law(
            "gompertz",
            _gompertz,
            _gompertz_gradient,
            inverse=lambda q, B: -np.log(-np.log(q)) / B,
            B_range=(0.1, 8.0),
        ),
    )
}


def curve(
    C: ArrayLike, A: float, B: float, C_mid: float, R0: float, *, law: str = "sigmoid"
) -> FloatArray:
    """Score at compute C: R0 + (A − R0) · s(C; C_mid, B).

    Parameters
    ----------
    C : array_like
        Compute, not negative, in the unit of `C_mid`.
    A, B, C_mid, R0 : float
        Asymptote, steepness, scale and score at zero compute. For laws other than the sigmoid,
        `C_mid` is the scale c of the table above.
    law : str
        A key of `LAWS`.

    Returns
    -------
    ndarray, shape of `C`

    Examples
    --------
    ScaleRL's 100,000 GPU-hour run, Table 1, at its midpoint and far beyond:

    >>> curve([10909, 1e9], A=0.645, B=1.70, C_mid=10909, R0=0.40).round(4)
    array([0.5225, 0.645 ])
    """
    with np.errstate(divide="ignore"):
        d = np.log(np.asarray(C, dtype=float)) - np.log(C_mid)
    s: FloatArray = LAWS[law].s(d, np.asarray(B, dtype=float))
    return R0 + (A - R0) * s
