"""Point fits against their peers: a cold fit (F1), 1,000 bootstrap refits (F2), 10,000 curves (F5).

    python benchmarks/fit_speed.py [--curves 10000]

Curves have 60 points, A in 0.52 to 0.71, B in 0.8 to 3, C_mid in 500 to 8,000, R0 in 0.15 to 0.35,
noise of 0.005, and end at 0.5, 1, 2, 4 or 8 times C_mid. `curve_fit` and lmfit start at the true
parameters; ours gets no start. Before anything is timed, our fit of every one of `--curves` curves
is compared with the best of a fine grid of shapes, polished: no curve may be worse.
"""

from __future__ import annotations

import timing  # isort: skip  (sets the number of threads before numpy loads)

import argparse
import warnings

import lmfit
import numpy as np
from scipy.optimize import curve_fit

from curvefit.batch import bootstrap, least_squares_many
from curvefit.estimate import least_squares
from curvefit.laws import curve
from curvefit.lmfit_model import SigmoidModel
from curvefit.marginal import Bounds, log_compute, shape_box
from curvefit.projection import Search
from curvefit.scalerl_grid import A_GRID, scalerl_grid

RATES = Bounds(0.0, 1.0)
POINTS, NOISE = 60, 0.005


def sigmoid(C, A, B, C_mid, R0):
    """The peers' model function, written for speed."""
    return R0 + (A - R0) / (1.0 + (C_mid / C) ** B)


def simulate(count, seed=1, last=None):
    """Curves (C, y), each of shape (count, 60), and their parameters (A, B, C_mid, R0)."""
    rng = np.random.default_rng(seed)
    A, B = rng.uniform(0.52, 0.71, count), rng.uniform(0.8, 3.0, count)
    C_mid = np.exp(rng.uniform(np.log(500), np.log(8000), count))
    R0 = rng.uniform(0.15, 0.35, count)
    end = rng.choice([0.5, 1, 2, 4, 8], count) * C_mid if last is None else np.full(count, last)
    C = np.linspace(0.0, 1.0, POINTS) * end[:, None]
    truth = np.stack([A, B, C_mid, R0], axis=1)
    with np.errstate(divide="ignore"):
        y = sigmoid(C, *(p[:, None] for p in truth.T))
    return C, y + rng.normal(0.0, NOISE, y.shape), truth


def worse_than_fine_grid(C, y):
    """How many fits lose to the best of 48 × 24 shapes polished from its four best local minima."""
    lost = 0
    for c, scores in zip(C, y, strict=True):
        ours = least_squares(c, scores, bounds=RATES).rss
        lost += ours > _fine_grid(c, scores) * (1.0 + 1e-6)
    return lost


def _fine_grid(C, y):
    x = log_compute(C)
    box = shape_box(x, "sigmoid")
    search = Search("sigmoid", x, y, None, None, RATES, box)
    u, b = np.linspace(*box[:2], 48), np.linspace(*box[2:], 24)
    z = np.clip((search.x - u[:, None, None]) * np.exp(b)[:, None], -700.0, 700.0)
    S = 1.0 / (1.0 + np.exp(-z))
    value = search._grid_rss(S.sum(axis=2), S @ search.T[4], (S * S).sum(axis=2))
    around = np.lib.stride_tricks.sliding_window_view(
        np.pad(value, 1, constant_values=np.inf), (3, 3)
    )
    minima = np.argwhere(value <= around.min(axis=(2, 3)))
    best = minima[np.argsort(value[tuple(minima.T)])][:4]
    fits = []
    for i, j in best:
        search.held = ""
        fits.append(search._polish(float(u[i]), float(b[j]))[2].rss)
    return min(fits)


def published_grid_once(C, y, truth):
    """The published procedure as published: curve_fit of B at 71 × 100 nodes."""
    R0 = truth[3]
    for A in A_GRID:
        for C_mid in np.linspace(100.0, 40_000.0, 100):
            curve_fit(lambda C, B, A=A, c=C_mid: sigmoid(C, A, B, c, R0), C, y, p0=[1.0])


