"""A backtest as text, HTML and JSON, all from the same rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from curvefit import digits
from curvefit.layout import grid_lines, joined, paragraph, table, wrapped
from curvefit.record import finite
from curvefit.tables import Grid, filled

if TYPE_CHECKING:
    from curvefit.backtest import Backtest, Origin

__all__ = ["html", "origin_grid", "pooled_grid", "record", "sentence", "skipped_grid", "text"]

SPOKEN = 3  # up to so many runs are told in sentences too
ROWS = 60  # up to so many forecasts are listed
LISTED = 12  # reasons


def sentence(origin: Origin) -> str:
    """Return what it would have said at an origin, and what the run reached."""
    asked = f"had you asked at {digits.percent(origin.at)} of this run, it would have said"
    value, low, high = digits.scores(origin.score, origin.low, origin.high)
    reached, *_ = digits.scores(origin.reached, origin.low, origin.high)
    said = value if low == digits.UNKNOWN else f"{low} to {high}"
    return f"{asked} {said}; it reached {reached}"


def origin_grid(backtest: Backtest) -> Grid:
    """Return a line a run and origin."""
    level = digits.percent(backtest.level)
    rows = []
    for o in backtest.origins:
        value, low, high = digits.scores(o.score, o.low, o.high)
        reached, *_ = digits.scores(o.reached, o.low, o.high)
        decimals = max(len(value.partition(".")[2]), 3)
        rows.append(
            (
                o.run,
                digits.percent(o.at),
                str(o.points),
                value,
                digits.interval(low, high),
                reached,
                _signed(o.error, decimals),
                _signed(o.persistence_error, decimals),
            )
        )
    header = ("run", "seen", "points", "said", level, "reached", "error", "persistence")
    return filled(Grid("Mean of the last tenth, forecast from the beginning", header, rows))


def _signed(value: float, decimals: int) -> str:
    shown = f"{value:+.{decimals}f}"
    return shown if float(shown) else shown[1:]


def pooled_grid(backtest: Backtest) -> Grid:
    """Return a line an origin: errors, coverage and width over all runs."""
    level = digits.percent(backtest.level)
    rows = []
    for p in backtest.pooled:
        known = math.isfinite(p.inside)
        rows.append(
            (
                digits.percent(p.at),
                str(p.runs),
                digits.significant(p.mae, 2),
                digits.significant(p.persistence_mae, 2),
                f"{p.bias:+.2g}",
                digits.significant(p.crps, 2) if known else "",
                digits.percent(round(p.inside_50, 3)) if known else "",
                digits.percent(round(p.inside, 3)) if known else "",
                digits.significant(p.width, 2) if known else "",
            )
        )
    header = (
        "seen",
        "runs",
        "error",
        "persistence",
        "bias",
        "CRPS",
        "inside 50 %",
        f"inside {level}",
        f"{level} width",
    )
    title = "All runs: mean absolute error, coverage of the intervals, median width"
    return filled(Grid(title, header, rows, ()))


def skipped_grid(backtest: Backtest) -> Grid:
    """Return the origins at which nothing could be said, and why."""
    rows = [(s.run, digits.percent(s.at), s.why) for s in backtest.skipped]
    return Grid("Nothing to say", ("run", "at", "why"), rows, (0, 2))


def _skipped_lines(backtest: Backtest) -> list[str]:
    if not backtest.skipped:
        return []
    lines = ["Nothing could be said"]
    for s in backtest.skipped[:LISTED]:
        lines += wrapped(s.why, f"{s.run}, {digits.percent(s.at)}: ", indent=2)
    more = len(backtest.skipped) - LISTED
    return [*lines, f"  and {more:,} more"] if more > 0 else lines


def text(backtest: Backtest) -> str:
    """Return the backtest as plain text, without a final line break."""
    runs = list(dict.fromkeys(origin.run for origin in backtest.origins))
    return joined(
        ["Backtest"],
        _sentence_lines(backtest.origins) if len(runs) <= SPOKEN else [],
        grid_lines(origin_grid(backtest)) if 0 < len(backtest.origins) <= ROWS else [],
        grid_lines(pooled_grid(backtest)) if backtest.pooled else [],
        _skipped_lines(backtest),
    )


def _sentence_lines(origins: Sequence[Origin]) -> list[str]:
    return [line for o in origins for line in wrapped(f"{sentence(o)}.", f"{o.run}: ", indent=2)]


def html(backtest: Backtest) -> str:
    """Return the backtest as a fragment of HTML."""
    parts = [paragraph(f"{o.run}: {sentence(o)}.") for o in backtest.origins[:SPOKEN]]
    if 0 < len(backtest.origins) <= ROWS:
        parts.append(table(origin_grid(backtest)))
    if backtest.pooled:
        parts.append(table(pooled_grid(backtest)))
    if backtest.skipped:
        parts.append(table(skipped_grid(backtest)))
    return f"<div>{''.join(parts)}</div>"


def record(backtest: Backtest) -> dict[str, Any]:
    """Return the value of the JSON key ``backtest``."""
    return {
        "level": backtest.level,
        "origins": [
            {**_numbers(origin), "sentence": sentence(origin)} for origin in backtest.origins
        ],
        "pooled": [_numbers(pooled) for pooled in backtest.pooled],
        "skipped": [skipped._asdict() for skipped in backtest.skipped],
    }


def _numbers(row: Any) -> dict[str, Any]:
    """Return a named tuple as an object: words and counts as they are, other numbers finite."""
    return {
        key: finite(value) if isinstance(value, float) else value
        for key, value in row._asdict().items()
    }
