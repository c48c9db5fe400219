"""The units of compute and score in words."""

from __future__ import annotations

from curvefit.runs import Run

__all__ = ["x_words", "y_words"]

X_WORDS = {
    "gpu_hours": "GPU-hours",
    "step": "steps",
    "tokens": "tokens",
    "samples": "samples",
    "flops": "FLOPs",
    "hours": "hours",
}
Y_WORDS = {"pass_rate": "pass rate", "reward": "reward"}


def x_words(run: Run) -> str:
    """Return the unit of compute in words, or the column where no unit is known."""
    return X_WORDS.get(run.x.unit, run.x.column)


def y_words(run: Run) -> str:
    """Return what a score is in words."""
    return Y_WORDS.get(run.y.unit, run.y.column)
