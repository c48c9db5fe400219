"""Which of two settings is best at each budget: how often rightly said, and with what probability.

    python benchmarks/allocation.py [pairs]

Two runs of `simulate` (AR(1) run noise of correlation 0.6, 16,000 graded samples), each cut at 1, 2
or 4 C_mid, are two settings of one seed each. What is asked for is the settings' means, whose A
differs from the run's by N(0, 0.01²): the seed spread that `allocate` assumes when it sees one
seed. Pairs are drawn until `pairs` (240) of them have curves that cross between the smallest common
compute and ten times the longest run, with a lead of 0.005 on either side. Twelve budgets a pair,
even on a log scale.

Printed, for the crossing pairs and for all: how often the truly best setting has the larger
probability, beside two peers (whoever is ahead at the last common compute; least-squares sigmoids,
which here have the true law); how often the answer is decided and then wrong; a reliability table
of the first setting's probability in ten bins, and what is true without any seed spread, which a
single seed cannot show; how often a crossing is said and happens, and how often the 90 % interval
of where holds the true one.
"""

from __future__ import annotations

import os
import sys
import time
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from simulate import Simulated, simulate

import curvefit
from curvefit.errors import CurvefitError
from curvefit.laws import curve
from curvefit.pairs import crossing

SEED_SD, LEAD, BUDGETS = 0.01, 0.005, 12
NOISE, RATIOS = "rho 0.6", (1.0, 2.0, 4.0)
PLACES = (("inside both", 0.0, 1.0), ("to 4 x", 1.0, 4.0), ("beyond 4 x", 4.0, np.inf))


class Answer(NamedTuple):
    """One budget of one pair: the first setting's probability, and what is true of it."""

    crosses: bool
    beyond: float
    p: float
    best: bool  # the first setting is truly the best, seed spread included
    best_run: bool  # and without: the curve of its one run
    ahead: bool  # it is ahead at the last common compute
    sigmoid: bool  # its least-squares sigmoid is the higher


class Passing(NamedTuple):
    """One pair: the probability of a crossing said, and whether the interval holds a true one."""

    said: float
    crosses: bool
    right_way: float
    inside: bool


def truth(s: Simulated, A: float, C: np.ndarray) -> np.ndarray:
    return np.asarray(curve(C, A, s.B, s.C_mid, s.R0))


def true_crossing(a: np.ndarray, b: np.ndarray, C: np.ndarray) -> float:
    """Where a true curve passes the other for good, by the tool's own rule; NaN if nowhere."""
    return crossing(a[None], b[None], np.log(C), 0.9, LEAD).compute


def pair(seed: int) -> tuple[list[Answer], Passing]:
    """Two settings, their allocation, and the truth."""
    rng = np.random.default_rng([7, seed])
    sims = [simulate(rng.choice(RATIOS), NOISE, 1000 + 2 * seed + k) for k in range(2)]
    fits = []
    for name, s in zip("ab", sims, strict=True):
        table = {"gpu_hours": s.C, "pass_rate": s.y, "run": [name] * len(s.C)}
        fits.append(curvefit.fit(curvefit.load(table, run="run", n=s.n_eval)[0]))
    start = max(float(s.C[1]) for s in sims)
    ends = [float(s.C[-1]) for s in sims]
    budgets = np.geomspace(start, 10.0 * max(ends), BUDGETS)
    allocation = curvefit.allocate(fits, budgets=budgets)
    means = [float(np.clip(s.A + SEED_SD * rng.standard_normal(), s.R0, 1.0)) for s in sims]
    fine = np.geomspace(start, budgets[-1], 4001)
    first, second = (truth(s, A, fine) for s, A in zip(sims, means, strict=True))
    at = true_crossing(first, second, fine)
    points = [curvefit.fit(f.run, method="least-squares") for f in fits]
    common = np.array([min(ends)])
    ahead = bool(fits[0](common)[0] > fits[1](common)[0])
    best, best_run = (
        truth(sims[0], A[0], budgets) > truth(sims[1], A[1], budgets)
        for A in (means, [s.A for s in sims])
    )
    higher = points[0](budgets) > points[1](budgets)
    answers = []
    for k, b in enumerate(allocation.budgets):
        p = next(c.probability for c in b.choices if c.setting == "a")
        beyond = budgets[k] / min(ends)
        truths = bool(best[k]), bool(best_run[k]), ahead, bool(higher[k])
        answers.append(Answer(np.isfinite(at), beyond, p, *truths))
    any_way = sum(o.probability for o in allocation.overtakings)
    after = "a" if first[-1] > second[-1] else "b"
    said = next(o for o in allocation.overtakings if o.setting == after)
    inside = said.low <= at <= said.high
    return answers, Passing(any_way, bool(np.isfinite(at)), said.probability, inside)


