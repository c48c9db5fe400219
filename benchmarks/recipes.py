"""Recipes compared on simulated seeds: how often equal ones are told apart, and unequal ones not.

    python benchmarks/recipes.py [pairs]

Truth: ScaleRL's curve (A 0.61, B 1.92, C_mid 2542, R0 0.38), 3 seeds a recipe, A of each seed
shifted by N(0, 0.0075²), so that three seeds lie within ±0.015 of each other as the paper's did
(arXiv 2510.13786, A.5); 41 evaluations of 16,000 samples up to 8 C_mid with an AR(1) run noise of
0.002 and correlation 0.6. "Called different" means ranked surely: P ≥ 97.5 %. Printed: the share of
pairs called different with equal truth (wanted: at most 5 % of 500 pairs) and with A 0.03 apart
(wanted: at least 80 %, the right way round), by A and by the score at twice the compute; seeds
with twice the spread; one seed each; and the time of comparing 5 recipes × 3 seeds.
"""

from __future__ import annotations

import timing  # isort: skip  (sets the number of threads before numpy loads)

import sys

import numpy as np

import curvefit
from curvefit.compare import compare
from curvefit.fit import Fit
from curvefit.runs import Run

A, B, C_MID, R0 = 0.61, 1.92, 2542.0, 0.38
POINTS, N_EVAL = 41, 16_000
RUN_SD, RHO = 0.002, 0.6
DIFFERENCE = 0.03


def seed_run(name: str, A_seed: float, rng: np.random.Generator) -> Run:
    C = np.linspace(0.0, 8.0 * C_MID, POINTS)
    u = np.empty(POINTS)
    u[0] = RUN_SD * rng.standard_normal()
    for t in range(1, POINTS):
        u[t] = RHO * u[t - 1] + RUN_SD * np.sqrt(1.0 - RHO**2) * rng.standard_normal()
    truth = np.clip(curvefit.curve(C, A_seed, B, C_MID, R0) + u, 0.0, 1.0)
    y = rng.binomial(N_EVAL, truth) / N_EVAL
    columns = {"gpu_hours": C, "pass_rate": y, "run": [name] * POINTS}
    return curvefit.load(columns, run="run", n=N_EVAL)[0]


def recipe_fits(
    name: str, mean: float, seeds: int, sd: float, rng: np.random.Generator
) -> list[Fit]:
    values = mean + sd * rng.standard_normal(seeds)
    runs = [seed_run(f"{name}, seed {s}", value, rng) for s, value in enumerate(values.tolist())]
    return [curvefit.fit(run) for run in runs]


def rates(pairs: int, gap: float, seeds: int, sd: float, stream: int) -> dict[str, float]:
    """Share of pairs in which the truly better recipe is called best, and any recipe is."""
    called = {"score": 0, "A": 0, "score right": 0, "A right": 0}
    for k in range(pairs):
        rng = np.random.default_rng([stream, k])
        fits = recipe_fits("a", A, seeds, sd, rng) + recipe_fits("b", A + gap, seeds, sd, rng)
        for ranking in compare(fits).rankings:
            called[ranking.by] += ranking.conclusive
            right = ranking.conclusive and ranking.places[0].recipe == "b"
            called[f"{ranking.by} right"] += right
    return {key: count / pairs for key, count in called.items()}


def report(what: str, pairs: int, found: dict[str, float], right: bool) -> None:
    suffix = " right" if right else ""
    by_A, by_score = found["A" + suffix], found["score" + suffix]
    print(f"{what:<58} {pairs:>6} {100 * by_A:>8.1f} % {100 * by_score:>8.1f} %", flush=True)


def main(pairs: int) -> None:
    few = max(pairs // 10, 10)
    print(f"{'called different':<58} {'pairs':>6} {'by A':>10} {'by score':>10}")
    report("equal, 3 seeds each (at most 5 %)", pairs, rates(pairs, 0.0, 3, 0.0075, 1), False)
    apart = rates(few, DIFFERENCE, 3, 0.0075, 2)
    report("A 0.03 apart, 3 seeds each, the better one (at least 80 %)", few, apart, True)
    report("equal, 3 seeds each, no seed spread", few, rates(few, 0.0, 3, 0.0, 3), False)
    report("equal, 3 seeds each, twice the spread", few, rates(few, 0.0, 3, 0.015, 4), False)
    report("equal, one seed each", few, rates(few, 0.0, 1, 0.0075, 5), False)
    report("A 0.03 apart, one seed each", few, rates(few, DIFFERENCE, 1, 0.0075, 6), True)
    rng = np.random.default_rng(7)
    five = [f for r in range(5) for f in recipe_fits(f"r{r}", A + 0.01 * r, 3, 0.0075, rng)]
    runs = [fit.run for fit in five]
    ms = timing.measure(
        {"compare": (lambda: compare(five), 1), "fit and compare": (lambda: compare(runs), 1)}
    )
    print(f"5 recipes x 3 seeds: compare {ms['compare']:.0f} ms of processor time,", end=" ")
    print(f"fits included {ms['fit and compare']:.0f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
