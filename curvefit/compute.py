"""From steps, seconds or tokens to the compute that a curve is drawn against.

A time column and a number of GPUs give GPU-hours; steps and a price in GPU-hours a step give them
too. Times are logged in two ways: since the start (W&B's ``_runtime``), or for the step alone
(``step_time``, ``time/total``, ``timing_s/step``). The second kind is summed, each value standing
for all the steps since the one logged before it, as TRL's ``step_time`` is the mean over its
logging window. Steps repeated after a restart cost what they cost, and count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curvefit.errors import InputError
from curvefit.names import Clock, clock, compute_meaning
from curvefit.runs import Note
from curvefit.wording import printable, quoted

__all__ = ["Scale", "accumulated", "elapsed", "gpu_hours_of_steps", "gpu_hours_of_time", "plain"]

FloatArray = NDArray[np.float64]
EPOCH = 1e9  # a time of more seconds is a date, not a duration


@dataclass(frozen=True, slots=True)
class Scale:
    """How a column becomes compute.

    Attributes
    ----------
    column : str
    unit : str
        Of the result, one of those of `Run.x`.
    factor : float
        What a value is multiplied by, once it is cumulative.
    shows : str
        ``amount`` for what is cumulative and no time; otherwise as in `names.Clock`.
    said : str
        What was assumed, as part of a sentence; ``""`` if nothing was.
    """

    column: str
    unit: str
    factor: float = 1.0
    shows: str = "amount"
    said: str = ""

    def __call__(
        self, values: FloatArray, step: FloatArray | None
    ) -> tuple[FloatArray, list[Note]]:
        """Return the compute at each row of one run, in file order, and what was assumed.

        Parameters
        ----------
        values : ndarray, shape (n,)
            The column as logged, NaN where blank.
        step : ndarray or None, shape (n,)
            The training step of each row.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            cumulative, how = elapsed(values, step, self.shows)
            cumulative = cumulative if self.factor == 1.0 else cumulative * self.factor
        sentence = "; ".join(part for part in (how and f"{self.column} {how}", self.said) if part)
        note = [Note("compute", sentence)] if sentence else []
        return cumulative, note


def plain(column: str) -> Scale:
    """Take a column as it is: its unit follows from its name, a time becomes hours."""
    name = printable(column)
    time = clock(column)
    meaning = compute_meaning(column)
    if meaning is not None:
        return Scale(name, meaning.unit, shows="per step" if meaning.per_step else "amount")
    if time is not None:
        said = "wall-clock hours; with --gpus N they become GPU-hours"
        return Scale(name, "hours", time.hours, time.shows, f"{name} {_read_as(time)}: {said}")
    return Scale(name, "")


def gpu_hours_of_time(column: str, gpus: float) -> Scale:
    """Turn a time column into GPU-hours, ``gpus × hours``.

    Raises
    ------
    InputError
        When the number of GPUs is not positive, or the column is not known as a time.
    """
    if not (np.isfinite(gpus) and gpus > 0):
        raise InputError(f"--gpus is {gpus}: the number of GPUs must be positive")
    meaning = compute_meaning(column)
    if meaning is not None and meaning.unit == "gpu_hours":
        raise InputError(f"{quoted(column)} is in GPU-hours already: leave --gpus out")
    time = clock(column)
    if time is None:
        raise InputError(
            f"{quoted(column)} is not known as a time: with --gpus, --x must name one, such as "
            "elapsed_hours, wall_s, _runtime or step_time"
        )
    said = f"GPU-hours = {gpus:g} GPUs × hours ({printable(column)} {_read_as(time)})"
    return Scale(printable(column), "gpu_hours", time.hours * gpus, time.shows, said)


def gpu_hours_of_steps(column: str, hours: float) -> Scale:
    """Turn a step column into GPU-hours at a constant price a step.

    Raises
    ------
    InputError
        When the price is not positive.
    """
    if not (np.isfinite(hours) and hours > 0):
        raise InputError(f"--gpu-hours-per-step is {hours}: it must be positive")
    said = f"GPU-hours = {hours:g} × {printable(column)}"
    return Scale(printable(column), "gpu_hours", hours, said=said)


def elapsed(values: FloatArray, step: FloatArray | None, shows: str) -> tuple[FloatArray, str]:
    """Return a time or token column as a total since the start, and what was done to it.

    A blank stays blank where the column is cumulative; where it is summed, a row without a value
    has the total so far (an evaluation logged between two training steps).
    """
    known = values[np.isfinite(values)]
    if shows == "unclear":
        falls = bool((known[1:] < known[:-1]).any())
        total, how = elapsed(values, step, "per step" if falls else "elapsed")
        return total, how or "never falls, so it is the time since the start"
    if shows == "per step":
        return accumulated(values, step), "is per step and was summed"
    if known.size and shows != "amount" and (shows == "date" or known[0] > EPOCH):
        return values - known.min(), "is a date: compute counts from the first row"
    return values, ""


def accumulated(values: FloatArray, step: FloatArray | None) -> FloatArray:
    """Sum a column of per-step amounts, ``total_i = Σ_{j≤i} value_j · (step_j − step_{j−1})``.

    The first row counts for the steps up to it (one if it is step 0). Where the step does not grow
    (a restart) or is unknown, a row counts for as many steps as rows usually do.
    """
    known = np.isfinite(values)
    stride = np.ones(int(known.sum()))
    if step is not None and stride.size:
        at = step[known]
        stride = np.diff(at, prepend=0.0)
        grown = stride[1:][stride[1:] > 0]
        usual = float(np.median(grown)) if grown.size else 1.0
        stride[0] = max(stride[0], 1.0)
        stride[~(stride > 0)] = usual
    amounts = np.zeros(len(values))
    amounts[known] = values[known] * stride
    return np.cumsum(amounts)


def _read_as(time: Clock) -> str:
    unit = {1.0: "in hours", 1 / 60: "in minutes", 1 / 3600: "in seconds"}[time.hours]
    return f"read {unit}"
