"""The scale of a score: a fraction, percent, or a reward on a scale of its own.

Percent is recognised by its sign, or by values in (1, 100] under a name that says that they are a
share (accuracy, pass, rate, …). A column in which some values are fractions and others percent is
refused: no rule can tell 0.9 percent from 0.9.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from curvefit.cells import Numbers
from curvefit.errors import InputError
from curvefit.names import says_rate
from curvefit.runs import Note
from curvefit.wording import count, places, printable

__all__ = ["as_fraction", "unit_of"]

FloatArray = NDArray[np.float64]

SLIGHTLY = 2.0  # a few values up to here among fractions are outliers, not percent
GAP = 5.0  # percent over fraction across the jump of a mixed column


def as_fraction(column: str, cells: Numbers, where: str) -> tuple[FloatArray, list[Note]]:
    """Return a score column with percent as fractions, and what was done.

    Parameters
    ----------
    column : str
    cells : Numbers
    where : str
        The file, for messages.

    Raises
    ------
    InputError
        When the column mixes percent and fractions.
    """
    name, values = printable(column), cells.values
    notes = []
    if cells.grouped:
        said = f"commas in {name} were read as thousands separators"
        notes.append(Note("thousands", said))
    if cells.percent:
        return values / 100, [*notes, Note("percent", f"{name} carries % signs: divided by 100")]
    known = values[np.isfinite(values)]
    if not (known.size and says_rate(column) and known.min() >= 0 and 1 < known.max() <= 100):
        return values, notes
    if known.max() <= SLIGHTLY and np.mean(known <= 1) >= 0.5:
        return values, notes
    _refuse_mixture(name, known, where)
    said = f"{name} reaches {known.max():g}: read as percent and divided by 100"
    return values / 100, [*notes, Note("percent", said)]


def unit_of(score: FloatArray, rows: NDArray[np.int64], place: str) -> tuple[str, list[Note]]:
    """Return ``pass_rate`` if all scores of a run lie in [0, 1], otherwise ``reward``."""
    outside = (score < 0) | (score > 1)
    if not outside.any():
        return "pass_rate", []
    worst = score[outside][np.argmax(np.abs(score[outside] - 0.5))]
    said = (
        f"{outside.sum():,} of {count(len(score), 'score')} outside 0 to 1, up to {worst:g} "
        f"({places(rows[outside], place, 3)}): fitted as a reward without bounds"
    )
    return "reward", [Note("outside-0-1", said)]


def _refuse_mixture(name: str, known: FloatArray, where: str) -> None:
    small, large = known[(known > 0) & (known <= 1)], known[known > 1]
    if min(len(small), len(large)) >= 3 and large.min() > GAP * small.max():
        raise InputError(
            f"{where}: {name} mixes fractions (up to {small.max():g}) and percent "
            f"(from {large.min():g}): write all of it in one of the two"
        )
