"""What a refit says: a line with the forecast and how it moved, and one for each piece of news.

A line stands alone, so that it can be found by ``grep``: time, run, compute reached, last score,
forecasts, A. How far a forecast moved is told at one compute: what the fit before said there, with
fewer points, is computed anew when the default ``at`` (2 times the last compute) has moved on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from curvefit import digits
from curvefit.compact import shorten
from curvefit.record import doubts_of
from curvefit.units import x_words
from curvefit.wording import count

if TYPE_CHECKING:
    from curvefit.fit import Fit
    from curvefit.results import Doubt
    from curvefit.watch import Change

__all__ = ["Lines", "cells", "news"]

NAME_WIDTH = 30


class Lines:
    """Lays cells out in columns as wide as the widest so far; what comes last needs no room."""

    def __init__(self) -> None:
        self._widths: list[int] = []

    def line(self, cells: Sequence[str]) -> str:
        """Return the cells on one line, two blanks between them."""
        self._widths += [0] * (len(cells) - len(self._widths))
        for i, cell in enumerate(cells[:-1]):
            self._widths[i] = max(self._widths[i], len(cell))
        widths = self._widths[: len(cells)]
        return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()


def cells(change: Change, at: Sequence[float] = (), reach: Sequence[float] = ()) -> list[str]:
    """Return what a refit says: run, compute, score, forecasts, compute to reach, A.

    Parameters
    ----------
    change : Change
    at : sequence of float
        Computes to forecast at; twice the last one when empty.
    reach : sequence of float
        Scores to reach.
    """
    fit, last = change.fit, float(change.fit.run.compute[-1])
    where = at or (2.0 * last,)
    labels = [f"at {digits.compute(C)}" for C in at] or ["at 2 x"]
    return [
        shorten(fit.run.name, NAME_WIDTH),
        f"{_reached(last)} {x_words(fit.run)}",
        _score(fit, where[0]),
        *(_forecast(change, C, label) for C, label in zip(where, labels, strict=True)),
        *(_held_out(fit) if fit.held_out is not None else ()),
        *(_reach(fit, score) for score in reach),
        _asymptote(fit),
    ]


def _reached(compute: float) -> str:
    """Write the last compute: a count as it is, a measurement to four digits."""
    return digits.compute(compute) if compute % 1 == 0 else digits.significant(compute, 4)


def _score(fit: Fit, at: float) -> str:
    """Write the last score to as many digits as the forecast has."""
    (said,) = fit.forecast([at])
    return digits.scores(float(fit.run.score[-1]), said.low, said.high)[0]


def _forecast(change: Change, at: float, label: str) -> str:
    (said,) = change.fit.forecast([at])
    value, low, high = digits.scores(said.score, said.low, said.high)
    text = f"{label}: {value} {digits.interval(low, high)}".rstrip()
    if change.before is None:
        return text
    (earlier,) = change.before.forecast([at])
    by = said.score - earlier.score
    moved = digits.scores(
        abs(by), abs(by) - (said.score - said.low), abs(by) + said.high - said.score
    )
    sign = "-" if by < 0 and float(moved[0]) else "+"
    return f"{text} moved {sign}{moved[0]}"


def _held_out(fit: Fit) -> list[str]:
    scored = fit.score_held_out
    assert scored is not None
    return [f"{scored.points} held out, off by {digits.significant(scored.mae, 2)}"]


def _reach(fit: Fit, score: float) -> str:
    (answer,) = fit.reach([score])
    value, low, high = digits.amounts(answer.compute, answer.low, answer.high)
    value, low, high = ("never" if end == digits.UNKNOWN else end for end in (value, low, high))
    ends = "" if fit.forecaster is None or low == "never" else f" [{low}, {high}]"
    return f"reaches {score:g}: {value}{ends} by {digits.probability(answer.probability)}"


def _asymptote(fit: Fit) -> str:
    """Write A with its interval, or that it is not identified."""
    value, low, high = digits.scores(*fit.params["A"])
    grade = fit.verdict.asymptote
    if fit.sigmoid is None:
        return f"A: {value}"
    if grade == "not identified":
        return "A: not identified"
    return f"A: {value} {digits.interval(low, high)}{' weak' * (grade == 'weak')}"


# ---------------------------------------------------------------- news


def news(change: Change, told: set[str], at: Sequence[float] = ()) -> list[str]:
    """Return what is new beyond the numbers, a sentence each.

    Parameters
    ----------
    change : Change
    told : set of str
        Codes of the doubts of this run that were stated in full; those of this fit are added.
    at : sequence of float
        Computes forecast at.
    """
    fit, before = change.fit, change.before
    doubts = {doubt.code: doubt for doubt in doubts_of(fit, at)}
    found = []
    if before is not None:
        earlier = {doubt.code for doubt in doubts_of(before, at)}
        found += [_lost(change.lost)] * (change.lost > 0)
        found += _left(change, at or (2.0 * float(fit.run.compute[-1]),))
        found += _verdict(before, fit)
        found += _doubts([d for code, d in doubts.items() if code not in earlier], told)
        gone = [code for code in sorted(earlier) if code not in doubts]
        found += [f"no longer in doubt: {', '.join(gone)}"] * bool(gone)
    told.update(doubts)
    return found


def _lost(points: int) -> str:
    are = "is" if points == 1 else "are"
    said = f"{count(points, 'earlier point')} {are} gone"
    return f"{said}: the log was replaced, truncated, or rewound by a restart"


def _left(change: Change, at: Sequence[float]) -> list[str]:
    """Say where a forecast left the interval that it had."""
    assert change.before is not None
    found = []
    for new, old in zip(change.fit.forecast(at), change.before.forecast(at), strict=True):
        if new.score < old.low or new.score > old.high:
            low, high = digits.scores(old.score, old.low, old.high)[1:]
            where = f"at {digits.compute(new.at)} {x_words(change.fit.run)}"
            found.append(f"the forecast {where} left its last interval, [{low}, {high}]")
    return found


def _verdict(before: Fit, fit: Fit) -> list[str]:
    old, new = before.verdict.asymptote, fit.verdict.asymptote
    return [] if old == new else [f"A was {old}; now {fit.verdict.sentence}"]


def _doubts(new: Sequence[Doubt], told: set[str]) -> list[str]:
    """State new doubts in full, and those that were stated before by their codes."""
    found = [f"new doubt: {d.code}: {d.message}" for d in new if d.code not in told]
    again = [d.code for d in new if d.code in told]
    return found + [f"in doubt again: {', '.join(again)}"] * bool(again)
