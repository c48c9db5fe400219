"""Many runs at a glance: one line a run, and each doubt explained once below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from numpy.typing import ArrayLike

from curvefit import digits
from curvefit.record import doubts_of
from curvefit.tables import Grid, filled
from curvefit.units import x_words
from curvefit.wording import count

if TYPE_CHECKING:
    from curvefit.fit import Fit

__all__ = ["Legend", "forecasts", "legend", "overview", "reaches", "shorten"]


class Legend(NamedTuple):
    """A doubt that some of several runs have: its number in the overview, and what it says."""

    number: int
    code: str
    holders: str
    remedy: str


def shorten(name: str, width: int) -> str:
    """Cut a name in its middle; names of runs differ at their ends.

    >>> shorten("qwen3-8b-grpo-lr1e-6-seed1", 15)
    'qwen3-8…6-seed1'
    """
    if len(name) <= width:
        return name
    head = (width - 1) // 2
    return f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"


def legend(fits: Sequence[Fit], at: ArrayLike = ()) -> list[Legend]:
    """Return the doubts of several fits in order of appearance, numbered from 1.

    Where the remedy has numbers that differ from run to run, it is that of the first run, named.
    """
    remedies: dict[str, dict[str, str]] = {}  # code: {run: remedy}
    for fit in fits:
        for doubt in doubts_of(fit, at):
            remedies.setdefault(doubt.code, {})[fit.run.name] = doubt.remedy
    entries = []
    for number, (code, by_run) in enumerate(remedies.items(), 1):
        first, remedy = next(iter(by_run.items()))
        if len(set(by_run.values())) > 1:
            remedy = f"for {shorten(first, 30)}, {remedy}"
        entries.append(Legend(number, code, count(len(by_run), "run"), remedy))
    return entries


def overview(fits: Sequence[Fit], doubts: Sequence[Legend], at: ArrayLike = ()) -> Grid:
    """Return a line a run: points, A, C_mid, the score at twice the last compute, the grade."""
    numbers = {doubt.code: str(doubt.number) for doubt in doubts}
    rows = []
    for fit in fits:
        A, C_mid = fit.params["A"], fit.params["C_mid"]
        (double,) = fit.forecast(2.0 * fit.run.compute[-1])
        a, low, high = digits.scores(*A)
        score, *_ = digits.scores(double.score, double.low, double.high)
        held_out = 0 if fit.held_out is None else len(fit.held_out)
        points = f"{len(fit.run)}+{held_out}" if held_out else str(len(fit.run))
        codes = dict.fromkeys(numbers[doubt.code] for doubt in doubts_of(fit, at))
        rows.append(
            (
                fit.run.name,
                points,
                a,
                digits.interval(low, high),
                digits.amounts(*C_mid)[0],
                score,
                fit.verdict.asymptote,
                " ".join(sorted(codes, key=int)),
            )
        )
    level = digits.percent(fits[0].level)
    units = dict.fromkeys(x_words(fit.run) for fit in fits)
    unit = f" in {next(iter(units))}" if len(units) == 1 else f": {', '.join(units)}, by run"
    header = ("run", "points", "A", level, "C_mid", "at 2 x", "A is", "doubts")
    return filled(Grid(f"{len(fits)} runs; compute{unit}", header, rows, (0, 6, 7)))


def forecasts(fits: Sequence[Fit], at: ArrayLike) -> Grid:
    """Return a line a run and compute."""
    level = digits.percent(fits[0].level)
    rows = []
    for fit in fits:
        for f in fit.forecast(at):
            value, low, high = digits.scores(f.score, f.low, f.high)
            _, seen_low, seen_high = digits.scores(f.score, f.observed_low, f.observed_high)
            where = f"{digits.compute(f.at)} {x_words(fit.run)}"
            curve, seen = digits.interval(low, high), digits.interval(seen_low, seen_high)
            rows.append((fit.run.name, where, value, curve, seen))
    header = ("run", "at", "score", f"{level} of the mean curve", f"{level} of an evaluation")
    return filled(Grid("Forecasts", header, rows))


def reaches(fits: Sequence[Fit], scores: ArrayLike) -> Grid:
    """Return a line a run and score."""
    rows = []
    for fit in fits:
        for answer in fit.reach(scores):
            value, low, high = digits.amounts(answer.compute, answer.low, answer.high)
            value, low, high = (
                "never" if end == digits.UNKNOWN else end for end in (value, low, high)
            )
            at = value if value == "never" else f"{value} {x_words(fit.run)}"
            ends = "" if fit.forecaster is None or low == "never" else f"[{low}, {high}]"
            share = digits.probability(answer.probability)
            rows.append((fit.run.name, f"{answer.score:g}", at, ends, share))
    header = ("run", "score", "at", f"{digits.percent(fits[0].level)} interval", "reached by")
    return filled(Grid("Compute to reach a score", header, rows))
