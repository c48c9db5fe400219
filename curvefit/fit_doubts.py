"""Doubts about a fit: what its points leave open.

Each function returns one doubt or None. Thresholds were set on simulated runs
(`benchmarks/doubts.py` measures them; docs/doubts.md explains each).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from curvefit.atoms import quantile
from curvefit.digits import significant
from curvefit.estimate import least_squares
from curvefit.laws import LAWS
from curvefit.marginal import log_compute, shape_box
from curvefit.results import Doubt
from curvefit.run_doubts import rises
from curvefit.window import bounds_of

if TYPE_CHECKING:
    from curvefit.fitted import Fit

__all__ = [
    "asymptote",
    "before_midpoint",
    "far_extrapolation",
    "grid_edge",
    "laws_disagree",
    "midpoints_seen",
    "no_step_0",
    "r0_a_tradeoff",
    "r0_fixed",
    "span",
    "too_wide",
]

WIDE_A, WIDE_A_EARLY, EARLY = 0.12, 0.06, 1.9  # early: data end below 1.9 C_mid
PAST_MIDPOINT = 1.5
FAR = 20.0
NEAR_EDGE, MASS_AT_EDGE = 0.03, 0.25
TRADE_OFF = 0.6
R0_STEP = 0.02
PLAUSIBLE = 0.03  # weight from which a law counts among those that fit


def span(fit: Fit) -> float:
    """The unit of widths: 1 for pass rates, 2.5 times the range of the data for rewards."""
    return 1.0 if fit.run.bounded else 2.5 * float(np.ptp(fit.run.score))


def midpoints_seen(fit: Fit) -> float:
    """The last compute in units of C_mid."""
    return float(fit.run.compute[-1]) / fit.params["C_mid"].value


def too_wide(fit: Fit) -> tuple[float, str] | None:
    """The limit that the width of A's 90 % interval exceeds, and when it holds; None if none.

    0.12, or 0.06 while the data end below 1.9 C_mid: there the interval itself rests on a midpoint
    that the run may not have reached.
    """
    low, high = fit.interval("A", 0.9)
    if high - low > WIDE_A * span(fit):
        return WIDE_A * span(fit), ""
    if high - low > WIDE_A_EARLY * span(fit) and midpoints_seen(fit) < EARLY:
        return WIDE_A_EARLY * span(fit), f" before {EARLY} × C_mid"
    return None


def asymptote(fit: Fit) -> Doubt | None:
    """The 90 % interval of A is wide: bounded on both sides, or from below only."""
    if fit.sigmoid is None:
        return None
    wide = too_wide(fit)
    if wide is None:
        return None
    low, high = fit.interval("A", 0.9)
    remedy = f"{_more_data(fit)}; use the forecast at a stated compute, not A"
    seen = f"data end at {significant(midpoints_seen(fit), 2)} × C_mid"
    ends = significant(low, 3), significant(high, 3)
    limit, level = bounds_of(fit.run).high, float(np.median(fit.run.score[-3:]))
    if high > limit - 0.15 * (limit - level):
        said = (
            f"asymptote bounded below only: A is at least {ends[0]} and may be as high as {ends[1]}"
        )
        return Doubt("asymptote-bounded-below", f"{said}; {seen}", remedy)
    said = f"asymptote not identified: 90 % interval of A is [{ends[0]}, {ends[1]}] (wider than "
    return Doubt(
        "asymptote-not-identified", f"{said}{significant(wide[0], 2)}{wide[1]}); {seen}", remedy
    )


def _more_data(fit: Fit) -> str:
    """What would narrow A's interval: more compute, or a better measured curve."""
    if not rises(fit):
        return "train until the score rises"
    if midpoints_seen(fit) < 2.0:
        return f"train to about {significant(2.0 * fit.params['C_mid'].value, 2)} (2 × C_mid)"
    return "train on, evaluate more often or on more samples, or add a seed"


def before_midpoint(fit: Fit) -> Doubt | None:
    """The data end below 1.5 C_mid, of a run that rises (C_mid means nothing otherwise)."""
    reached = midpoints_seen(fit)
    if reached >= PAST_MIDPOINT or not rises(fit):
        return None
    source = "by the prior" if fit.method == "posterior" else "by the form of the law"
    return Doubt(
        "before-midpoint",
        f"the data end at {significant(reached, 2)} × C_mid (less than {PAST_MIDPOINT}): the "
        f"ceiling is set {source}, not by the data",
        f"train past {significant(PAST_MIDPOINT * fit.params['C_mid'].value, 2)}",
    )


def laws_disagree(fit: Fit) -> Doubt | None:
    """Laws that fit differ at 10 times the last compute by more than the sigmoid's interval.

    The sigmoid as the table has it, the others as they forecast, were growth not to end.
    """
    a, sigmoid = fit.forecaster, fit.sigmoid
    if a is None or sigmoid is None or fit.law != "average":
        return None
    target = 10.0 * float(fit.run.compute[-1])
    x = log_compute(np.array([target]))
    values = replace(a, stop=np.full(len(a), np.inf)).law_curve(x)[:, 0] + a.level
    middle = {
        name: float(np.median(values[a.law == i]))
        for i, name in enumerate(LAWS)
        if (a.law == i).mean() > PLAUSIBLE
    }
    of_table = sigmoid.curve(x)[:, 0]
    low, table, high = quantile(of_table, sigmoid.weight, (0.05, 0.5, 0.95)).tolist()
    middle["sigmoid"] = table
    least, most = min(middle, key=middle.__getitem__), max(middle, key=middle.__getitem__)
    gap = middle[most] - middle[least]
    if gap <= max(high - low, 0.02 * span(fit)):
        return None
    return Doubt(
        "laws-disagree",
        f"laws that fit alike differ by {significant(gap, 2)} at {significant(target, 3)}: {least} "
        f"says {significant(middle[least], 3)}, {most} {significant(middle[most], 3)}",
        "trust the averaged forecast and its interval, not the table's A",
    )