def single_fit(rounds):
    C, y, truth = simulate(200)
    positive = np.maximum(C, 1e-9)
    model = SigmoidModel()

    def ours():
        for c, scores in zip(C, y, strict=True):
            least_squares(c, scores, bounds=RATES)

    def scipy():
        for c, scores, p in zip(positive, y, truth, strict=True):
            try:
                curve_fit(sigmoid, c, scores, p0=p)
            except RuntimeError:  # scipy's way to say: not converged after 1,000 calls
                continue

    def lmfit_fits():
        for c, scores, p in zip(positive[:10], y[:10], truth[:10], strict=True):
            start = dict(zip(("A", "B", "C_mid", "R0"), p.tolist(), strict=True))
            model.fit(scores, model.make_params(**start), C=c)

    def grid():
        published_grid_once(positive[0, 5:], y[0, 5:], truth[0])

    def vectorised_grid():
        scalerl_grid(C[0], y[0], start=0.0)

    ms = timing.measure(
        {
            "ours": (ours, 200),
            "scipy curve_fit from the truth": (scipy, 200),
            "lmfit from the truth": (lmfit_fits, 10),
        },
        rounds,
    )
    ms |= timing.measure(
        {
            "published grid, curve_fit a node": (grid, 1),
            "the same, our vectorised": (vectorised_grid, 1),
        },
        1,
    )
    wanted = dict(zip(list(ms)[1:], (2, 20, 10_000, None), strict=True))
    return [
        timing.Row("F1 one cold fit, 60 points", who, t, ms["ours"], wanted[who])
        for who, t in ms.items()
        if who != "ours"
    ]


def bootstrap_refits(rounds):
    rows = []
    for ratio in (1.0, 2.0, 4.0):
        C = np.linspace(0.0, 2542.0 * ratio, POINTS)
        y = curve(C, 0.61, 1.92, 2542.0, 0.30) + np.random.default_rng(0).normal(0, NOISE, POINTS)
        best = least_squares(C, y, bounds=RATES)
        residual, middle = y - best(C), best(C)
        index = np.random.default_rng(0).integers(0, POINTS, (1000, POINTS))
        positive = np.maximum(C, 1e-9)

        def scipy(positive=positive, middle=middle, residual=residual, index=index, best=best):
            for i in index[:200]:
                curve_fit(sigmoid, positive, middle + residual[i], p0=best[1:5])

        def ours(C=C, y=y):
            bootstrap(C, y, bounds=RATES)

        ms = timing.measure({"ours": (ours, 1), "scipy": (scipy, 0.2)}, 3 * rounds)
        rows.append(
            timing.Row(
                f"F2 1,000 bootstraps, to {ratio:g} C_mid",
                "scipy curve_fit from the optimum",
                ms["scipy"],
                ms["ours"],
                200,
            )
        )
    return rows


def many_curves(rounds):
    C, Y, truth = simulate(10_000, last=16_000.0)
    axis, positive = C[0], np.maximum(C[0], 1e-9)

    def scipy():
        for scores, p in zip(Y[:300], truth[:300], strict=True):
            try:
                curve_fit(sigmoid, positive, scores, p0=p)
            except RuntimeError:  # not converged
                continue

    def ours():
        least_squares_many(axis, Y, bounds=RATES)

    ms = timing.measure({"ours": (ours, 1), "scipy": (scipy, 0.03)}, rounds)
    who = "scipy curve_fit from the truth"
    return [timing.Row("F5 10,000 curves, 60 points", who, ms["scipy"], ms["ours"], 80)]


def floor_of_bootstrap():
    """Milliseconds that the arithmetic of 1,000 refits needs: 3 steps on 14 points a row."""
    x, W = np.random.default_rng(0).normal(size=(14, 1000)), np.ones((14, 14))
    wide = np.ones((14, 3000))
    out, product = np.empty_like(x), np.empty_like(wide)

    def exponentials():
        for _ in range(100):
            np.tanh(x, out=out)

    def products():
        for _ in range(100):
            np.matmul(W, wide, out=product)

    ms = timing.measure({"exp": (exponentials, 100), "products": (products, 100)})
    return 3.0 * (ms["exp"] + 2.0 * ms["products"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--curves", type=int, default=10_000, help="curves of the optimality check")
    parser.add_argument("--rounds", type=int, default=7, help="repeats of each timing")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # curve_fit's covariance warnings
    C, y, _ = simulate(options.curves)
    lost = worse_than_fine_grid(C, y)
    print(f"global optimum on {options.curves - lost} of {options.curves} random curves")
    rows = single_fit(options.rounds) + bootstrap_refits(options.rounds)
    rows += many_curves(options.rounds)
    print(timing.table(rows))
    print(f"arithmetic floor of F2: about {floor_of_bootstrap():.2f} ms")
    print(f"lmfit {lmfit.__version__}, numpy {np.__version__}, one thread, processor time, medians")


if __name__ == "__main__":
    main()
