"""The table of recipes for a spreadsheet (CSV, RFC 4180) and for a paper (LaTeX tabular)."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from curvefit import digits
from curvefit.parameter_csv import cell, harmless

if TYPE_CHECKING:
    from curvefit.comparison import Comparison, Recipe

__all__ = ["csv_table", "latex_table"]

QUANTITIES = ("A", "B", "C_mid", "score")
SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}


def csv_table(c: Comparison) -> str:
    """Return one row a recipe, with a header; an unknown number is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    ends = [name + end for name in QUANTITIES for end in ("", "_low", "_high")]
    reaches = [f"reach_{y:g}{end}" for y in c.reach for end in ("", "_low", "_high", "_by")]
    ranks = [f"rank_by_{ranking.by}" for ranking in c.rankings]
    writer.writerow(("recipe", "runs", "points", "last", "at", "level", *ends, *reaches, *ranks))
    for r in c.recipes:
        values = [value for name in QUANTITIES for value in getattr(r, name)]
        reached = [value for answer in r.reach for value in answer[1:]]
        counts = [str(len(r.runs)), str(r.points)]
        numbers = [cell(v) for v in (r.last, c.at, c.level, *values, *reached)]
        writer.writerow((harmless(r.recipe), *counts, *numbers, *_ranks(c, r.recipe)))
    return out.getvalue()


def _ranks(c: Comparison, recipe: str) -> list[str]:
    return [str(p.rank) for ranking in c.rankings for p in ranking.places if p.recipe == recipe]


def latex_table(c: Comparison) -> str:
    r"""Return a tabular in booktabs style: needs ``\usepackage{booktabs}``."""
    heads = ["Recipe", "Seeds", "$A$", "$B$", r"$C_\mathrm{mid}$", f"$R({c.at:.4g})$"]
    lines = [r"\begin{tabular}{lrrrrr}", r"\toprule", " & ".join(heads) + r" \\", r"\midrule"]
    lines += [" & ".join(_latex_row(r)) + r" \\" for r in c.recipes]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _latex_row(r: Recipe) -> list[str]:
    def between(value: str, low: str, high: str) -> str:
        return f"{value} [{low}, {high}]"

    return [
        "".join(SPECIAL.get(character, character) for character in r.recipe),
        str(len(r.runs)),
        between(*digits.scores(*r.A)),
        between(*digits.amounts(*r.B)),
        between(*digits.amounts(*r.C_mid)),
        between(*digits.scores(*r.score)),
    ]