def grid_edge(fit: Fit) -> Doubt | None:
    """A parameter lies at a limit of the range that was searched."""
    edges = _edges_of_posterior(fit) if fit.method == "posterior" else _edges_of_point(fit)
    if not edges:
        return None
    verb = "lies" if len(edges) == 1 else "lie"
    values = ", ".join(f"{name} = {significant(fit.params[name].value, 3)}" for name in edges)
    return Doubt(
        "grid-edge",
        f"{' and '.join(edges)} {verb} at the edge of the range that was searched ({values})",
        "widen the grid"
        if fit.method == "scalerl-grid"
        else "the data do not bound it: train longer, or evaluate more often where the score rises",
    )


def _edges_of_posterior(fit: Fit) -> list[str]:
    """The shape parameters that have a quarter of their weight near a limit of the prior."""
    a = fit.sigmoid
    assert a is not None
    box = shape_box(log_compute(fit.run.compute), "sigmoid")
    edges = []
    for name, value, low, high in (("C_mid", a.ln_c, *box[:2]), ("B", np.log(a.B), *box[2:])):
        near = NEAR_EDGE * (high - low)
        if float(a.weight[(value < low + near) | (value > high - near)].sum()) > MASS_AT_EDGE:
            edges.append(name)
    return edges


def _edges_of_point(fit: Fit) -> list[str]:
    """The parameters of a point fit that ended on a limit.

    A score that has arrived at 0 or 1 is no sign of trouble: A and R0 count only when the curve is
    still 0.02 away from them.
    """
    first, last = fit.point(fit.run.compute[[0, -1]]).tolist()
    away = {"A": fit.point.A - last, "R0": first - fit.point.R0}
    return [name for name in fit.point.edges if away.get(name, np.inf) > 0.02 * span(fit)]


def r0_a_tradeoff(fit: Fit) -> Doubt | None:
    """R0 is open, and A moves with it."""
    a = fit.sigmoid
    if a is None or fit.r0 != "fit":
        return None
    w = a.weight
    dR0, dA = a.R0 - (w * a.R0).sum(), a.A - (w * a.A).sum()
    var_R0, var_A, cov = ((w * v).sum() for v in (dR0 * dR0, dA * dA, dR0 * dA))
    low, high = fit.interval("R0", 0.9)
    if high - low < R0_STEP * span(fit) or cov**2 <= TRADE_OFF**2 * var_R0 * var_A:
        return None
    step = R0_STEP * span(fit)
    slope, correlation = float(cov / var_R0), float(cov / np.sqrt(var_R0 * var_A))
    return Doubt(
        "r0-a-tradeoff",
        f"R0 and A trade off (correlation {significant(correlation, 2)}): an R0 lower by "
        f"{significant(step, 2)} goes with an A {'higher' if slope < 0 else 'lower'} by "
        f"{significant(abs(step * slope), 2)}",
        "evaluate the model before training and add it as a row with compute 0",
    )


def no_step_0(fit: Fit) -> Doubt | None:
    """R0 is extrapolated to zero compute, and not known to 0.02."""
    C = fit.run.compute
    if C[0] == 0.0 or fit.r0 != "fit":
        return None
    if fit.sigmoid is not None:
        low, high = fit.interval("R0", 0.9)
        if high - low < R0_STEP * span(fit):
            return None
        found = f"to [{significant(low, 3)}, {significant(high, 3)}]"
    else:
        below = float(fit.point(C[:1])[0]) - fit.params["R0"].value
        if below < R0_STEP * span(fit):
            return None
        found = f"{significant(below, 2)} below the curve at the first point"
    return Doubt(
        "no-step-0",
        f"no evaluation at zero compute: R0 is extrapolated, {found}",
        "evaluate the model before training and add it as a row with compute 0",
    )


def r0_fixed(fit: Fit) -> Doubt | None:
    """R0 was given, not estimated: what an error of 0.02 in it would do."""
    if fit.r0 == "fit":
        return None
    R0 = fit.params["R0"].value
    C, y, bounds = fit.run.compute, fit.run.score, bounds_of(fit.run)
    target, step = 2.0 * float(C[-1]), R0_STEP * span(fit)
    here, there = (
        float(least_squares(C, y, r0=v, bounds=bounds)([target])[0]) for v in (R0, R0 - step)
    )
    return Doubt(
        "r0-fixed",
        f"R0 is fixed at {significant(R0, 3)}: were it lower by {significant(step, 2)}, the score "
        f"at {significant(target, 3)} would change by {significant(there - here, 2)}",
        "leave R0 free (--r0 fit) and add a step-0 evaluation",
    )


def far_extrapolation(fit: Fit, at: float) -> Doubt | None:
    """A forecast is asked for at more than 20 times the last compute."""
    last = float(fit.run.compute[-1])
    if at <= FAR * last:
        return None
    return Doubt(
        "far-extrapolation",
        f"the forecast at {significant(at, 3)} is {significant(at / last, 2)} times beyond the "
        "last compute, where nothing but the form of the law speaks",
        f"ask for at most {significant(FAR * last, 3)}",
    )
