"""How often each doubt fires when nothing is wrong, and when something is.

    python benchmarks/doubts.py [RUNS]

prints three tables over RUNS simulated runs a cell (default 40; under two minutes):

1. the doubt about A: its catch (share of extrapolations off by more than 0.03 that it fires on)
   and its false alarms (share of the others), for the posterior median of the sigmoid and for
   the least-squares sigmoid, over the 20 cells of `simulate`;
2. false alarms of the doubts about a run, per noise, over the cells that pass the midpoint;
3. power: runs with a fall, smoothed rows, a second rise, or no rise at all.

Powers need no posterior and use 10 × RUNS runs a row.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from simulate import NOISES, RATIOS, simulate

from curvefit.fit import fit
from curvefit.laws import curve

FloatArray = NDArray[np.float64]
Sample = tuple[FloatArray, FloatArray, int | None]

FIRST_SEED = 50_000  # thresholds were chosen on other seeds
OFF = 0.03
ABOUT_A = {"asymptote-not-identified", "asymptote-bounded-below"}
ABOUT_RUN = (
    "no-rise",
    "fall-after-peak",
    "smoothed",
    "last-points-below",
    "misfit",
    "grid-edge",
    "outside-0-1",
    "correlated-noise",
)


# ---------------------------------------------------------------- clean runs


def clean_runs(runs: int) -> Iterator[tuple[float, str, bool, set[str], float, float]]:
    """Ratio, noise, size known, codes, and the errors of median and point fit, of each run.

    Every other run hides its evaluation size for the second table; the first uses the others.
    """
    for ratio in RATIOS:
        for noise in NOISES:
            for i in range(runs):
                s = simulate(ratio, noise, FIRST_SEED + i)
                known = i % 4 < 3
                f = fit(s.C, s.y, n=s.n_eval if known else None)
                a = f.sigmoid
                at_end = a.curve(np.log([s.C_end]))[:, 0]
                order = at_end.argsort()
                middle = at_end[order][np.searchsorted(a.weight[order].cumsum(), 0.5)]
                errors = abs(middle - s.R_end), abs(float(f.point(s.C_end)) - s.R_end)
                yield ratio, noise, known, {d.code for d in f.doubts}, *errors


def print_doubt_about_A(rows: list[tuple[float, str, bool, set[str], float, float]]) -> None:
    ratio = np.array([row[0] for row in rows])
    fired = np.array([bool(row[3] & ABOUT_A) for row in rows])
    print("| extrapolation | off by > 0.03 | caught | false alarms | … at ratio 0.5, 1, 2, 4, 8 |")
    print("|---|---|---|---|---|")
    for name, column in (("posterior median", 4), ("least squares", 5)):
        bad = np.array([row[column] > OFF for row in rows])
        by_ratio = ", ".join(f"{share(fired, ~bad & (ratio == r)):.0%}" for r in RATIOS)
        print(
            f"| {name} | {bad.mean():.0%} | {share(fired, bad):.1%} | {share(fired, ~bad):.1%} "
            f"| {by_ratio} |"
        )


def share(fired: NDArray[np.bool_], among: NDArray[np.bool_]) -> float:
    return float(fired[among].mean()) if among.any() else float("nan")


def print_false_alarms(rows: list[tuple[float, str, bool, set[str], float, float]]) -> None:
    print(f"\n| clean runs, ratio 2, 4, 8 | runs | {' | '.join(ABOUT_RUN)} |")
    print("|---|---|" + "---|" * len(ABOUT_RUN))
    for noise in NOISES:
        codes = [row[3] for row in rows if row[1] == noise and row[0] >= 2]
        shares = [f"{sum(code in found for found in codes) / len(codes):.1%}" for code in ABOUT_RUN]
        print(f"| {noise} | {len(codes)} | {' | '.join(shares)} |")


# ---------------------------------------------------------------- runs with something wrong


def rising(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
    """A curve up to 4 C_mid in n points."""
    A, B, R0 = rng.uniform(0.52, 0.71), rng.uniform(0.8, 3.0), rng.uniform(0.15, 0.35)
    C = np.linspace(0.0, 10_000.0, n)
    return C, curve(C, A, B, 2500.0, R0)


def fall(rng: np.random.Generator) -> Sample:
    C, y = rising(rng, 40)
    y[-8:] -= 0.05 * np.arange(1, 9) / 8
    return C, y + 0.005 * rng.standard_normal(40), None


def smoothed(
    smooth: Callable[[FloatArray], FloatArray], n: int, size: int | None
) -> Callable[[np.random.Generator], Sample]:
    def make(rng: np.random.Generator) -> Sample:
        C, y = rising(rng, n)
        return C, smooth(rng.binomial(4000, y) / 4000), size

    return make


def ema(y: FloatArray) -> FloatArray:
    """Exponential moving average of weight 0.9."""
    out = y.copy()
    for i in range(1, len(y)):
        out[i] = 0.9 * out[i - 1] + 0.1 * y[i]
    return out


def boxcar(y: FloatArray) -> FloatArray:
    """Mean of 7 rows, the ends repeated."""
    return np.convolve(np.pad(y, 3, mode="edge"), np.full(7, 1 / 7), mode="valid")


def kernel(y: FloatArray) -> FloatArray:
    """Gaussian kernel of 2 rows, close to a smoothing spline."""
    w = np.exp(-(np.arange(-8, 9) ** 2) / 8.0)
    return np.convolve(np.pad(y, 8, mode="edge"), w / w.sum(), mode="valid")


def second_rise(height: float, n: int) -> Callable[[np.random.Generator], Sample]:
    def make(rng: np.random.Generator) -> Sample:
        C = np.linspace(0.0, 20_000.0, n)
        y = curve(C, 0.5, 2.0, 2000.0, 0.25) + curve(C, height, 8.0, 12_000.0, 0.0)
        return C, y + 0.005 * rng.standard_normal(n), None

    return make


def flat(rho: float) -> Callable[[np.random.Generator], Sample]:
    def make(rng: np.random.Generator) -> Sample:
        z = 0.005 * rng.standard_normal(20)
        for i in range(1, 20):
            z[i] = rho * z[i - 1] + np.sqrt(1.0 - rho**2) * z[i]
        return np.linspace(0.0, 1000.0, 20), 0.3 + z, None

    return make


WRONG: tuple[tuple[str, str, Callable[[np.random.Generator], Sample]], ...] = (
    ("falls by 0.05 over the last 8 of 40 points, sd 0.005", "fall-after-peak", fall),
    ("EMA 0.9, 40 points, size known", "smoothed", smoothed(ema, 40, 4000)),
    ("boxcar 7, 40 points, size known", "smoothed", smoothed(boxcar, 40, 4000)),
    ("boxcar 7, 40 points, size unknown", "smoothed", smoothed(boxcar, 40, None)),
    ("boxcar 7, 60 points, size unknown", "smoothed", smoothed(boxcar, 60, None)),
    ("boxcar 7, 100 points, size unknown", "smoothed", smoothed(boxcar, 100, None)),
    ("Gaussian kernel, 40 points, size unknown", "smoothed", smoothed(kernel, 40, None)),
    ("EMA 0.9, 60 points, size unknown (an AR(1))", "smoothed", smoothed(ema, 60, None)),
    ("second rise of 0.05, 40 points, sd 0.005", "misfit", second_rise(0.05, 40)),
    ("second rise of 0.10, 40 points, sd 0.005", "misfit", second_rise(0.10, 40)),
    ("second rise of 0.15, 40 points, sd 0.005", "misfit", second_rise(0.15, 40)),
    ("second rise of 0.10, 40 points, called smoothed", "smoothed", second_rise(0.10, 40)),
    ("flat, 20 points, sd 0.005", "no-rise", flat(0.0)),
    ("flat, 20 points, sd 0.005, rho 0.9", "no-rise", flat(0.9)),
)


def print_power(runs: int) -> None:
    print("\n| wrong runs | doubt | fired |\n|---|---|---|")
    for name, code, make in WRONG:
        found: Counter[str] = Counter()
        for i in range(runs):
            C, y, n = make(np.random.default_rng(FIRST_SEED + i))
            found.update(d.code for d in fit(C, y, n=n, method="least-squares").doubts)
        print(f"| {name} | {code} | {found[code] / runs:.1%} |")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    table = list(clean_runs(count))
    print_doubt_about_A([row for row in table if row[2]])
    print_false_alarms(table)
    print_power(10 * count)