# ---------------------------------------------------------------- tables


def rightly(answers: list[Answer]) -> None:
    """How often the truly best setting is the likeliest, by distance, beside two peers."""
    head = f"{'budgets':<14}{'number':>7}{'likeliest':>11}{'ahead now':>11}{'sigmoids':>10}"
    print(f"{head}{'decided':>9}{'then wrong':>12}{'Brier':>8}")
    for name, low, high in (*PLACES, ("all", 0.0, np.inf)):
        rows = [a for a in answers if low < a.beyond <= high]
        best, p = np.array([a.best for a in rows]), np.array([a.p for a in rows])
        decided = np.maximum(p, 1 - p) >= 0.9
        shares = [
            np.mean((p > 0.5) == best),
            np.mean(np.array([a.ahead for a in rows]) == best),
            np.mean(np.array([a.sigmoid for a in rows]) == best),
            decided.mean(),
            np.mean(((p > 0.5) != best)[decided]),
        ]
        cells = "".join(
            f"{100 * s:>{w}.1f} %" for s, w in zip(shares, (9, 9, 8, 7, 10), strict=True)
        )
        print(f"{name:<14}{len(rows):>7}{cells}{np.mean((p - best) ** 2):>8.3f}")


def reliability(answers: list[Answer]) -> None:
    """The first setting's probability in ten bins, and how often it is truly the best."""
    p = np.array([a.p for a in answers])
    bins = np.minimum((10 * p).astype(int), 9)
    print(f"{'said':<12}{'number':>7}{'mean':>9}{'true':>9}{'no spread':>12}")
    for b in range(10):
        rows = [a for a, k in zip(answers, bins, strict=True) if k == b]
        if rows:
            true, run = np.mean([a.best for a in rows]), np.mean([a.best_run for a in rows])
            said = f"{10 * b} to {10 * b + 10} %"
            mean = np.mean([a.p for a in rows])
            print(
                f"{said:<12}{len(rows):>7}{100 * mean:>7.1f} %{100 * true:>7.1f} %"
                f"{100 * run:>10.1f} %"
            )


def main(pairs: int) -> None:
    started = time.process_time()
    answers: list[Answer] = []
    passings: list[Passing] = []
    drawn = refused = 0
    while sum(x.crosses for x in passings) < pairs:
        try:
            found, passing = pair(drawn)
            answers += found
            passings.append(passing)
        except CurvefitError:  # a run without rise, or two that share no compute
            refused += 1
        drawn += 1
    cross = [x for x in passings if x.crosses]
    print(f"{drawn} pairs, {refused} refused (no rise, no common compute), {len(cross)} cross")
    for name, rows in (("crossing", [a for a in answers if a.crosses]), ("all", answers)):
        print(f"\n{name} pairs: the truly best setting is the likeliest")
        rightly(rows)
        print()
        reliability(rows)
    said, happens = (100 * np.mean([x[k] for x in passings]) for k in (0, 1))
    print(f"\na crossing is said with {said:.0f} % on average and happens in {happens:.0f} %")
    sure = [x for x in cross if x.right_way >= 0.05]
    inside = 100 * np.mean([x.inside for x in sure])
    print(
        f"its 90 % interval holds the true one in {inside:.0f} % of the {len(sure)} said (>= 5 %)"
    )
    print(f"{time.process_time() - started:.0f} s of processor time")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 240)
