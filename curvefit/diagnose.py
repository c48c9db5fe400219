"""Doubts: what weakens a fit, in words, each with a stable code, its number and a remedy.

A doubt is raised by one small function below; `CHECKS` lists them, the weightiest first. The
thresholds come from simulated and real runs (docs/log.md); none is a significance test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from curvefit.digits import significant
from curvefit.laws import LAWS
from curvefit.marginal import log_compute, shape_box
from curvefit.posterior import quantile
from curvefit.results import Doubt, Verdict

if TYPE_CHECKING:
    from curvefit.fitted import Fit

__all__ = ["CHECKS", "doubts", "far_extrapolation", "verdict"]

FloatArray = NDArray[np.float64]

WIDE_A = 0.10  # 90 % interval of A beyond which A is not identified
NARROW_A = 0.04
PAST_MIDPOINT = 1.5
FEW_POINTS = 8
FAR = 20.0


def doubts(fit: Fit) -> tuple[Doubt, ...]:
    """All doubts about a fit, the weightiest first."""
    found = (check(fit) for check in CHECKS)
    return tuple(doubt for doubt in found if doubt is not None)


def verdict(fit: Fit) -> Verdict:
    """Grade the asymptote: identified, weak or not identified."""
    if fit.sigmoid is None:
        return Verdict(
            "not identified",
            f"method {fit.method} gives no interval, so how far A can be trusted is not known; "
            "use --method posterior",
        )
    low, high = fit.interval("A", 0.9)
    span, reached = _span(fit), _midpoints_seen(fit)
    A = f"A = {number(fit.params['A'].value)}, 90 % interval [{number(low)}, {number(high)}]"
    seen = f"the data end at {number(reached, 2)} × C_mid"
    if _codes_no_rise(fit):
        return Verdict(
            "not identified", "the run does not rise, so there is no asymptote to estimate"
        )
    if high - low > WIDE_A * span:
        return Verdict("not identified", f"the asymptote is not identified: {A}; {seen}")
    if high - low > NARROW_A * span or reached < PAST_MIDPOINT:
        return Verdict("weak", f"the asymptote is weakly identified: {A}; {seen}")
    return Verdict("identified", f"the asymptote is identified: {A}; {seen}")


def far_extrapolation(fit: Fit, at: float) -> Doubt | None:
    """A doubt if a forecast is asked for at more than 20 times the last compute."""
    last = float(fit.run.compute[-1])
    if at <= FAR * last:
        return None
    return Doubt(
        "far-extrapolation",
        f"the forecast at {number(at)} is {number(at / last, 2)} times beyond the last compute, "
        "where nothing but the form of the law speaks",
        f"ask for at most {number(FAR * last)}",
    )


def number(value: float, digits: int = 3) -> str:
    """Write a number for a sentence."""
    return significant(value, digits)


def _span(fit: Fit) -> float:
    """The unit of widths: 1 for pass rates, 2.5 times the data's range for rewards."""
    return 1.0 if fit.run.bounded else 2.5 * float(np.ptp(fit.run.score))


def _midpoints_seen(fit: Fit) -> float:
    """The last compute in units of C_mid."""
    return float(fit.run.compute[-1]) / fit.params["C_mid"].value


def _residuals(fit: Fit) -> FloatArray:
    """Scores minus the least-squares sigmoid."""
    return fit.run.score - fit.point(fit.run.compute)


def _jitter(y: FloatArray) -> float:
    """Standard deviation of the noise from one point to the next, blind to a smooth trend."""
    return float(np.median(np.abs(np.diff(y, 2))) / (0.6745 * np.sqrt(6.0))) if len(y) > 3 else 0.0


def _codes_no_rise(fit: Fit) -> bool:
    """Whether the gain over the data may be less than the noise of one evaluation."""
    a = fit.sigmoid
    if a is None:
        return fit.point.A - fit.point.R0 <= 0.0
    ends = log_compute(fit.run.compute[[0, -1]])
    start, end = a.curve(ends).T
    noise = float(np.sqrt((a.weight * (a.white + a.run)).sum()))
    return float(quantile(end - start, a.weight, (0.05,))[0]) < 0.5 * noise


