"""What to do next: go on, stop, or measure better; for how much, and with what probability.

Every answer is about one run and conditional on its recipe going on unchanged. Gains and losses
count the mean curve, not the luck of one evaluation. What more data would bring is simulated
(`narrowing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from curvefit.errors import InputError
from curvefit.fit_doubts import span
from curvefit.fitted import Fit
from curvefit.marginal import log_compute
from curvefit.narrowing import (
    CONTINUATIONS,
    Option,
    Settling,
    check_positive,
    checked_price,
    options,
    settle,
)
from curvefit.predictive import curves, forecaster_of, quantiles
from curvefit.reported import Reported
from curvefit.results import Estimate
from curvefit.runs import Run

__all__ = ["Decision", "Gain", "Stop", "decide", "gain", "rate", "stop"]

FloatArray = NDArray[np.float64]

MORE = (0.1, 0.5, 1.0, 3.0)  # further compute, in units of that spent
LOSS, WIDTH = 0.01, 0.02
FAR = 10.0  # stopping is compared with going on to so many times the last compute


class Gain(NamedTuple):
    """What `more` compute gains: median and interval, the mean per unit, and the cost of it."""

    more: float
    at: float
    gain: float
    low: float
    high: float
    per_unit: float
    cost: float


class Stop(NamedTuple):
    """The probability that stopping now, not at `target`, loses less than `loss`."""

    loss: float
    target: float
    probability: float


@dataclass(frozen=True)
class Decision(Reported):
    """The result of `decide`.

    Attributes
    ----------
    run : Run
        The points that were fitted.
    level : float
    price : float
        Of a unit of compute; NaN when unknown.
    rate : Estimate
        Gain per further unit of compute at the end of the data.
    gains : tuple of Gain
    stop : Stop
    settling : Settling
    options : tuple of Option
    cautions : tuple of str
        Why none of this may hold.
    """

    _report = "curvefit.decide_report"

    run: Run
    level: float
    price: float
    rate: Estimate
    gains: tuple[Gain, ...]
    stop: Stop
    settling: Settling
    options: tuple[Option, ...]
    cautions: tuple[str, ...]


def decide(
    fit: Fit,
    *,
    loss: float | None = None,
    target: float | None = None,
    width: float | None = None,
    of: str | float = "A",
    price: float | None = None,
    count: int = CONTINUATIONS,
) -> Decision:
    """Answer what a run's budget turns on.

    Parameters
    ----------
    fit : Fit
        With a posterior.
    loss : float, optional
        How much of a score one is ready to lose by stopping now, in the unit of the score; 0.01 of
        a pass rate when left out.
    target : float, optional
        Compute up to which one would go on; ten times the last when left out.
    width : float, optional
        Width of the interval that is narrow enough; 0.02 of a pass rate when left out. For rewards
        both are shares of 2.5 times the range seen.
    of : str or float
        ``A``, or the compute at which the score must be known so closely.
    price : float, optional
        Of a unit of compute.
    count : int
        Number of simulated continuations; half of them for each of the options.

    Raises
    ------
    InputError
        If the fit has no posterior or a number cannot be used.
    """
    cost = checked_price(price)
    unit = span(fit) or float(np.abs(fit.run.score).max()) or 1.0  # a constant has no range
    loss = LOSS * unit if loss is None else loss
    width = WIDTH * unit if width is None else width
    settling = settle(fit, width, of=of, price=price, count=count)
    return Decision(
        run=fit.run,
        level=fit.level,
        price=cost,
        rate=rate(fit),
        gains=gain(fit, price=price),
        stop=stop(fit, loss, target=target),
        settling=settling,
        options=options(fit, of=of, price=price, count=max(count // 2, 1)),
        cautions=tuple(d.message for d in fit.doubts if d.code in ("no-rise", "fall-after-peak")),
    )


# ---------------------------------------------------------------- go on or stop


def gain(
    fit: Fit, more: Sequence[float] | None = None, *, price: float | None = None
) -> tuple[Gain, ...]:
    """What further compute gains.

    Parameters
    ----------
    fit : Fit
    more : sequence of float, optional
        Further compute, in the unit of the run; 10, 50, 100, 300 % of that spent when left out.
    price : float, optional
        Of a unit of compute.

    Raises
    ------
    InputError
        If the fit has no posterior, or a number is not above 0.
    """
    last = float(fit.run.compute[-1])
    extra = np.array([m * last for m in MORE] if more is None else more, dtype=float)
    check_positive("further compute", *extra.tolist())
    cost = checked_price(price)
    R = curves(fit, np.append(last, last + extra))
    tail = (1.0 - fit.level) / 2.0
    rows = []
    for k, m in enumerate(extra.tolist(), 1):
        gained = R[:, k] - R[:, 0]
        low, middle, high = quantiles(gained, tail, 0.5, 1.0 - tail)
        rows.append(Gain(m, last + m, middle, low, high, float(gained.mean()) / m, cost * m))
    return tuple(rows)


def rate(fit: Fit) -> Estimate:
    """Gain per further unit of compute at the end of the data: mean of dR/dC, and its interval.

    Of the laws: a departure from them has no slope to speak of.
    """
    last = float(fit.run.compute[-1])
    step = 1e-4 * last
    ends = forecaster_of(fit).law_curve(log_compute(np.array([last, last + step])))
    slope = (ends[:, 1] - ends[:, 0]) / step
    tail = (1.0 - fit.level) / 2.0
    low, high = quantiles(slope, tail, 1.0 - tail)
    return Estimate(float(slope.mean()), low, high)


def stop(fit: Fit, loss: float = 0.01, *, target: float | None = None) -> Stop:
    """How probably stopping now loses less than `loss` against going on to `target`.

    Raises
    ------
    InputError
        If the fit has no posterior, `loss` is not above 0 or `target` not beyond the data.
    """
    check_positive("loss", loss)
    last = float(fit.run.compute[-1])
    target = FAR * last if target is None else target
    if not (np.isfinite(target) and target > last):
        raise InputError(f"target {target:g} is not beyond the last compute {last:g}")
    now, then = curves(fit, np.array([last, target])).T
    return Stop(loss, target, float((then - now < loss).mean()))
