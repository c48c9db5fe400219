"""HTML: a fragment for notebooks, and a page that can be mailed, opened offline and printed.

No scripts, nothing loaded from elsewhere; whatever comes from a file is escaped.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from curvefit import compact, tables
from curvefit._version import __version__
from curvefit.layout import paragraph, table
from curvefit.picture import inline_svg
from curvefit.record import doubts_of

if TYPE_CHECKING:
    from curvefit.fit import Fit

__all__ = ["fragment", "page"]

DETAILED = 12  # up to so many runs have a section of their own

STYLE = """\
body { font: 15px/1.45 system-ui, sans-serif; color: #222; margin: 2rem auto; max-width: 60rem;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .2rem; }
th, td { padding: .2rem .8rem .2rem 0; text-align: right; vertical-align: top; }
th { border-bottom: 1px solid #999; font-weight: 500; } tr + tr td { border-top: 1px solid #eee; }
.l { text-align: left; } dt { font-weight: 600; margin-top: .5rem; } dd { margin-left: 1.5rem; }
code, pre { font: 13px/1.4 ui-monospace, monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; } .note { color: #555; }
@media print { body { margin: 0; max-width: none; font-size: 11px; }
  section, table, figure { break-inside: avoid; } }
"""


def fragment(fit: Fit) -> str:
    """Return what a notebook shows: the verdict, the parameters, the doubts, the plot."""
    return "".join(
        [
            "<div>",
            paragraph(f"{fit.run.name}: {tables.points_sentence(fit)}."),
            paragraph(tables.verdict_sentence(fit)),
            table(tables.parameter_grid(fit)),
            table(tables.forecast_grid(fit)),
            _doubts(fit, ()),
            inline_svg(fit, fit.run.name),
            "</div>",
        ]
    )


def page(
    fits: Sequence[Fit],
    *,
    command: Sequence[str] = (),
    at: ArrayLike = (),
    reach: ArrayLike = (),
    answers: Sequence[str] = (),
) -> str:
    """Return the whole page: the plot, a section a run (one table beyond twelve), the command.

    `answers` are further fragments of HTML, each a section.
    """
    names = ", ".join(fit.run.name for fit in fits[:3])
    title = names if len(fits) <= 3 else f"{names} and {len(fits) - 3} more"
    sections = [_section(fit, at, reach) for fit in fits] if len(fits) <= DETAILED else []
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<figure>{inline_svg(fits, title, at=at)}</figure>",
        *_overview(fits, at, reach),
        *sections,
        *(f"<section>{fragment}</section>" for fragment in answers),
        _reading(fits),
        f"<h2>How this page was made</h2><pre>{escape(shlex.join(command))}</pre>" * bool(command),
        paragraph(f"curvefit {__version__}", "note"),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body>\n</html>\n"
    )


def _section(fit: Fit, at: ArrayLike, reach: ArrayLike) -> str:
    facts = "".join(
        f"<dt>{escape(label)}</dt><dd>{escape(fact)}</dd>" for label, fact in tables.facts(fit)
    )
    return "\n".join(
        [
            f"<section><h2>{escape(fit.run.name)}</h2>",
            paragraph(f"{fit.run.file}: {tables.points_sentence(fit)}".removeprefix(": "), "note"),
            paragraph(tables.verdict_sentence(fit)),
            table(tables.parameter_grid(fit)),
            table(tables.forecast_grid(fit, at)),
            table(tables.reach_grid(fit, reach)) if np.size(reach) else "",
            f"<dl>{facts}</dl>",
            _doubts(fit, at),
            "</section>",
        ]
    )


def _overview(fits: Sequence[Fit], at: ArrayLike, reach: ArrayLike) -> list[str]:
    """Return the tables over all runs; nothing for a single run."""
    if len(fits) == 1:
        return []
    legend = compact.legend(fits, at)
    parts = [table(compact.overview(fits, legend, at))]
    if len(fits) > DETAILED:
        parts += [table(compact.forecasts(fits, at))] if np.size(at) else []
        parts += [table(compact.reaches(fits, reach))] if np.size(reach) else []
    items = "".join(
        f"<dt>{doubt.number} {escape(doubt.code)}, {escape(doubt.holders)}</dt>"
        f"<dd>{escape(doubt.remedy)}</dd>"
        for doubt in legend
    )
    return [*parts, f"<dl>{items}</dl>"] if items else parts


def _doubts(fit: Fit, at: ArrayLike) -> str:
    items = "".join(
        f"<dt>{escape(doubt.code)}</dt><dd>{escape(doubt.message)}<br>"
        f"<em>{escape(doubt.remedy)}</em></dd>"
        for doubt in doubts_of(fit, at)
    )
    return f"<p>Doubts:</p><dl>{items}</dl>" if items else paragraph("Doubts: none.")


def _reading(fits: Sequence[Fit]) -> str:
    """Return what was decided while reading, once for each sentence."""
    notes = dict.fromkeys(note.message for fit in fits for note in fit.run.notes)
    items = "".join(f"<li>{escape(message)}</li>" for message in list(notes)[:20])
    return f"<h2>How the input was read</h2><ul>{items}</ul>" if items else ""
