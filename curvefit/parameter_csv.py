"""The parameter table as CSV (RFC 4180): one row a run, for a spreadsheet or a script."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from curvefit.fit import Fit

__all__ = ["cell", "harmless", "parameter_csv"]

FORMULA = ("=", "+", "-", "@", "\t", "\r")
ORIGIN = ("run", "file", "x", "unit", "y")
COUNTS = ("points", "held_out", "level")
OUTCOME = ("held_out_mae", "held_out_inside", "verdict", "doubts")
PARAMS = ("A", "B", "C_mid", "R0")


def parameter_csv(fits: Sequence[Fit]) -> str:
    """Return the table with its header line.

    An unknown number is an empty cell. A name that a spreadsheet would run as a formula is written
    with an apostrophe before it.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    ends = [name + end for name in PARAMS for end in ("", "_low", "_high")]
    writer.writerow((*ORIGIN, *COUNTS, *ends, *OUTCOME))
    writer.writerows(_row(fit) for fit in fits)
    return out.getvalue()


def _row(fit: Fit) -> list[str]:
    run, scored = fit.run, fit.score_held_out
    words = [run.name, run.file, run.x.column, run.x.unit, run.y.column]
    values = [value for name in PARAMS for value in fit.params[name]]
    counts = [str(len(run)), str(0 if fit.held_out is None else len(fit.held_out))]
    held_out = ["", ""] if scored is None else [cell(scored.mae), cell(scored.inside)]
    return [
        *map(harmless, words),
        *counts,
        cell(fit.level),
        *map(cell, values),
        *held_out,
        fit.verdict.asymptote,
        " ".join(dict.fromkeys(doubt.code for doubt in fit.doubts)),
    ]


def cell(value: float) -> str:
    """Write a number; nothing for one that is not known."""
    return f"{value:.10g}" if math.isfinite(value) else ""


def harmless(name: str) -> str:
    """Write a name so that no spreadsheet runs it as a formula."""
    name = name.encode("utf-8", "backslashreplace").decode("utf-8")
    return f"'{name}" if name.startswith(FORMULA) else name
