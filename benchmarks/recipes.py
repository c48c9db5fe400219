"""Recipes compared on simulated seeds: how often equal ones are told apart, and unequal ones not.

    python benchmarks/recipes.py [pairs]

Truth: ScaleRL's curve (A 0.61, B 1.92, C_mid 2542, R0 0.38), 3 seeds a recipe, A of each seed
shifted by N(0, 0.0075²), so that three seeds lie within ±0.015 of each other as the paper's did
(arXiv 2510.13786, A.5); 41 evaluations of 16,000 samples up to 8 C_mid with an AR(1) run noise of
0.002 and correlation 0.6. "Called different" means ranked surely: P ≥ 97.5 %. Printed: the share of
pairs called different with equal truth (wanted: at most 5 % of 500 pairs) and with A 0.03 apart
(wanted: at least 80 %, the right way round), by A and by the score at twice the compute; seeds
with twice the spread; one seed each; the time of comparing 5 recipes × 3 seeds, the two-level model
beside emcee, and what a backtest costs.
"""

from __future__ import annotations

import timing  # isort: skip  (sets the number of threads before numpy loads)

import sys

import emcee
import numpy as np

import curvefit
from curvefit.atoms import mixture
from curvefit.compare import compare
from curvefit.fit import Fit
from curvefit.pooling import SEED_SCORE, pool
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
    beside_emcee(five)
    backtest_cost()


def beside_emcee(fits: list[Fit]) -> None:
    """The two-level model of A, by quadrature and by emcee, on the same summaries."""
    seeds = [np.array([draws_of_A(f) for f in fits[3 * r : 3 * r + 3]]) for r in range(5)]
    m = np.array([s.mean(axis=1) for s in seeds])
    v = np.array([s.var(axis=1) for s in seeds])

    def log_p(p: np.ndarray) -> float:
        z = (p[5] - np.log(SEED_SCORE.median)) / SEED_SCORE.log_sd
        total = v + np.exp(2.0 * p[5])
        off = (m - p[:5, None]) ** 2 / total
        return float(-0.5 * (np.log(total) + off).sum() - 0.5 * z * z)

    def sample() -> np.ndarray:
        start = np.append(m.mean(axis=1), np.log(0.01))
        walkers = start + 0.003 * np.random.default_rng(1).standard_normal((32, 6))
        sampler = emcee.EnsembleSampler(32, 6, log_p)
        sampler.run_mcmc(walkers, 2000)
        return sampler.get_chain(discard=500, flat=True)

    ms = timing.measure({"ours": (lambda: pool(seeds, SEED_SCORE), 1), "emcee": (sample, 1)}, 3)
    ours, chain = pool(seeds, SEED_SCORE), sample()
    worst = np.abs(ours.draws.mean(axis=1) - chain[:, :5].mean(axis=0)) / chain[:, :5].std(axis=0)
    spread = np.median(ours.spread), np.exp(np.median(chain[:, 5]))
    print(
        f"two-level model of A: {ms['ours']:.2f} ms, emcee (64,000 steps) {ms['emcee']:.0f} ms:",
        end=" ",
    )
    print(
        f"{ms['emcee'] / ms['ours']:.0f} times; means differ by {worst.max():.3f} sd at most,",
        end=" ",
    )
    print(f"seed spread {spread[0]:.4f} and {spread[1]:.4f}")


def draws_of_A(fit: Fit) -> np.ndarray:
    assert fit.sigmoid is not None
    return mixture([fit.sigmoid], [1.0]).A


def backtest_cost() -> None:
    """Five origins against one fit each (wanted: under 10 times): 20 runs of 200 points."""
    rng = np.random.default_rng(8)
    C = np.linspace(0.0, 8.0 * C_MID, 200)
    runs = []
    for k in range(20):
        y = rng.binomial(N_EVAL, curvefit.curve(C, A, B, C_MID, R0)) / N_EVAL
        columns = {"gpu_hours": C, "pass_rate": y, "run": [f"r{k}"] * 200}
        runs += curvefit.load(columns, run="run", n=N_EVAL)
    at = (0.1, 0.2, 0.35, 0.5, 0.7)
    ms = timing.measure(
        {
            "fit": (lambda: [curvefit.fit(run) for run in runs], len(runs)),
            "backtest": (lambda: curvefit.backtest(runs, at), len(runs)),
        },
        3,
    )
    ratio = ms["backtest"] / ms["fit"]
    print(f"backtest of 200 points at five origins: {ms['backtest']:.0f} ms a run,", end=" ")
    print(f"{ratio:.1f} times one fit (wanted: under 10)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
