"""Where the posterior of a law's shape lies: a grid that follows its ridge.

The posterior of (u, b) = (ln c, ln B) can be a dot 0.001 wide, a long thin banana, or half the
prior box. The grid is made of columns: K values of u, and for each column N values of b centred
where that column is best. Rounds of zooming narrow the columns, and the range within each column,
to what lies within `DEPTH` nats of the best node, until several nodes and several columns resolve
the ridge; a last round gathers the columns where the weight is. No optimiser, no starting value;
3 to 6 rounds of about 240 shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ridge", "find_ridge"]

FloatArray = NDArray[np.float64]
Box = tuple[float, float, float, float]
Models = NDArray[np.intp] | slice
ALL = slice(None)

COLUMNS, NODES = 20, 12
FINAL_COLUMNS = 24
LIKELIEST = 4  # noise models that the rounds between the first and the last look at
UNIFORM = 0.25  # share of the final columns that is spread evenly
DEPTH = 12.0
MAX_ROUNDS = 14
MIN_RESOLVED = 5


class Ridge(NamedTuple):
    """A grid of K columns and N nodes a column, and the log weight of each node.

    Attributes
    ----------
    u : ndarray, shape (K,)
        ln c of the columns, closer together where there is more weight.
    edges : ndarray, shape (K + 1,)
        Limits of the columns' cells.
    low, high : ndarray, shape (K,)
        Range of ln B in each column; its N nodes are evenly spaced from end to end.
    log_w : ndarray, shape (J, K, N)
        Log weight of each noise model at each node.
    """

    u: FloatArray
    edges: FloatArray
    low: FloatArray
    high: FloatArray
    log_w: FloatArray

    @property
    def areas(self) -> FloatArray:
        """Area in (ln c, ln B) that a node of each column stands for, shape (K,)."""
        N = self.log_w.shape[2]
        return np.diff(self.edges) * ((self.high - self.low) / (N - 1) if N > 1 else 1.0)

    @property
    def nodes(self) -> FloatArray:
        """Ln B of the nodes, shape (K, N)."""
        return _nodes(self.low, self.high, self.log_w.shape[2])


def _nodes(low: FloatArray, high: FloatArray, N: int) -> FloatArray:
    return low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, N)


def _log_sum(a: FloatArray, axis: int) -> FloatArray:
    top = a.max(axis=axis, keepdims=True)
    total: FloatArray = np.log(np.exp(a - top).sum(axis=axis)) + np.squeeze(top, axis)
    return total


def _narrow(
    value: FloatArray, at: FloatArray, limits: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """The range of `at` that holds everything within DEPTH nats of each row's best value.

    One spacing is added on either side. A peak thinner than the spacing is located by the parabola
    through its three highest values; a peak at the end of a range that the box allows to grow moves
    the range outwards.

    Parameters
    ----------
    value, at : ndarray, shape (R, N)
    limits : tuple of float

    Returns
    -------
    low, high : ndarray, shape (R,)
    """
    N = value.shape[1]
    row = np.arange(len(value))
    h = at[:, 1] - at[:, 0]
    i = value.argmax(axis=1)
    keep = value > value[row, i][:, None] - DEPTH
    low = at[row, keep.argmax(axis=1)] - h
    high = at[row, N - 1 - keep[:, ::-1].argmax(axis=1)] + h
    inner = np.clip(i, 1, N - 2)
    left = value[row, inner] - value[row, inner - 1]
    right = value[row, inner] - value[row, inner + 1]
    curvature = np.maximum(left + right, 1e-12)
    centre = at[row, inner] + 0.5 * h * (left - right) / curvature
    half = h * np.maximum(6.0 / np.sqrt(curvature), 0.15)
    thin = (i == inner) & (keep.sum(axis=1) < 3)
    low = np.where(thin, centre - half, np.where(i == 0, low - 4.0 * h, low))
    high = np.where(thin, centre + half, np.where(i == N - 1, high + 4.0 * h, high))
    return np.maximum(low, limits[0]), np.minimum(high, limits[1])


def _vertices(log_w: FloatArray, b: FloatArray) -> FloatArray:
    """Where the parabola through each column's three best nodes peaks, shape (K,)."""
    K, N = log_w.shape
    i = np.clip(log_w.argmax(axis=1), 1, N - 2)
    k = np.arange(K)
    left, right = log_w[k, i] - log_w[k, i - 1], log_w[k, i] - log_w[k, i + 1]
    curvature = np.maximum(left + right, 1e-12)
    shift = np.clip(0.5 * (left - right) / curvature, -1.0, 1.0)
    return np.asarray(b[k, i] + shift * (b[:, 1] - b[:, 0]))