def _no_rise(fit: Fit) -> Doubt | None:
    if not _codes_no_rise(fit):
        return None
    return Doubt(
        "no-rise",
        "the score does not rise beyond its noise over these points: nothing can be extrapolated",
        "check the score column (--y) and the reward, or train on",
    )


def _fall_after_peak(fit: Fit) -> Doubt | None:
    C, y = fit.run.compute, fit.run.score
    k = max(3, len(y) // 10)
    if len(y) < 2 * k + 2:
        return None
    means = np.convolve(y, np.full(k, 1.0 / k), mode="valid")
    peak = int(means[:-k].argmax())
    drop = float(means[peak] - means[-1])
    noise = max(_jitter(y), fit.noise.evaluation if np.isfinite(fit.noise.evaluation) else 0.0)
    if drop <= 4.0 * noise * np.sqrt(2.0 / k) or drop <= 0.15 * (means[peak] - y.min()):
        return None
    return Doubt(
        "fall-after-peak",
        f"the score fell by {number(drop)} after its peak near {number(C[peak + k // 2])}; "
        "a rising curve does not describe what follows",
        f"fit up to the peak (--until {C[peak + k - 1]:g}) and look for the cause of the fall",
    )


def _asymptote(fit: Fit) -> Doubt | None:
    if fit.sigmoid is None:
        return None
    low, high = fit.interval("A", 0.9)
    if high - low <= WIDE_A * _span(fit):
        return None
    C_mid = fit.params["C_mid"].value
    more = f"train to about {number(2.0 * C_mid, 2)} (2 × C_mid)"
    limit = (
        1.0 if fit.run.bounded else float(fit.run.score.max()) + 3.0 * float(np.ptp(fit.run.score))
    )
    level = float(np.median(fit.run.score[-3:]))
    seen = f"data end at {number(_midpoints_seen(fit), 2)} × C_mid"
    if high > limit - 0.15 * (limit - level):
        return Doubt(
            "asymptote-bounded-below",
            f"the asymptote is bounded below only: A is at least {number(low)} and may be as high "
            f"as {number(high)}; {seen}",
            f"{more}, and use the forecast at a stated compute instead of A",
        )
    return Doubt(
        "asymptote-not-identified",
        f"asymptote not identified: 90 % interval of A is [{number(low)}, {number(high)}] (wider "
        f"than {number(WIDE_A * _span(fit))}); {seen}",
        f"{more}, and use the forecast at a stated compute instead of A",
    )


def _before_midpoint(fit: Fit) -> Doubt | None:
    reached = _midpoints_seen(fit)
    if reached >= PAST_MIDPOINT:
        return None
    return Doubt(
        "before-midpoint",
        f"the data end at {number(reached, 2)} × C_mid (less than {PAST_MIDPOINT}): the ceiling "
        "is set by the prior, not by the data",
        f"train past {number(PAST_MIDPOINT * fit.params['C_mid'].value, 2)}",
    )


def _few_points(fit: Fit) -> Doubt | None:
    n = len(fit.run)
    if n >= FEW_POINTS:
        return None
    return Doubt(
        "few-points",
        f"{n} points for a curve of four parameters (fewer than {FEW_POINTS})",
        "evaluate more often",
    )


def _outside(fit: Fit) -> Doubt | None:
    for note in fit.run.notes:
        if note.code == "outside-0-1":
            return Doubt(
                "outside-0-1", note.message, "check the column; a pass rate lies between 0 and 1"
            )
    return None


def _at_edge(fit: Fit) -> Doubt | None:
    edges = list(fit.point.edges) if fit.method != "posterior" else []
    a = fit.sigmoid
    if a is not None:
        box = shape_box(log_compute(fit.run.compute), "sigmoid")
        for name, value, low, high in (("C_mid", a.ln_c, *box[:2]), ("B", np.log(a.B), *box[2:])):
            near = 0.03 * (high - low)
            outside = (value < low + near) | (value > high - near)
            if float(a.weight[outside].sum()) > 0.25:
                edges.append(name)
    if not edges:
        return None
    return Doubt(
        "grid-edge",
        f"{' and '.join(edges)} lies at the edge of the range that was searched",
        "widen the range"
        if fit.method == "scalerl-grid"
        else "the data do not bound it; train longer",
    )


def _last_points_below(fit: Fit) -> Doubt | None:
    if fit.forecaster is None or len(fit.run) < FEW_POINTS:
        return None
    low, _ = fit.band(fit.run.compute)
    noise = fit.noise.evaluation
    below = fit.run.score < low - noise
    k = len(below) - 1 - int(np.flatnonzero(~below)[-1]) if not below.all() else len(below)
    if k < 3:
        return None
    return Doubt(
        "last-points-below",
        f"the last {k} points lie below the fitted curve: a plateau, a collapse or a new regime",
        "look at the run before trusting the forecast, or fit a later window (--skip)",
    )


def _misfit(fit: Fit) -> Doubt | None:
    positive = _residuals(fit) > 0
    n1, n = int(positive.sum()), len(positive)
    n2 = n - n1
    if n < 16 or min(n1, n2) < 3 or _noiseless(fit):
        return None
    runs = 1 + int((positive[1:] != positive[:-1]).sum())
    mean = 1.0 + 2.0 * n1 * n2 / n
    sd = np.sqrt((mean - 1.0) * (mean - 2.0) / (n - 1))
    z = (runs - mean) / sd
    if z > -3.0:
        return None
    return Doubt(
        "misfit",
        f"the residuals keep their sign for long ({runs} runs of sign in {n} points, "
        f"{number(mean, 2)} expected): the law does not fit, or the noise is strongly correlated",
        "compare the laws' weights, and look at the plot for a second rise or a change of regime",
    )


def _noiseless(fit: Fit) -> bool:
    return float(np.std(_residuals(fit))) < 1e-5 * max(float(np.ptp(fit.run.score)), 1e-12)


def _correlated(fit: Fit) -> Doubt | None:
    r = _residuals(fit)
    if len(r) < 12 or _noiseless(fit):
        return None
    lag1 = float((r[1:] * r[:-1]).sum() / (r * r).sum())
    if lag1 < 0.4:
        return None
    factor = np.sqrt((1.0 + lag1) / (1.0 - min(lag1, 0.99)))
    return Doubt(
        "correlated-noise",
        f"residuals are serially correlated (lag-1 = {number(lag1, 2)}): intervals for independent "
        f"errors would be {number(factor, 2)} times too narrow",
        "none needed: the intervals here allow for it; further seeds would measure it",
    )


def _smoothed(fit: Fit) -> Doubt | None:
    if "smooth" in fit.run.y.column.lower() or "_ema" in fit.run.y.column.lower():
        return _smoothed_doubt(f"the column is called {fit.run.y.column!r}")
    y, n = fit.run.score, fit.run.n_eval
    if len(y) < 10 or _noiseless(fit):
        return None
    if n is not None and fit.run.bounded:
        expected = float(np.sqrt(np.mean(y * (1.0 - y) / n)))
        if _jitter(y) < 0.3 * expected:
            return _smoothed_doubt(
                f"neighbouring rows differ by {number(_jitter(y))} (sd), where the evaluation size "
                f"alone makes {number(expected)}"
            )
        return None
    r = _residuals(fit)
    roughness = float((np.diff(r, 2) ** 2).mean() / (np.diff(r) ** 2).mean())
    if roughness < 0.8:
        return _smoothed_doubt(
            f"neighbouring residuals change too evenly (roughness {number(roughness, 2)}, "
            "at least 2 in a raw log)"
        )
    return None


def _smoothed_doubt(why: str) -> Doubt:
    return Doubt(
        "smoothed",
        f"these rows look smoothed: {why}",
        "export the raw values; smoothing delays the curve and hides the noise",
    )


def _trade_off(fit: Fit) -> Doubt | None:
    a = fit.sigmoid
    if a is None or fit.r0 != "fit":
        return None
    w = a.weight
    dR0, dA = a.R0 - (w * a.R0).sum(), a.A - (w * a.A).sum()
    var = float((w * dR0**2).sum())
    slope = float((w * dR0 * dA).sum()) / max(var, 1e-300)
    correlation = slope * np.sqrt(var / max(float((w * dA**2).sum()), 1e-300))
    low, high = fit.interval("R0", 0.9)
    if abs(correlation) < 0.6 or high - low < 0.02 * _span(fit):
        return None
    return Doubt(
        "r0-a-tradeoff",
        f"R0 and A trade off (correlation {number(correlation, 2)}): an R0 lower by 0.02 goes with "
        f"an A {'higher' if slope < 0 else 'lower'} by {number(abs(0.02 * slope), 2)}",
        "evaluate the model before training and add it as a row with compute 0",
    )


def _no_step_zero(fit: Fit) -> Doubt | None:
    if fit.run.compute[0] == 0.0 or fit.r0 != "fit" or fit.sigmoid is None:
        return None
    low, high = fit.interval("R0", 0.9)
    if high - low < 0.02 * _span(fit):
        return None
    return Doubt(
        "no-step-0",
        f"no evaluation at zero compute: R0 is extrapolated, to [{number(low)}, {number(high)}]",
        "evaluate the model before training and add it as a row with compute 0",
    )


def _r0_fixed(fit: Fit) -> Doubt | None:
    if fit.r0 == "fit" or fit.method == "scalerl-grid":
        return None
    from curvefit.estimate import least_squares
    from curvefit.window import bounds_of

    R0 = fit.params["R0"].value
    C, y, bounds = fit.run.compute, fit.run.score, bounds_of(fit.run)
    target = 2.0 * float(C[-1])
    step = 0.02 * _span(fit)
    here, there = (
        float(least_squares(C, y, r0=v, bounds=bounds)([target])[0]) for v in (R0, R0 - step)
    )
    return Doubt(
        "r0-fixed",
        f"R0 is fixed at {number(R0)}: were it lower by {number(step, 2)}, the score at "
        f"{number(target)} would change by {number(there - here, 2)}",
        "leave R0 free (--r0 fit) and add a step-0 evaluation",
    )


def _laws_disagree(fit: Fit) -> Doubt | None:
    a, sigmoid = fit.forecaster, fit.sigmoid
    if a is None or sigmoid is None or fit.law != "average":
        return None
    target = 10.0 * float(fit.run.compute[-1])
    x = log_compute(np.array([target]))
    values = a.curve(x)[:, 0]
    names = list(LAWS)
    middle = {
        names[i]: float(np.median(values[a.law == i]))
        for i in range(len(names))
        if (a.law == i).mean() > 0.03
    }
    low, high = quantile(sigmoid.curve(x)[:, 0], sigmoid.weight, (0.05, 0.95)).tolist()
    if len(middle) < 2:
        return None
    least, most = min(middle, key=middle.__getitem__), max(middle, key=middle.__getitem__)
    gap = middle[most] - middle[least]
    if gap <= max(high - low, 0.02 * _span(fit)):
        return None
    return Doubt(
        "laws-disagree",
        f"laws that fit alike differ by {number(gap, 2)} at {number(target)}: {least} says "
        f"{number(middle[least])}, {most} {number(middle[most])}",
        "trust the averaged forecast and its interval, not the table's A",
    )


CHECKS: tuple[Callable[[Fit], Doubt | None], ...] = (
    _no_rise,
    _fall_after_peak,
    _asymptote,
    _before_midpoint,
    _few_points,
    _last_points_below,
    _misfit,
    _laws_disagree,
    _outside,
    _smoothed,
    _at_edge,
    _trade_off,
    _no_step_zero,
    _r0_fixed,
    _correlated,
)
