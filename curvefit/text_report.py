"""The report as plain text, at most `WIDTH` columns wide: no colour, so nothing to switch off."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from curvefit import compact, tables
from curvefit.record import doubts_of

if TYPE_CHECKING:
    from curvefit.fit import Fit
    from curvefit.results import Doubt

__all__ = ["WIDTH", "text", "texts"]

WIDTH = 100
NAME_WIDTH = 30
DETAILED = 3  # up to so many runs are shown in full


def text(fit: Fit, *, at: ArrayLike = (), reach: ArrayLike = ()) -> str:
    """Return the report of one run, without a final line break."""
    file = f" ({fit.run.file})" if fit.run.file not in ("", fit.run.name) else ""
    return _joined(
        _wrapped(f"{fit.run.name}{file}") + _wrapped(tables.points_sentence(fit)),
        _wrapped(tables.verdict_sentence(fit)),
        _grid(tables.parameter_grid(fit)),
        _grid(tables.forecast_grid(fit, at)),
        _grid(tables.reach_grid(fit, reach)) if np.size(reach) else [],
        [line for label, fact in tables.facts(fit) for line in _wrapped(fact, f"{label}: ")],
        _doubts(doubts_of(fit, at)),
    )


def texts(fits: Sequence[Fit], *, at: ArrayLike = (), reach: ArrayLike = ()) -> str:
    """Return the report of several runs: in full up to three, one line a run beyond."""
    if len(fits) <= DETAILED:
        rule = f"\n\n{'-' * WIDTH}\n\n"
        return rule.join(text(fit, at=at, reach=reach) for fit in fits)
    doubts = compact.legend(fits, at)
    return _joined(
        _grid(compact.overview(fits, doubts, at)),
        _grid(compact.forecasts(fits, at)) if np.size(at) else [],
        _grid(compact.reaches(fits, reach)) if np.size(reach) else [],
        _legend(doubts),
    )


def _joined(*blocks: list[str]) -> str:
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _wrapped(sentence: str, label: str = "", indent: int = 0) -> list[str]:
    """Wrap a sentence behind a label; later lines are indented, and no % or × begins one."""
    first, later = " " * indent + label, " " * (indent + min(len(label), 2))
    held = sentence.replace(" %", "\xa0%").replace(" × ", "\xa0×\xa0")
    lines = textwrap.wrap(held, WIDTH, initial_indent=first, subsequent_indent=later)
    return [line.replace("\xa0", " ") for line in lines]


def _grid(grid: tables.Grid) -> list[str]:
    """Lay out a grid: numbers to the right, words to the left, two blanks between columns.

    The first column, which holds names, gives way where the rest needs the room.
    """
    lines = [grid.header, *grid.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    room = WIDTH - sum(width + 2 for width in widths[1:]) - 2
    widths[0] = min(widths[0], NAME_WIDTH, max(room, 8))
    lines = [(compact.shorten(row[0], widths[0]), *row[1:]) for row in lines]

    def laid_out(row: tuple[str, ...]) -> str:
        cells = (
            cell.ljust(width) if i in grid.left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return ("  " + "  ".join(cells)).rstrip()

    return _wrapped(grid.title) + [laid_out(row) for row in lines]


def _doubts(doubts: Sequence[Doubt]) -> list[str]:
    if not doubts:
        return ["Doubts: none"]
    lines = ["Doubts"]
    for doubt in doubts:
        lines += _wrapped(f"{doubt.code}: {doubt.message}", indent=2)
        lines += _wrapped(doubt.remedy, "hint: ", indent=4)
    return lines


def _legend(doubts: Sequence[compact.Legend]) -> list[str]:
    if not doubts:
        return ["Doubts: none"]
    lines = ["Doubts"]
    for doubt in doubts:
        lines += _wrapped(f"{doubt.number}  {doubt.code} ({doubt.holders})", indent=2)
        lines += _wrapped(doubt.remedy, "hint: ", indent=5)
    return lines
