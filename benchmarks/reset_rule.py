"""How often ProRL's reset rule errs on noisy evaluations: simulated policies, no model.

    python benchmarks/reset_rule.py [runs]

A policy has a true pass rate after each evaluation; an evaluation is a binomial draw of n rollouts.
that stand still and are said to fall within 40 evaluations, and, for policies that stand still or
climb at a steady rate, when the stall rule first speaks (quartiles, in evaluations; - is never).
"""

from __future__ import annotations

import sys

import numpy as np

from trainer.config import load
from trainer.reset import Resets

EVALS = 40
RUNS = 300


def rule(**settings: float) -> Resets:
    """Return a controller with these settings of [reset]."""
    flags = [part for k, v in settings.items() for part in (f"--reset.{k}", str(v))]
    return Resets(load([], None, flags))


def first(resets: Resets, rates: np.ndarray, n: int) -> float:
    """Return the number of the evaluation that asks for a reset; infinite when none does."""
    for m, rate in enumerate(rates):
        if resets.observe_eval(m, float(rate), n):
            return m
    return np.inf


def drawn(rng: np.random.Generator, truth: np.ndarray, n: int) -> np.ndarray:
    """Draw an evaluation of n rollouts at each true pass rate."""
    return rng.binomial(n, truth) / n


def falls(runs: int) -> None:
    """Print how often a policy that stands still is said to fall, and one that fell is caught."""
    print(
        f"n      z  said to fall of {runs} that stand still; evaluations until a fall of 3 points"
    )
    for n in (512, 2048, 8192):
        for z in (2.0, 3.0):
            rng = np.random.default_rng(0)
            flat = np.full(EVALS, 0.6)
            wrong = sum(
                np.isfinite(first(rule(drop_se=z), drawn(rng, flat, n), n)) for _ in range(runs)
            )
            fallen = np.r_[np.full(10, 0.6), np.full(EVALS, 0.57)]
            late = [first(rule(drop_se=z), drawn(rng, fallen, n), n) - 10 for _ in range(runs)]
            print(f"{n:<5d}  {z:g}  {100 * wrong / runs:5.1f} %   {quartiles(late)}")


def stalls(runs: int) -> None:
    """Print when the stall rule first speaks, by the gain of an evaluation in standard errors."""
    print("\nW  δ/σ  evaluations to the first stall, by true gain an evaluation in σ: 0, .2, .5, 1")
    n, p = 2048, 0.5
    sigma = (p * (1 - p) / n) ** 0.5
    for W in (3, 5, 10):
        for delta in (0.0, 1.0):
            cells = []
            for slope in (0.0, 0.2, 0.5, 1.0):
                rng = np.random.default_rng(1)
                truth = p - 0.2 + slope * sigma * np.arange(EVALS)
                settings = {"stall_evals": W, "min_gain": delta * sigma}
                cells.append(
                    quartiles(
                        [first(rule(**settings), drawn(rng, truth, n), n) for _ in range(runs)]
                    )
                )
            print(f"{W:<2d} {delta:<3g}  {'   '.join(cells)}")


def quartiles(values: list[float]) -> str:
    """Write the quartiles, - for infinite."""
    found = np.quantile(values, [0.25, 0.5, 0.75], method="higher")
    return " / ".join("-" if np.isinf(v) else f"{v:.0f}" for v in found)


if __name__ == "__main__":
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    falls(runs)
    stalls(runs)
