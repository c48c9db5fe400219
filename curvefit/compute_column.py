"""Which column is compute: GPU-hours before steps before tokens; times where GPUs are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from curvefit import names
from curvefit.candidates import Request, Series, begins_with_number, distinct, several, unknown
from curvefit.compute import Scale, gpu_hours_of_steps, gpu_hours_of_time, plain
from curvefit.errors import InputError
from curvefit.wording import listed

if TYPE_CHECKING:
    from curvefit.readers.table import Table

__all__ = ["compute_column", "scale_of", "step_column"]

CLOCKS = ["elapsed", "date", "unclear", "per step"]  # the better first


def compute_column(table: Table, request: Request, series: tuple[Series, ...]) -> str:
    """Return the column of compute.

    Raises
    ------
    AmbiguousColumn
        When several are equally good and differ.
    InputError
        When there is none, or no time column for ``--gpus``.
    """
    if request.x is not None:
        if request.x not in table.columns:
            raise unknown(table, "--x", request.x, list(table.columns))
        return request.x
    taken = {s.column for s in series}
    ranked = {n: r for n in table.columns if n not in taken and (r := _rank(n, request, series))}
    usable = [n for n in ranked if begins_with_number(table, [Series(n)])]
    usable = [n for n in usable if _meets(table, n, series)] or usable
    usable = [n for n in usable if _varies(table, n)] or usable
    if usable:
        best = min(ranked[n] for n in usable)
        first = distinct(table, [n for n in usable if ranked[n] == best], str)
        if len(first) > 1:
            raise several(table, "--x", "compute", first)
        return first[0]
    if request.gpus is not None:
        raise InputError(
            f"{table.label}: --gpus needs a time column, and none is known among "
            f"{listed(table.columns)}: name it with --x COL"
        )
    left = [n for n in table.columns if n not in taken and begins_with_number(table, [Series(n)])]
    left = [n for n in left if not (names.is_trap(n) or names.score_rank(n))]
    left = [n for n in left if n.lower() not in names.RUN_NAMES]
    if len(left) == 1:
        return left[0]
    if left:
        raise several(table, "--x", "compute", left)
    raise InputError(
        f"{table.label}: no column of numbers is left for compute among {listed(table.columns)}: "
        "a column such as gpu_hours or step is needed, named with --x COL"
    )


def _rank(name: str, request: Request, series: tuple[Series, ...]) -> tuple[int, ...] | None:
    """Rank a column as compute; times only count as such when asked for, or when all else fails."""
    time, meaning = names.clock(name), names.compute_meaning(name)
    if request.gpus is not None:
        return None if time is None else (0, CLOCKS.index(time.shows))
    if request.gpu_hours_per_step is not None and (meaning is None or meaning.unit != "step"):
        return None
    if meaning is None:
        return None if time is None else (len(names.COMPUTE), 0, 0)
    family = name.rpartition("/")[0]
    near = bool(family) and series[0].column.startswith(f"{family}/")
    return (meaning.rank[0], -near, meaning.rank[1])


def _meets(table: Table, name: str, series: tuple[Series, ...]) -> bool:
    """Whether a compute column has values on most rows that have a score, or is to be summed."""
    time, meaning = names.clock(name), names.compute_meaning(name)
    if (time is not None and time.shows == "per step") or (
        meaning is not None and meaning.per_step
    ):
        return True
    y = np.isfinite(table.numbers(series[0].column).values)
    return not table.holds_numbers(name) or (
        int((y & np.isfinite(table.numbers(name).values)).sum()) * 2 >= int(y.sum())
    )


def _varies(table: Table, name: str) -> bool:
    if not table.holds_numbers(name):
        return True
    values = table.numbers(name).values
    return bool(np.nanmin(values) < np.nanmax(values))


def scale_of(x: str, request: Request) -> Scale:
    """Return how the column becomes compute, given GPUs or a price a step."""
    if request.gpus is not None and request.gpu_hours_per_step is not None:
        raise InputError("give --gpus (for a time column) or --gpu-hours-per-step, not both")
    if request.gpus is not None:
        return gpu_hours_of_time(x, request.gpus)
    if request.gpu_hours_per_step is not None:
        return gpu_hours_of_steps(x, request.gpu_hours_per_step)
    return plain(x)


def step_column(table: Table, series: tuple[Series, ...]) -> str | None:
    """Return the column of the training step, which tells restarts."""
    known = [(m, n) for n in table.columns if (m := names.compute_meaning(n)) and m.unit == "step"]
    usable = [(m, n) for m, n in known if table.holds_numbers(n) and _varies(table, n)]
    usable = [(m, n) for m, n in usable if _meets(table, n, series)]
    return min(usable, key=lambda pair: pair[0].rank)[1] if usable else None
