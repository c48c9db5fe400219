"""A law's shapes on one compute axis, compressed to their values at a few points of it.

All shapes within a range of (ln c, ln B), and so their derivatives, are nearly combinations of r of
them, r = 6 to 25, and r points of the axis tell which combination: s = E · s(points). Points and
combinations come from cross approximation with full pivoting (Bebendorf 2000, Numerische Mathematik
86, 565).
Inner products of shapes with each other and with data then cost O(r) instead of O(n).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from curvefit.laws import Law
from curvefit.projection import ZERO_COMPUTE

__all__ = ["Compressed", "compress"]

FloatArray = NDArray[np.float64]
Box = tuple[float, float, float, float]

ACCURACY = 3e-7  # of a shape, which runs from 0 to 1
SPACING_U, SPACING_B = 0.45, 0.25  # of the library that represents the box


class Compressed(NamedTuple):
    """The shapes of a law at the points of an axis.

    Attributes
    ----------
    law : Law
    x : ndarray, shape (r, 1)
        ln C of the chosen points.
    E : ndarray, shape (n, r)
        The (weighted) shape on the whole axis is E times its values at the chosen points.
    root : ndarray, shape (r, r)
        rootᵀ · root = Eᵀ (1 − P) E, with P the projection on a constant level.
    sums : ndarray, shape (r,)
        The (weighted) sum of a shape over the axis is sums times its values.
    n : float
        Number of points, or the sum of their weights.
    """

    law: Law
    x: FloatArray
    E: FloatArray
    root: FloatArray
    sums: FloatArray
    n: float


def compress(law: Law, x: FloatArray, root_w: FloatArray | None, box: Box) -> Compressed:
    """Compress the shapes within a box of (ln c, ln B).

    Parameters
    ----------
    law : Law
    x : ndarray, shape (n,)
        ln C.
    root_w : ndarray of shape (n,), optional
        Square roots of the weights.
    box : tuple of float
        (u low, u high, b low, b high).
    """
    x = np.maximum(x, ZERO_COMPUTE)
    S = _library(law, x, box)
    points, shapes = _cross(S)
    E = np.linalg.solve(S[np.ix_(points, shapes)].T, S[:, shapes].T).T
    one = np.ones(len(x)) if root_w is None else root_w
    E, n = E * one[:, None], float(one @ one)
    sums = one @ E
    _, root = np.linalg.qr(E - np.outer(one, sums / n))
    return Compressed(law, x[points, None], E, root, sums, n)


def _library(law: Law, x: FloatArray, box: Box) -> FloatArray:
    """Shapes all over the box, shape (n, G)."""
    K = 4 + math.ceil((box[1] - box[0]) / SPACING_U)
    N = 3 + math.ceil((box[3] - box[2]) / SPACING_B) if box[2] < box[3] else 1
    u, B = np.linspace(box[0], box[1], K), np.exp(np.linspace(box[2], box[3], N))
    return law.s(x[:, None] - np.repeat(u, N), np.tile(B, K))


def _cross(S: FloatArray) -> tuple[list[int], list[int]]:
    """Rows and columns of S whose cross approximation leaves nothing above `ACCURACY`."""
    rest, size = S.copy(), np.empty_like(S)
    rows: list[int] = []
    columns: list[int] = []
    for _ in range(min(S.shape)):
        i, j = divmod(int(np.abs(rest, out=size).argmax()), S.shape[1])
        if size[i, j] < ACCURACY:
            break
        rows.append(i)
        columns.append(j)
        rest -= np.multiply(rest[:, j, None] / rest[i, j], rest[i], out=size)
    return rows, columns
