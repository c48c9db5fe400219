"""What every reader hands on: named columns of cells, and where each row stands in its file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from curvefit.cells import BadCell, Cells, Numbers, is_missing, numbers
from curvefit.errors import InputError
from curvefit.runs import Dropped, Note
from curvefit.wording import printable, quoted

__all__ = ["MAX_CELLS", "Table"]

MAX_CELLS = 10_000_000  # about 0.6 GB of Python objects; 1,000 runs of 100 points need 0.3 million
NUMBER_LIKE = re.compile(r"[+-]?(?:[.,]?\d|inf)", re.IGNORECASE)


@dataclass(slots=True)
class Table:
    """Rows of a file, before any column has a meaning.

    Attributes
    ----------
    file : str
        Path as given, ``"-"`` or ``""``.
    run : str
        What its run is called when no column says it.
    columns : dict of str to cells
        Cells of each column, all of the same length.
    rows : ndarray of int, shape (n,)
        Where each row stands: line of a text file, record of a JSON document, position from 1.
    place : str
        What `rows` counts: ``line``, ``record`` or ``row``.
    commas_group : bool
        Whether ``1,234`` can only be a thousand here (not in a file separated by semicolons).
    run_from : str
        Where `run` comes from, as the report says it.
    notes, dropped : list
        What reading decided, and the rows it left out.
    sizes : dict of str to str
        By score, the column of its evaluation size, where it is not that of all scores.
    """

    file: str
    run: str
    columns: dict[str, Cells]
    rows: NDArray[np.int64]
    place: str = "line"
    commas_group: bool = True
    run_from: str = "file name"
    notes: list[Note] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    sizes: dict[str, str] = field(default_factory=dict)
    _numbers: dict[str, Numbers | BadCell] = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """The file as messages name it."""
        return {"": "the data", "-": "standard input"}.get(self.file, printable(self.file))

    def at(self, index: int) -> str:
        """Return ``file, line 7`` for a row counted from 0."""
        return f"{self.label}, {self.place} {int(self.rows[index])}"

    def numbers(self, name: str) -> Numbers:
        """Return a column as numbers, NaN where missing.

        Raises
        ------
        InputError
            When a cell is neither a number nor missing; it names line, column and cell.
        """
        found = self._parsed(name)
        if isinstance(found, BadCell):
            cell = quoted(found.cell)
            raise InputError(f"{self.at(found.index)}: {printable(name)} is {cell}, {found.why}")
        return found

    def holds_numbers(self, name: str, least: int = 1) -> bool:
        """Whether a column has at least `least` numbers and no text."""
        found = self._parsed(name)
        return isinstance(found, Numbers) and bool(np.isfinite(found.values).sum() >= least)

    def begins_with_number(self, name: str) -> bool:
        """Whether the first cell that holds anything holds a number, well written or not."""
        found = self._parsed(name)
        if isinstance(found, Numbers):
            return bool(np.isfinite(found.values).any())
        first = next(cell for cell in self.columns[name] if not is_missing(cell))
        return NUMBER_LIKE.match(str(first).strip()) is not None

    def holds_text(self, name: str) -> bool:
        """Whether a column has a cell that is a word rather than a number."""
        found = self._parsed(name)
        return isinstance(found, BadCell) and isinstance(found.cell, str)

    def text(self, name: str) -> Sequence[str]:
        """Return a column as words, ``""`` where missing."""
        return ["" if is_missing(cell) else _word(cell) for cell in self.columns[name]]

    def _parsed(self, name: str) -> Numbers | BadCell:
        if name not in self._numbers:
            try:
                cells = self.columns[name]
                self._numbers[name] = numbers(cells, commas_group=self.commas_group)
            except BadCell as bad:
                self._numbers[name] = bad
        return self._numbers[name]


def _word(cell: object) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()
