"""How an interval narrows: with more compute, more samples an evaluation, closer checkpoints.

What more data would bring is found by simulation: the run is continued a few dozen times
(`continuation`), each is fitted as the run was, and the width of the interval is read off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from curvefit.continuation import continuations
from curvefit.errors import InputError
from curvefit.fit import fit as fit_again
from curvefit.fitted import Fit
from curvefit.predictive import forecaster_of
from curvefit.runs import Run
from curvefit.window import checked_level

__all__ = [
    "CONTINUATIONS",
    "Option",
    "Settling",
    "Step",
    "check_positive",
    "checked_price",
    "interval_width",
    "options",
    "settle",
]

MULTIPLES = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
CONTINUATIONS = 24
SURE = 0.8
MANY_SAMPLES, MANY_CHECKPOINTS = 4.0, 2.0
NAN = float("nan")


class Step(NamedTuple):
    """The interval after going on to a multiple of the compute: median width, share narrow enough.

    Over simulated continuations.
    """

    multiple: float
    compute: float
    width: float
    share: float


class Settling(NamedTuple):
    """How much more compute brings an interval under a width.

    `of` is ``A`` or the compute of the score in question; `now` is today's width. `more` is the
    further compute at which the interval is narrow enough with a `probability` of at least `sure`:
    0 if it is already, NaN if not even the last of `steps` will do. `steps` are the multiples of
    the compute that the search looked at; probabilities are shares of so many `continuations`.
    """

    of: str
    width: float
    now: float
    sure: float
    more: float
    cost: float
    probability: float
    continuations: int
    steps: tuple[Step, ...]


class Option(NamedTuple):
    """One way to spend until `compute`, and the median width of the interval after it."""

    what: str
    compute: float
    evaluations: int
    width: float
    cost: float


def settle(
    fit: Fit,
    width: float = 0.02,
    *,
    of: str | float = "A",
    price: float | None = None,
    sure: float = SURE,
    count: int = CONTINUATIONS,
) -> Settling:
    """How much more compute brings the interval of A, or of a score, under a width.

    Parameters
    ----------
    fit : Fit
    width : float
    of : str or float
        ``A``, or the compute of the score.
    price : float, optional
        Of a unit of compute.
    sure : float
        Share of the continuations that must be narrow enough.
    count : int
        Number of continuations.

    Raises
    ------
    InputError
        If the fit has no posterior or a number cannot be used.
    """
    check_positive("width", width)
    checked_level(sure)
    cost, last = checked_price(price), float(fit.run.compute[-1])
    now = interval_width(fit, of)
    name = of if isinstance(of, str) else f"{of:g}"
    if now <= width:
        return Settling(name, width, now, sure, 0.0, 0.0 * cost, 1.0, count, ())
    longest = continuations(fit, MULTIPLES[-1] * last, count)

    def step(multiple: float) -> Step:
        widths = [_refitted(fit, run.take(run.compute <= multiple * last), of) for run in longest]
        share = float(np.mean([w <= width for w in widths]))
        return Step(multiple, multiple * last, float(np.median(widths)), share)

    steps, enough = _bisected(step, sure)
    if enough is None:
        return Settling(name, width, now, sure, NAN, NAN, steps[-1].share, count, steps)
    more = (enough.multiple - 1.0) * last
    return Settling(name, width, now, sure, more, cost * more, enough.share, count, steps)


def _bisected(step: Callable[[float], Step], sure: float) -> tuple[tuple[Step, ...], Step | None]:
    """Find the least multiple whose share is large enough; return all steps looked at, in order."""
    steps: dict[float, Step] = {}
    low, high = 0, len(MULTIPLES)
    while low < high:
        middle = (low + high) // 2
        multiple = MULTIPLES[middle]
        steps[multiple] = step(multiple)
        low, high = (low, middle) if steps[multiple].share >= sure else (middle + 1, high)
    enough = steps[MULTIPLES[low]] if low < len(MULTIPLES) else None
    return tuple(steps[multiple] for multiple in sorted(steps)), enough


def options(
    fit: Fit,
    *,
    of: str | float = "A",
    until: float = 1.5,
    price: float | None = None,
    count: int = CONTINUATIONS // 2,
) -> tuple[Option, ...]:
    """Ways to narrow an interval: more compute, more samples an evaluation, closer checkpoints.

    Parameters
    ----------
    fit : Fit
    of : str or float
        ``A``, or the compute of the score.
    until : float
        Where the first three ways end, in units of the last compute; the last goes on to twice as
        much further compute.
    price : float, optional
        Of a unit of compute; evaluations are not priced.
    count : int
        Number of continuations.

    Raises
    ------
    InputError
        If the fit has no posterior or a number cannot be used.
    """
    if not (np.isfinite(until) and until > 1.0):
        raise InputError(f"until {until:g} is not above 1: options lie beyond the data")
    cost, last = checked_price(price), float(fit.run.compute[-1])
    longer = 2.0 * until - 1.0
    ways: tuple[tuple[str, float, float, float], ...] = (
        ("as so far", until, 1.0, 1.0),
        (f"{MANY_SAMPLES:g} x samples an evaluation", until, MANY_SAMPLES, 1.0),
        (f"{MANY_CHECKPOINTS:g} x as many evaluations", until, 1.0, MANY_CHECKPOINTS),
        ("2 x the further compute", longer, 1.0, 1.0),
    )
    rows = []
    for what, multiple, samples, checkpoints in ways:
        end = multiple * last
        runs = continuations(fit, end, count, samples=samples, checkpoints=checkpoints)
        width = float(np.median([_refitted(fit, run, of) for run in runs]))
        further = len(runs[0]) - len(fit.run)
        rows.append(Option(what, end, further, width, cost * (end - last)))
    return tuple(rows)


def interval_width(fit: Fit, of: str | float) -> float:
    """Width of the interval of A, or of the score at a compute, at the fit's level."""
    forecaster_of(fit)
    if of == "A":
        low, high = fit.interval("A")
        return high - low
    if isinstance(of, str) or not (np.isfinite(of) and of > 0):
        raise InputError(f"of {of!r} is neither 'A' nor a compute above 0")
    (there,) = fit.forecast([of])
    return there.high - there.low


def _refitted(fit: Fit, run: Run, of: str | float) -> float:
    """Width of the interval after fitting a continued run as the run was fitted."""
    law = "sigmoid" if of == "A" else fit.law  # A is the sigmoid's in any case
    return interval_width(fit_again(run, law=law, level=fit.level, r0=fit.r0), of)


def checked_price(price: float | None) -> float:
    """Return the price of a unit of compute, NaN when unknown.

    Raises
    ------
    InputError
        If it is negative or not finite.
    """
    if price is None:
        return NAN
    if not (np.isfinite(price) and price >= 0):
        raise InputError(f"price {price:g} is not a number of 0 or more")
    return float(price)


def check_positive(what: str, *values: float) -> None:
    """Refuse numbers that are not finite or not above 0.

    Raises
    ------
    InputError
        If there is one.
    """
    bad = [v for v in values if not (np.isfinite(v) and v > 0)]
    if bad:
        raise InputError(f"{what} {bad[0]:g} is not a number above 0")
