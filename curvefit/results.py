"""What a fit says: small immutable records, all of whose numbers are plain floats.

A number that is not known is NaN here and ``null`` in JSON. Scores are in the unit of the run's
score, compute in the unit of its x axis.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "Doubt",
    "Estimate",
    "Forecast",
    "HeldOut",
    "LawWeight",
    "NoiseLevel",
    "Reach",
    "Verdict",
]


class Estimate(NamedTuple):
    """A value (posterior median, or least squares) and its interval at the fit's level."""

    value: float
    low: float
    high: float


class Forecast(NamedTuple):
    """The score at a compute.

    `low` and `high` bound the mean curve; `observed_low` and `observed_high` bound what one more
    evaluation there would show (the run noise and the evaluation noise included).
    """

    at: float
    score: float
    low: float
    high: float
    observed_low: float
    observed_high: float


class Reach(NamedTuple):
    """The compute at which the curve reaches a score.

    `compute`, `low` and `high` are quantiles over all curves, those that never reach the score
    counted as infinite compute (then NaN); `probability` is the share that reach it at all.
    """

    score: float
    compute: float
    low: float
    high: float
    probability: float


class LawWeight(NamedTuple):
    """The posterior probability of a law among all laws, and its own median asymptote."""

    law: str
    weight: float
    A: float


class NoiseLevel(NamedTuple):
    """Standard deviations of evaluation noise and run noise, and the latter's correlation."""

    evaluation: float
    run: float
    correlation: float


class HeldOut(NamedTuple):
    """How the forecast did on points it did not see: mean absolute error, share inside."""

    points: int
    mae: float
    inside: float


class Verdict(NamedTuple):
    """``identified``, ``weak`` or ``not identified``, and the sentence that says why."""

    asymptote: str
    sentence: str


class Doubt(NamedTuple):
    """Something that weakens the fit: a stable code, one sentence with its number, a remedy."""

    code: str
    message: str
    remedy: str
