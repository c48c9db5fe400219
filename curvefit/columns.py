"""Which columns to use: what the user asked for, otherwise what the names say.

The choice prefers held-out evaluation to training reward, and GPU-hours to steps to tokens. Where
two columns are equally good and differ, the user is asked, with the candidates and the flag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from curvefit import names
from curvefit.candidates import Request, Series, unknown
from curvefit.compute import Scale
from curvefit.compute_column import compute_column, scale_of, step_column
from curvefit.errors import InputError
from curvefit.score_column import score_columns
from curvefit.wording import printable, quoted

if TYPE_CHECKING:
    from curvefit.readers.table import Table

__all__ = ["Choice", "Request", "choose"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The columns of a table, each with its role."""

    x: str
    scale: Scale
    y: str
    series: tuple[Series, ...]
    run: tuple[str, ...] = ()
    n: int | str | None = None
    step: str | None = None
    others: tuple[str, ...] = ()

    def sentence(self, otherwise: str = "file name") -> str:
        """Return ``x = gpu_hours, y = pass_rate, run = run``; `otherwise` where no column says."""
        wide = len(self.series) > 1 or self.series[0].run
        run = " + ".join(self.run) or ("(column names)" if wide else f"({otherwise})")
        size = "" if self.n is None else f", n = {self.n}"
        return printable(f"x = {self.x}, y = {self.y}, run = {run}{size}", 400)


def choose(table: Table, request: Request) -> Choice:
    """Give each column its role.

    Raises
    ------
    AmbiguousColumn
        When several columns could serve; the message lists them and names the flag.
    InputError
        When none could, or the user named one that is not there.
    """
    y, series, others = score_columns(table, request)
    x = compute_column(table, request, series)
    if any(x == s.column for s in series):
        raise InputError(f"{table.label}: {quoted(x)} cannot be both compute (--x) and score (--y)")
    return Choice(
        x=x,
        scale=scale_of(x, request),
        y=y,
        series=series,
        run=_run(table, request, {x, *(s.column for s in series)}),
        n=_size(table, request, series),
        step=step_column(table, series),
        others=others,
    )


def _run(table: Table, request: Request, taken: set[str]) -> tuple[str, ...]:
    if request.run is not None:
        if request.run in table.columns:
            return (request.run,)
        chosen = tuple(part.strip() for part in request.run.split(","))
        for name in chosen:
            if name not in table.columns:
                raise unknown(table, "--run", name, list(table.columns))
        return chosen
    by_lower = {name.lower(): name for name in table.columns if name not in taken}
    several = {
        key: len(set(table.text(by_lower[key]))) > 1 for key in names.RUN_NAMES if key in by_lower
    }
    found = next((key for key, many in several.items() if many or key in names.RUN_IDS), None)
    if found is None:
        return ()
    seed = found != "seed" and several.get("seed", False)
    return (by_lower[found], by_lower["seed"]) if seed else (by_lower[found],)


def _size(table: Table, request: Request, series: tuple[Series, ...]) -> int | str | None:
    """Return the evaluation size; a column is only taken unasked if it is known for all scores."""
    if isinstance(request.n, str) and request.n not in table.columns:
        raise unknown(table, "--n", request.n, list(table.columns))
    if request.n is not None:
        return request.n
    score = series[0].column
    own = table.sizes.get(score)
    for name in names.SIZE_NAMES if own is None else (own,):
        if name in table.columns and table.holds_numbers(name):
            scored = np.isfinite(table.numbers(score).values)
            if (table.numbers(name).values[scored] >= 1).all():
                return name
    return None
