"""A scan of windows as text, HTML, CSV and JSON, all from the same rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from curvefit import digits
from curvefit.layout import grid_lines, joined, paragraph, table, wrapped
from curvefit.parameter_csv import cell, harmless
from curvefit.plain import plain
from curvefit.tables import Grid
from curvefit.units import x_words, y_words
from curvefit.wording import count

if TYPE_CHECKING:
    from curvefit.scan import Window, WindowScan

__all__ = ["csv_table", "html", "record", "sentences", "text", "window_grid"]

HEADER = (
    *("run", "start", "end", "points", "level", "A", "A_low", "A_high"),
    *("at", "score", "score_low", "score_high", "verdict", "why"),
)


def window_grid(s: WindowScan) -> Grid:
    """Return a line a window: A, the forecast, and whether A is identified."""
    rows = []
    for w in s.windows:
        A, A_low, A_high = digits.scores(*w.A)
        score, low, high = digits.scores(*w.score)
        ends = digits.interval(A_low, A_high), digits.interval(low, high)
        window = digits.compute(w.start), digits.compute(w.end), str(w.points)
        rows.append((*window, A, ends[0], score, ends[1], w.asymptote or "no fit"))
    level = digits.percent(s.level)
    at = f"at {digits.compute(s.at)}"
    header = ("from", "to", "points", "A", level, at, level, "A is")
    title = f"Windows of {x_words(s.run)}, and the {y_words(s.run)} they forecast"
    return Grid(title, header, rows, (7,))


def sentences(s: WindowScan) -> tuple[str, ...]:
    """Return how far A moves with the start and with the end, and where it is not identified."""
    known = [w for w in s.windows if w.identified]
    if not known:
        return ("A is not identified in any window",)
    said = [
        _range(s, known),
        _moved("start", [w for w in known if w.end == s.ends[-1]]),
        _moved("end", [w for w in known if w.start == s.starts[0]]),
        _missed(s, known),
    ]
    return tuple(one for one in said if one)


def _range(s: WindowScan, known: Sequence[Window]) -> str:
    values = [w.A.value for w in known]
    low, high = digits.significant(min(values), 3), digits.significant(max(values), 3)
    said = f"A lies between {low} and {high} in the {count(len(known), 'window')} that identify it"
    unknown = len(s.windows) - len(known)
    return said + (f"; {unknown} {'do' if unknown > 1 else 'does'} not" if unknown else "")


def _moved(what: str, windows: Sequence[Window]) -> str:
    """How far A goes as one end of the window moves, beside the width of its interval."""
    if len(windows) < 2:
        return ""
    values = [w.A.value for w in windows]
    size = digits.significant(max(values) - min(values), 2)
    width = digits.significant(windows[-1].A.high - windows[-1].A.low, 2)
    return f"moving the {what} alone moves A by {size} (width of its last interval: {width})"


def _missed(s: WindowScan, known: Sequence[Window]) -> str:
    """Windows whose interval does not hold what the whole run says."""
    whole = s.whole
    if not whole.identified:
        return ""
    out = [w for w in known if not w.A.low <= whole.A.value <= w.A.high]
    if not out:
        return "each of their intervals holds the A of all points"
    return (
        f"{count(len(out), 'interval')} of theirs {'does' if len(out) == 1 else 'do'} not hold the "
        f"A of all points ({digits.scores(*whole.A)[0]}): there the law fits less well than its "
        "interval says"
    )


def _said(s: WindowScan) -> list[str]:
    return [f"{sentence[:1].upper()}{sentence[1:]}." for sentence in sentences(s)]


def text(s: WindowScan) -> str:
    """Return the scan as plain text, without a final line break."""
    said = [line for sentence in _said(s) for line in wrapped(sentence)]
    return joined(wrapped(f"Scan of the window: {s.run.name}"), said, grid_lines(window_grid(s)))


def html(s: WindowScan) -> str:
    """Return the scan as a fragment of HTML, with its picture."""
    from curvefit.picture import saved, svg_element
    from curvefit.scan_plot import plot_scan

    said = [paragraph(sentence) for sentence in _said(s)]
    drawn = svg_element(saved(lambda: plot_scan(s), "svg"), f"A by window: {s.run.name}")
    title = paragraph(f"Scan of the window: {s.run.name}")
    return f"<div>{title}{''.join(said)}{drawn}{table(window_grid(s))}</div>"


def csv_table(scans: Sequence[WindowScan]) -> str:
    """Return one row a window of each scan, with a header; an unknown number is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(HEADER)
    for s in scans:
        for w in s.windows:
            ends = [cell(w.start), cell(w.end), str(w.points), cell(s.level)]
            values = [cell(v) for v in (*w.A, s.at, *w.score)]
            writer.writerow((harmless(s.run.name), *ends, *values, w.asymptote, w.why))
    return out.getvalue()


def record(s: WindowScan) -> dict[str, Any]:
    """Return the value of a run's JSON key ``scan``."""
    return {
        "at": s.at,
        "level": s.level,
        "starts": list(s.starts),
        "ends": list(s.ends),
        "windows": [plain(window) for window in s.windows],
        "sentences": list(sentences(s)),
    }
