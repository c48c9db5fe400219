"""Doubts about a run: each on an input that shows it and on one that does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from doubtful_runs import DATA, INPUTS, clean, codes, doubt, hill, noise, run_of, wandering

from curvefit.fit import fit
from curvefit.readers import load
from curvefit.runs import Axis


@pytest.fixture(scope="module")
def dense():
    return load(DATA / "scalerl_fig1a.csv")["8B dense"]


# ---------------------------------------------------------------- rise and fall


def test_a_flat_run_does_not_rise():
    run = run_of(np.linspace(0, 1000, 20), 0.3 + noise(20))
    for method in ("posterior", "least-squares"):
        assert doubt(run, "no-rise", method=method)
        f = fit(run, method=method)
        assert f.verdict.asymptote == "not identified"
        assert "does not rise" in f.verdict.sentence


def test_an_aborted_real_run_does_not_rise_and_figure_1a_does(dense):
    aborted = load(INPUTS / "rasbt_aborted_start.csv")[0]
    assert aborted.score[-1] < aborted.score[0]
    assert doubt(aborted, "no-rise")
    assert "no-rise" not in codes(dense)


def test_three_points_that_rise_steadily_count_as_a_rise():
    assert "no-rise" not in codes(run_of([0, 10, 20], [0.006, 0.077, 0.155]))
    assert "no-rise" in codes(run_of([0, 10, 20], [0.155, 0.2, 0.1]))


def test_few_points_of_known_size_need_no_straight_line():
    """0.08 to 0.45 on 500 samples each is a rise of 15 standard deviations; on 4 it is none."""
    scores = [0.081, 0.098, 0.116, 0.106, 0.296, 0.449]
    assert "no-rise" not in codes(run_of(range(6), scores, n=500))
    assert "no-rise" in codes(run_of(range(6), scores, n=4))


@pytest.mark.parametrize("method", ["posterior", "least-squares"])
def test_a_fall_after_a_peak(method):
    run = clean()
    y = run.score.copy()
    y[-8:] -= 0.05 * np.arange(1, 9) / 8
    fallen = replace(run, score=y)
    found = doubt(fallen, "fall-after-peak", method=method)
    until = float(found.remedy.split("--until ")[1].split(")")[0])
    assert until <= run.compute[-7] + 1.0  # by then it has fallen by 0.0125
    assert "fall-after-peak" not in codes(run, method=method)


def test_a_run_that_only_falls_has_fallen():
    C = np.linspace(0, 1000, 30)
    assert "fall-after-peak" in codes(run_of(C, 0.5 - 0.3 * C / 1000 + noise(30)))


def test_last_points_below():
    run = clean()
    y = run.score.copy()
    y[-4:] -= 0.04
    assert (
        "the last 4 points lie below" in doubt(replace(run, score=y), "last-points-below").message
    )
    assert "last-points-below" not in codes(run)
    dip = y.copy()
    dip[-1] += 0.04  # the last one is back: no new regime
    assert "last-points-below" not in codes(replace(run, score=dip))


@pytest.mark.parametrize(("points", "below"), [(6, 0.005), (2, 0.03)])
def test_last_points_within_the_noise_or_too_few_are_no_regime(points, below):
    """Six at one standard deviation below the law; two far below it."""
    run = clean()
    y = run.score.copy()
    y[-points:] = hill(run.compute[-points:]) - below
    assert "last-points-below" not in codes(replace(run, score=y))


# ---------------------------------------------------------------- residuals


def test_a_second_rise_is_a_misfit():
    C = np.linspace(0.0, 20_000.0, 40)
    twice = hill(C, A=0.5, B=2.0, C_mid=2000.0) + hill(C, 0.15, 8.0, 12_000.0, 0.0)
    message = doubt(run_of(C, twice + noise(40)), "misfit", method="least-squares").message
    seen = int(message.split("(")[1].split(" runs")[0])
    assert 2 <= seen <= 12  # of about 21
    assert "misfit" not in codes(run_of(C, hill(C) + noise(40)))


def test_correlated_noise():
    C = np.linspace(0.0, 20_000.0, 80)
    found = doubt(run_of(C, hill(C) + wandering(80, 0.9, 0.01)), "correlated-noise")
    assert "lag-1 = 0." in found.message
    assert "correlated-noise" not in codes(run_of(C, hill(C) + noise(80)))


def test_a_real_run_with_correlated_noise():
    runs = load(DATA / "cognitive_behaviors_countdown.csv")
    assert "correlated-noise" in codes(runs["dots"])
    assert "correlated-noise" not in codes(runs["base_ppo"])


# ---------------------------------------------------------------- the column


def ema(y, weight=0.9):
    out = y.copy()
    for i in range(1, len(y)):
        out[i] = weight * out[i - 1] + (1 - weight) * y[i]
    return out


def boxcar(y, k=7):
    return np.convolve(np.pad(y, k // 2, mode="edge"), np.full(k, 1 / k), mode="valid")


def kernel(y, rows=2.0):
    w = np.exp(-0.5 * (np.arange(-8, 9) / rows) ** 2)
    return np.convolve(np.pad(y, 8, mode="edge"), w / w.sum(), mode="valid")


def raw(n, size=4000, seed=3):
    """Evaluations of `size` graded samples."""
    C = np.linspace(0.0, 10_000.0, n)
    return C, np.random.default_rng(seed).binomial(size, hill(C)) / size


@pytest.mark.parametrize("smooth", [ema, boxcar, kernel])
def test_smoothed_rows_are_quieter_than_their_evaluation_size_allows(smooth):
    C, y = raw(40)
    message = doubt(run_of(C, smooth(y), n=4000), "smoothed").message
    # sd of 4,000 samples of a rate of 0.3 to 0.57: √(p(1−p)/4000), 0.0072 to 0.0079
    assert float(message.split("makes at least ")[1]) == pytest.approx(0.0077, abs=0.0003)
    assert "smoothed" not in codes(run_of(C, y, n=4000))


def test_a_real_run_is_too_quiet_for_an_evaluation_size_that_is_wrong():
    """Its scores are multiples of 1/1,024: as if from 200 problems they are too even."""
    run = load(DATA / "cognitive_behaviors_countdown.csv")["no_positive_all_strategies"]
    assert np.abs(run.score * 1024 - np.round(run.score * 1024)).max() < 1e-3
    wrong, right = (replace(run, n_eval=np.full(len(run), n)) for n in (200.0, 1024.0))
    assert "--n" in doubt(wrong, "smoothed").remedy
    assert "smoothed" not in codes(right)


def test_without_the_size_a_boxcar_and_a_kernel_still_show():
    C, y = raw(80)
    assert "moving average over 7 rows" in doubt(run_of(C, boxcar(y)), "smoothed").message
    assert "too evenly" in doubt(run_of(C, kernel(y)), "smoothed").message
    assert "smoothed" not in codes(run_of(C, y))


def test_run_noise_is_not_taken_for_smoothing():
    """AR(1) noise, even without any evaluation noise, is what a run may do."""
    C = np.linspace(0.0, 10_000.0, 60)
    fired = [
        "smoothed"
        in codes(run_of(C, hill(C) + wandering(60, 0.9, 0.01, s)), method="least-squares")
        for s in range(50)
    ]
    assert sum(fired) <= 3


@pytest.mark.parametrize(
    ("column", "smooth"),
    [
        ("reward_ema", True),
        ("Smoothed accuracy", True),
        ("running mean reward", True),
        ("pass_rate", False),
        ("schema_score", False),
        ("smoothness_reward", False),
    ],
)
def test_a_column_that_says_it_is_smoothed(column, smooth):
    run = clean()
    assert ("smoothed" in codes(replace(run, y=Axis(column, "pass_rate")))) is smooth


def test_a_pass_rate_outside_0_to_1():
    run = clean()
    y = run.score.copy()
    y[7] = 1.2
    found = doubt(replace(run, score=y, y=Axis("accuracy", "reward")), "outside-0-1")
    assert "1 of 40 scores lie outside 0 to 1, up to 1.20" in found.message
    assert "outside-0-1" not in codes(run)


def test_a_reward_on_its_own_scale_is_no_pass_rate():
    run = clean(ratio=8.0)
    reward = replace(run, score=40.0 * run.score - 20.0, y=Axis("reward", "reward"))
    assert codes(reward) == set()


def test_few_points():
    seven = load(INPUTS / "fair_rlvr_filled.json")[0]
    assert "7 points" in doubt(seven, "few-points").message
    assert "few-points" not in codes(clean(n=8))
