"""Truth outside the set of laws: whether the interval holds it, and whether the doubt says so.

    python benchmarks/misfit.py [RUNS]

A double sigmoid: a first rise to A ~ U(0.45, 0.60) with its midpoint 4 to 16 times earlier than
that of a second rise by U(0.05, 0.15), which is slow (B ~ U(1, 2)) or sharp (B ~ U(4, 8)); 41
evaluations in equal steps up to 0.5, 1, 2 or 4 times the second midpoint; the four noises of
`simulate`, RUNS a cell, every other run with its evaluation size hidden.

A misfit matters when the truth at twice the compute lies outside the 90 % interval of the mean
curve, or when A is off by more than 0.03. Printed for each kind and length: coverage at twice the
compute, the share of runs in which the misfit matters, and of those the share with the doubt
`misfit`, with any doubt about A or the forecast too, and the median error of the forecast. Below
it, the false alarms of `misfit` on runs of `simulate` that follow the law.
"""

from __future__ import annotations

import timing  # noqa: F401  isort: skip  (sets the number of threads before numpy loads)

import sys
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from simulate import NOISES, RUN_SD, simulate

import curvefit
from curvefit.fit import Fit

FloatArray = NDArray[np.float64]

FIRST_SEED = 95_000  # thresholds were chosen on other seeds
LENGTHS = (0.5, 1.0, 2.0, 4.0)
POINTS, SECOND_MIDPOINT = 41, 10_000.0
STEEPNESS = {"slow": (1.0, 2.0), "sharp": (4.0, 8.0)}
OFF = 0.03
WARNINGS = {
    "misfit",
    "asymptote-not-identified",
    "asymptote-bounded-below",
    "before-midpoint",
    "laws-disagree",
    "last-points-below",
}


class Outcome(NamedTuple):
    """What a fit said of a run, beside the truth."""

    inside: bool
    matters: bool
    doubted: bool
    warned: bool
    error: float


class Double:
    """A run of two rises."""

    def __init__(self, kind: str, length: float, noise: str, seed: int) -> None:
        rng = np.random.default_rng([seed, round(10 * length), list(NOISES).index(noise)])
        self.first = rng.uniform(0.45, 0.60), rng.uniform(1.2, 3.0)
        self.R0, self.rise = rng.uniform(0.15, 0.30), rng.uniform(0.05, 0.15)
        self.early = SECOND_MIDPOINT / float(np.exp(rng.uniform(np.log(4.0), np.log(16.0))))
        self.B = rng.uniform(*STEEPNESS[kind])
        self.A = self.first[0] + self.rise
        self.C = np.linspace(0.0, length * SECOND_MIDPOINT, POINTS)
        self.n_eval, rho = NOISES[noise]
        u = np.zeros(POINTS)
        if rho is not None:
            u[0] = RUN_SD * rng.standard_normal()
            for t in range(1, POINTS):
                u[t] = rho * u[t - 1] + RUN_SD * np.sqrt(1.0 - rho**2) * rng.standard_normal()
        self.y = rng.binomial(self.n_eval, np.clip(self(self.C) + u, 0.0, 1.0)) / self.n_eval

    def __call__(self, C: FloatArray) -> FloatArray:
        """Score at compute C."""
        A, B = self.first
        below = curvefit.curve(C, A, B, self.early, self.R0)
        return below + curvefit.curve(C, self.rise, self.B, SECOND_MIDPOINT, 0.0)


def outcome(fit: Fit, truth: float, A: float) -> Outcome:
    (said,) = fit.forecast([2.0 * fit.run.compute[-1]])
    inside = said.low <= truth <= said.high
    codes = {doubt.code for doubt in fit.doubts}
    matters = not inside or abs(fit.params["A"].value - A) > OFF
    return Outcome(inside, matters, "misfit" in codes, bool(codes & WARNINGS), said.score - truth)


def wrong_laws(runs: int) -> None:
    print("| second rise | data end at | covered | matters | doubted | any warning | error |")
    print("|---|---|---|---|---|---|---|")
    everything: list[Outcome] = []
    for kind in STEEPNESS:
        for length in LENGTHS:
            cell = []
            for noise in NOISES:
                for i in range(runs):
                    run = Double(kind, length, noise, FIRST_SEED + i)
                    fit = curvefit.fit(run.C, run.y, n=run.n_eval if i % 2 else None)
                    truth = float(run(np.array([2.0 * run.C[-1]]))[0])
                    cell.append(outcome(fit, truth, run.A))
            row(kind, f"{length:g} midpoints", cell)
            everything += cell if length >= 1.0 else []
    row("both", "1 or later", everything)


def row(kind: str, length: str, cell: list[Outcome]) -> None:
    o = np.array(cell, dtype=float)
    matters = o[:, 1] > 0
    shares = [o[:, 0].mean(), matters.mean(), o[matters, 2].mean(), o[matters, 3].mean()]
    cells = " | ".join(f"{share:.0%}" for share in shares)
    print(f"| {kind} | {length} | {cells} | {np.median(o[:, 4]):+.3f} |", flush=True)


def false_alarms(runs: int) -> None:
    print("\n| clean runs, ratio 1, 2, 4, 8 | misfit | covered at twice the compute |")
    print("|---|---|---|")
    for noise in NOISES:
        cell = []
        for ratio in (1.0, 2.0, 4.0, 8.0):
            for i in range(runs):
                s = simulate(ratio, noise, FIRST_SEED + i)
                fit = curvefit.fit(s.C, s.y, n=s.n_eval if i % 2 else None)
                R = curvefit.curve([2.0 * s.C[-1]], s.A, s.B, s.C_mid, s.R0)
                cell.append(outcome(fit, float(R[0]), s.A))
        o = np.array(cell, dtype=float)
        print(f"| {noise} | {o[:, 2].mean():.1%} | {o[:, 0].mean():.0%} |", flush=True)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    wrong_laws(count)
    false_alarms(count)