def find_ridge(
    log_nodes: Callable[[FloatArray, FloatArray, Models], FloatArray], box: Box
) -> Ridge:
    """Grid the posterior of a law's shape.

    Parameters
    ----------
    log_nodes : callable
        Log weight, shape (len(j), G), of the noise models j (an index array or a slice) for shapes
        given as u and b of shape (G,).
    box : tuple of float
        (u low, u high, b low, b high); equal b limits fix B.

    Returns
    -------
    Ridge
    """
    K, N = COLUMNS, NODES if box[2] < box[3] else 1
    u = np.linspace(box[0], box[1], K)
    low, high = np.full(K, box[2]), np.full(K, box[3])
    j: Models = ALL
    for _ in range(MAX_ROUNDS):
        b = _nodes(low, high, N)
        log_w = log_nodes(np.repeat(u, N), b.ravel(), j).reshape(-1, K, N)
        if j is ALL:
            j = np.argsort(-log_w.max(axis=(1, 2)), kind="stable")[:LIKELIEST]
        pooled = _log_sum(log_w, axis=0)
        value = pooled.max(axis=1)
        if N > 1 and (pooled > value[:, None] - DEPTH).sum(axis=1).min() < MIN_RESOLVED:
            between = log_nodes(u, _vertices(pooled, b), j)
            value = np.maximum(value, _log_sum(between, axis=0))
        near = value > value.max() - DEPTH
        if _resolved(pooled, value, near, u, b, box):
            break
        start, end = _narrow(value[None], u[None], box[:2])
        u, low, high = _follow(pooled, value, u, b, np.linspace(start[0], end[0], K), box)
    columns, edges = _equal_shares(value, u)
    u, low, high = _follow(pooled, value, u, b, columns, box)
    K = len(u)
    log_w = log_nodes(np.repeat(u, N), _nodes(low, high, N).ravel(), ALL).reshape(-1, K, N)
    return Ridge(u, edges, low, high, log_w)


def _follow(
    pooled: FloatArray,
    value: FloatArray,
    u: FloatArray,
    b: FloatArray,
    columns: FloatArray,
    box: Box,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The range of ln B in new columns, from that of the old columns that matter."""
    N = pooled.shape[1]
    matter = np.flatnonzero(value > value.max() - 4.0 * DEPTH)
    if N == 1:
        return columns, np.full(len(columns), box[2]), np.full(len(columns), box[3])
    low, high = _narrow(pooled[matter], b[matter], box[2:])
    return columns, np.interp(columns, u[matter], low), np.interp(columns, u[matter], high)


def _equal_shares(value: FloatArray, u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Columns and cell edges that share out the square root of the weight evenly."""
    fine = np.linspace(u[0], u[-1], 12 * len(u))
    density = np.exp(0.5 * (np.interp(fine, u, value) - value.max()))
    density = (1.0 - UNIFORM) * density / density.sum() + UNIFORM / len(fine)
    share = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    at = np.linspace(0.0, share[-1], 2 * FINAL_COLUMNS + 1)
    where = np.interp(at, share, fine)
    return where[1::2], where[::2]


def _resolved(
    pooled: FloatArray,
    value: FloatArray,
    near: NDArray[np.bool_],
    u: FloatArray,
    b: FloatArray,
    box: Box,
) -> bool:
    """Whether enough columns and nodes carry the weight, none of it cut off at an end."""
    K, N = pooled.shape
    if near.sum() < MIN_RESOLVED or near.sum() < K // 2:
        return False
    eps = 1e-9
    if (near[0] and u[0] > box[0] + eps) or (near[-1] and u[-1] < box[1] - eps):
        return False
    if N == 1:
        return True
    chosen = np.flatnonzero(value > value.max() - 0.6 * DEPTH)
    inside = pooled[chosen] > pooled[chosen].max(axis=1, keepdims=True) - 0.6 * DEPTH
    cut = (inside[:, 0] & (b[chosen, 0] > box[2] + eps)) | (
        inside[:, -1] & (b[chosen, -1] < box[3] - eps)
    )
    return bool((inside.sum(axis=1) >= MIN_RESOLVED).all() and not cut.any())
