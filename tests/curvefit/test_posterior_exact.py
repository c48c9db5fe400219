"""The posterior agrees with an independent brute-force quadrature of the same model.

`exact_posterior` writes the model a second time with dense covariances and a product grid. From
`curvefit` it takes the list of noise models and their prior weights, which define the model; the
likelihood, the integrals over σ, R0, A, the shape and the noise, and the bounds are its own.
"""

import numpy as np
import pytest
from exact_posterior import Exact, covariances, summary

from curvefit.fit import fit, marginal_of
from curvefit.noise import drift_grid, noise_grid
from curvefit.posterior import atoms_of
from curvefit.runs import Run

A, B, C_MID, R0 = 0.62, 1.6, 2500.0, 0.28


def simulate(ratio, n, sd, seed, n_eval=None):
    """A run up to C = ratio · C_mid; normal noise, or binomial plus normal when n_eval is known."""
    rng = np.random.default_rng(seed)
    C = np.linspace(0.0, ratio * C_MID, n)
    p = R0 + (A - R0) / (1.0 + (C_MID / np.maximum(C, 1e-9)) ** B)
    y = p + rng.normal(0.0, sd, n)
    if n_eval is None:
        return Run("simulated", C, y, None, np.arange(1, n + 1))
    y = rng.binomial(n_eval, np.clip(y, 0.0, 1.0)) / n_eval
    return Run("simulated", C, y, np.full(n, float(n_eval)), np.arange(1, n + 1))


def exact(run, target):
    noise = noise_grid(run.score, run.n_eval)
    step = np.diff(run.compute)
    distance = np.clip(step / np.median(step), 1.0, 5.0)
    V = covariances(distance, noise.white, noise.run, noise.rho)
    return Exact(run.compute, run.score, V, noise.log_prior, noise.scale_known, target)


@pytest.mark.parametrize(
    ("ratio", "n", "sd", "n_eval"),
    [
        (0.5, 14, 0.004, None),
        (1.0, 16, 0.004, None),
        (2.0, 20, 0.004, None),
        (4.0, 24, 0.004, None),
        (8.0, 30, 0.004, None),
        (2.0, 20, 0.006, 4000),
    ],
)
def test_posterior_of_asymptote_and_forecast_matches_brute_force(ratio, n, sd, n_eval):
    run = simulate(ratio, n, sd, seed=n, n_eval=n_eval)
    target = 10.0 * run.compute[-1]
    atoms = fit(run, law="sigmoid").sigmoid
    ours = {
        "A": summary(atoms.A, atoms.weight),
        "score": summary(atoms.curve(np.log([target]))[:, 0], atoms.weight),
    }
    for name, expected in exact(run, target).summaries().items():
        width = expected[2] - expected[0]
        assert ours[name] == pytest.approx(expected, abs=0.02 * width), name


@pytest.mark.parametrize(("ratio", "n_eval"), [(1.0, None), (4.0, None), (2.0, 4000)])
def test_posterior_under_drift_matches_brute_force(ratio, n_eval):
    run = simulate(ratio, 18, 0.006, seed=11, n_eval=n_eval)
    noise = drift_grid(run.score, run.n_eval)
    clock = np.log(np.maximum(run.compute, run.compute[1] / np.e))
    shared = np.minimum(clock[:, None], clock) - clock[0]
    V = [np.diag(d) + q * shared for d, q in zip(noise.white, noise.drift, strict=True)]
    target = 10.0 * run.compute[-1]
    known = noise.scale_known
    brute = Exact(run.compute, run.score, V, noise.log_prior, known, target, gauss=48)
    atoms = atoms_of(marginal_of(run, drift=True), "sigmoid")
    ours = {
        "A": summary(atoms.A, atoms.weight),
        "score": summary(atoms.law_curve(np.log([target]))[:, 0], atoms.weight),
    }
    for name, expected in brute.summaries().items():
        width = expected[2] - expected[0]
        assert ours[name] == pytest.approx(expected, abs=0.02 * width), name


@pytest.mark.slow
def test_brute_force_is_converged():
    """A finer grid moves nothing by more than 0.5 % of the interval's width."""
    run, sizes = simulate(2.0, 8, 0.004, seed=3), ((100, 80), (140, 110))
    coarse, fine = (exact(run, 10.0 * run.compute[-1]).summaries(*size) for size in sizes)
    for name, expected in fine.items():
        width = expected[2] - expected[0]
        assert coarse[name] == pytest.approx(expected, abs=0.005 * width), name


def test_brute_force_agrees_with_a_sampler():
    """Random-walk Metropolis on (R0, A, ln C_mid, ln B, ln σ) for one white noise model."""
    emcee = pytest.importorskip("emcee")
    run = simulate(3.0, 16, 0.004, seed=5)
    C, y = run.compute, run.score
    n, target = len(y), 10.0 * C[-1]
    brute = Exact(C, y, [np.eye(n)], [0.0], False, target)
    u0, u1, b0, b1 = brute.box
    x = np.log(np.maximum(C, 1e-300))

    def log_density(theta):
        R0, A, u, b, log_sd = theta.T
        inside = (R0 >= 0) & (R0 <= A) & (A <= 1) & (u0 < u) & (u < u1) & (b0 < b) & (b < b1)
        z = np.exp(np.clip(b, b0, b1))[:, None] * (x - u[:, None])
        residual = y - R0[:, None] - (A - R0)[:, None] / (1.0 + np.exp(-np.clip(z, -500, 500)))
        log_p = -0.5 * (residual**2).sum(axis=1) * np.exp(-2.0 * log_sd) - n * log_sd
        return np.where(inside, log_p, -np.inf)

    rng = np.random.default_rng(1)
    start = [R0, A, np.log(C_MID), np.log(B), np.log(0.004)] + 1e-3 * rng.normal(size=(64, 5))
    sampler = emcee.EnsembleSampler(64, 5, log_density, vectorize=True)
    sampler.random_state = np.random.RandomState(1).get_state()
    sampler.run_mcmc(start, 6000)
    chain = sampler.get_chain(discard=1000, flat=True)
    found = summary(chain[:, 1], np.ones(len(chain)))
    expected = brute.summaries()["A"]
    assert found == pytest.approx(expected, abs=0.05 * (expected[2] - expected[0]))
