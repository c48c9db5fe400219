"""Signals are sums and counts; alarms begin when their condition does."""

import math

import factory
import pytest
import torch

from trainer.tally import Tally
from trainer.watch import SIGNALS, Watcher

QUIET = {
    "truncation_rate": 0.0,
    "interruption_rate": 0.0,
    "logp_gap": 1e-6,
    "token_mult_prob_error": 1.0,
    "mismatch_kl": 1e-9,
    "ess": 0.99,
    "capped_fraction": 0.0,
    "entropy": 1.0,
    "grad_norm": 1.0,
    "all_pass_fraction": 0.1,
    "staleness_max": 0,
    "error_rate": 0.0,
}


def alarms(values, steps=1, before=0, flags=()):
    watcher, out = Watcher(factory.config(*flags)), []
    for step in range(before):
        assert watcher.observe(step, QUIET) == []
    for step in range(before, before + steps):
        out += watcher.observe(step, {**QUIET, **values})
    return [(a.signal, a.action) for a in out]


def test_the_mean_is_of_samples_not_of_means():
    total, part = Tally(), Tally()
    total.add("reward", 1.0, 1)
    part.add("reward", 1.0, 3)
    total.merge(part)
    assert total.mean("reward") == 0.5  # the mean of means would be 0.667


def test_nothing_counted_has_no_mean_and_maxima_stay_maxima():
    tally = Tally()
    tally.add("x", 0.0, 0)
    tally.peak("m", 2.0)
    tally.peak("m", 1.0)
    assert tally.signals() == {"x": None, "m": 2.0}


def test_quiet_signals_raise_nothing():
    assert alarms({}, steps=300) == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"truncation_rate": 0.06}, [("truncation_rate", "warn")]),
        ({"truncation_rate": 0.12}, [("truncation_rate", "warn"), ("truncation_rate", "abort")]),
        ({"logp_gap": 0.03}, [("logp_gap", "warn")]),
        ({"token_mult_prob_error": 1.06}, [("token_mult_prob_error", "warn")]),
        ({"mismatch_kl": 2e-3}, [("mismatch_kl", "warn")]),
        ({"mismatch_kl": 2e-2}, [("mismatch_kl", "warn"), ("mismatch_kl", "abort")]),
        ({"ess": 0.4}, [("ess", "warn")]),
        ({"capped_fraction": 0.2}, [("capped_fraction", "warn")]),
        ({"grad_norm": math.nan}, [("grad_norm", "abort")]),
        ({"all_pass_fraction": 0.5}, [("zero_variance_fraction", "warn")]),
        ({"staleness_max": 1}, [("staleness", "abort")]),
        ({"staleness_dropped": 0.06}, [("staleness", "warn")]),
        ({"error_rate": 0.05}, [("error_rate", "warn")]),
    ],
)
def test_each_threshold(values, expected):
    assert alarms(values, flags=("--watch.on_critical", "abort")) == expected


def test_an_alarm_is_raised_once_while_it_lasts_and_again_when_it_returns():
    watcher, values = Watcher(factory.config()), [0.4, 0.3, 0.9, 0.2]
    seen = [bool(watcher.observe(i, {**QUIET, "ess": e})) for i, e in enumerate(values)]
    assert seen == [True, False, False, True]


def test_the_logp_gap_is_judged_against_its_own_start():
    assert alarms({"logp_gap": 4e-6}, before=60) == []
    assert alarms({"logp_gap": 8e-6}, before=60) == [("logp_gap", "warn")]


def test_a_collapsing_entropy_is_announced_before_five_percent_of_its_start():
    watcher, entropy, at = Watcher(factory.config()), 2.0, None
    for step in range(100):
        if any(a.signal == "entropy" for a in watcher.observe(step, {**QUIET, "entropy": entropy})):
            at = entropy
            break
        entropy *= 0.9
    assert at is not None
    assert at > 0.05 * 2.0


def test_entropy_that_climbs_again_is_announced():
    assert alarms({"entropy": 2.0}, steps=10, before=30) == [("entropy", "warn")]


def test_a_gradient_norm_that_grows_is_announced():
    assert alarms({"grad_norm": 20.0}, steps=3, before=30) == [("grad_norm", "warn")]


def test_interruptions_that_rise_in_vain_are_announced():
    watcher, seen = Watcher(factory.config()), []
    for i, rate in enumerate([0.1, 0.2, 0.3, 0.4, 0.5]):
        watcher.ewma["interruption_rate"] = rate
        seen.append(bool(watcher.observe_eval(i, 0.5)))
    assert seen == [False] * 4 + [True]


