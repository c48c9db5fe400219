"""`--skip auto`: how often it accuses clean runs and finds transients, and what forecasts gain.

    python benchmarks/transients.py [RUNS]

Runs of `simulate` (five lengths, four noises, RUNS a cell; every other one hides its evaluation
size), clean or with one of

- a dip after step 0 that decays, −0.03 exp(−C / 0.1 C_mid), and a rise of the same form;
- a plateau: the score stays at R0 up to 0.2 C_mid and joins its curve by 0.25 C_mid;
- a spike of ±0.03 in one evaluation before 0.25 C_mid.

A table: the share of runs in which a transient is found, by length (in C_mid), and the mean
absolute error of the score at `C_end` (20,000 to 100,000 GPU-hours) for the runs from 2 C_mid on,
fitted to all points and with `skip="auto"`; then what it finds in the real curves of data/.
"""

from __future__ import annotations

import timing  # noqa: F401  isort: skip  (sets the number of threads before numpy loads)

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from simulate import NOISES, RATIOS, Simulated, simulate

import curvefit
from curvefit.window import TRANSIENT

FloatArray = NDArray[np.float64]

DATA = Path(__file__).parents[1] / "data"
FIRST_SEED = 70_000  # thresholds were chosen on other seeds
KINDS = ("none", "dip", "rise", "plateau", "spike")


def offset(s: Simulated, kind: str, rng: np.random.Generator) -> FloatArray:
    """What a transient adds to the scores; nothing at step 0."""
    x = s.C / s.C_mid
    off = np.zeros(len(x))
    if kind in ("dip", "rise"):
        off = (0.03 if kind == "rise" else -0.03) * np.exp(-x / 0.1)
    if kind == "plateau":
        gained = curvefit.curve(s.C, s.A, s.B, s.C_mid, s.R0) - s.R0
        off = -gained * np.clip((0.25 - x) / 0.05, 0.0, 1.0)
    if kind == "spike":
        off[rng.choice(np.flatnonzero((x > 0) & (x <= 0.25)))] = rng.choice([-0.03, 0.03])
    return np.where(s.C > 0, off, 0.0)


def simulated(runs: int) -> None:
    lengths = " | ".join(f"{ratio:g}" for ratio in RATIOS)
    print(f"| transient | {lengths} | all | error, all points | auto |")
    print("|---|" + "---|" * (len(RATIOS) + 3))
    for kind in KINDS:
        found: dict[float, list[bool]] = defaultdict(list)
        errors = []
        for ratio in RATIOS:
            for noise in NOISES:
                for i in range(runs):
                    s = simulate(ratio, noise, FIRST_SEED + i)
                    y = s.y + offset(s, kind, np.random.default_rng(i))
                    n = s.n_eval if i % 2 else None
                    auto = curvefit.fit(s.C, y, n=n, skip="auto")
                    found[ratio].append(len(auto.run) < len(y))
                    if ratio >= 2:
                        whole = auto if not found[ratio][-1] else curvefit.fit(s.C, y, n=n)
                        said = [float(f([s.C_end])[0]) for f in (whole, auto)]
                        errors.append([abs(score - s.R_end) for score in said])
        shares = [np.mean(found[ratio]) for ratio in RATIOS]
        cells = " | ".join(f"{share:.1%}" for share in [*shares, np.mean(shares)])
        before, after = np.mean(errors, axis=0)
        print(f"| {kind} | {cells} | {before:.4f} | {after:.4f} |", flush=True)


def real() -> None:
    print("\nReal curves")
    for path in sorted([*DATA.glob("*.csv"), *DATA.glob("*.json*")]):
        if path.name == "scalerl_published_fits.csv":
            continue
        for run in curvefit.load(path):
            try:
                fit = curvefit.fit(run, skip="auto")
            except curvefit.CurvefitError as error:
                print(f"  {path.name}: {error}")
                continue
            said = [note.message for note in fit.run.notes if note.code == TRANSIENT]
            print(f"  {path.name} {run.name}: {said[-1].removeprefix('skip auto: ')}")


if __name__ == "__main__":
    simulated(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
    real()
