"""Backtests: the target, coverage, persistence, the sentence, and what is refused."""

import json

import numpy as np
import pytest

import curvefit
from curvefit.backtest import backtest
from curvefit.errors import InputError
from curvefit.predictive import crps, mean_observed

C = np.linspace(0.0, 4000.0, 41)


def a_run(seed=0, n=41, name="a", sd=0.004):
    rng = np.random.default_rng(seed)
    y = curvefit.curve(C[:n], A=0.6, B=1.5, C_mid=600, R0=0.2) + sd * rng.standard_normal(n)
    return curvefit.load({"step": C[:n], "pass_rate": y, "run": [name] * n}, run="run")[0]


def test_the_target_is_the_mean_of_what_lies_beyond_nine_tenths():
    run = a_run()
    result = backtest(run, [0.5])
    (origin,) = result.origins
    assert origin.reached == pytest.approx(run.score[37:].mean())  # 3700, 3800, 3900, 4000
    assert origin.points == 21  # 0 to 2000
    assert origin.persistence == pytest.approx(run.score[18:21].mean())
    assert origin.error == pytest.approx(origin.score - origin.reached)


def test_later_points_do_not_change_what_would_have_been_said():
    run = a_run()
    spoilt = curvefit.load({"step": C, "pass_rate": np.where(C > 2000, 0.9, run.score)})[0]
    said, again = (backtest(r, [0.5]).origins[0] for r in (run, spoilt))
    assert said.score == again.score
    assert said.low == again.low


def test_half_of_a_run_forecasts_its_end_within_its_own_interval():
    result = backtest([a_run(seed, name=f"r{seed}") for seed in range(6)], [0.25, 0.5])
    late = result.pooled[1]
    assert late.runs == 6
    assert late.mae < 0.01 < late.persistence_mae
    assert late.inside >= 5 / 6
    assert late.width_50 < late.width


def test_crps_of_a_normal_forecast_is_the_closed_form():
    z = np.array([0.7])
    sd, mean = 0.02, 0.6
    p = (np.arange(20_000) + 0.5) / 20_000
    from scipy.stats import norm

    expected = sd * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    values = mean + sd * norm.ppf(p)
    assert crps(values, mean + 0.7 * sd) == pytest.approx(float(expected[0]), rel=1e-3)


def test_the_mean_of_many_evaluations_is_surer_than_one():
    fit = curvefit.fit(a_run(sd=0.01), n=None)
    one = np.std(mean_observed(fit, np.array([4100.0])))
    many = np.std(mean_observed(fit, np.linspace(4100.0, 4200.0, 30)))
    (forecast,) = fit.forecast([4100.0])
    assert many < 0.8 * one
    low, high = np.quantile(mean_observed(fit, np.array([4100.0])), [0.05, 0.95])
    assert (low, high) == pytest.approx((forecast.observed_low, forecast.observed_high), abs=2e-4)


def test_short_runs_are_listed_with_the_reason():
    result = backtest([a_run(), a_run(name="short", n=5)], [0.1, 0.5])
    assert [(s.run, s.at) for s in result.skipped] == [("short", 0.1)]
    assert "1 of 5 points remain" in result.skipped[0].why
    assert "short" in str(result)


def test_a_method_without_intervals_leaves_them_unknown():
    result = backtest(a_run(), [0.5], method="least-squares")
    assert np.isnan(result.pooled[0].inside)
    record = result.to_dict()
    assert record["origins"][0]["low"] is None
    assert "it would have said 0.5" in result.sentences[0]


@pytest.mark.parametrize("at", [[0.0], [0.9], [1.5], [float("nan")], []])
def test_an_origin_outside_zero_to_nine_tenths_is_refused(at):
    with pytest.raises(InputError, match=r"below 0\.9"):
        backtest(a_run(), at)


def test_bad_requests_are_refused():
    with pytest.raises(InputError, match="no run to test"):
        backtest([])
    with pytest.raises(InputError, match="law 'cubic'"):
        backtest(a_run(), law="cubic")
    with pytest.raises(InputError, match="level"):
        backtest(a_run(), level=1.0)


def test_the_record_is_strict_json_and_the_faces_agree():
    result = backtest(a_run(), [0.25, 0.5])
    record = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert record["origins"][1]["at"] == 0.5
    assert record["origins"][1]["sentence"] == result.sentences[1]
    assert result.sentences[1] in " ".join(str(result).split())
    assert "<table>" in result._repr_html_()


def test_a_backtest_of_many_runs_is_pooled():
    run = a_run()
    text = str(backtest([run] * 40, [0.4, 0.5]))
    assert "Mean of the last tenth" not in text
    assert "All runs" in text
    short = a_run(n=5)
    assert "and 28 more" in str(backtest([short] * 40, [0.1]))


def test_what_comes_from_a_file_is_escaped():
    assert "<script>" not in backtest(a_run(name="<script>"), [0.5])._repr_html_()
