"""The published procedure of ScaleRL (arXiv 2510.13786, appendix A.5), to the letter.

A and C_mid run over a grid, B is fitted by least squares at every node, the node with the lowest
squared error wins. Points at or below the start of the fit, 1,500 GPU-hours, are left out.

What the paper leaves open, and what is done here:

R0      never said to be fitted or set. The first fitted evaluation, unless given: R0 of the drawn
        8B curve of figure 1a equals the first evaluation plotted (0.402) to digitising accuracy.
C_mid   printed as 100 linear values from 100 to 40,000, but the published values lie on 100 values
        from 100 to 4,000 or from 4,000 to 40,000 (`RANGES`). The printed range is the default.
B       no limits but B > 0; here 0.05 to 20, far beyond every published value (1.09 to 2.44).
        The paper calls scipy's `curve_fit` at each node; here all nodes are searched together: a
        scan of B, then damped Gauss-Newton steps, to the same minimum.

The result has the resolution of the grid, 0.005 in A, and depends on R0; `least_squares` and the
posterior do neither. Use this one to compare with published numbers.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from curvefit.errors import CurvefitWarning, InputError
from curvefit.estimate import PointFit

__all__ = ["A_GRID", "RANGES", "START", "scalerl_grid"]

FloatArray = NDArray[np.float64]

START = 1500.0  # GPU-hours
A_GRID = np.round(np.arange(0.450, 0.8001, 0.005), 3)
NODES = 100
RANGES = {"printed": (100.0, 40_000.0), "small": (100.0, 4_000.0), "large": (4_000.0, 40_000.0)}
B_LIMITS = (0.05, 20.0)
B_SCAN = 14
MAX_STEPS = 40
TOLERANCE = 1e-9  # of ln B


def scalerl_grid(
    C: ArrayLike,
    y: ArrayLike,
    *,
    r0: float | None = None,
    start: float = START,
    C_mid: str | tuple[float, float] = "printed",
) -> PointFit:
    """Fit the sigmoid by the published grid search.

    Parameters
    ----------
    C : array_like, shape (n,)
        GPU-hours of each evaluation.
    y : array_like, shape (n,)
        Pass rates, as fractions.
    r0 : float, optional
        The score at zero compute; the first fitted evaluation when left out.
    start : float
        Compute up to which evaluations are left out; 0 leaves out step 0 alone.
    C_mid : str or (float, float)
        Range of the C_mid grid: a key of `RANGES`, or its two ends.

    Returns
    -------
    PointFit
        `edges` names the parameters that ended on an edge of their grid.

    Warns
    -----
    CurvefitWarning
        If a parameter ended on an edge of its grid.

    Raises
    ------
    InputError
        If fewer than 3 evaluations lie beyond `start`, or the range is no range.

    Examples
    --------
    >>> from curvefit.laws import curve
    >>> C = np.linspace(0, 16000, 81)
    >>> y = curve(C, A=0.61, B=1.92, C_mid=2542.4, R0=0.3)
    >>> fit = scalerl_grid(C, y, r0=0.3, C_mid="small")
    >>> fit.A, round(fit.B, 2), round(fit.C_mid)
    (0.61, 1.92, 2542)
    """
    C, y = _fitted_part(np.asarray(C, dtype=float), np.asarray(y, dtype=float), start)
    R0 = float(y[0]) if r0 is None else float(r0)
    low, high = _range(C_mid)
    c_grid = np.linspace(low, high, NODES)
    ln_B, rss = _fit_B(np.log(C), y - R0, np.log(c_grid), A_GRID - R0)
    k, i = np.unravel_index(int(rss.argmin()), rss.shape)
    B = float(np.exp(ln_B[k, i]))
    edges = ["A"] * (i in (0, len(A_GRID) - 1)) + ["C_mid"] * (k in (0, NODES - 1))
    edges += ["B"] * (not B_LIMITS[0] * 1.001 < B < B_LIMITS[1] * 0.999)
    best = PointFit(
        "sigmoid", float(A_GRID[i]), B, float(c_grid[k]), R0, float(rss[k, i]), tuple(edges)
    )
    _warn(best, low, high)
    return best


def _fitted_part(C: FloatArray, y: FloatArray, start: float) -> tuple[FloatArray, FloatArray]:
    later = start < C
    if later.sum() >= 3:
        return C[later], y[later]
    last = float(C.max(initial=0.0))
    if last <= start:
        raise InputError(
            f"compute ends at {last:g} and the published procedure starts after {start:g} "
            "GPU-hours: convert compute to GPU-hours, or give a lower start"
        )
    raise InputError(
        f"{int(later.sum())} evaluations lie beyond the start of {start:g} GPU-hours, the "
        "published procedure needs 3: log more evaluations, or give a lower start"
    )


def _range(C_mid: str | tuple[float, float]) -> tuple[float, float]:
    if isinstance(C_mid, str):
        if C_mid not in RANGES:
            raise InputError(f"range {C_mid!r} of C_mid is unknown; choose {', '.join(RANGES)}")
        return RANGES[C_mid]
    low, high = C_mid
    if not 0.0 < low < high:
        raise InputError(f"range {low:g} to {high:g} of C_mid is no range of positive computes")
    return low, high


def _warn(fit: PointFit, low: float, high: float) -> None:
    ends = {
        "A": f"A = {fit.A:g} of {A_GRID[0]:g} to {A_GRID[-1]:g}",
        "C_mid": f"C_mid = {fit.C_mid:g} of {low:g} to {high:g}",
        "B": f"B = {fit.B:g} of {B_LIMITS[0]:g} to {B_LIMITS[1]:g}",
    }
    if fit.edges:
        where = ", ".join(ends[name] for name in fit.edges)
        warnings.warn(
            f"the published grid search ended on an edge of its grid ({where}); "
            "the best fit lies outside: use least-squares or posterior, or another range",
            CurvefitWarning,
            stacklevel=3,
        )


def _fit_B(
    x: FloatArray, y: FloatArray, ln_c: FloatArray, rise: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Least-squares ln B and RSS at every node (C_mid, A), each of shape (K, M).

    The curve is rise · s(B), so that at one B the RSS of every A follows from sᵀs and sᵀy.
    """
    scan = np.linspace(np.log(B_LIMITS[0]), np.log(B_LIMITS[1]), B_SCAN)
    d = x - ln_c[:, None]
    yy = float(y @ y)
    s = _sigmoid(d[:, None, :] * np.exp(scan)[:, None])
    ss, sy = np.einsum("kbn,kbn->kb", s, s), s @ y
    rss = yy - 2.0 * rise[:, None] * sy[:, None, :] + rise[:, None] ** 2 * ss[:, None, :]
    b = scan[rss.argmin(axis=2)]
    return _polish(d, y, rise, b, float(scan[1] - scan[0]))


