"""Statistics of a series, against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from curvefit.moving_average import moving_average
from curvefit.series import jitter, lag_1, rms_jitter, roughness, sign_runs


def test_runs_of_sign():
    """+ + + - - - - + + -: 4 runs, n₊ = n₋ = 5, so μ = 6 and σ² = 5·4/9."""
    found = sign_runs(np.array([1, 2, 1, -1, -2, -1, -3, 2, 1, -1.0]))
    assert found.seen == 4
    assert found.expected == 6.0
    assert found.z == pytest.approx(-2.0 / math.sqrt(20.0 / 9.0))


def test_runs_of_one_sign_say_nothing():
    assert sign_runs(np.ones(10)).z == 0.0
    assert sign_runs(np.array([1.0] * 9 + [-1.0])).z == 0.0


def test_lag_1_of_an_alternating_series_and_of_nothing():
    assert lag_1(np.array([1.0, -1.0, 1.0, -1.0])) == pytest.approx(-3.0 / 4.0)
    assert lag_1(np.zeros(5)) == 0.0


def test_jitter_of_an_alternating_series():
    """Second differences of ±1 are ±4: 4/√6 by mean square, 4/(0.6745 √6) by the median."""
    y = np.array([1.0, -1.0] * 5)
    assert rms_jitter(y) == pytest.approx(4.0 / math.sqrt(6.0))
    assert jitter(y) == pytest.approx(4.0 / (0.67449 * math.sqrt(6.0)), rel=1e-5)


def test_jitter_does_not_see_a_line_and_the_median_no_jump():
    line = np.linspace(0.0, 1.0, 20)
    assert jitter(line) == pytest.approx(0.0, abs=1e-12)
    assert rms_jitter(line) == pytest.approx(0.0, abs=1e-12)
    assert jitter(line + (np.arange(20) > 9)) == pytest.approx(0.0, abs=1e-12)
    assert jitter(line[:3]) == rms_jitter(line[:3]) == 0.0


def test_jitter_is_the_standard_deviation_of_white_noise():
    y = 0.3 * np.random.default_rng(1).standard_normal(20_000)
    assert jitter(y) == pytest.approx(0.3, rel=0.03)
    assert rms_jitter(y) == pytest.approx(0.3, rel=0.03)


def test_roughness_of_white_noise_of_a_random_walk_and_of_a_parabola():
    """Σ of squared coefficients: 20/6 for white noise, 6/2 for a walk; third differences 0."""
    white = np.random.default_rng(2).standard_normal(50_000)
    assert roughness(white) == pytest.approx(10.0 / 3.0, rel=0.03)
    assert roughness(np.cumsum(white)) == pytest.approx(3.0, rel=0.03)
    assert roughness(np.arange(20.0) ** 2) == pytest.approx(0.0, abs=1e-9)
    assert roughness(np.ones(20)) == math.inf


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_no_statistic_depends_on_the_unit(scale):
    r = np.random.default_rng(3).standard_normal(40)
    assert lag_1(scale * r) == pytest.approx(lag_1(r))
    assert roughness(scale * r) == pytest.approx(roughness(r))
    assert rms_jitter(scale * r) == pytest.approx(scale * rms_jitter(r))
    assert moving_average(scale * r)[1] == pytest.approx(moving_average(r)[1])


@pytest.mark.parametrize("k", [3, 5, 7, 11])
def test_a_moving_average_over_k_rows_is_recognised(k):
    raw = np.random.default_rng(k).standard_normal(80 + k)
    window, nats = moving_average(np.convolve(raw, np.full(k, 1 / k), mode="valid"))
    assert window == k
    assert nats > 4.0


def test_a_trailing_average_that_starts_with_what_there_is():
    """As pandas' rolling(7, min_periods=1).mean() makes it."""
    raw = np.random.default_rng(1).standard_normal(60)
    trailing = np.array([raw[max(0, i - 6) : i + 1].mean() for i in range(60)])
    window, nats = moving_average(trailing)
    assert window == 7
    assert nats > 4.0


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.9, 0.97])
def test_run_noise_is_likelier_than_a_moving_average(rho):
    above = 0
    for seed in range(60):
        r = np.random.default_rng(seed).standard_normal(60)
        for t in range(1, 60):
            r[t] += rho * r[t - 1]
        above += moving_average(r)[1] > 4.0
    assert above <= 3


def test_the_likelihood_ratio_is_the_one_of_dense_normal_densities():
    """Three rows' worth of algebra: both sides from determinants and inverses."""
    r = np.random.default_rng(5).standard_normal(12)
    lag = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))

    def profile(V):
        return -0.5 * np.linalg.slogdet(V)[1] - 6.0 * math.log(r @ np.linalg.inv(V) @ r / 12)

    starts = {k: np.maximum(np.arange(12) - k + 1, 0) for k in (3, 4)}
    size = {k: np.arange(12) + 1 - starts[k] for k in starts}
    shared = {
        k: np.maximum(
            np.minimum.outer(np.arange(12), np.arange(12)) + 1 - np.maximum.outer(s, s), 0
        )
        for k, s in starts.items()
    }
    average = [profile(np.maximum(k - lag, 0) / k + 1e-6 * np.eye(12)) for k in (3, 4)]
    average += [
        profile(k * shared[k] / np.outer(size[k], size[k]) + 1e-6 * np.eye(12)) for k in (3, 4)
    ]
    run = [profile(np.eye(12))] + [
        profile(s * rho**lag + (1 - s) * np.eye(12))
        for rho in (0.5, 0.7, 0.85, 0.95, 0.99)
        for s in (0.3, 0.6, 0.85, 0.97, 1.0)
    ]
    assert moving_average(r)[1] == pytest.approx(max(average) - max(run), rel=1e-6)
