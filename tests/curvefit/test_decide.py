"""Decisions: gains, stopping, what more data would bring, money, refusals, faces."""

import json
from dataclasses import replace

import numpy as np
import pytest

import curvefit
from curvefit.continuation import continuations
from curvefit.decide import decide, gain, rate, stop
from curvefit.errors import InputError
from curvefit.narrowing import MULTIPLES, Step, _bisected, interval_width, options, settle

A, B, C_MID, R0 = 0.61, 1.9, 2500.0, 0.38


def run_until(last, points=21, n=16_000, seed=0):
    C = np.linspace(0.0, last, points)
    y = np.random.default_rng(seed).binomial(n, curvefit.curve(C, A, B, C_MID, R0)) / n
    return curvefit.load({"gpu_hours": C, "pass_rate": y}, n=n)[0]


def wandering(last, points, seed):
    """A run whose noise has a standard deviation of 0.004 and a correlation of 0.8."""
    rng = np.random.default_rng(seed)
    u = np.zeros(points)
    for t in range(1, points):
        u[t] = 0.8 * u[t - 1] + 0.004 * 0.6 * rng.standard_normal()
    C = np.linspace(0.0, last, points)
    y = rng.binomial(16_000, curvefit.curve(C, A, B, C_MID, R0) + u) / 16_000
    return curvefit.load({"gpu_hours": C, "pass_rate": y}, n=16_000)[0]


@pytest.fixture(scope="module")
def early():
    return curvefit.fit(run_until(5_000.0))


@pytest.fixture(scope="module")
def late():
    return curvefit.fit(run_until(40_000.0, 41))


def true_gain(last, more):
    return float(np.diff(curvefit.curve([last, last + more], A, B, C_MID, R0))[0])


def test_the_gain_of_doubling_is_the_truths(early):
    ten, half, double, triple = gain(early)
    assert (double.more, double.at) == (5_000.0, 10_000.0)
    assert double.low < true_gain(5_000.0, 5_000.0) < double.high
    assert ten.gain < half.gain < double.gain < triple.gain
    assert ten.per_unit > double.per_unit > triple.per_unit


def test_the_rate_is_the_slope_of_the_curve(early):
    s = 1 / (1 + (C_MID / 5_000.0) ** B)
    truth = (A - R0) * B * s * (1 - s) / 5_000.0
    assert rate(early).low < truth < rate(early).high
    assert rate(early).value == pytest.approx(gain(early, [1.0])[0].per_unit, rel=1e-3)


def test_stopping_is_safe_late_and_costly_early(early, late):
    assert stop(early, 0.01).probability < 0.05
    assert stop(late, 0.01).probability > 0.8
    assert stop(late, 0.001).probability < stop(late, 0.01).probability
    assert stop(early, 0.01, target=5_100.0).probability > 0.95


def test_a_fit_answers_itself(early):
    assert early.gain(price=1.0) == gain(early, price=1.0)
    assert early.decide(width=0.5, count=2).stop == stop(early)


def test_money_is_price_times_compute(early):
    (one,) = gain(early, [1_000.0], price=2.5)
    assert one.cost == 2_500.0
    assert np.isnan(gain(early, [1_000.0])[0].cost)


def test_more_compute_settles_the_asymptote(early):
    found = settle(early, 0.02, price=2.0, count=10)
    assert found.now == pytest.approx(interval_width(early, "A"))
    assert found.now > 0.02
    widths = [step.width for step in found.steps]
    assert widths == sorted(widths, reverse=True)
    assert found.cost == 2.0 * found.more
    end = 5_000.0 + found.more
    assert found.probability >= 0.8
    assert all((s.share >= 0.8) == (s.compute >= end) for s in found.steps)


def test_a_share_of_few_simulations_is_told_as_a_count(early):
    decision = decide(early, count=3)
    share, said = decision.settling.probability, " ".join(str(decision).split())
    assert decision.settling.continuations == 3
    assert f"bring it under 0.02 in {round(3 * share)} of 3 simulated continuations." in said


def test_bisection_finds_the_least_multiple_that_will_do():
    for least in (*MULTIPLES, np.inf):

        def step(multiple, least=least):
            return Step(multiple, multiple, 0.0, float(multiple >= least))

        steps, enough = _bisected(step, 0.8)
        assert (enough.multiple if enough else np.inf) == least
        assert len(steps) <= 3


def test_the_width_promised_is_about_the_width_found():
    """Going on for twice the compute in truth, half of the runs wandering, half not.

    A short run hardly shows whether it wanders, so that single promises err twofold either way.
    """
    ratios = []
    for seed in range(3):
        for run in (wandering(10_000.0, 41, seed), run_until(10_000.0, 41, seed=seed)):
            promised = options(curvefit.fit(run, until=5_000.0), until=2.0, count=6)[0].width
            found = interval_width(curvefit.fit(run, law="sigmoid"), "A")
            ratios.append(promised / found)
    assert 0.6 < np.exp(np.mean(np.log(ratios))) < 1.7


