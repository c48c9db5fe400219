"""The posterior with bands at 200 compute values (F4) against lmfit's intervals and emcee.

    python benchmarks/posterior_speed.py

One run of 60 evaluations up to 2 × C_mid with noise 0.005. Ours: R0, A, B, C_mid, the size of the
noise, its correlation, and the band of the score and of an evaluation at 200 compute values, from
the sigmoid alone and from all five laws. lmfit: `conf_interval` of all four parameters at three
levels, after the fit, no band. emcee: 32 walkers × 2,000 steps of (R0, A, ln C_mid, ln B, ln σ)
with independent noise, its log density for all walkers at once or, as usually written, one by one.
`tests/curvefit/test_posterior_exact.py` shows what ours is exact to.
"""

from __future__ import annotations

import timing  # isort: skip  (sets the number of threads before numpy loads)

import argparse
import warnings

import emcee
import numpy as np

from curvefit.fit import fit
from curvefit.laws import curve
from curvefit.lmfit_model import SigmoidModel
from curvefit.runs import Run

POINTS, NOISE, C_MID = 60, 0.005, 2542.0
WALKERS, STEPS = 32, 2000


def simulate():
    """A run and the compute values of its band."""
    C = np.linspace(0.0, 2.0 * C_MID, POINTS)
    noise = np.random.default_rng(0).normal(0.0, NOISE, POINTS)
    y = curve(C, 0.61, 1.92, C_MID, 0.30) + noise
    run = Run("benchmark", C, y, None, np.arange(1, POINTS + 1))
    return run, np.geomspace(C[1], 10.0 * C[-1], 200)


def posterior(run, at, law):
    result = fit(run, law=law)
    return result.params, result.forecast(at)


def log_density(theta, C, y, box):
    """Flat priors over a box, Gaussian noise; theta has shape (walkers, 5)."""
    R0, A, u, b, log_sd = theta.T
    inside = (R0 >= 0) & (A >= R0) & (A <= 1) & (box[0] < u) & (u < box[1]) & (np.abs(b) < 2.1)
    z = np.clip(np.exp(np.clip(b, -3, 3))[:, None] * (np.log(C) - u[:, None]), -500, 500)
    residual = y - R0[:, None] - (A - R0)[:, None] / (1.0 + np.exp(-z))
    value = -0.5 * (residual**2).sum(axis=1) * np.exp(-2.0 * log_sd) - len(y) * log_sd
    return np.where(inside, value, -np.inf)


def sample(run, *, vectorised):
    C, y = np.maximum(run.compute, 1e-9), run.score
    box = np.log(C[1]) - 2.0, np.log(C[-1]) + 9.0
    truth = [0.30, 0.61, np.log(C_MID), np.log(1.92), np.log(NOISE)]
    start = truth + 1e-3 * np.random.default_rng(1).normal(size=(WALKERS, 5))

    def one(theta):
        return log_density(theta[None], C, y, box)[0]

    def all_at_once(theta):
        return log_density(theta, C, y, box)

    function = all_at_once if vectorised else one
    sampler = emcee.EnsembleSampler(WALKERS, 5, function, vectorize=vectorised)
    sampler.run_mcmc(start, STEPS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="repeats of each timing")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    run, at = simulate()
    model = SigmoidModel()
    fitted = model.fit(run.score, model.guess(run.score, C=run.compute), C=run.compute)

    def intervals():
        return fitted.conf_interval(sigmas=[1, 2, 3])

    ours = timing.measure(
        {
            "sigmoid": (lambda: posterior(run, at, "sigmoid"), 1),
            "five laws": (lambda: posterior(run, at, "average"), 1),
        },
        4 * options.rounds,
    )
    peers = timing.measure(
        {
            "lmfit conf_interval, 4 × 3 levels": (
                lambda: fitted.conf_interval(sigmas=[1, 2, 3]),
                1,
            ),
            "emcee 32 × 2,000, vectorised": (lambda: sample(run, vectorised=True), 1),
            "emcee 32 × 2,000, one by one": (lambda: sample(run, vectorised=False), 1),
        },
        max(options.rounds // 2, 1),
    )
    wanted = dict(zip(peers, (150, None, 250), strict=True))
    rows = [
        timing.Row(f"F4 posterior and bands, {laws}", who, ms, t, wanted[who])
        for laws, t in ours.items()
        for who, ms in peers.items()
    ]
    print(timing.table(rows))
    print(f"emcee {emcee.__version__}, numpy {np.__version__}, one thread, processor time, medians")


if __name__ == "__main__":
    main()
