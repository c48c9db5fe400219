"""ScaleRL's table of published fits, simulated and compared: are A and the ranks found again.

    python benchmarks/published_fits.py [REPEATS] [PICTURE]

Each row of data/scalerl_published_fits.csv (arXiv 2510.13786, Table 1) is the truth of a run: its
A, B and C_mid; R0, which the paper does not state, is 0.40 (drawn curve of the 8B run; 0.51 for
Scout). Evaluations are those of the paper: mean@16 on 1,000 prompts, one every 150 GPU-hours (1,330
in the run of 100,000 and in that of 32k tokens, 620 for Scout), up to the compute that the run was
extrapolated to (16,000 where none is printed; 100,000 for 32k tokens). A run noise of 0.002 has the
correlation 0.6. Math and code are different evaluations and would not be ranked against each other;
here, as in the paper's table, all rows stand in one.

Printed: the comparison of one simulation beside the published A; over REPEATS simulations the mean
and the largest error of A and its rank correlation (Spearman) with the truth, beside those of the
paper's own grid, and the coverage of A's interval.
"""

from __future__ import annotations

import timing  # noqa: F401  isort: skip  (sets the number of threads before numpy loads)

import csv
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import curvefit
from curvefit.comparison import Comparison
from curvefit.runs import Run

FloatArray = NDArray[np.float64]

TABLE = Path(__file__).parents[1] / "data" / "scalerl_published_fits.csv"
N_EVAL, RUN_SD, RHO = 16_000, 0.002, 0.6
R0 = {"ScaleRL-Scout": 0.51}
END = {"ScaleRL-32k": 100_000.0}
SPACING = {"ScaleRL-32k": 1330.0, "ScaleRL-bs2048": 1330.0, "ScaleRL-Scout": 620.0}


def published() -> list[dict[str, str]]:
    """The rows of Table 1."""
    with TABLE.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def simulated(row: dict[str, str], seed: int) -> Run:
    """A run that follows a row of the table."""
    name = row["run"]
    rng = np.random.default_rng([seed, int(float(row["C_mid"]))])
    end = END.get(name, float(row["extrapolated_to_gpu_hours"] or 16_000))
    C = np.arange(0.0, end + 1.0, SPACING.get(name, 150.0))
    truth = [float(row[symbol]) for symbol in ("A", "B", "C_mid")]
    u = RUN_SD * rng.standard_normal(len(C))
    for t in range(1, len(C)):
        u[t] = RHO * u[t - 1] + np.sqrt(1.0 - RHO**2) * u[t]
    R = curvefit.curve(C, *truth, R0.get(name, 0.40)) + u
    y = rng.binomial(N_EVAL, R) / N_EVAL
    columns = {"gpu_hours": C, "pass_rate": y, "run": [name] * len(C)}
    return curvefit.load(columns, run="run", n=N_EVAL)[0]


def ranks(values: FloatArray) -> FloatArray:
    """Ranks from 1, those of equal values averaged."""
    order = np.sort(values)
    below, upto = np.searchsorted(order, values), np.searchsorted(order, values, side="right")
    return (below + upto + 1) / 2.0


def beside_the_paper(c: Comparison, rows: list[dict[str, str]]) -> None:
    """Print the comparison's rows beside the published A."""
    true = {row["run"]: float(row["A"]) for row in rows}
    places = {place.recipe: place for place in c.rankings[1].places}
    print(f"| {'run':<28} | published A | A | 90 % with the seed margin | rank | best |")
    print("|---|---|---|---|---|---|")
    for r in sorted(c.recipes, key=lambda recipe: -true[recipe.recipe]):
        place = places[r.recipe]
        ends = f"[{r.A.low:.3f}, {r.A.high:.3f}]"
        print(
            f"| {r.recipe:<28} | {true[r.recipe]:.3f} | {r.A.value:.3f} | {ends} | {place.rank} "
            f"| {place.best:.0%} |"
        )
    print(f"\n{c.rankings[1].sentence}\n")


def repeated(rows: list[dict[str, str]], repeats: int) -> None:
    """Print errors, coverage and rank correlation over several simulations."""
    true = np.array([float(row["A"]) for row in rows])
    found: dict[str, list[FloatArray]] = {"posterior": [], "scalerl-grid": []}
    inside = []
    for seed in range(repeats):
        runs = [simulated(row, seed) for row in rows]
        for method, values in found.items():
            fits = [curvefit.fit(run, method=method, r0="fit") for run in runs]
            values.append(np.array([fit.params["A"].value for fit in fits]))
            if method == "posterior":
                ends = np.array([fit.interval("A") for fit in fits])
                inside.append((ends[:, 0] <= true) & (true <= ends[:, 1]))
    print("| method | mean error of A | largest | rank correlation |\n|---|---|---|---|")
    for method, values in found.items():
        off = np.abs(np.array(values) - true)
        rho = [float(np.corrcoef(ranks(A), ranks(true))[0, 1]) for A in values]
        print(f"| {method} | {off.mean():.4f} | {off.max():.4f} | {np.mean(rho):.3f} |")
    print(f"\n90 % intervals of A hold the truth in {np.mean(inside):.0%}")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    table = published()
    comparison = curvefit.compare([simulated(row, 0) for row in table], at=100_000)
    beside_the_paper(comparison, table)
    repeated(table, count)
    if len(sys.argv) > 2:
        from curvefit.compare_plot import plot_comparison

        plot_comparison(comparison).figure.savefig(sys.argv[2], dpi=100)
