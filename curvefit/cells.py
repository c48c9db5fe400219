"""Cells to numbers: what counts as missing, and which spellings of a number are understood.

A whole column is converted at once when its cells are plain numbers; only a column that holds
percent signs, thousands separators or text is gone through cell by cell. A decimal comma is never
guessed: ``1,234`` is read as a thousand only where the comma cannot be a decimal point.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["MISSING", "BadCell", "Cells", "Numbers", "is_missing", "numbers"]

Cells = Sequence[object] | NDArray[Any]

MISSING = frozenset(
    spelling
    for word in (
        "",
        "nan",
        "null",
        "none",
        "-",
        "--",
        "n/a",
        "na",
        "#n/a",
        "<na>",
        "nat",
        "missing",
    )
    for spelling in (word, word.upper(), word.capitalize(), word.title())
) | {"NaN", "NaT", "<NA>"}

GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?", re.ASCII)
COMMA = re.compile(r"[+-]?\d*([.,]\d+)*", re.ASCII)


class BadCell(Exception):
    """A cell that is neither a number nor missing: where it stands, what it holds, why not."""

    def __init__(self, index: int, cell: object, why: str) -> None:
        super().__init__(index, cell, why)
        self.index, self.cell, self.why = index, cell, why


class Numbers(NamedTuple):
    """A column as numbers, NaN where missing, with the spellings that were met."""

    values: NDArray[np.float64]
    percent: bool = False
    grouped: bool = False


def is_missing(cell: object) -> bool:
    """Whether a cell says that there is no value: blank, None, NaN, ``-``, ``N/A`` and the like."""
    if cell is None or cell in MISSING:
        return True
    if isinstance(cell, str):
        return cell.strip() in MISSING
    return isinstance(cell, float) and cell != cell


def numbers(cells: Cells, *, commas_group: bool = True) -> Numbers:
    """Convert a column.

    Parameters
    ----------
    cells : sequence or ndarray, shape (n,)
        Strings as they stand in a file, or numbers.
    commas_group : bool
        Whether ``1,234`` may be read as 1234; False where commas are likely decimal.

    Raises
    ------
    BadCell
        At the first cell that is text, true or false, infinite, or a number with a decimal comma,
        and at the first that lacks the percent sign that others have.
    """
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiu":
        return Numbers(_finite(cells.astype(np.float64), cells))
    cells = cells.tolist() if isinstance(cells, np.ndarray) else cells
    plain = _at_once(cells)
    return Numbers(_finite(plain, cells)) if plain is not None else _one_by_one(cells, commas_group)


def _at_once(cells: Sequence[object]) -> NDArray[np.float64] | None:
    """Convert a column of plain numbers and missing cells; None when it holds anything else."""
    if not {type(cell) for cell in cells} <= {str, float, int, type(None)}:
        return None
    try:
        return np.asarray(
            [np.nan if cell is None or cell in MISSING else cell for cell in cells], dtype=object
        ).astype(np.float64)
    except (ValueError, OverflowError):
        return None


def _finite(values: NDArray[np.float64], cells: Cells) -> NDArray[np.float64]:
    infinite = np.isinf(values)
    if infinite.any():
        index = int(np.argmax(infinite))
        raise BadCell(index, cells[index], "which is not finite")
    return values


def _one_by_one(cells: Sequence[object], commas_group: bool) -> Numbers:
    values = np.full(len(cells), np.nan)
    percent: list[int] = []
    plain: list[int] = []
    grouped = False
    for index, cell in enumerate(cells):
        if is_missing(cell):
            continue
        text = str(cell).strip()
        (percent if text.endswith("%") else plain).append(index)
        text = text.removesuffix("%").rstrip()
        if "," in text:
            text, grouped = _without_commas(index, cell, text, commas_group), True
        values[index] = _number(index, cell, text)
    if percent and plain:
        raise BadCell(plain[0], cells[plain[0]], "while other cells carry a percent sign")
    return Numbers(_finite(values, cells), bool(percent), grouped)


def _number(index: int, cell: object, text: str) -> float:
    if isinstance(cell, (bool, np.bool_)):
        raise BadCell(index, cell, "which is true or false, not a number")
    try:
        return float(text)
    except ValueError:
        raise BadCell(index, cell, "which is not a number") from None


def _without_commas(index: int, cell: object, text: str, commas_group: bool) -> str:
    if GROUPED.fullmatch(text) and commas_group:
        return text.replace(",", "")
    if COMMA.fullmatch(text):
        why = "where the comma could mark decimals or thousands: write 0.5 or 1234.5"
        raise BadCell(index, cell, why)
    raise BadCell(index, cell, "which is not a number")
