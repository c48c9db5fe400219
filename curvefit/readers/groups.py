"""Which rows belong to which run, and a question where that cannot be told."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from curvefit import names
from curvefit.clean import Rows
from curvefit.columns import Choice
from curvefit.errors import AmbiguousColumn
from curvefit.readers.table import Table
from curvefit.wording import listed, printable

__all__ = ["ask_if_mixed", "groups", "members"]

MAX_LABELS = 50

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def groups(table: Table, choice: Choice) -> tuple[list[str], IntArray | None]:
    """Return the run names in order of appearance, and which of them each row belongs to."""
    if not choice.run:
        return [""], None
    columns = [_labels(table, name) for name in choice.run]
    codes: dict[tuple[str, ...], int] = {}
    group = np.asarray(
        [codes.setdefault(parts, len(codes)) for parts in zip(*columns, strict=True)]
    )
    return [", ".join(parts) for parts in codes], group


def _labels(table: Table, column: str) -> list[str]:
    words = table.text(column)
    if names.splits_runs(column) and table.holds_numbers(column):
        return [f"{column} {word}" if word else "(blank)" for word in words]
    return [word or "(blank)" for word in words]


def members(group: IntArray | None, number: int) -> list[IntArray | slice]:
    """Return the rows of each group, in file order."""
    if group is None:
        return [slice(None)]
    by = np.argsort(group, kind="stable")
    return list(np.split(by, np.searchsorted(group[by], np.arange(1, number))))


def ask_if_mixed(table: Table, choice: Choice, rows: Rows, group: IntArray | None) -> None:
    """Ask when the same compute comes again and a column of labels tells the rows apart.

    Raises
    ------
    AmbiguousColumn
        With the labels, and the flag that makes each a curve of its own.
    """
    known = np.isfinite(rows.x) & np.isfinite(rows.y)
    keys = [rows.x[known]] if group is None else [group[known].astype(float), rows.x[known]]
    y = rows.y[known]
    repeats = _clashes(keys, y)
    found: list[str] = []
    offers = _label_columns(table, choice, known) if repeats else {}
    while repeats and offers:
        left = {name: _clashes([*keys, codes], y) for name, codes in offers.items()}
        best = min(left, key=lambda name: left[name])
        if left[best] > repeats // 2:
            break
        keys.append(offers.pop(best))
        found.append(best)
        repeats = left[best]
    if found:
        told = " and ".join(_described(table, name) for name in found)
        raise AmbiguousColumn(
            f"{table.label}: the same {printable(choice.x)} comes several times with different "
            f"scores, told apart by column {told}: make each a curve of its own with "
            f"--run {printable(','.join((*choice.run, *found)))}, or keep only the rows of one"
        )


def _label_columns(table: Table, choice: Choice, known: NDArray[np.bool_]) -> dict[str, FloatArray]:
    taken = {choice.x, choice.step, *choice.run, *(series.column for series in choice.series)}
    offers = {}
    for name in table.columns:
        if name in taken or not (table.holds_text(name) or names.splits_runs(name)):
            continue
        codes: dict[str, int] = {}
        code = np.asarray([float(codes.setdefault(w, len(codes))) for w in table.text(name)])[known]
        if 1 < len(codes) <= min(MAX_LABELS, len(code) / 2):
            offers[name] = code
    return offers


def _clashes(keys: list[FloatArray], y: FloatArray) -> int:
    """Count the rows whose keys stood in an earlier row with another score."""
    by = np.lexsort([y, *keys])
    keys = [key[by] for key in keys]
    same = np.logical_and.reduce([key[1:] == key[:-1] for key in keys])
    return int((same & (y[by][1:] != y[by][:-1])).sum())


def _described(table: Table, column: str) -> str:
    values = dict.fromkeys(word for word in table.text(column) if word)
    return f"{printable(column)} ({listed(values, 4)})"
