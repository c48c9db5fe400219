"""Which points of a run are fitted, and within which limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from curvefit.errors import FitError, InputError
from curvefit.marginal import Bounds
from curvefit.runs import Dropped, Run

__all__ = ["AUTO", "TRANSIENT", "bounds_of", "checked_level", "fixed_r0", "skipped", "window"]

MIN_POINTS = 3
AUTO = "auto"  # as `skip`: whatever early transient is found
TRANSIENT = "early-transient"  # code of the note that says what was found
NAN = float("nan")


def window(
    run: Run, *, skip: float | str = 0.0, until: float | str | None = None
) -> tuple[Run, Run | None]:
    """Split a run into the points to fit and the points held out.

    With `skip` ``auto`` nothing is left out yet: `transient` looks at the points to fit.

    Raises
    ------
    InputError
        If `skip` is neither a compute nor ``auto``, or `until` neither a compute nor a percentage
        up to 100.
    FitError
        If fewer than 3 points remain, or all are at one compute.
    """
    C = run.compute
    start = _start(skip)
    keep = (C == 0.0) | (C >= start)
    late = np.zeros(len(run), dtype=bool) if until is None else C > _until(run, until)
    used = run.take(keep & ~late)
    if len(used) < MIN_POINTS or used.compute[0] == used.compute[-1]:
        if late.any() or not keep.all():
            raise FitError(
                f"run {run.name!r}: {len(used)} of {len(run)} points remain after skip and until, "
                f"a fit needs at least {MIN_POINTS} at different compute; widen the window"
            )
        raise InputError(_too_few(run))
    skipped = (
        Dropped(int(row), f"compute below {start:g} (skip)") for row in run.row[~keep & ~late]
    )
    used = replace(used, dropped=(*used.dropped, *skipped))
    return used, run.take(late) if late.any() else None


def _start(skip: float | str) -> float:
    if skip == AUTO:
        return 0.0
    try:
        value = float(skip)
    except ValueError:
        value = NAN
    if not 0.0 <= value < float("inf"):
        raise InputError(f"skip {skip!r} is neither a compute of 0 or more nor 'auto'")
    return value


def skipped(run: Run) -> dict[str, int]:
    """Why points were left out by `skip`, and how many for each reason."""
    whys = [d.why for d in run.dropped if d.why.endswith(("(skip)", "(skip auto)"))]
    return {why: whys.count(why) for why in dict.fromkeys(whys)}


def _too_few(run: Run) -> str:
    where = f"{run.file}: " if run.file else ""
    if len(run) < MIN_POINTS:
        return (
            f"{where}run {run.name!r} has {len(run)} point{'s' * (len(run) != 1)}, a fit needs at "
            f"least {MIN_POINTS}; log more evaluations"
        )
    return (
        f"{where}run {run.name!r} has all its points at {run.x.column} = {run.compute[0]:g}; "
        "name the column that grows with compute (--x)"
    )


def _until(run: Run, until: float | str) -> float:
    text = str(until).strip()
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = NAN
    if not value > 0 or (text.endswith("%") and value > 100):
        raise InputError(
            f"until {text!r} is neither a compute above 0 nor a percentage such as 50%"
        )
    return value / 100.0 * float(run.compute[-1]) if text.endswith("%") else value


def fixed_r0(run: Run, r0: str | float) -> float | None:
    """The value that `r0` fixes R0 at, None when R0 is free.

    Raises
    ------
    InputError
        If `r0` is neither ``fit``, ``first`` nor a possible score of the run.
    """
    if r0 == "fit":
        return None
    if r0 == "first":
        return float(run.score[0])
    try:
        value = float(r0)
    except ValueError:
        value = NAN
    if not np.isfinite(value) or (run.bounded and not 0.0 <= value <= 1.0):
        raise InputError(f"r0 {r0!r} is neither 'fit', 'first' nor a score of run {run.name!r}")
    return value


def bounds_of(run: Run) -> Bounds:
    """0 ≤ R0 ≤ A ≤ 1 for pass rates; for rewards, the observed range widened threefold."""
    if run.bounded:
        return Bounds(0.0, 1.0)
    low, high = float(run.score.min()), float(run.score.max())
    room = 3.0 * max(high - low, 1e-3 * max(abs(low), abs(high), 1e-6))
    return Bounds(low - room, high + room)


def checked_level(level: float) -> float:
    """Return the level of an interval if it lies between 0 and 1.

    Raises
    ------
    InputError
        If it does not.
    """
    if not 0.0 < level < 1.0:
        raise InputError(f"level {level:g} is not between 0 and 1; 0.9 means a 90 % interval")
    return float(level)
