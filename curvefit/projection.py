"""Variable projection: the best shape of a law, R0 and A solved for on the way.

R(C) = R0 + (A − R0) s(C; c, B) is linear in R0 and A once the shape (c, B) is given, so the search
is over two numbers only (Golub and Pereyra 1973). A coarse grid of shapes, all at once and in
single precision, finds the valley; Gauss-Newton steps on (ln c, ln B) with R0 and A projected out
(Kaufman 1975), damped when they overshoot (Marquardt 1963), finish it. All that a step needs are
the inner products of five rows: 1, s, ds/d(ln C), ds/d(ln B) and y.

R0 and A stay within bounds: where the unconstrained A lies above the upper bound it is held there
and only R0 is projected out; likewise R0 at the lower bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from curvefit.laws import LAWS
from curvefit.marginal import Bounds

__all__ = ["CLOSE", "ROUNDING", "ZERO_COMPUTE", "Linear", "Search", "start_nodes"]

FloatArray = NDArray[np.float64]
Gram = list[list[float]]

# The start grid: ln c densely from the box's lower end to 1 e-fold beyond the data, where shapes
# differ, sparsely from there to its upper end, where they hardly do; ln B evenly.
WITHIN = np.append(np.linspace(0.0, 1.0, 10), [1.0, 1.0, 1.0])
BEYOND = np.append(np.zeros(10), [2.4, 5.2, 8.0])
STEEPNESS = np.linspace(0.05, 1.0, 6)

MAX_STEPS = 60
CLOSE = 1e-6  # a step that lowers RSS by less than this share of the variance is the last
ROUNDING = 4e-16  # relative error of RSS as a difference of inner products
ZERO_COMPUTE = -1000.0  # stands for ln 0: every law is 0 there


class Linear(NamedTuple):
    """R0 and A given the shape; which of the two is free to move, the other being held."""

    R0: float
    A: float
    rss: float
    R0_free: bool
    A_free: bool


def start_nodes(box: tuple[float, float, float, float]) -> tuple[FloatArray, FloatArray]:
    """Values of ln c and of ln B of the start grid."""
    u0, u1, b0, b1 = box
    u = u0 + BEYOND + (u1 - BEYOND[-1] - u0) * WITHIN
    return u, b0 + (b1 - b0) * STEEPNESS if b0 < b1 else np.array([b0])


class Search:
    """The search for the best shape of one run.

    Parameters
    ----------
    law : str
    x : ndarray, shape (n,)
        ln C.
    y : ndarray, shape (n,)
    root_w : ndarray of shape (n,), optional
        Square roots of the weights.
    r0 : float, optional
        Fixes R0.
    bounds : Bounds
    box : tuple of float
        Limits of ln c and ln B, from `shape_box`.
    """

    def __init__(
        self,
        law: str,
        x: FloatArray,
        y: FloatArray,
        root_w: FloatArray | None,
        r0: float | None,
        bounds: Bounds,
        box: tuple[float, float, float, float],
    ) -> None:
        self.law, self.root_w, self.box = LAWS[law], root_w, box
        self.fixed, self.bounds = r0, bounds
        self.x = np.maximum(x, ZERO_COMPUTE)
        self.d = np.empty_like(self.x)
        self.T = T = np.empty((5, len(x)))
        T[0] = 1.0 if root_w is None else root_w
        one = T[0] if root_w is None else root_w * root_w
        self.n = float(one.sum())
        self.shift = float(one @ y) / self.n
        np.subtract(y, self.shift, out=T[4])
        if root_w is not None:
            T[4] *= root_w
        self.yy = float(T[4] @ T[4])
        self.r0 = None if r0 is None else r0 - self.shift
        self.low, self.high = bounds.low - self.shift, bounds.high - self.shift
        self.held = ""  # "A" or "R0" while the search runs along that bound

    def run(self) -> tuple[float, float, Linear]:
        """Best ln c and ln B, with R0 and A there."""
        u, b, linear = self._polish(*self._start())
        R0 = self.bounds.low if linear.R0 == self.low else linear.R0 + self.shift
        A = self.bounds.high if linear.A == self.high else linear.A + self.shift
        return u, b, linear._replace(R0=R0 if self.fixed is None else self.fixed, A=A)

    def _start(self) -> tuple[float, float]:
        """The best shape of the coarse grid."""
        u, b = start_nodes(self.box)
        d = np.subtract(self.x, u[:, None], dtype=np.float32, casting="same_kind")
        S = self.law.s(d[:, None, :], np.exp(b, dtype=np.float32)[:, None]).reshape(-1, len(self.x))
        if self.root_w is not None:
            S = S * self.root_w.astype(np.float32)
        sums = S @ self.T[::4].astype(np.float32).T
        best = int(self._grid_rss(sums[:, 0], sums[:, 1], np.einsum("ij,ij->i", S, S)).argmin())
        return float(u[best // len(b)]), float(b[best % len(b)])

    def _grid_rss(self, ns: FloatArray, sy: FloatArray, ss: FloatArray) -> FloatArray:
        """RSS of each grid shape up to a constant, the upper bound of A taken into account."""
        if self.r0 is not None:
            cross = sy - self.r0 * (ns - ss)
            A = np.clip(cross / np.maximum(ss, 1e-30), self.low, self.high)
            return (A * ss - 2.0 * cross) * A + self.r0 * (self.r0 * (ss - 2.0 * ns) + 2.0 * sy)
        mean = ns / self.n
        css = ss - ns * mean + 1e-6 * self.n
        rise = sy / css
        over = np.maximum(rise - rise * mean - self.high, 0.0)
        i_R0 = ss - 2.0 * ns + 1.000001 * self.n
        return np.asarray(self.n * css / i_R0 * over * over - rise * sy)

    def _polish(self, u: float, b: float) -> tuple[float, float, Linear]:
        """Damped Gauss-Newton on (ln c, ln B), R0 and A projected out.

        A step that would carry A or R0 over its bound starts a search along that bound, which ends
        the search unless the inside is better. The search is over when the next step promises less
        than `CLOSE` of a noise variance, a thousandth of a standard error, and takes that step.
        """
        u0, u1, b0, b1 = self.box
        close, rounding = CLOSE / len(self.x), ROUNDING * self.yy
        gram = self._gram(u, b)
        linear = self._linear(gram)
        damping, released = 1e-3, False
        for _ in range(MAX_STEPS):
            du, db, gain, bound = self._step(gram, linear, damping, u, b)
            if bound and not released:
                self.held, damping = bound, 1e-3
                linear = self._linear(gram)
                continue
            new_u = max(u0, min(u1, u + max(-2.0, min(2.0, du))))
            new_b = max(b0, min(b1, b + max(-1.0, min(1.0, db))))
            last = damping < 1e-2 and gain <= close * linear.rss + rounding
            new_gram = self._gram(new_u, new_b)
            new = self._linear(new_gram)
            if new.rss <= linear.rss + 10.0 * rounding * last:
                u, b, gram, linear, damping = new_u, new_b, new_gram, new, damping * 0.1
            else:
                damping = max(damping, 1e-4) * 10.0
            if last:
                if not self.held:
                    break
                self.held, released = "", True
                inside = self._linear(gram)
                if inside.rss >= linear.rss - rounding:
                    break
                linear = inside
        return u, b, linear

    def _gram(self, u: float, b: float) -> Gram:
        """Inner products of the rows 1, s, ds/d(ln C), ds/d(ln B), y."""
        T = self.T
        np.subtract(self.x, u, out=self.d)
        self.law.gradient(self.d, float(np.exp(b)), T[1:4])
        if self.root_w is not None:
            T[1:4] *= self.root_w
        gram: Gram = np.dot(T, T.T).tolist()
        return gram

    def _linear(self, gram: Gram) -> Linear:
        """R0 and A within bounds, given the shape's inner products (the mean of y is 0)."""
        ns, ss, sy = gram[0][1], gram[1][1], gram[1][4]
        if self.r0 is not None:
            A = (sy - self.r0 * (ns - ss)) / ss if ss > 0.0 else self.high
            held = min(max(A, self.low), self.high)
            return Linear(self.r0, held, self._rss(gram, self.r0, held), False, held == A)
        if self.held:
            return self._hold_A(gram) if self.held == "A" else self._hold_R0(gram)
        css = ss - ns * ns / self.n
        if css <= 1e-13 * ss:  # s is the same everywhere: nothing but a level can be fitted
            return Linear(0.0, 0.0, self.yy, True, False)
        rise = sy / css
        R0 = -rise * ns / self.n
        if R0 >= self.low and R0 + rise <= self.high:
            return Linear(R0, R0 + rise, max(self.yy - rise * sy, 0.0), True, True)
        if R0 >= self.low:
            return self._hold_A(gram)
        if R0 + rise <= self.high:
            return self._hold_R0(gram)
        return min(self._hold_A(gram), self._hold_R0(gram), key=lambda held: held.rss)

    def _hold_A(self, gram: Gram) -> Linear:
        """The best R0 with A at its upper bound."""
        ns, ss, sy = gram[0][1], gram[1][1], gram[1][4]
        zz = self.n - 2.0 * ns + ss
        free = (-sy - self.high * (ns - ss)) / zz if zz > 0.0 else self.low
        R0 = max(free, self.low)
        return Linear(R0, self.high, self._rss(gram, R0, self.high), R0 == free, False)

    def _hold_R0(self, gram: Gram) -> Linear:
        """The best A with R0 at its lower bound."""
        ns, ss, sy = gram[0][1], gram[1][1], gram[1][4]
        free = (sy - self.low * (ns - ss)) / ss if ss > 0.0 else self.high
        A = min(free, self.high)
        return Linear(self.low, A, self._rss(gram, self.low, A), False, A == free)

    def _rss(self, gram: Gram, R0: float, A: float) -> float:
        ns, ss, sy = gram[0][1], gram[1][1], gram[1][4]
        rise = A - R0
        return max(
            self.yy - 2.0 * rise * sy + R0 * (R0 * self.n + 2.0 * rise * ns) + rise * rise * ss, 0.0
        )

    def _step(
        self, gram: Gram, linear: Linear, damping: float, u: float, b: float
    ) -> tuple[float, float, float, str]:
        """Step of (ln c, ln B) with the free linear parameters projected out.

        The curve changes by −rise·g per ln c and by rise·h per ln B. Returned with the step are the
        fall of RSS it promises and the parameter, if any, that it would carry over its bound.
        """
        (_, ns, g1, h1, _), (_, ss, gs, hs, _), (_, _, gg, gh, gy), (_, _, _, hh, hy), _ = gram
        R0, A, _, R0_free, A_free = linear
        rise, n = A - R0, self.n
        rg, rh = gy - R0 * g1 - rise * gs, hy - R0 * h1 - rise * hs
        if R0_free and A_free:
            gg, gh, hh = gg - g1 * g1 / n, gh - g1 * h1 / n, hh - h1 * h1 / n
            vg, vh, vv = gs - g1 * ns / n, hs - h1 * ns / n, ss - ns * ns / n
        elif A_free:
            vg, vh, vv = gs, hs, ss
        elif R0_free:
            vg, vh, vv = g1 - gs, h1 - hs, n - 2.0 * ns + ss
        else:
            vg, vh, vv = 0.0, 0.0, 1.0
        vv += 1e-300
        gg, gh, hh = gg - vg * vg / vv, gh - vg * vh / vv, hh - vh * vh / vv
        du, db, gain = self._solve(
            -rise * rg,
            rise * rh,
            rise * rise * gg,
            -rise * rise * gh,
            rise * rise * hh,
            damping,
            u,
            b,
        )
        if R0_free and A_free:
            more = rise * (vg * du - vh * db) / vv
            new_R0 = R0 + rise * (g1 * du - h1 * db) / n - more * ns / n
            if new_R0 + rise + more > self.high:
                return du, db, gain, "A"
            if new_R0 < self.low:
                return du, db, gain, "R0"
        return du, db, gain, ""

    def _solve(
        self,
        ru: float,
        rb: float,
        uu: float,
        ub: float,
        bb: float,
        damping: float,
        u: float,
        b: float,
    ) -> tuple[float, float, float]:
        """Solve the damped 2 × 2 system; a coordinate pushed against its limit stays."""
        u0, u1, b0, b1 = self.box
        if (u <= u0 and ru < 0.0) or (u >= u1 and ru > 0.0):
            ru, ub = 0.0, 0.0
        if (b <= b0 and rb < 0.0) or (b >= b1 and rb > 0.0):
            rb, ub = 0.0, 0.0
        uu, bb = uu * (1.0 + damping) + 1e-300, bb * (1.0 + damping) + 1e-300
        det = uu * bb - ub * ub
        if det <= 0.0:
            du, db = ru / uu, rb / bb
        else:
            du, db = (ru * bb - rb * ub) / det, (rb * uu - ru * ub) / det
        return du, db, ru * du + rb * db
