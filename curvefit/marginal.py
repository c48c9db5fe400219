"""The likelihood of a curve's shape, with everything else integrated out in closed form.

Given the shape (c, B) of a law, the model is linear in R0 and A (variable projection, Golub and
Pereyra 1973) and, given the noise model up to a factor σ², conjugate in σ²::

    y = R0 (1 − s) + A s + noise,   noise ~ N(0, σ² V)

With flat priors on R0 and A and 1/σ² on σ² (σ² = 1 when the evaluation size fixes the scale), ::

    m(c, B, V) ∝ |V|^(−1/2) |XᵀV⁻¹X|^(−1/2) RSS^(−(n−2)/2)      (or exp(−RSS/2))

`Marginal` evaluates m for many shapes under all J noise models at once. The data are whitened and
projected once on Q, an orthonormal basis of the shapes; each shape then costs O(J·r²), whatever the
number of points. Up to 40 points Q is the whole space; beyond, 40 vectors hold the shapes of all
laws to within 1e-5 at every point (n = 60, B ≤ 8; 2e-4 at n = 90; 1e-3 at n = 300 for B ≤ 4).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from curvefit.laws import LAWS
from curvefit.noise import NoiseGrid, Whitened, e_folds, pin_first, whiten
from curvefit.normal import log_interval

__all__ = ["Bounds", "Marginal", "Moments", "log_compute", "shape_box"]

FloatArray = NDArray[np.float64]
Models = NDArray[np.intp] | slice
ALL = slice(None)

BASIS_SIZE = 40
FAINT = 0.05  # shapes whose root mean square is below this count by what they amount to
E_FOLDS_BELOW, E_FOLDS_ABOVE = 2.0, 9.0
BLOCK = 384  # shapes at a time, so that a block stays in the cache
TINY = 1e-120  # its square is still a number: shapes smaller than its root count as flat


class Bounds(NamedTuple):
    """The limits of the prior: low ≤ R0 ≤ A ≤ high."""

    low: float
    high: float


class Moments(NamedTuple):
    """What the data say about R0 and A at given shapes; every array has the same shape.

    Attributes
    ----------
    R0, A : ndarray
        Least-squares values.
    info : ndarray
        det(XᵀV⁻¹X).
    i_R0 : ndarray
        (1−s)ᵀV⁻¹(1−s): the precision of R0 given A, in units of 1/σ².
    var_A, var_rise, cov : ndarray
        Var(A), Var(A − R0) and Cov(R0, A), in units of σ².
    slope : ndarray
        1ᵀV⁻¹s / 1ᵀV⁻¹1: the mean of s; R0 + slope·(A − R0) is the mean level of the data.
    rss : ndarray
        Weighted residual sum of squares.
    """

    R0: FloatArray
    A: FloatArray
    info: FloatArray
    i_R0: FloatArray
    var_A: FloatArray
    var_rise: FloatArray
    cov: FloatArray
    slope: FloatArray
    rss: FloatArray


def log_compute(C: FloatArray) -> FloatArray:
    """Ln C, with ln 0 = −∞ (every law is 0 there)."""
    with np.errstate(divide="ignore"):
        return np.log(C)


def shape_box(x: FloatArray, law: str) -> tuple[float, float, float, float]:
    """Limits of the flat prior on (ln c, ln B).

    c from 2 e-folds below the first to 9 e-folds above the last positive compute.
    """
    positive = x[np.isfinite(x)]
    low, high = LAWS[law].B_range
    return (
        float(positive[0]) - E_FOLDS_BELOW,
        float(positive[-1]) + E_FOLDS_ABOVE,
        float(np.log(low)),
        float(np.log(high)),
    )


def _basis(x: FloatArray) -> FloatArray:
    """Orthonormal Q, shape (n, r), that spans every law's shapes at the points x."""
    n = len(x)
    if n <= BASIS_SIZE:
        return np.eye(n)
    library = []
    for law in LAWS:
        u0, u1, b0, b1 = shape_box(x, law)
        u, b = np.linspace(u0, u1, 16), np.linspace(b0, b1, 8 if b0 < b1 else 1)
        d = x[:, None, None] - u[:, None]
        library.append(LAWS[law].s(d, np.exp(b)).reshape(n, -1))
    S = np.concatenate(library, axis=1)
    S = S / np.sqrt((S * S).sum(axis=0) + n * FAINT**2)
    mix = np.random.default_rng(2510_13786).standard_normal((S.shape[1], BASIS_SIZE))
    return np.asarray(np.linalg.qr(S @ mix)[0], dtype=float)


