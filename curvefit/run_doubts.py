"""Doubts about a run: what its points show, whatever is concluded from them.

Each function returns one doubt or None. Thresholds were set on simulated runs
(`benchmarks/doubts.py` measures false alarms and power; docs/doubts.md explains each).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from curvefit.atoms import quantile
from curvefit.digits import significant
from curvefit.estimate import least_squares
from curvefit.marginal import log_compute
from curvefit.moving_average import moving_average
from curvefit.names import says_rate
from curvefit.results import Doubt
from curvefit.second_rise import second_rise
from curvefit.series import jitter, lag_1, rms_jitter, roughness, sign_runs
from curvefit.window import bounds_of

if TYPE_CHECKING:
    from curvefit.fitted import Fit

__all__ = [
    "correlated_noise",
    "fall_after_peak",
    "few_points",
    "last_points_below",
    "misfit",
    "no_rise",
    "outside_0_1",
    "rises",
    "smoothed",
]

FloatArray = NDArray[np.float64]

FEW_POINTS = 8
RISE_IN_ERRORS = 4.0
FALL_IN_NOISES, FALL_OF_GAIN = 3.0, 0.05
LAST_POINTS, LOOK_BACK, BELOW_IN_NOISES = 3, 12, 2.0
MISFIT_POINTS, MISFIT_Z, MISFIT_LAG_1 = 16, -3.0, 0.45
SECOND_RISE_NATS = 4.0
LAG_POINTS, LAG_1, LAG_1_Z = 12, 0.35, 2.0
SMOOTH_POINTS, SMOOTH_SHARE = 10, 0.3
EVEN_POINTS, EVEN = 16, 1.2
WINDOW_POINTS, WINDOW_NATS = 24, 4.0
SMOOTH_NAME = re.compile(
    r"(?<![a-z])(ema|smooth(ed|ing)?|rolling|(moving|running)[ _-]?(avg|average|mean))(?![a-z])"
)


def residuals(fit: Fit) -> FloatArray:
    """Scores minus the least-squares curve, shape (n,)."""
    return fit.run.score - fit.point(fit.run.compute)


def exact(fit: Fit) -> bool:
    """Whether the curve passes through all points, so that there is no noise to speak of."""
    y = fit.run.score
    scale = max(float(np.ptp(y)), 1e-9 * float(np.abs(y).max()))
    return float(np.abs(residuals(fit)).max()) <= 3e-5 * scale


# ---------------------------------------------------------------- rise and fall


def rises(fit: Fit) -> bool:
    """Whether the score rises over the data by more than noise would explain.

    One of two must say so. The posterior: the gain exceeds half the noise of one evaluation with
    probability 0.95. The points: the last third lies above the first by four standard errors. The
    second speaks where the posterior may take a steep rise for strongly correlated run noise.
    """
    a, y = fit.sigmoid, fit.run.score
    if a is not None:
        start, end = a.curve(log_compute(fit.run.compute[[0, -1]])).T
        noise = float(np.sqrt((a.weight * (a.white + a.run)).sum()))
        if float(quantile(end - start, a.weight, (0.05,))[0]) > 0.5 * noise:
            return True
    error = np.sqrt(_variance(fit) * 2.0 / _third(y))
    return _gain(y) > max(RISE_IN_ERRORS * float(error), 1e-9 * float(np.abs(y).max()))


def _variance(fit: Fit) -> float:
    """Variance of a point about the curve, at least that of its evaluation when its size is known.

    Too few points follow any curve: without a size, deviations from a straight line count instead.
    """
    y, n = fit.run.score, fit.run.n_eval
    known = n is not None and fit.run.bounded
    line = len(y) < FEW_POINTS and not known
    off, free = (_off_line(y), len(y) - 2) if line else (residuals(fit), max(len(y) - 4, 1))
    evaluation = float(np.mean(y * (1.0 - y) / n)) if known and n is not None else 0.0
    return max(float(off @ off) / free, evaluation)


def _third(y: FloatArray) -> int:
    return max(len(y) // 3, 1)


def _gain(y: FloatArray) -> float:
    """Mean of the last third minus mean of the first."""
    k = _third(y)
    return float(y[-k:].mean() - y[:k].mean())


def _off_line(y: FloatArray) -> FloatArray:
    """Deviations from the straight line through all points, in the order of the rows."""
    t = np.arange(len(y)) - 0.5 * (len(y) - 1)
    return np.asarray(y - y.mean() - t * float(t @ y) / float(t @ t))


def no_rise(fit: Fit) -> Doubt | None:
    """The gain over the data is within the noise."""
    if rises(fit):
        return None
    return Doubt(
        "no-rise",
        f"no rise beyond noise: from the first third of these points to the last the score changes "
        f"by {significant(_gain(fit.run.score), 2)}, which noise may explain; nothing can be "
        "extrapolated",
        "check the score column (--y) and the reward, or train on",
    )


def fall_after_peak(fit: Fit) -> Doubt | None:
    """The last tenth lies clearly below the best tenth before it."""
    C, y = fit.run.compute, fit.run.score
    k = max(3, len(y) // 10)
    if len(y) < 2 * k + 2:
        return None
    means = np.convolve(y, np.full(k, 1.0 / k), mode="valid")
    peak = int(means[:-k].argmax())
    drop, gain = float(means[peak] - means[-1]), float(means[peak] - means[: peak + 1].min())
    if drop <= FALL_OF_GAIN * gain or drop <= FALL_IN_NOISES * _noise_until(fit, peak + k):
        return None
    if drop <= 1e-9 * float(np.abs(y).max()):
        return None
    return Doubt(
        "fall-after-peak",
        f"the score fell by {significant(drop, 2)} after its peak near "
        f"{significant(float(C[peak + k // 2]), 3)}; a rising curve does not describe what follows",
        f"fit up to the peak (--until {C[peak + k - 1]:.10g}) and look for the cause of the fall",
    )


def _noise_until(fit: Fit, end: int) -> float:
    """Standard deviation of the first `end` points about a curve of their own.

    That counts run noise, which second differences hardly see. Too few points for a curve of four
    parameters leave second differences of the whole run, doubled.
    """
    C, y = fit.run.compute[:end], fit.run.score[:end]
    local = jitter(fit.run.score)
    if end < FEW_POINTS:
        return 2.0 * local
    own = least_squares(C, y, bounds=bounds_of(fit.run))
    return max(local, float(np.sqrt(np.mean((y - own(C)) ** 2) * end / (end - 4))))


def last_points_below(fit: Fit) -> Doubt | None:
    """The last evaluations all lie below the curve, by twice the noise before them."""
    below = -residuals(fit)[: -LOOK_BACK - 1 : -1]  # the last first
    negative = _leading(below > 0.0)
    before = len(fit.run) - negative
    if negative < LAST_POINTS or before < FEW_POINTS or exact(fit):
        return None
    noise = _noise_until(fit, before)
    k = _leading(below > BELOW_IN_NOISES * noise)
    if k < LAST_POINTS:
        return None
    return Doubt(
        "last-points-below",
        f"the last {k} points lie below the fitted curve, by {significant(below[:k].mean(), 2)} on "
        f"average where noise before was {significant(noise, 2)} (sd): a plateau, a collapse or a "
        "change of regime",
        "look at the run before trusting the forecast, or fit a later window (--skip)",
    )


def _leading(true: NDArray[np.bool_]) -> int:
    """How many values are true before the first that is not."""
    return len(true) if true.all() else int(true.argmin())


# ---------------------------------------------------------------- residuals


def misfit(fit: Fit) -> Doubt | None:
    """One law and its noise do not explain the points.

    Either a second rise explains them better, correlated noise allowed for on both sides; or the
    residuals keep their sign longer than independent or mildly correlated noise does.
    """
    r = residuals(fit)
    if len(r) < MISFIT_POINTS or exact(fit):
        return None
    return _second_rise(fit) or _long_signs(r)


def _second_rise(fit: Fit) -> Doubt | None:
    if fit.forecaster is None:
        return None
    found = second_rise(fit)
    if found.nats < SECOND_RISE_NATS:
        return None
    return Doubt(
        "misfit",
        f"a second rise near {significant(found.midpoint, 2)}, by about "
        f"{significant(found.size, 2)}, explains these points better than one law and correlated "
        f"noise do (by {significant(found.nats, 2)} nats)",
        "expect A, and a forecast beyond the data, to move with the window (--scan); look for what "
        "changed there, or fit what follows (--skip)",
    )


def _long_signs(r: FloatArray) -> Doubt | None:
    runs = sign_runs(r)
    if runs.z > MISFIT_Z or lag_1(r) < MISFIT_LAG_1:
        return None
    return Doubt(
        "misfit",
        f"the residuals keep their sign for long ({runs.seen} runs of sign in {len(r)} points, "
        f"{significant(runs.expected, 2)} expected): the law does not fit, or the noise is "
        "strongly correlated",
        "look at the plot for a second rise or a change of regime, and at the weights of the laws",
    )


def correlated_noise(fit: Fit) -> Doubt | None:
    """Neighbouring residuals err together."""
    r = residuals(fit)
    n = len(r)
    if n < LAG_POINTS or exact(fit):
        return None
    rho = lag_1(r)
    if rho < max(LAG_1, LAG_1_Z / np.sqrt(n)):
        return None
    factor = np.sqrt((1.0 + rho) / (1.0 - min(rho, 0.99)))
    return Doubt(
        "correlated-noise",
        f"residuals are serially correlated (lag-1 = {significant(rho, 2)}): intervals for "
        f"independent errors would be {significant(factor, 2)} times too narrow",
        "none needed: the intervals of the posterior allow for it; further seeds would measure it"
        if fit.method == "posterior"
        else "use --method posterior, whose intervals allow for it",
    )


# ---------------------------------------------------------------- the column


def smoothed(fit: Fit) -> Doubt | None:
    """The rows are a moving average or another smooth of what was measured."""
    known = fit.run.n_eval is not None and fit.run.bounded
    why = _named_smooth(fit) or (_too_quiet(fit) if known else _too_even(fit))
    if why is None:
        return None
    raw = "export the raw values; smoothing delays the curve and hides the noise"
    return Doubt(
        "smoothed",
        f"these rows look smoothed: {why}",
        f"{raw}; if they are raw, the evaluation size (--n) is too small" if known else raw,
    )


def _named_smooth(fit: Fit) -> str | None:
    column = fit.run.y.column
    return f"the column is called {column!r}" if SMOOTH_NAME.search(column.lower()) else None


def _too_quiet(fit: Fit) -> str | None:
    """Neighbours differ less than the evaluation size allows.

    The mean square of n − 2 second differences of white noise is σ² χ²/ν with ν = (n − 2)/1.94; the
    threshold is its 0.001 quantile (Wilson and Hilferty), at most `SMOOTH_SHARE`² σ²: the same
    prompts at every evaluation make true noise smaller than binomial, by less than that.
    """
    y, n = fit.run.score, fit.run.n_eval
    assert n is not None
    if len(y) < SMOOTH_POINTS:
        return None
    expected = float(np.sqrt(np.mean(y * (1.0 - y) / n)))
    c = 2.0 / (9.0 * (len(y) - 2) / 1.94)
    rare = max(1.0 - c - 3.09 * np.sqrt(c), 0.0) ** 1.5
    seen = rms_jitter(y)
    if seen >= min(rare, SMOOTH_SHARE) * expected:
        return None
    return (
        f"neighbours differ as if evaluation noise were {significant(seen, 2)} (sd), where the "
        f"evaluation size makes at least {significant(expected, 2)}"
    )


def _too_even(fit: Fit) -> str | None:
    """The noise itself is smooth, or a moving average explains it better than run noise does."""
    r = residuals(fit)
    n = len(r)
    if n < EVEN_POINTS or exact(fit):
        return None
    rough = roughness(r)
    if rough < EVEN:
        return (
            f"residuals change too evenly (third to second differences {significant(rough, 2)}, "
            "about 3 in a raw log)"
        )
    if n < WINDOW_POINTS or lag_1(r) < LAG_1:
        return None
    window, nats = moving_average(r)
    if nats < WINDOW_NATS:
        return None
    return (
        f"a moving average over {window} rows explains the residuals better than any run noise, by "
        f"{significant(nats, 2)} nats"
    )


def outside_0_1(fit: Fit) -> Doubt | None:
    """A column that seems to hold pass rates leaves [0, 1].

    A reward on a scale of its own is none: neither its name nor half of its scores say pass rate.
    """
    y, column = fit.run.score, fit.run.y.column
    outside = (y < 0.0) | (y > 1.0)
    if not outside.any() or (outside.mean() > 0.5 and not says_rate(column)):
        return None
    worst = float(y[outside][np.abs(y[outside] - 0.5).argmax()])
    return Doubt(
        "outside-0-1",
        f"{int(outside.sum())} of {len(y)} scores lie outside 0 to 1, up to "
        f"{significant(worst, 3)}, though most look like pass rates",
        "check the column (--y); a pass rate lies between 0 and 1, anything else is a reward",
    )


def few_points(fit: Fit) -> Doubt | None:
    """Fewer points than two a parameter."""
    n = len(fit.run)
    if n >= FEW_POINTS:
        return None
    return Doubt(
        "few-points",
        f"{n} points for a curve of four parameters (fewer than {FEW_POINTS})",
        "evaluate more often",
    )
