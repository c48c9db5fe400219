"""The sigmoid's posterior by brute force: dense covariances, a product grid, no shared code.

The model is the one that `curvefit.noise`, `curvefit.marginal` and `curvefit.posterior` document,
written a second time from those descriptions:

    y ~ N(R0 (1 − s) + A s, σ² V),   V = white + τ² ρ^|distance|,   p(σ²) ∝ 1/σ² or σ = 1
    flat in ln C_mid and ln B over their box, in 0 ≤ R0 ≤ A ≤ 1, over the noise models as weighted

σ² and R0 are integrated by the exact (Student or normal) distribution function of scipy; the one
remaining linear coordinate w (A itself, or the score at a stated compute) by Gauss-Legendre; the
shape by the midpoint rule on columns of ln C_mid, each with its own range of ln B, that hold
everything within `DEPTH` nats of the best. What comes out is a weighted sample of w.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, ndtr, stdtr

REACH = 7.5
DEPTH = 13.0
ROUNDS = 6
COARSE = (32, 20)
GOLDEN = 0.6180339887498949


def covariances(distance, white, run, rho):
    """Dense V of each noise model: shape (J, n, n)."""
    position = np.append(0.0, np.cumsum(distance))
    lag = np.abs(position[:, None] - position)
    return [np.diag(d) + t * r**lag for d, t, r in zip(white, run, rho, strict=True)]


class Exact:
    """The posterior of one run on a grid of shapes.

    `V` and `log_prior` are the noise models; `scale_known` says whether V is absolute; there are
    `gauss` values of w at each shape.
    """

    def __init__(self, C, y, V, log_prior, scale_known, target, gauss=16):
        self.gauss_x, self.gauss_w = np.polynomial.legendre.leggauss(gauss)
        self.x = np.log(np.maximum(C, 1e-300))
        self.y, self.scale_known, self.x_target = y, scale_known, np.log(target)
        first, last = np.log(C[C > 0][[0, -1]])
        self.box = (first - 2.0, last + 9.0, np.log(0.25), np.log(8.0))
        self.factors = [cho_factor(v, lower=True) for v in V]
        self.log_const = np.array(log_prior) - [np.log(np.diag(f[0])).sum() for f in self.factors]

    def nodes(self, u, b, *, of):
        """Values of w and log weights, shape (J, G, Q), at shapes ln C_mid = u, ln B = b."""
        s = expit(np.exp(b)[:, None] * (self.x - u[:, None]))
        if of == "A":
            first, second, t = 1.0 - s, s, np.ones(len(u))
        else:  # y = R0 (1 − s − s (1−t)/t) + w s/t, where t = s(target)
            t = expit(np.exp(b) * (self.x_target - u))
            second = s / t[:, None]
            first = 1.0 - second
        parts = [
            self._one_model(j, first, second, t, rises=of != "A") for j in range(len(self.factors))
        ]
        w, log_w = (np.array(p) for p in zip(*parts, strict=True))
        return w, log_w

    def _one_model(self, j, first, second, t, *, rises):
        inverse = cho_solve(self.factors[j], np.eye(len(self.y)))
        n = len(self.y)
        a1, a2 = first @ inverse, second @ inverse
        i11, i12, i22 = (a1 * first).sum(1), (a1 * second).sum(1), (a2 * second).sum(1)
        b1, b2, yy = a1 @ self.y, a2 @ self.y, self.y @ inverse @ self.y
        det = np.maximum(i11 * i22 - i12**2, 1e-13 * i11 * i22)
        best = (i11 * b2 - i12 * b1) / det
        rss = np.maximum(yy - (b1 * (i22 * b1 - i12 * b2) / det + b2 * best), 1e-14 * yy)
        sd = np.sqrt(i11 / det * (1.0 if self.scale_known else rss / (n - 2)))
        top = np.ones_like(best)
        low = np.maximum(0.0, np.minimum(best, top) - REACH * sd)
        high = np.minimum(top, np.maximum(best, 0.0) + REACH * sd)
        w = 0.5 * (low + high)[:, None] + 0.5 * (high - low)[:, None] * self.gauss_x
        K = rss[:, None] + (w - best[:, None]) ** 2 * (det / i11)[:, None]
        mean = (b1 / i11)[:, None] - (i12 / i11)[:, None] * w
        R0_low = np.maximum(0.0, (w - t[:, None]) / (1.0 - t + 1e-300)[:, None]) if rises else 0.0
        log_mass = self._log_r0(i11[:, None], mean, K, R0_low, w, n)
        log_w = (
            self.log_const[j]
            + log_mass
            - np.log(t)[:, None]
            + np.log(0.5 * (high - low))[:, None]
            + np.log(self.gauss_w)
        )
        return w, log_w

    def _log_r0(self, i11, mean, K, low, high, n):
        """Ln ∫ dR0 (and dσ²) of the density with residual sum K at the best R0."""
        if self.scale_known:
            z0, z1 = (low - mean) * np.sqrt(i11), (high - mean) * np.sqrt(i11)
            body = -0.5 * K
        else:
            spread = np.sqrt(K / (i11 * (n - 1)))
            z0, z1 = (low - mean) / spread, (high - mean) / spread
            body = -0.5 * (n - 1) * np.log(K)
        flip = z0 + z1 > 0
        z0, z1 = np.where(flip, -z1, z0), np.where(flip, -z0, z1)
        F = ndtr if self.scale_known else lambda z: stdtr(n - 1, z)
        with np.errstate(divide="ignore"):
            return body - 0.5 * np.log(i11) + np.log(np.maximum(F(z1) - F(z0), 0.0))

    def shape_grid(self, columns, rows):
        """Shapes u, b and log cell areas of a grid that follows the posterior, column by column."""
        u0, u1, b0, b1 = self.box
        low, high = np.full(COARSE[0], b0), np.full(COARSE[0], b1)
        for _ in range(ROUNDS):
            u, b, _ = _cells(u0, u1, low, high, *COARSE)
            _, log_w = self.nodes(u, b, of="A")
            mass = _log_sum(log_w.transpose(1, 0, 2).reshape(len(u), -1)).reshape(COARSE)
            best, h = mass.max(axis=1), (high - low) / COARSE[1]
            first, last = _ends(mass > best[:, None] - DEPTH)
            left, right = _ends(best[None] > best.max() - DEPTH)
            low, high = np.maximum(low + (first - 1) * h, b0), np.minimum(low + (last + 2) * h, b1)
            du = (u1 - u0) / COARSE[0]
            at = u0 + du * (np.arange(COARSE[0]) + 0.5)
            u0, u1 = max(u0 + (left[0] - 1) * du, u0), min(u0 + (right[0] + 2) * du, u1)
            new = u0 + (u1 - u0) * (np.arange(COARSE[0]) + 0.5) / COARSE[0]
            low, high = np.interp(new, at, low), np.interp(new, at, high)
        at = np.linspace(0.0, 1.0, columns)
        low, high = (np.interp(at, np.linspace(0.0, 1.0, COARSE[0]), v) for v in (low, high))
        return _cells(u0, u1, low, high, columns, rows)

    def summaries(self, columns=100, rows=80):
        """5, 50 and 95 % quantiles and mean of A and of the score at the target."""
        u, b, log_area = self.shape_grid(columns, rows)
        found = {}
        for of in ("A", "score"):
            w, log_w = self.nodes(u, b, of=of)
            log_w += log_area[:, None]
            found[of] = summary(w.ravel(), np.exp(log_w - log_w.max()).ravel())
        return found


def summary(values, weight):
    """5, 50 and 95 % quantiles and mean of a weighted sample."""
    order = np.argsort(values)
    w = weight[order] / weight.sum()
    quantiles = np.interp((0.05, 0.5, 0.95), np.cumsum(w) - 0.5 * w, values[order])
    return np.append(quantiles, values[order] @ w)


def _cells(u0, u1, low, high, columns, rows):
    """Nodes u, b and log areas of the cells of a grid of columns, each of shape (columns · rows,).

    The rows of a column do not share one u, nor the columns one place in b: every cell has its own
    value of each, so that no function of u or b alone has steps in its distribution.
    """
    k, i = np.arange(columns)[:, None] + 0.5, np.arange(rows) + 0.5
    du = (u1 - u0) / columns
    u = u0 + du * (np.floor(k) + GOLDEN * i % 1.0)
    at = u0 + du * k[:, 0]
    bottom, h = np.interp(u, at, low), np.interp(u, at, high - low) / rows
    b = bottom + h * (np.floor(i) + GOLDEN * k % 1.0)
    return u.ravel(), b.ravel(), np.log(h * du).ravel()


def _ends(keep):
    """Index of the first and of the last True of each row."""
    n = keep.shape[1]
    return keep.argmax(axis=1), n - 1 - keep[:, ::-1].argmax(axis=1)


def _log_sum(a):
    top = a.max(axis=1)
    return top + np.log(np.exp(a - top[:, None]).sum(axis=1))