def _polish(
    d: FloatArray, y: FloatArray, rise: FloatArray, b: FloatArray, reach: float
) -> tuple[FloatArray, FloatArray]:
    """Damped Gauss-Newton in ln B from b of shape (K, M), each node within `reach` of its start."""
    K, M = b.shape
    limits = np.log(B_LIMITS)
    low, high = np.maximum(b - reach, limits[0]).ravel(), np.minimum(b + reach, limits[1]).ravel()
    node = np.arange(K * M)
    k, a = node // M, np.tile(rise, K)
    b = b.ravel().copy()
    g, h, rss = _derivatives(d[k], y, a, b)
    damping = np.full(K * M, 1e-3)
    for _ in range(MAX_STEPS):
        trial = np.clip(
            b[node] - g[node] / (h[node] * (1.0 + damping[node]) + 1e-300), low[node], high[node]
        )
        moving = np.abs(trial - b[node]) > TOLERANCE
        node, trial = node[moving], trial[moving]
        if not len(node):
            break
        new_g, new_h, new_rss = _derivatives(d[k[node]], y, a[node], trial)
        better = new_rss <= rss[node]
        damping[node] = np.where(better, damping[node] * 0.1, damping[node] * 10.0)
        won = node[better]
        b[won], g[won], h[won], rss[won] = (
            trial[better],
            new_g[better],
            new_h[better],
            new_rss[better],
        )
    return b.reshape(K, M), rss.reshape(K, M)


def _derivatives(
    d: FloatArray, y: FloatArray, rise: FloatArray, b: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Half the gradient of RSS in ln B, its Gauss-Newton curvature, and RSS; each of shape (G,)."""
    z = d * np.exp(b)[:, None]
    s = _sigmoid(z)
    slope = rise[:, None] * (s * (1.0 - s) * z)
    residual = y - rise[:, None] * s
    return (
        -np.einsum("gn,gn->g", slope, residual),
        np.einsum("gn,gn->g", slope, slope),
        np.einsum("gn,gn->g", residual, residual),
    )


def _sigmoid(z: FloatArray) -> FloatArray:
    return 0.5 + 0.5 * np.tanh(0.5 * z)
