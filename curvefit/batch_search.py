"""The search of `projection` for many rows of scores at once, on compressed shapes.

Rows move together and leave as they converge. A row whose asymptote passes its upper bound goes on
with A held there, one whose R0 passes the lower bound with R0 held. Rows that end in doubt (at the
edge of the compressed range, unconverged, or better off inside a bound they were held at) are left
to `projection.Search`, so that every row ends where it would end alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from curvefit.compressed import Box, Compressed
from curvefit.marginal import Bounds
from curvefit.projection import ROUNDING, Search, start_nodes

__all__ = ["Rows", "Task", "compress_rows", "fit_rows", "grid_start"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

MAX_STEPS = 14
FREE_STEPS = 3  # steps that A and R0 may spend beyond their bounds before they are held there
COMPANY = 0.15  # rows leave together, once they are this share of those present
DAMPING = 1e-6
CLOSE = 2e-5  # a step that promises less of a noise variance is taken and is the last
LARGEST = 709.0  # its exponential is still a number
CONVERGED, IN_DOUBT, A_OVER, R0_UNDER = range(4)

# rows of a Gram: sums of s, g = ds/d(ln C), h = ds/d(ln B); centred products; products with y
S1, G1, H1, SS, GS, HS, GG, GH, HH, SY, GY, HY = range(12)


class Task(NamedTuple):
    """What all rows share; `near` is the part of `box` that the compressed shapes cover."""

    law: str
    x: FloatArray
    root_w: FloatArray | None
    r0: float | None
    bounds: Bounds
    box: Box
    near: Box


class Rows(NamedTuple):
    """Rows of scores, compressed: z = Eᵀ(y − ȳ), shape (r, R), ȳ and Σ(y − ȳ)², shape (R,)."""

    z: FloatArray
    mean: FloatArray
    yy: FloatArray

    def take(self, keep: BoolArray | IntArray) -> Rows:
        """Some of the rows."""
        return Rows(self.z[:, keep], self.mean[keep], self.yy[keep])


class Found(NamedTuple):
    """Where rows stand: shape, R0 and A relative to ȳ, and RSS; every array has shape (R,)."""

    u: FloatArray
    b: FloatArray
    R0: FloatArray
    A: FloatArray
    rss: FloatArray


def compress_rows(space: Compressed, Y: FloatArray, root_w: FloatArray | None) -> Rows:
    """Center, weight and compress rows of scores, shape (R, n)."""
    mean = Y.mean(axis=1) if root_w is None else Y @ (root_w * root_w) / space.n
    centred = Y - mean[:, None]
    if root_w is not None:
        centred *= root_w
    return Rows(np.dot(space.E.T, centred.T), mean, np.einsum("ij,ij->i", centred, centred))


def grid_start(task: Task, space: Compressed, rows: Rows) -> tuple[FloatArray, FloatArray]:
    """The best shape of the start grid for each row, the upper bound of A taken into account."""
    u, b = start_nodes(task.box)
    U, B = np.repeat(u, len(b)), np.exp(np.tile(b, len(u)))
    S = space.law.s(space.x - U, B)
    ns, centred = space.sums @ S, space.root @ S
    css = np.einsum("ij,ij->j", centred, centred) + 1e-9 * space.n
    sy = rows.z.T @ S
    if task.r0 is None:
        rise = sy / css
        value = rise * sy
        if task.bounds.high < np.inf:
            i_R0 = css + (space.n - ns) ** 2 / space.n
            over = np.maximum(
                rise * (1.0 - ns / space.n) - (task.bounds.high - rows.mean)[:, None], 0.0
            )
            value -= space.n * css / i_R0 * over * over
    else:
        ss, q = css + ns * ns / space.n, (task.r0 - rows.mean)[:, None]
        cross = sy - q * (ns - ss)
        value = cross * cross / ss - q * (q * (ss - 2.0 * ns) + 2.0 * sy)
    best = value.argmax(axis=1)
    return U[best], np.log(B[best])


def fit_rows(
    task: Task,
    space: Compressed,
    rows: Rows,
    u: FloatArray,
    b: FloatArray,
    scores: Callable[[int], FloatArray],
) -> FloatArray:
    """Fit rows from starts u, b of shape (R,): A, B, c, R0 and RSS, shape (5, R).

    `scores` gives the uncompressed row i, for the rows that end in doubt.
    """
    low, high = task.bounds.low - rows.mean, task.bounds.high - rows.mean
    limits = np.stack([low, high])
    if task.r0 is None:
        found, status = _search(task, space, rows, u, b, "", low, limits)
        for code, held, at in ((A_OVER, "A", high), (R0_UNDER, "R0", low)):
            i = np.flatnonzero(status == code)
            if len(i):
                found[:, i], status[i] = _search(
                    task, space, rows.take(i), found[0, i], found[1, i], held, at[i], limits[:, i]
                )
    else:
        found, status = _search(task, space, rows, u, b, "R0", task.r0 - rows.mean, limits)
    ln_c, ln_B, R0, A, rss = found
    c = np.exp(np.minimum(ln_c, LARGEST))
    out = np.stack([A + rows.mean, np.exp(ln_B), c, R0 + rows.mean, rss])
    for row in np.flatnonzero(status != CONVERGED).tolist():
        out[:, row] = _alone(task, scores(row))
    return out


def _alone(task: Task, y: FloatArray) -> tuple[float, ...]:
    u, b, best = Search(task.law, task.x, y, task.root_w, task.r0, task.bounds, task.box).run()
    return best.A, float(np.exp(b)), float(np.exp(u)), best.R0, best.rss


def _search(
    task: Task,
    space: Compressed,
    rows: Rows,
    u: FloatArray,
    b: FloatArray,
    held: str,
    at: FloatArray,
    limits: FloatArray,
) -> tuple[FloatArray, IntArray]:
    """Gauss-Newton for all rows with A or R0 (`held`) kept `at` a value, or neither.

    Returns ln c, ln B, R0, A and RSS, shape (5, R), and how each row ended.
    """
    R = len(u)
    out, status = np.empty((5, R)), np.full(R, IN_DOUBT, dtype=np.intp)
    index, damping = np.arange(R), np.full(R, DAMPING)
    state = _evaluate(space, rows, u, b, held, at)
    for step in range(MAX_STEPS):
        move = _step(space, state, held, damping)
        enough = CLOSE / len(task.x) * state.rss + ROUNDING * rows.yy
        last = (move.gain <= enough) & (move.gain >= 0.0) & (damping < 1e-2)
        if not held and step >= FREE_STEPS:
            beyond = (state.A > limits[1]) | (state.R0 < limits[0])
            if beyond.any():
                last |= beyond
                move = _Move(*(np.where(beyond, 0.0, v) for v in move))
        if last.any() and (last.mean() > COMPANY or step > MAX_STEPS - 4):
            end = _arrive(_take(state, last), _Move(*(v[last] for v in move)))
            out[:, index[last]] = end.u, end.b, end.R0, end.A, end.rss
            status[index[last]] = _verdict(task, space, end, held, limits[:, last])
            stay = ~last
            if not stay.any():
                break
            state, rows, index = _take(state, stay), rows.take(stay), index[stay]
            damping, at, limits = damping[stay], at[stay], limits[:, stay]
            move = _Move(*(v[stay] for v in move))
        new_u = np.clip(state.u + move.u, task.near[0], task.near[1])
        new_b = np.clip(state.b + move.b, task.near[2], task.near[3])
        new = _evaluate(space, rows, new_u, new_b, held, at)
        better = new.rss <= state.rss + 10.0 * ROUNDING * rows.yy
        if better.all():
            state, damping = new, 0.1 * damping
        else:
            state = _State(*(np.where(better, a, b) for a, b in zip(new, state, strict=True)))
            damping = np.where(better, 0.1 * damping, np.maximum(damping, 1e-4) * 10.0)
    return out, status


class _State(NamedTuple):
    """Rows at their present shapes; g is the Gram, shape (12, R)."""

    u: FloatArray
    b: FloatArray
    g: FloatArray
    R0: FloatArray
    A: FloatArray
    rss: FloatArray
    yy: FloatArray


class _Move(NamedTuple):
    """A step of ln c and ln B, R0 and A as they respond, and the fall of RSS it promises."""

    u: FloatArray
    b: FloatArray
    R0: FloatArray
    A: FloatArray
    gain: FloatArray


def _take(state: _State, keep: BoolArray) -> _State:
    return _State(*(field[..., keep] for field in state))


def _arrive(state: _State, move: _Move) -> _State:
    """The state after a last step, too small to be worth an evaluation."""
    return state._replace(
        u=state.u + move.u,
        b=state.b + move.b,
        R0=state.R0 + move.R0,
        A=state.A + move.A,
        rss=np.maximum(state.rss - move.gain, 0.0),
    )


def _verdict(
    task: Task, space: Compressed, state: _State, held: str, limits: FloatArray
) -> IntArray:
    """How rows that stopped ended."""
    low, high = limits
    near = task.near
    doubt = (state.u <= near[0]) | (state.u >= near[1]) | ~np.isfinite(state.rss)
    if near[2] < near[3]:
        doubt |= (state.b <= near[2]) | (state.b >= near[3])
    status: IntArray = np.where(doubt, IN_DOUBT, CONVERGED).astype(np.intp)
    over, under = state.A > high, state.R0 < low
    if held:
        status[over | under] = IN_DOUBT
        if task.r0 is None:
            R0, A, rss = _linear(space.n, state.g, state.yy, "", low)
            status[(A <= high) & (R0 >= low) & (rss < state.rss)] = IN_DOUBT
        return status
    status[over & ~under & np.isfinite(state.rss)] = A_OVER
    status[under & ~over & np.isfinite(state.rss)] = R0_UNDER
    status[over & under] = IN_DOUBT
    return status


def _evaluate(
    space: Compressed, rows: Rows, u: FloatArray, b: FloatArray, held: str, at: FloatArray
) -> _State:
    """Gram, R0, A and RSS at shapes u, b of shape (R,)."""
    X = np.empty((3, *rows.z.shape))
    space.law.gradient(space.x - u, np.exp(b), X)
    W = np.matmul(space.root, X)
    g = np.empty((12, len(u)))
    np.matmul(space.sums, X, out=g[:3])
    np.einsum("ri,ari->ai", W[0], W, out=g[SS : HS + 1])
    np.einsum("ri,ari->ai", W[1], W[1:], out=g[GG : GH + 1])
    np.einsum("ri,ri->i", W[2], W[2], out=g[HH])
    np.einsum("ri,ari->ai", rows.z, X, out=g[SY:])
    g[SS] += 1e-14 * space.n
    R0, A, rss = _linear(space.n, g, rows.yy, held, at)
    return _State(u, b, g, R0, A, rss, rows.yy)


def _linear(
    n: float, g: FloatArray, yy: FloatArray, held: str, at: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """R0, A and RSS given the shapes (the mean of y is 0)."""
    s1, sy = g[S1], g[SY]
    if not held:
        rise = sy / g[SS]
        R0 = rise * s1 / -n
        return R0, R0 + rise, np.maximum(yy - rise * sy, 0.0)
    ss = g[SS] + s1 * s1 / n
    if held == "A":
        R0, A = (-sy - at * (s1 - ss)) / (n - 2.0 * s1 + ss), at
    else:
        R0, A = at, (sy - at * (s1 - ss)) / ss
    rise = A - R0
    rss = yy - 2.0 * rise * sy + R0 * (R0 * n + 2.0 * rise * s1) + rise * rise * ss
    return R0, A, np.maximum(rss, 0.0)


def _step(space: Compressed, state: _State, held: str, damping: FloatArray) -> _Move:
    """Gauss-Newton steps with the free linear parameters projected out."""
    g, n, rise = state.g, space.n, state.A - state.R0
    if not held:
        vg, vh, vv = g[GS], g[HS], g[SS]
        gg, gh, hh = g[GG], g[GH], g[HH]
        rg, rh = g[GY] - rise * vg, g[HY] - rise * vh
    else:
        g1, h1 = g[G1] / n, g[H1] / n
        gg, gh, hh = g[GG] + g1 * g[G1], g[GH] + g1 * g[H1], g[HH] + h1 * g[H1]
        gs, hs, ss = g[GS] + g1 * g[S1], g[HS] + h1 * g[S1], g[SS] + g[S1] ** 2 / n
        rg = g[GY] - state.R0 * g[G1] - rise * gs
        rh = g[HY] - state.R0 * g[H1] - rise * hs
        vg, vh, vv = gs, hs, ss
        if held == "A":
            vg, vh, vv = g[G1] - gs, g[H1] - hs, n - 2.0 * g[S1] + ss
    pg, rr, damped = vg / vv, rise * rise, 1.0 + damping
    uu = rr * damped * (gg - pg * vg) + 1e-300
    ru, rb = -rise * rg, rise * rh
    if space.law.free_B:
        ub, bb = rr * (pg * vh - gh), rr * damped * (hh - vh * vh / vv) + 1e-300
        det = np.maximum(uu * bb - ub * ub, 1e-14 * uu * bb)
        du, db = (ru * bb - rb * ub) / det, (rb * uu - ru * ub) / det
    else:
        du, db = ru / uu, np.zeros_like(ru)
    gain = ru * du + rb * db
    du, db = np.clip(du, -2.0, 2.0), np.clip(db, -1.0, 1.0)
    more = rise * (pg * du - vh / vv * db)
    if held:
        return _Move(du, db, more * (held == "A"), more * (held == "R0"), gain)
    R0 = (rise * (g[G1] * du - g[H1] * db) - more * g[S1]) / n
    return _Move(du, db, R0, R0 + more, gain)