class Marginal:
    """The marginal likelihood of shapes for one run.

    Parameters
    ----------
    x : ndarray, shape (n,)
        ln C, −∞ for step 0.
    y : ndarray, shape (n,)
    noise : NoiseGrid
    distance : ndarray, shape (n − 1,)
        In evaluations.
    bounds : Bounds
    resolution : float
        Standard deviation below which scores are not told apart; keeps noiseless data finite.
    fixed_r0 : float, optional
        Fixes R0, by an exact observation of it at zero compute before the run.
    """

    def __init__(
        self,
        x: FloatArray,
        y: FloatArray,
        noise: NoiseGrid,
        distance: FloatArray,
        bounds: Bounds,
        resolution: float,
        fixed_r0: float | None = None,
    ) -> None:
        self.shift = float(y.mean())
        growth = e_folds(x)
        if fixed_r0 is not None:
            x, y = np.append(-np.inf, x), np.append(fixed_r0, y)
            noise, distance = pin_first(noise, resolution), np.append(np.inf, distance)
            growth = np.append(0.0, growth)  # the drift starts at the first evaluation
        self.x, self.noise, self.n = x, noise, len(x)
        self.bounds = Bounds(bounds.low - self.shift, bounds.high - self.shift)
        self.Q = _basis(x)
        r = self.Q.shape[1]
        X = np.concatenate([self.Q, np.ones((self.n, 1)), (y - self.shift)[:, None]], axis=1)
        self.white: Whitened = whiten(noise, distance, growth, X)
        W = self.white.columns
        G = W.transpose(0, 2, 1) @ W
        M = G[:, :r, :r]
        jitter = 1e-13 * np.trace(M, axis1=1, axis2=2)[:, None, None] * np.eye(r)
        self.root = np.linalg.cholesky(M + jitter).transpose(0, 2, 1)
        self.q1, self.qy = G[:, :r, r], G[:, :r, r + 1]
        self.i11, self.i1y, iyy = G[:, r, r], G[:, r, r + 1], G[:, r + 1, r + 1]
        self.nu = self.n - 2
        floor = 0.0 if noise.scale_known else self.n * resolution**2
        self.y_rss = iyy - self.i1y**2 / self.i11 + floor
        self.log_const = noise.log_prior - 0.5 * self.white.log_det

    def coefficients(self, law: str, u: FloatArray, b: FloatArray) -> FloatArray:
        """Shapes in the basis, shape (r, G), for ln c = u and ln B = b, each of shape (G,)."""
        B = np.exp(b)
        T = np.empty((self.Q.shape[1], len(u)))
        for k in range(0, len(u), BLOCK):
            block = slice(k, k + BLOCK)
            np.matmul(self.Q.T, LAWS[law].s(self.x[:, None] - u[block], B[block]), out=T[:, block])
        return T

    def moments(self, T: FloatArray, j: Models = ALL) -> Moments:
        """R0, A and fit of every shape under the noise models j: arrays of shape (len(j), G)."""
        root = self.root[j]
        J, r, _ = root.shape
        V = (root.reshape(J * r, r) @ T).reshape(J, r, -1)
        iss = np.einsum("jrg,jrg->jg", V, V)
        of_data = (self.i11[j, None], self.i1y[j, None], self.y_rss[j, None])
        return self._solve(*of_data, self.q1[j] @ T, iss, self.qy[j] @ T)

    def moments_at(self, j: NDArray[np.intp], T: FloatArray) -> Moments:
        """The same for G shapes, each under its own noise model j[g], ascending: shape (G,)."""
        iss, i1s, isy = np.empty((3, len(j)))
        for k, block in self._blocks(j):
            V = self.root[k] @ T[:, block]
            iss[block] = np.einsum("rg,rg->g", V, V)
            i1s[block] = self.q1[k] @ T[:, block]
            isy[block] = self.qy[k] @ T[:, block]
        return self._solve(self.i11[j], self.i1y[j], self.y_rss[j], i1s, iss, isy)

    def last_state(
        self, j: NDArray[np.intp], T: FloatArray, R0: FloatArray, A: FloatArray
    ) -> FloatArray:
        """E[u_n | data] for each curve under its own noise model j[g], ascending: shape (G,)."""
        r = len(T)
        state = self.white.state
        of_shape = np.empty(len(j))
        for k, block in self._blocks(j):
            of_shape[block] = state[k, :r] @ T[:, block]
        return state[j, r + 1] - R0 * (state[j, r] - of_shape) - A * of_shape

    def _blocks(self, j: NDArray[np.intp]) -> Iterator[tuple[int, slice]]:
        """Each noise model in j and where it stands there, at most BLOCK shapes at a time."""
        edges = np.searchsorted(j, np.arange(len(self.root) + 1)).tolist()
        for k, (start, end) in enumerate(pairwise(edges)):
            for at in range(start, end, BLOCK):
                yield k, slice(at, min(at + BLOCK, end))

    def _solve(
        self,
        i11: FloatArray,
        i1y: FloatArray,
        y_rss: FloatArray,
        i1s: FloatArray,
        iss: FloatArray,
        isy: FloatArray,
    ) -> Moments:
        info = np.maximum(i11 * iss - i1s**2, 1e-12 * i11 * iss + TINY)
        rise = (i11 * isy - i1s * i1y) / info
        R0 = (i1y - i1s * rise) / i11
        rss = np.maximum(y_rss - rise**2 * info / i11, 1e-9 * y_rss)
        i_R0 = i11 - 2.0 * i1s + iss
        var_A, var_rise, cov = i_R0 / info, i11 / info, (iss - i1s) / info
        return Moments(R0, R0 + rise, info, i_R0, var_A, var_rise, cov, i1s / i11, rss)

    def log_m(self, m: Moments) -> FloatArray:
        """Ln m up to a constant that all laws share, the bounds on R0 and A not yet applied."""
        if self.noise.scale_known:
            return -0.5 * np.log(m.info) - 0.5 * m.rss
        return -0.5 * np.log(m.info) - 0.5 * self.nu * np.log(m.rss)

    def sigma2(self, m: Moments) -> FloatArray:
        """The estimate of σ²."""
        return np.ones_like(m.rss) if self.noise.scale_known else m.rss / max(self.nu, 1)

    def normal_score(self, t: FloatArray, nu: int) -> FloatArray:
        """Turn Student's t with nu degrees of freedom into a nearly normal score (Wallace 1959)."""
        if self.noise.scale_known:
            return t
        shrink = (8.0 * nu + 1.0) / (8.0 * nu + 3.0)
        return np.copysign(shrink * np.sqrt(nu * np.log1p(t * t / nu)), t)

    def log_inside(self, m: Moments) -> FloatArray:
        """Approximate ln P(low ≤ R0 ≤ A ≤ high | shape): places nodes, never weighs them.

        The probability that A lies between the level at which nothing rises and the upper bound,
        times the probability that R0, given the A closest to its estimate, lies below A.
        """
        low, high = self.bounds
        sigma = np.sqrt(self.sigma2(m))
        sd_A, sd_R0 = sigma * np.sqrt(m.var_A), sigma / np.sqrt(m.i_R0)
        level = np.clip(m.R0 + m.slope * (m.A - m.R0), low, high)
        A = np.clip(m.A, level, high)
        R0 = m.R0 + m.cov / m.var_A * (A - m.A)
        return self._log_t_interval((level - m.A) / sd_A, (high - level) / sd_A) + (
            self._log_t_interval((low - R0) / sd_R0, (A - low) / sd_R0)
        )

    def _log_t_interval(self, t: FloatArray, width: FloatArray) -> FloatArray:
        """Approximate ln P(t < T < t + width), T Student with n − 2 degrees of freedom.

        Far from the centre an interval may be narrower than the rounding of its ends; there its
        width in normal scores comes from the slope of the transformation.
        """
        if self.noise.scale_known:
            return log_interval(t, width)
        nu = max(self.nu, 1)
        z = self.normal_score(t, nu)
        slope = np.abs(t) / ((1.0 + t * t / nu) * np.maximum(np.abs(z), 1e-12))
        narrow = width < 1e-6 * (1.0 + np.abs(t))
        wide = np.maximum(self.normal_score(t + width, nu) - z, 0.0)
        return log_interval(z, np.where(narrow, slope * width, wide))

    def log_nodes(self, law: str, u: FloatArray, b: FloatArray, j: Models = ALL) -> FloatArray:
        """Ln posterior weight of noise models j and shapes, (len(j), G), to place nodes by."""
        m = self.moments(self.coefficients(law, u, b), j)
        return self.log_const[j, None] + self.log_m(m) + self.log_inside(m)
