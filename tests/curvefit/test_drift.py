"""The departure from the law, against a dense Gaussian process that shares no code with it."""

from dataclasses import replace

import numpy as np
import pytest

from curvefit.drift import Track
from curvefit.fit import fit, marginal_of
from curvefit.posterior import atoms_of
from curvefit.runs import Axis, Run

C = np.array([0.0, 50.0, 100.0, 180.0, 300.0, 420.0, 900.0])
Y = np.array([0.30, 0.34, 0.37, 0.41, 0.40, 0.45, 0.47])
RUN = Run("wanders", C, Y, None, np.arange(1, 8))


@pytest.fixture(scope="module")
def atoms():
    """Three atoms of the sigmoid with a track, on their mean paths."""
    marginal = marginal_of(RUN, drift=True)
    x = np.append(-np.inf, np.log(C[1:]))
    track = Track(x, Y, np.ones(7), 0.0, 1.0)
    some = atoms_of(marginal, "sigmoid", 64, track=track).take(np.array([3, 30, 60]))
    return replace(some, tilt=np.zeros(3), wander=np.zeros(3), stop=np.full(3, np.inf))


def clock(C):
    """Ln C, with step 0 one e-fold before the first checkpoint."""
    return np.log(np.maximum(C, C[1] / np.e if C[0] == 0 else 1e-300))


def dense(atoms, i, at):
    """Mean and variance of u at clock times `at` given the residuals of atom i."""
    t = clock(C)
    ratio = np.append(0.0, C[1:] / np.exp(atoms.ln_c[i])) ** atoms.B[i]
    law = atoms.R0[i] + (atoms.A[i] - atoms.R0[i]) * ratio / (1.0 + ratio)
    K = atoms.drift[i] * np.minimum(t[:, None] - t[0], t - t[0])
    k = atoms.drift[i] * np.minimum(at[:, None] - t[0], t - t[0])
    V = K + atoms.white[i] * np.eye(len(t))
    mean = k @ np.linalg.solve(V, Y - law)
    var = atoms.drift[i] * (at - t[0]) - np.einsum("ij,ji->i", k, np.linalg.solve(V, k.T))
    return mean, var


INSIDE = np.array([50.0, 70.0, 300.0, 640.0, 900.0])


def test_within_the_data_the_departure_is_the_smoothed_residual(atoms):
    x = np.log(INSIDE)
    found = atoms.track.departure(atoms, x)
    tilted = atoms.track.departure(replace(atoms, tilt=np.ones(3)), x)
    for i in range(3):
        mean, var = dense(atoms, i, x)
        assert found[:, i] == pytest.approx(mean, abs=1e-10)
        assert tilted[:, i] - found[:, i] == pytest.approx(np.sqrt(var), abs=1e-8)


def test_beyond_the_data_it_goes_on_from_there_and_spreads(atoms):
    x = np.log(np.array([900.0, 1800.0, 9000.0]))
    found = atoms.track.departure(atoms, x)
    spread = atoms.track.departure(replace(atoms, wander=np.ones(3)), x) - found
    for i in range(3):
        mean, var = dense(atoms, i, x)
        assert found[:, i] == pytest.approx(mean, abs=1e-10)
        assert atoms.level_var[i] + spread[:, i] ** 2 == pytest.approx(var, rel=1e-6)


def test_the_curve_is_continuous_at_the_last_evaluation(atoms):
    tilted = replace(atoms, tilt=np.array([0.5, -1.0, 2.0]))
    before, after = tilted.curve(np.log(900.0) + np.array([-1e-9, 1e-9])).T
    assert before == pytest.approx(after, abs=1e-5)


def test_simulated_paths_have_the_variance_of_the_departure(atoms):
    x, rng = np.log(np.array([1800.0, 3600.0])), np.random.default_rng(0)
    paths = np.array([atoms.track.wandering(atoms, 1, x, rng) for _ in range(4000)])
    steps = np.diff(paths - atoms.level[1], axis=1, prepend=0.0)
    expected = atoms.drift[1] * np.log(2.0)
    assert steps.var(axis=0) == pytest.approx(expected, rel=0.1)


def test_growth_ends_where_an_atom_stops(atoms):
    stopped = replace(atoms, stop=np.full(3, np.log(2000.0)))
    at = np.log(np.array([2000.0, 20000.0]))
    assert stopped.law_curve(at)[:, 1] == pytest.approx(stopped.law_curve(at)[:, 0])
    assert (atoms.law_curve(at)[:, 1] > atoms.law_curve(at)[:, 0]).all()


def test_a_forecast_starts_from_where_the_run_is():
    """A run that follows a sigmoid and then sits 0.03 below it for half its evaluations."""
    C = np.linspace(0.0, 4000.0, 41)
    law = 0.3 + 0.3 / (1.0 + (500.0 / np.maximum(C, 1e-9)) ** 2.0)
    y = law - 0.03 * (C > 2000.0) + 0.002 * (-1.0) ** np.arange(41)
    run = Run("sags", C, y, None, np.arange(1, 42))
    [doubting] = fit(run).forecast([5000.0])
    assert doubting.score == pytest.approx(y[-6:].mean(), abs=0.012)
    assert doubting.low < y[-6:].mean() < doubting.high


def test_reaching_a_score_within_the_data_is_found_where_the_run_did():
    C = np.linspace(0.0, 4000.0, 41)
    y = 0.3 + 0.3 / (1.0 + (500.0 / np.maximum(C, 1e-9)) ** 2.0)
    run = Run("rises", C, y + 0.001 * (-1.0) ** np.arange(41), None, np.arange(1, 42))
    half, never = fit(run).reach([0.45, 0.99])
    assert half.compute == pytest.approx(500.0, rel=0.05)
    assert half.probability == pytest.approx(1.0)
    assert never.probability < 0.02


def test_a_score_far_beyond_large_rewards_is_never_reached():
    C = np.linspace(0.0, 4000.0, 21)
    y = 1e12 * (2.0 + 3.0 / (1.0 + (500.0 / np.maximum(C, 1e-9)) ** 2.0))
    run = Run("large", C, y, None, np.arange(1, 22), y=Axis("reward", "reward"))
    [far] = fit(run).reach([1e14])
    assert far.probability == 0.0
    assert np.isnan(far.compute)