def test_a_resumed_watcher_goes_on_as_the_first_would():
    whole, first = Watcher(factory.config()), Watcher(factory.config())
    values = [{**QUIET, "truncation_rate": 0.012 * i} for i in range(20)]
    expected = [whole.observe(i, v) for i, v in enumerate(values)]
    got = [first.observe(i, v) for i, v in enumerate(values[:8])]
    second = Watcher(factory.config())
    second.load_state_dict(first.state_dict())
    assert got + [second.observe(i + 8, v) for i, v in enumerate(values[8:])] == expected


def test_the_token_signals_by_hand():
    cfg = factory.config("--loss.is_cap", "2")
    batch = factory.batch(cfg, factory.groups(((2,), (1,)), ((1,), (0,))))
    batch.advantages = torch.tensor([1.0, -1.0])
    batch.logprobs = torch.tensor([[-1.0, -1.0], [-1.0, 0.0]])
    pi = torch.log(torch.tensor([[1.0, 5.0], [1.0, 1.0]])) + batch.logprobs  # ρ = 1, 5, 1
    tally = Tally()
    tally.add_tokens(batch, pi, pi, torch.full((2, 2), 0.7), 0, cfg)
    s = tally.signals()
    assert s["ess"] == pytest.approx(49 / (3 * 27))
    assert s["is_ratio_max"] == pytest.approx(5.0)
    assert s["capped_fraction"] == pytest.approx(1 / 3)
    assert (s["capped_positive"], s["capped_negative"]) == (0.5, 0.0)
    assert s["entropy"] == pytest.approx(0.7)
    assert s["logp_gap"] == pytest.approx(math.log(5) / 3, abs=1e-6)
    assert s["logp_gap_max"] == pytest.approx(math.log(5), abs=1e-6)
    assert s["token_mult_prob_error"] == pytest.approx((1 + 5 + 1) / 3, abs=1e-5)
    assert s["mismatch_kl"] == pytest.approx((5 - 1 - math.log(5)) / 3, abs=1e-5)


def test_ratios_beyond_the_bound_are_finite_and_counted():
    cfg = factory.config()
    batch = factory.batch(cfg, factory.groups(((1,), (1,)), ((1,), (0,))))
    tally = Tally()
    pi = batch.logprobs + torch.tensor([[100.0], [0.0]])
    tally.add_tokens(batch, pi, pi, torch.zeros(2, 1), 0, cfg)
    s = tally.signals()
    assert s["log_ratio_bounded"] == 0.5
    assert all(math.isfinite(v) for v in s.values() if v is not None)


def test_the_gap_counts_only_rollouts_drawn_wholly_by_the_version_compared():
    cfg = factory.config()
    groups = factory.groups(((2,), (2,)), ((1,), (0,)))
    groups[0].rollouts[0].versions = [(3, 0, 1), (4, 1, 2)]
    groups[1].rollouts[0].versions = [(4, 0, 2)]
    batch = factory.batch(cfg, groups)
    tally = Tally()
    tally.add_tokens(batch, batch.logprobs, batch.logprobs, torch.zeros(2, 2), 4, cfg)
    assert tally.sums["logp_gap"][1] == 2
    assert tally.sums["entropy"][1] == 4


def test_the_rollout_signals_by_hand():
    groups = factory.groups(((2, 2), (2, 2), (2, 2)), ((1, 1), (0, 0), (1, 0)))
    groups[0].rollouts[0].finish_reason = "length"
    groups[0].rollouts[1].interrupted = True
    groups[2].rollouts[1].reward = None
    groups[2].rollouts[1].reward_error = "timeout"
    groups[1].rollouts[0].versions = [(3, 0, 1), (5, 1, 2)]
    tally = Tally()
    for group in groups:
        for r in group.rollouts:
            r.versions = r.versions if r.versions[0][0] else [(5, 0, 2)]
    tally.add_groups(groups, 5, 1e-6)
    s = tally.signals()
    assert s["truncation_rate"] == pytest.approx(1 / 6)
    assert s["interruption_rate"] == pytest.approx(1 / 6)
    assert s["error_rate"] == pytest.approx(1 / 6)
    assert s["reward"] == pytest.approx(3 / 5)  # before any filter, errors left out
    assert (s["staleness"], s["staleness_max"]) == (pytest.approx(2 / 6), 2)
    assert s["all_pass_fraction"] == pytest.approx(2 / 3)
    assert s["all_fail_fraction"] == pytest.approx(1 / 3)


def test_twelve_signals():
    assert len(set(SIGNALS)) == 12
