"""Evenly spread points in the unit cube: Sobol's sequence, as far as this package needs it.

Direction numbers of Joe and Kuo (SIAM J. Sci. Comput. 30 (2008) 2635, file new-joe-kuo-6), checked
against scipy in `tests/curvefit/test_sobol.py`. scipy itself is not imported here: it would cost
more time than a fit.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["hammersley", "sobol"]

FloatArray = NDArray[np.float64]

BITS = 30
# degree s, coefficients a and initial numbers m of each dimension's primitive polynomial
POLYNOMIALS = (
    (0, 0, ()),
    (1, 0, (1,)),
    (2, 1, (1, 3)),
    (3, 1, (1, 3, 1)),
    (3, 2, (1, 1, 1)),
    (4, 1, (1, 1, 3, 3)),
    (4, 4, (1, 3, 5, 13)),
    (5, 2, (1, 1, 5, 5, 17)),
    (5, 4, (1, 1, 5, 5, 5)),
    (5, 7, (1, 1, 7, 11, 19)),
)
SHIFT = 0.6180339887498949  # digital shift of every dimension, multiplied by its number


def _directions(s: int, a: int, m: tuple[int, ...]) -> list[int]:
    """The direction numbers of one dimension, each scaled by 2^BITS."""
    if s == 0:
        return [1 << (BITS - 1 - k) for k in range(BITS)]
    v = [m[k] << (BITS - 1 - k) for k in range(s)]
    for k in range(s, BITS):
        new = v[k - s] ^ (v[k - s] >> s)
        for q in range(1, s):
            if (a >> (s - 1 - q)) & 1:
                new ^= v[k - q]
        v.append(new)
    return v


def sobol(count: int, dimensions: int) -> NDArray[np.int64]:
    """The first `count` points in Gray-code order, shape (dimensions, count), scaled by 2^BITS."""
    index = np.arange(count, dtype=np.int64)
    gray = index ^ (index >> 1)
    points = np.zeros((dimensions, count), dtype=np.int64)
    for d, polynomial in enumerate(POLYNOMIALS[:dimensions]):
        for bit, v in enumerate(_directions(*polynomial)[: count.bit_length()]):
            points[d] ^= ((gray >> bit) & 1) * v
    return points


@lru_cache(maxsize=16)
def hammersley(count: int) -> FloatArray:
    """`count` points in 10 dimensions, shape (10, count), none of them on the cube's surface.

    The first coordinate is stratified, (i + ½)/count; the others are Sobol's dimensions 2 to 10
    with a fixed digital shift.
    """
    points = sobol(count, len(POLYNOMIALS))[1:]
    shift = (np.arange(1, len(points) + 1) * SHIFT % 1.0 * (1 << BITS)).astype(np.int64)
    rest = ((points ^ shift[:, None]) + 0.5) / (1 << BITS)
    cube = np.concatenate([[(np.arange(count) + 0.5) / count], rest])
    cube.flags.writeable = False
    return np.asarray(cube)
