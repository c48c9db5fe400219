"""What the tool would have said: each run forecast from its first 10, 25, 50 % (rolling origin).

The target is the mean of the last tenth of a run: its evaluations beyond 0.9 of the last compute.
At each origin the fit sees what lies up to that share of the last compute, nothing more. Beside it
stands persistence, the mean of the last three scores seen: what costs nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from curvefit.errors import CurvefitError, InputError
from curvefit.fit import check_choices, fit
from curvefit.fitted import Fit
from curvefit.predictive import crps, mean_observed, quantiles
from curvefit.reported import Reported
from curvefit.runs import Run
from curvefit.window import checked_level

__all__ = ["Backtest", "Origin", "Pooled", "Skipped", "backtest", "checked_origins"]

TARGET = 0.9  # the last tenth begins here
LAST_SEEN = 3
NAN = float("nan")


class Origin(NamedTuple):
    """What was said of a run at one origin, and what it reached.

    `low` and `high` bound the observed mean at the backtest's level, `low_50` and `high_50` at 50 %
    (NaN for methods without intervals); `error` is forecast minus reached.
    """

    run: str
    at: float
    compute: float
    points: int
    score: float
    low: float
    high: float
    low_50: float
    high_50: float
    reached: float
    error: float
    persistence: float
    persistence_error: float
    crps: float


class Pooled(NamedTuple):
    """The forecasts of one origin over all runs; coverages are shares of runs."""

    at: float
    runs: int
    mae: float
    bias: float
    persistence_mae: float
    crps: float
    inside: float
    inside_50: float
    width: float
    width_50: float


class Skipped(NamedTuple):
    """An origin at which nothing could be said, and why."""

    run: str
    at: float
    why: str


@dataclass(frozen=True)
class Backtest(Reported):
    """The result of `backtest`.

    Attributes
    ----------
    level : float
        Probability content of `low` and `high`.
    origins : tuple of Origin
        In the order of the runs, then of the origins.
    pooled : tuple of Pooled
        One for each origin at which anything was said.
    skipped : tuple of Skipped
    """

    _report = "curvefit.backtest_report"

    level: float
    origins: tuple[Origin, ...]
    pooled: tuple[Pooled, ...]
    skipped: tuple[Skipped, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """What it would have said, a sentence an origin."""
        from curvefit.backtest_report import sentence

        return tuple(sentence(origin) for origin in self.origins)


def backtest(
    runs: Run | Iterable[Run],
    at: Sequence[float] = (0.1, 0.25, 0.5),
    *,
    level: float = 0.9,
    law: str = "average",
    method: str = "posterior",
    r0: str | float = "fit",
    skip: float | str = 0.0,
) -> Backtest:
    """Forecast the end of each run from its beginning.

    Parameters
    ----------
    runs : Run or iterable of Run
    at : sequence of float
        Origins: shares of each run's last compute, above 0 and below 0.9.
    level : float
        Probability content of the wide interval; the narrow one is always 50 %.
    law, method, r0, skip
        As in `curvefit.fit`.

    Raises
    ------
    InputError
        If there is no run, or an origin, the level or an option of the fit cannot be used.

    Examples
    --------
    >>> import curvefit
    >>> C = [100.0 * k for k in range(41)]
    >>> y = curvefit.curve(C, A=0.6, B=1.5, C_mid=600, R0=0.2) + 0.002 * (-1.0) ** np.arange(41)
    >>> (half,) = backtest(curvefit.load({"step": C, "pass_rate": y}), at=[0.5]).origins
    >>> 0.54 < half.low < half.reached < half.high < 0.6
    True
    """
    runs = [runs] if isinstance(runs, Run) else list(runs)
    if not runs:
        raise InputError("there is no run to test: give one Run or several")
    check_choices(law, method)
    shares, level = checked_origins(at), checked_level(level)
    options = {"law": law, "method": method, "r0": r0, "skip": skip, "level": level}
    origins, skipped = [], []
    for run in runs:
        for share in shares:
            try:
                origins.append(_origin(run, share, options))
            except CurvefitError as error:
                skipped.append(Skipped(run.name, share, str(error)))
    pooled = [_pooled(share, [o for o in origins if o.at == share]) for share in shares]
    return Backtest(level, tuple(origins), tuple(p for p in pooled if p.runs), tuple(skipped))


def checked_origins(at: Sequence[float]) -> tuple[float, ...]:
    """Return the origins in ascending order, each once.

    Raises
    ------
    InputError
        If there is none, or one is not above 0 and below 0.9.
    """
    shares = sorted({float(share) for share in np.atleast_1d(np.asarray(at, dtype=float))})
    bad = [share for share in shares if not 0.0 < share < TARGET]
    if bad or not shares:
        said = f"origin {bad[0]:g}" if bad else "no origin"
        raise InputError(
            f"{said}: give shares of the compute above 0 and below {TARGET:g}, such as 0.25; "
            "the last tenth is what is forecast"
        )
    return tuple(shares)


def _origin(run: Run, share: float, options: dict[str, Any]) -> Origin:
    last = float(run.compute[-1])
    seen = fit(run, until=share * last, **options)
    late = run.compute > TARGET * last
    C, reached = run.compute[late], float(run.score[late].mean())
    score, values = _said(seen, C)
    if values is None:
        low = high = low_50 = high_50 = lost = NAN
    else:
        tail = (1.0 - options["level"]) / 2.0
        low, low_50, high_50, high = quantiles(values, tail, 0.25, 0.75, 1.0 - tail)
        lost = crps(values, reached)
    naive = float(seen.run.score[-LAST_SEEN:].mean())
    return Origin(
        run=run.name,
        at=share,
        compute=share * last,
        points=len(seen.run),
        score=score,
        low=low,
        high=high,
        low_50=low_50,
        high_50=high_50,
        reached=reached,
        error=score - reached,
        persistence=naive,
        persistence_error=naive - reached,
        crps=lost,
    )


def _said(seen: Fit, C: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, Any]:
    """The forecast of the mean score over C, and its equally likely values if there are any."""
    if seen.forecaster is None:
        return float(seen(C).mean()), None
    values = mean_observed(seen, C)
    return float(np.median(values)), values


def _pooled(share: float, origins: Sequence[Origin]) -> Pooled:
    if not origins:
        return Pooled(share, 0, *[NAN] * 8)
    o = np.array([origin[2:] for origin in origins], dtype=float).T
    of = dict(zip(Origin._fields[2:], o, strict=True))
    known = np.isfinite(of["low"]).all()

    def inside(low: str, high: str) -> float:
        within = (of[low] <= of["reached"]) & (of["reached"] <= of[high])
        return float(within.mean()) if known else NAN

    return Pooled(
        at=share,
        runs=len(origins),
        mae=float(np.abs(of["error"]).mean()),
        bias=float(of["error"].mean()),
        persistence_mae=float(np.abs(of["persistence_error"]).mean()),
        crps=float(of["crps"].mean()),
        inside=inside("low", "high"),
        inside_50=inside("low_50", "high_50"),
        width=float(np.median(of["high"] - of["low"])),
        width_50=float(np.median(of["high_50"] - of["low_50"])),
    )
