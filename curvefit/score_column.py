"""Which column is the score: held-out evaluation before training reward, rates before rewards.

A tracker's wide export heads its columns ``<run> - <key>``: there the key is the score, and each
column a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from curvefit import names
from curvefit.candidates import Request, Series, begins_with_number, distinct, several, unknown
from curvefit.errors import AmbiguousColumn, InputError
from curvefit.wording import listed

if TYPE_CHECKING:
    from curvefit.readers.table import Table

__all__ = ["score_columns"]

BETWEEN = " - "
Found = tuple[str, tuple[Series, ...], tuple[str, ...]]


def score_columns(table: Table, request: Request) -> Found:
    """Return the name of the score, its column in each run, and what else could be the score.

    Raises
    ------
    AmbiguousColumn
        When several are equally good and differ.
    InputError
        When there is none.
    """
    offers = _offers(table)
    if request.y is not None:
        if request.y not in offers and request.y not in table.columns:
            raise unknown(table, "--y", request.y, list(offers))
        return request.y, tuple(offers.get(request.y) or [Series(request.y)]), ()
    rank = {name: r for name in offers if (r := names.score_rank(name)) is not None}
    usable = [name for name in rank if begins_with_number(table, offers[name])]
    if not usable:
        return _by_elimination(table, request, offers)
    best = min(rank[name] for name in usable)
    first = distinct(table, [n for n in usable if rank[n] == best], lambda n: offers[n][0].column)
    if len(first) > 1:
        raise several(table, "--y", "the score", first)
    others = tuple(name for name in usable if name != first[0] and rank[name] > best)
    return first[0], tuple(offers[first[0]]), others


def _offers(table: Table) -> dict[str, list[Series]]:
    """Return what can be asked for as score: columns, and the keys of a tracker's wide export."""
    offers: dict[str, list[Series]] = {}
    for column in table.columns:
        run, between, key = column.rpartition(BETWEEN)
        if column.lower().endswith(names.TWINS):
            continue
        if between and run and key:
            offers.setdefault(key, []).append(Series(column, run))
        else:
            offers[column] = [Series(column)]
    return offers


def _by_elimination(table: Table, request: Request, offers: dict[str, list[Series]]) -> Found:
    """Take what is left when compute, labels, times and traps are set aside."""
    left = [
        name
        for name, series in offers.items()
        if name not in (request.x, request.n)
        and not (names.is_trap(name) or names.compute_meaning(name) or names.clock(name))
        and name.lower() not in names.RUN_NAMES
        and begins_with_number(table, series)
    ]
    if len(left) == 1:
        return left[0], tuple(offers[left[0]]), ()
    if left and _are_runs(table, left):
        return "score", tuple(Series(name, name) for name in left), ()
    if left:
        raise AmbiguousColumn(
            f"{table.label}: no column is known as a score; what is left is {listed(left)}: "
            "choose one with --y COL"
        )
    raise InputError(
        f"{table.label}: no column looks like a score among {listed(offers)} (losses, lengths and "
        "times are never taken for one): name it with --y COL"
    )


def _are_runs(table: Table, left: Sequence[str]) -> bool:
    """Whether a table has compute and nothing else but fractions: then each column is a run."""
    rest = [name for name in table.columns if name not in left]
    if len(left) < 2 or not rest or not all(map(names.compute_meaning, rest)):
        return False
    values = [table.numbers(name).values for name in left]
    return all(np.nanmin(v) >= 0 and np.nanmax(v) <= 1 for v in values)
