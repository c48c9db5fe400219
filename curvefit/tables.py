"""The rows that every report shows, as words: text, HTML and CSV are laid out from these.

Each function turns a `Fit` into a `Grid` or a sentence; no layout is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from curvefit import digits
from curvefit.record import default_at
from curvefit.units import x_words, y_words
from curvefit.window import skipped

if TYPE_CHECKING:
    from curvefit.fit import Fit

__all__ = [
    "Grid",
    "facts",
    "filled",
    "forecast_grid",
    "parameter_grid",
    "points_sentence",
    "reach_grid",
    "verdict_sentence",
]


class Grid(NamedTuple):
    """A small table: a title, the names of its columns, its rows; all of it words.

    `left` holds the columns that are text and stand to the left; the others are numbers.
    """

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    left: tuple[int, ...] = (0,)


def verdict_sentence(fit: Fit) -> str:
    """Return the verdict as a sentence that stands alone."""
    sentence = fit.verdict.sentence
    return f"{sentence[:1].upper()}{sentence[1:].rstrip('.')}."


def points_sentence(fit: Fit) -> str:
    """Return how many points were used and over which compute."""
    run = fit.run
    first, last = digits.compute(float(run.compute[0])), digits.compute(float(run.compute[-1]))
    sentence = f"{len(run)} points used, {first} to {last} {x_words(run)}"
    if fit.held_out is not None:
        sentence += f"; {len(fit.held_out)} held out"
    left_out = (f"; {number} left out: {why}" for why, number in skipped(run).items())
    return sentence + "".join(left_out)


def parameter_grid(fit: Fit) -> Grid:
    """Return A, B, C_mid and R0 with their intervals and what they mean."""
    law = "sigmoid" if fit.sigmoid is not None else fit.point.law
    meaning = _meaning(fit, law)
    rows = []
    for name, estimate in fit.params.items():
        write = digits.scores if name in ("A", "R0") else digits.amounts
        value, low, high = write(*estimate)
        fixed = name == "R0" and fit.r0 != "fit"
        interval = "" if fixed else digits.interval(low, high)
        rows.append((name, value, interval, meaning[name] + " (fixed)" * fixed))
    title = "ScaleRL's sigmoid" if law == "sigmoid" else f"The {law} law"
    return filled(Grid(title, ("", "value", _level(fit), ""), rows, (0, 3)))


def _meaning(fit: Fit, law: str) -> dict[str, str]:
    """Return what each parameter means; C_mid is a midpoint for the sigmoid alone."""
    unit, score = x_words(fit.run), y_words(fit.run)
    gained = f"{unit} at which half of A - R0 is gained"
    return {
        "A": f"asymptote: the {score} that the run approaches",
        "B": "steepness",
        "C_mid": gained if law == "sigmoid" else f"scale c of the law, in {unit}",
        "R0": f"{score} at zero compute",
    }


def filled(grid: Grid) -> Grid:
    """Leave out the columns in which nothing stands, such as intervals without a posterior."""
    keep = [i for i in range(len(grid.header)) if any(row[i] for row in grid.rows)]
    rows = [tuple(row[i] for i in keep) for row in grid.rows]
    left = tuple(new for new, old in enumerate(keep) if old in grid.left)
    return Grid(grid.title, tuple(grid.header[i] for i in keep), rows, left)


def _level(fit: Fit) -> str:
    return f"{digits.percent(fit.level)} interval"


def forecast_grid(fit: Fit, at: ArrayLike = ()) -> Grid:
    """Return the score at each compute of `at`; see `record.default_at` for when it is empty."""
    level = digits.percent(fit.level)
    last = float(fit.run.compute[-1])
    rows = []
    for f in fit.forecast(at if np.size(at) else default_at(fit)):
        value, low, high = digits.scores(f.score, f.low, f.high)
        _, seen_low, seen_high = digits.scores(f.score, f.observed_low, f.observed_high)
        distance = f"{digits.amount(f.at / last)} x" if f.at > last else "inside"
        curve, seen = digits.interval(low, high), digits.interval(seen_low, seen_high)
        rows.append((digits.compute(f.at), distance, value, curve, seen))
    header = (
        x_words(fit.run),
        "of the data",
        "score",
        f"{level} of the mean curve",
        f"{level} of one more evaluation",
    )
    return filled(Grid(f"Forecast of {fit.run.y.column}", header, rows, ()))


def reach_grid(fit: Fit, reach: ArrayLike) -> Grid:
    """Return the compute that reaches each score."""
    rows = []
    for answer in fit.reach(reach):
        value, low, high = digits.amounts(answer.compute, answer.low, answer.high)
        value, low, high = ("never" if end == digits.UNKNOWN else end for end in (value, low, high))
        interval = "" if fit.forecaster is None or low == "never" else f"[{low}, {high}]"
        rows.append((f"{answer.score:g}", value, interval, digits.probability(answer.probability)))
    header = (fit.run.y.column, x_words(fit.run), _level(fit), "reached by")
    return filled(Grid("Compute to reach a score", header, rows, ()))


def facts(fit: Fit) -> list[tuple[str, str]]:
    """Return what else is worth a line: laws, noise, the score on held-out points."""
    lines = [("Forecast by", _laws(fit))]
    if fit.forecaster is not None:
        lines.append(("Noise", _noise(fit)))
    if fit.score_held_out is not None:
        lines.append(("Held out", _held_out(fit)))
    return lines


def _laws(fit: Fit) -> str:
    if fit.method != "posterior":
        return f"{fit.law}, {fit.method}: no intervals"
    if fit.law != "average":
        return f"the {fit.law} law alone"
    ordered = sorted(fit.laws, key=lambda w: -w.weight)
    shares = [f"{w.law} {digits.probability(w.weight)}" for w in ordered if w.weight >= 0.01]
    others = " (the others under 1 %)" if len(shares) < len(ordered) else ""
    return f"{len(ordered)} laws, weighted by the data: {', '.join(shares)}{others}"


def _noise(fit: Fit) -> str:
    noise = fit.noise
    return (
        f"{digits.significant(noise.evaluation, 2)} an evaluation, "
        f"{digits.significant(noise.run, 2)} of the run "
        f"(correlation {noise.correlation:.2f} from one evaluation to the next)"
    )


def _held_out(fit: Fit) -> str:
    scored = fit.score_held_out
    assert scored is not None
    sentence = (
        f"{scored.points} {'point' if scored.points == 1 else 'points'}, "
        f"mean absolute error {digits.significant(scored.mae, 2)}"
    )
    if fit.forecaster is None:
        return sentence
    return (
        f"{sentence}, {digits.probability(scored.inside)} inside the {_level(fit)} of an evaluation"
    )
