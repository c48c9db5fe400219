"""The noise models and the Kalman whitening against dense covariance matrices."""

import numpy as np
import pytest

from curvefit.noise import (
    DRIFTS,
    NoiseGrid,
    drift_grid,
    e_folds,
    evaluation_distance,
    noise_grid,
    pin_first,
    whiten,
)

STILL = np.ones(20)  # growth in e-folds, which only a drift feels


def dense(noise, j, distance):
    """Covariance of model j written out; a pinned first point has no run noise."""
    position = np.append(0.0, np.cumsum(np.where(np.isfinite(distance), distance, 1.0)))
    run = noise.run[j] * noise.rho[j] ** np.abs(position[:, None] - position)
    if noise.pinned:
        run[0], run[:, 0] = 0.0, 0.0
    return run + np.diag(noise.white[j])


def example(n=9, seed=0, n_eval=None):
    rng = np.random.default_rng(seed)
    score = rng.uniform(0.3, 0.6, n)
    distance = rng.uniform(1.0, 5.0, n - 1)
    return noise_grid(score, None if n_eval is None else np.full(n, n_eval)), distance, rng


@pytest.mark.parametrize("n_eval", [None, 4000.0])
def test_whitened_products_are_those_of_the_inverse_covariance(n_eval):
    noise, distance, rng = example(n_eval=n_eval)
    X = rng.normal(size=(9, 3))
    white = whiten(noise, distance, STILL[: len(X) - 1], X)
    for j in range(len(noise.run)):
        V = dense(noise, j, distance)
        W = white.columns[j]
        assert W.T @ W == pytest.approx(X.T @ np.linalg.solve(V, X), rel=1e-9)
        assert white.log_det[j] == pytest.approx(np.linalg.slogdet(V)[1], rel=1e-11)


def test_state_is_the_conditional_mean_of_the_last_run_noise():
    noise, distance, rng = example(seed=3)
    X = rng.normal(size=(9, 2))
    white = whiten(noise, distance, STILL[: len(X) - 1], X)
    for j in range(len(noise.run)):
        V = dense(noise, j, distance)
        cross = V[-1] - np.append(np.zeros(8), noise.white[j, -1])  # Cov(u_n, y)
        assert white.state[j] == pytest.approx(cross @ np.linalg.solve(V, X), abs=1e-11)
        variance = noise.run[j] - cross @ np.linalg.solve(V, cross)
        assert white.state_var[j] == pytest.approx(variance, abs=1e-11)


def test_pinned_first_point_is_exact_and_free_of_run_noise():
    noise, distance, rng = example(n=6, n_eval=2000.0)
    pinned = pin_first(noise, resolution=1e-3)
    X = rng.normal(size=(7, 2))
    white = whiten(pinned, np.append(np.inf, distance), STILL[: len(X) - 1], X)
    for j in range(len(noise.run)):
        V = np.zeros((7, 7))
        V[0, 0], V[1:, 1:] = 1e-6, dense(noise, j, distance)
        W = white.columns[j]
        assert W.T @ W == pytest.approx(X.T @ np.linalg.solve(V, X), rel=1e-9)


def test_binomial_variance_by_hand():
    """900 of 1,000 correct: p = 901/1002 after two pseudo-counts, p(1−p)/1000."""
    noise = noise_grid(np.array([0.9, 0.0]), np.array([1000.0, 1000.0]))
    p = 901 / 1002
    assert noise.white[0] == pytest.approx([p * (1 - p) / 1000, (1 / 1002) * (1001 / 1002) / 1000])
    assert noise.scale_known


def test_unknown_evaluation_size_splits_one_variance():
    noise = noise_grid(np.linspace(0.3, 0.6, 5), None)
    assert noise.white[:, 0] + noise.run == pytest.approx(np.ones(len(noise.run)))
    assert not noise.scale_known


@pytest.mark.parametrize("n_eval", [None, 500.0])
def test_prior_is_normalised_and_starts_with_white_noise_alone(n_eval):
    noise, _, _ = example(n_eval=n_eval)
    assert np.exp(noise.log_prior).sum() == pytest.approx(1.0)
    assert noise.run[0] == 0.0
    assert (noise.run[1:] > 0.0).all()


def test_distance_counts_typical_spacings_between_1_and_5():
    C = np.array([0.0, 10.0, 20.0, 25.0, 50.0, 60.0, 260.0])
    assert evaluation_distance(C).tolist() == [1.0, 1.0, 1.0, 2.5, 1.0, 5.0]


def test_white_noise_alone_whitens_by_the_standard_deviation():
    zero = np.zeros(1)
    noise = NoiseGrid(np.array([[4.0, 9.0]]), zero, zero, zero, zero, True)
    white = whiten(noise, np.ones(1), np.ones(1), np.array([[2.0], [6.0]]))
    assert white.columns[0, :, 0].tolist() == [1.0, 2.0]
    assert white.log_det[0] == pytest.approx(np.log(36.0))


def test_a_drift_with_known_size_scales_with_the_evaluation_noise_of_its_candidate():
    noise = drift_grid(np.array([0.5, 0.5]), np.array([98.0, 98.0]))
    binomial = 0.25 / 98.0  # (49 + 1) / (98 + 2) is 0.5
    assert noise.white[:, 0] == pytest.approx(np.repeat([0.25, 1.0, 4.0], len(DRIFTS)) * binomial)
    assert noise.drift == pytest.approx(np.tile(DRIFTS, 3) * noise.white[:, 0])


@pytest.mark.parametrize("n_eval", [None, 4000.0])
def test_a_drift_is_a_random_walk_in_log_compute(n_eval):
    rng = np.random.default_rng(5)
    C = np.array([0.0, 20.0, 50.0, 60.0, 200.0, 900.0])
    growth = e_folds(np.log(np.maximum(C, 1e-300)) + np.where(C > 0, 0.0, -np.inf))
    clock = np.append(0.0, np.cumsum([1.0, *np.log(C[2:] / C[1:-1])]))  # 1 from step 0
    score = rng.uniform(0.3, 0.6, 6)
    noise = drift_grid(score, None if n_eval is None else np.full(6, n_eval))
    X = rng.normal(size=(6, 3))
    white = whiten(noise, evaluation_distance(C), growth, X)
    assert len(noise.drift) % len(DRIFTS) == 0
    for j in range(len(noise.drift)):
        walk = noise.drift[j] * np.minimum(clock[:, None], clock)
        V = walk + np.diag(noise.white[j])
        W = white.columns[j]
        assert W.T @ W == pytest.approx(X.T @ np.linalg.solve(V, X), rel=1e-9)
        assert white.log_det[j] == pytest.approx(np.linalg.slogdet(V)[1], rel=1e-10)
        assert white.state[j] == pytest.approx(walk[-1] @ np.linalg.solve(V, X), abs=1e-10)
        variance = walk[-1, -1] - walk[-1] @ np.linalg.solve(V, walk[-1])
        assert white.state_var[j] == pytest.approx(variance, rel=1e-8)
    assert np.exp(noise.log_prior).sum() == pytest.approx(1.0)