def test_what_is_narrow_already_costs_nothing(late):
    found = settle(late, 0.1, price=2.0)
    assert (found.more, found.cost, found.steps) == (0.0, 0.0, ())


def test_an_impossible_width_is_not_promised(early):
    found = settle(early, 1e-5, count=4)
    assert np.isnan(found.more)
    assert found.steps[-1].multiple == 8.0


def test_ways_to_narrow_the_interval(early):
    plain, samples, checkpoints, longer = options(early, count=12)
    assert plain.evaluations == 10
    assert checkpoints.evaluations == 20
    assert samples.width <= plain.width
    assert longer.compute == 10_000.0
    assert longer.width < plain.width


def test_the_score_at_a_target_may_be_what_counts(early):
    found = settle(early, 0.03, of=20_000.0, count=4)
    (there,) = early.forecast([20_000.0])
    assert found.now == there.high - there.low
    assert found.of == "20000"


def test_a_continuation_keeps_what_was_seen_and_follows_the_curve(early):
    runs = continuations(early, 10_000.0, 6)
    assert all((r.score[:21] == early.run.score).all() for r in runs)
    assert all(r.compute[-1] == 10_000.0 and len(r) == 41 for r in runs)
    ends = np.array([r.score[-5:].mean() for r in runs])
    low, high = replace(early, level=0.99).band(9_500.0)
    assert low - 0.01 < ends.min() < ends.max() < high + 0.01
    again = continuations(early, 10_000.0, 6)
    assert all((a.score == b.score).all() for a, b in zip(runs, again, strict=True))


def test_more_samples_make_quieter_evaluations(early):
    (one,), (many,) = (continuations(early, 9_000.0, 1, samples=f) for f in (1.0, 100.0))
    assert many.n_eval[-1] == 100 * one.n_eval[-1]


def test_a_collapsed_run_carries_a_caution():
    C = np.linspace(0.0, 10_000.0, 41)
    y = curvefit.curve(C, A, B, 1_000.0, R0) - np.where(C > 7_000, (C - 7_000) * 4e-5, 0.0)
    y = y + 0.002 * np.random.default_rng(0).standard_normal(41)
    fit = curvefit.fit(C, y)
    assert any("after its peak" in caution for caution in decide(fit, width=0.5, count=2).cautions)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: gain(f, [0.0]), "further compute 0"),
        (lambda f: gain(f, price=-1.0), "price -1"),
        (lambda f: stop(f, 0.0), "loss 0"),
        (lambda f: stop(f, target=100.0), "not beyond the last compute"),
        (lambda f: settle(f, float("nan")), "width nan"),
        (lambda f: settle(f, of="B"), "neither 'A' nor"),
        (lambda f: settle(f, of=-1.0), "neither 'A' nor"),
        (lambda f: options(f, until=1.0), "until 1"),
    ],
)
def test_bad_numbers_are_refused(early, call, message):
    with pytest.raises(InputError, match=message):
        call(early)


def test_rewards_are_measured_by_the_range_they_span():
    C = np.linspace(0.0, 10_000.0, 21)
    y = 40.0 * curvefit.curve(C, A, B, C_MID, R0) + 0.1 * np.sin(9.0 * np.arange(21))
    fit = curvefit.fit({"step": C, "reward": y}, "reward", x="step")
    decision = decide(fit, count=1)
    assert decision.stop.loss == pytest.approx(0.01 * 2.5 * np.ptp(y))
    assert decision.settling.width == pytest.approx(0.02 * 2.5 * np.ptp(y))


def test_a_constant_reward_is_decided_without_a_range():
    fit = curvefit.fit({"step": np.arange(12.0), "reward": np.full(12, 5.0)}, "reward", x="step")
    decision = decide(fit, count=1)
    assert decision.stop.loss == pytest.approx(0.05)
    assert any("no rise" in caution for caution in decision.cautions)


def test_a_fit_without_posterior_decides_nothing():
    fit = curvefit.fit(run_until(5_000.0), method="least-squares")
    with pytest.raises(InputError, match="no probabilities"):
        decide(fit)


def test_the_faces_agree(early):
    decision = decide(early, width=0.05, price=2.0, count=4)
    record = json.loads(json.dumps(decision.to_dict(), allow_nan=False))
    assert record["gains"][2]["cost"] == 10_000.0
    text = str(decision)
    assert max(map(len, text.splitlines())) <= 100
    assert "Stopping now loses less than 0.01 with probability" in text
    assert "10,000" in text
    assert "<table>" in decision._repr_html_()
    unpriced = decide(early, width=0.5, count=2).to_dict()
    assert unpriced["price"] is None
    assert unpriced["settling"]["cost"] is None
