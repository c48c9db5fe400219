"""The budgets of an allocation: from where to where, which of them are answered for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from curvefit.digits import compute, magnitude
from curvefit.errors import InputError
from curvefit.fitted import Fit

__all__ = ["budgets_of", "checked_end", "common_start", "grid_of"]

FloatArray = NDArray[np.float64]

POINTS = 97  # of the range, on a log scale
MOST = 1000  # budgets that can be asked for at once
ROWS = 14  # up to so many round budgets have the steps 1, 2, 5; more have powers of ten alone


def common_start(settings: Mapping[str, Sequence[Fit]]) -> float:
    """The smallest positive compute at or above which every setting has been evaluated."""
    return max(
        min(float(f.run.compute[f.run.compute > 0][0]) for f in fits) for fits in settings.values()
    )


def checked_end(
    at: float | None, budgets: Sequence[float] | None, start: float, usual: float
) -> float:
    """Where the range of budgets ends.

    Raises
    ------
    InputError
        If `at` or a budget is not a number above `start`, or there are too many budgets.
    """
    asked = [] if budgets is None else [float(b) for b in budgets]
    if budgets is not None and not 0 < len(asked) <= MOST:
        raise InputError(f"there are {len(asked)} budgets; give 1 to {MOST:,}")
    for value in asked if at is None else [*asked, float(at)]:
        if not (np.isfinite(value) and value >= start):
            raise InputError(
                f"a budget of {value:g} cannot be allocated: the settings have been evaluated "
                f"side by side from {compute(start)} on; give a number at or above"
            )
    largest = max(asked, default=usual) if at is None else max([*asked, float(at)])
    if largest <= start and len(asked) < 1:
        raise InputError(
            f"a range up to {compute(largest)} is empty: it begins at {compute(start)}"
        )
    return largest


def budgets_of(asked: Sequence[float] | None, start: float, end: float) -> FloatArray:
    """The budgets to answer for, ascending: those asked for, or both ends and round ones between.

    >>> budgets_of(None, 1328.0, 20_000.0).tolist()
    [1328.0, 2000.0, 5000.0, 10000.0, 20000.0]
    """
    if asked is not None:
        return np.unique(np.asarray(asked, dtype=float))
    powers = 10.0 ** np.arange(magnitude(start), magnitude(end) + 1)
    fine = np.outer(powers, [1.0, 2.0, 5.0]).ravel()
    for round_ones in (fine, powers):
        between = round_ones[(round_ones > 1.05 * start) & (round_ones < 0.95 * end)]
        if len(between) <= ROWS:
            break
    return np.unique([start, *between, end])


def grid_of(rows: FloatArray, start: float, end: float) -> tuple[FloatArray, list[int]]:
    """A log grid from start to end that holds the rows, and where they stand in it."""
    grid = np.unique([*np.geomspace(start, end, POINTS)[1:-1], start, end, *rows])
    return grid, np.searchsorted(grid, rows).tolist()
