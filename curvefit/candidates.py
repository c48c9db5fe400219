"""What the search for columns shares: the request, candidates, and the messages about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from curvefit.errors import AmbiguousColumn, InputError
from curvefit.wording import count, listed, nearest, quoted

if TYPE_CHECKING:
    from curvefit.readers.table import Table

__all__ = ["Request", "Series", "begins_with_number", "distinct", "several", "unknown"]


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for; None where the names decide.

    Attributes
    ----------
    x, y : str or None
    run : str or None
        A column, or several separated by commas.
    n : int, str or None
        Evaluation size, or the column that holds it.
    gpus, gpu_hours_per_step : float or None
    """

    x: str | None = None
    y: str | None = None
    run: str | None = None
    n: int | str | None = None
    gpus: float | None = None
    gpu_hours_per_step: float | None = None


class Series(NamedTuple):
    """A score column; `run` is the run it belongs to in a wide table, otherwise ``""``."""

    column: str
    run: str = ""


def begins_with_number(table: Table, series: Sequence[Series]) -> bool:
    """Whether a column is one of numbers: text further down is then an error to be shown."""
    return any(table.begins_with_number(s.column) for s in series)


def distinct(table: Table, candidates: list[str], column: Callable[[str], str]) -> list[str]:
    """Leave out candidates that hold the same numbers as an earlier one."""
    if len(candidates) == 1 or not all(table.holds_numbers(column(c)) for c in candidates):
        return candidates
    values = [table.numbers(column(c)).values for c in candidates]
    return [
        candidate
        for i, candidate in enumerate(candidates)
        if not any(np.array_equal(values[i], values[j], equal_nan=True) for j in range(i))
    ]


def several(table: Table, flag: str, role: str, candidates: Sequence[str]) -> AmbiguousColumn:
    """Return the question which of several columns plays a role."""
    return AmbiguousColumn(
        f"{table.label}: {count(len(candidates), 'column')} could be {role}: "
        f"{listed(candidates)}; choose one with {flag} COL"
    )


def unknown(table: Table, flag: str, name: str, known: Sequence[str]) -> InputError:
    """Return the error about a name that the table does not have, with the nearest ones."""
    return InputError(
        f"{table.label}: no column is called {quoted(name)} ({flag}); {nearest(name, known)}"
    )
