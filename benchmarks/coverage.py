"""Does a 90 % interval hold the truth 90 % of the time? Ours and its peers', on simulated runs.

    python benchmarks/coverage.py            300 runs a cell, about 12 minutes on one core
    python benchmarks/coverage.py --runs 40  a quick look

The design is in `simulate.py`. For each cell (noise × C_max/C_mid) and method: coverage of
R(C_end), median width, and mean interval score (width plus 20 times the distance by which the truth
is missed; lower is better). Methods: ours (laws averaged, the default; and the sigmoid alone, with
and without the evaluation size), the delta method of `scipy.optimize.curve_fit`, and the profile
likelihood with independent errors, which is what `lmfit.conf_interval` computes.

The last table is about the doubt: how many extrapolations that are off by more than 0.03 it
catches, and how often it speaks without need.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections import defaultdict

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import curve_fit
from scipy.stats import f as f_distribution
from scipy.stats import norm
from simulate import NOISES, RATIOS, Simulated, simulate

from curvefit import fit
from curvefit.laws import curve
from curvefit.marginal import Bounds, log_compute, shape_box

FloatArray = NDArray[np.float64]
Interval = tuple[float, float, float]  # low, middle, high

DOUBTS = ("asymptote-not-identified", "asymptote-bounded-below")


def ours(run: Simulated, law: str, known: bool) -> tuple[Interval, bool, float]:
    """Interval at C_end, whether A is doubted, and the least-squares extrapolation."""
    f = fit(run.C, run.y, n=run.n_eval if known else None, law=law)
    r = f.forecast(run.C_end)[0]
    doubted = any(d.code in DOUBTS for d in f.doubts)
    return (r.low, r.score, r.high), doubted, float(f.point([run.C_end])[0])


def delta(run: Simulated) -> Interval:
    """curve_fit started at the truth, its covariance carried to C_end."""

    def model(C: FloatArray, A: float, B: float, ln_C_mid: float, R0: float) -> FloatArray:
        return curve(C, A, B, np.exp(ln_C_mid), R0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            start = [run.A, run.B, np.log(run.C_mid), run.R0]
            p, cov = curve_fit(model, run.C, run.y, p0=start, maxfev=5000)
        except RuntimeError:
            return 0.0, 0.5, 1.0
    h = 1e-5 * np.maximum(np.abs(p), 1e-3)
    end = np.array([run.C_end])
    g = np.array(
        [(model(end, *(p + e)) - model(end, *(p - e)))[0] / (2 * e.sum()) for e in np.diag(h)]
    )
    middle = float(model(end, *p)[0])
    half = norm.ppf(0.95) * float(np.sqrt(max(g @ cov @ g, 0.0)))
    if not np.isfinite(half):
        return 0.0, middle, 1.0
    return max(middle - half, 0.0), middle, min(middle + half, 1.0)


def profile(run: Simulated) -> Interval:
    """All R(C_end) whose best fit is not rejected by the F test, on a dense grid of shapes."""
    x = log_compute(run.C)
    u0, u1, b0, b1 = shape_box(x, "sigmoid")
    low, high = 0.0, 1.0
    best, best_rss = 0.5, np.inf
    for _ in range(4):
        u, b = np.meshgrid(np.linspace(u0, u1, 90), np.linspace(b0, b1, 60), indexing="ij")
        u, b = u.ravel(), b.ravel()
        B = np.exp(b)
        z = np.clip(B * (x[:, None] - u), -500, 500)
        s = 1.0 / (1.0 + np.exp(-z))
        R0, A, rss = _constrained(s, run.y, Bounds(0.0, 1.0))
        end = R0 + (A - R0) / (1.0 + np.exp(-np.clip(B * (np.log(run.C_end) - u), -500, 500)))
        k = int(rss.argmin())
        if rss[k] < best_rss:
            best, best_rss = float(end[k]), float(rss[k])
        n = len(run.C)
        limit = best_rss * (1.0 + f_distribution.ppf(0.90, 1, n - 4) / (n - 4))
        inside = rss <= limit
        low, high = float(end[inside].min()), float(end[inside].max())
        near = rss <= best_rss * (1.0 + 4.0 * f_distribution.ppf(0.90, 1, n - 4) / (n - 4))
        du, db = (u1 - u0) / 89, (b1 - b0) / 59
        u0, u1 = float(u[near].min()) - du, float(u[near].max()) + du
        b0, b1 = float(b[near].min()) - db, float(b[near].max()) + db
    return low, best, high


def _constrained(
    s: FloatArray, y: FloatArray, bounds: Bounds
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """R0 and A by least squares for each column of s, A held at the bound where it exceeds it."""
    n, m, ym = len(y), s.mean(axis=0), y.mean()
    ss = np.maximum(((s - m) ** 2).sum(axis=0), 1e-300)
    rise = ((s - m) * (y - ym)[:, None]).sum(axis=0) / ss
    R0 = ym - rise * m
    A = R0 + rise
    z = 1.0 - s
    held = np.maximum((z * (y[:, None] - bounds.high * s)).sum(axis=0), 0) / np.maximum(
        (z * z).sum(axis=0), 1e-12 * n
    )
    over = bounds.high < A
    R0, A = np.where(over, held, R0), np.where(over, bounds.high, A)
    return R0, A, ((y[:, None] - R0 - (A - R0) * s) ** 2).sum(axis=0)


def interval_score(low: FloatArray, high: FloatArray, truth: FloatArray) -> FloatArray:
    """Gneiting and Raftery 2007, level 0.9."""
    return high - low + 20.0 * (np.maximum(low - truth, 0.0) + np.maximum(truth - high, 0.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=20_000)
    args = parser.parse_args()
    rows: dict[str, dict[tuple[str, float], FloatArray]] = defaultdict(dict)
    doubt = []
    for noise in NOISES:
        for ratio in RATIOS:
            cell: dict[str, list[tuple[float, ...]]] = defaultdict(list)
            for k in range(args.runs):
                run = simulate(ratio, noise, args.seed + k)
                average, doubted, line = ours(run, "average", known=False)
                cell["ours (average)"].append((*average, run.R_end))
                for name, known in (("ours (sigmoid)", False), ("ours (sigmoid, n known)", True)):
                    sigmoid, _, _ = ours(run, "sigmoid", known)
                    cell[name].append((*sigmoid, run.R_end))
                    if not known:
                        doubt.append((doubted, line, sigmoid[1], average[1], run.R_end))
                cell["delta (curve_fit)"].append((*delta(run), run.R_end))
                cell["profile F (lmfit)"].append((*profile(run), run.R_end))
            for method, values in cell.items():
                rows[method][noise, ratio] = np.array(values)
    print(f"{args.runs} runs a cell; coverage of the 90 % interval of R(C_end) / median width / ")
    print("mean interval score\n")
    print("| noise | method | " + " | ".join(f"{r:g}" for r in RATIOS) + " |")
    print("|---|---|" + "---|" * len(RATIOS))
    for noise in NOISES:
        for method, cells in rows.items():
            print(
                f"| {noise} | {method} | "
                + " | ".join(_cell(cells[noise, r]) for r in RATIOS)
                + " |"
            )
    flags = np.array(doubt, dtype=float)
    print(
        f"\nThe doubt about A, {len(flags)} runs, extrapolation off by more than 0.03 at C_end:\n"
    )
    print("| extrapolation | off | caught | false alarms |\n|---|---|---|---|")
    for name, column in (
        ("least squares", 1),
        ("posterior, sigmoid", 2),
        ("posterior, average", 3),
    ):
        off = np.abs(flags[:, column] - flags[:, 4]) > 0.03
        caught, false = flags[off, 0].mean(), flags[~off, 0].mean()
        print(f"| {name} | {off.mean():.0%} | {caught:.1%} | {false:.1%} |")


def _cell(v: FloatArray) -> str:
    low, _, high, truth = v.T
    inside = ((low <= truth) & (truth <= high)).mean()
    score = interval_score(low, high, truth).mean()
    return f"{inside:.0%} / {np.median(high - low):.3f} / {score:.3f}"


if __name__ == "__main__":
    main()
