"""Doubts about what a fit leaves open: each on an input that shows it and one that does not."""

from __future__ import annotations

import numpy as np
import pytest
from doubtful_runs import DATA, clean, codes, doubt, hill, noise, run_of

from curvefit.diagnose import far_extrapolation
from curvefit.fit import fit
from curvefit.readers import load


@pytest.fixture(scope="module")
def dense():
    return load(DATA / "scalerl_fig1a.csv")["8B dense"]


# ---------------------------------------------------------------- the asymptote


def test_before_the_midpoint_the_asymptote_is_bounded_below_only():
    f = fit(clean(ratio=0.5))
    assert f.verdict.asymptote == "not identified"
    assert {"asymptote-bounded-below", "before-midpoint"} <= {d.code for d in f.doubts}
    low, high = f.interval("A", 0.9)
    assert high > 0.9  # any ceiling up to 1 remains possible
    message = f.doubts[0].message
    assert message.startswith("asymptote bounded below only: A is at least 0.")
    assert f"{low:.3f}" in message


def test_a_short_real_run_has_no_asymptote_yet(dense):
    """Figure 1a up to 10,000 GPU-hours, C_mid being published as 2,542 (B = 1.92, A = 0.645)."""
    f = fit(dense, until=5_000)
    assert f.verdict.asymptote == "not identified"
    assert {d.code for d in f.doubts} & {"asymptote-bounded-below", "asymptote-not-identified"}
    assert fit(dense).verdict.asymptote == "identified"


def test_an_asymptote_bounded_on_both_sides_may_still_be_not_identified():
    """Noise of 0.03 on 16 points up to 3 C_mid leaves A open by 0.1, but bounds it away from 1."""
    C = np.linspace(0.0, 7_500.0, 16)
    f = fit(run_of(C, hill(C, A=0.5, B=2.5) + noise(16, sd=0.03)))
    low, high = f.interval("A", 0.9)
    assert high - low > 0.06
    assert high < 0.9
    assert doubt(f.run, "asymptote-not-identified").message.startswith(
        "asymptote not identified: 90 % interval of A is ["
    )


def test_the_doubt_about_A_does_not_depend_on_the_level_asked_for():
    run = clean(ratio=0.5)
    assert codes(run, level=0.5) == codes(run, level=0.9)
    assert fit(run, level=0.5).verdict == fit(run, level=0.9).verdict


def test_without_a_posterior_nothing_is_claimed_about_A():
    f = fit(clean(), method="least-squares")
    assert f.verdict.asymptote == "not identified"
    assert "--method posterior" in f.verdict.sentence
    assert not any(d.code.startswith("asymptote") for d in f.doubts)


def test_grades_go_from_not_identified_over_weak_to_identified():
    grades = [fit(clean(ratio=r, B=2.0)).verdict.asymptote for r in (0.5, 8.0)]
    assert grades == ["not identified", "identified"]
    C = np.linspace(0.0, 10_000.0, 40)
    f = fit(run_of(C, hill(C, B=2.5) + noise(40, sd=0.015)))
    low, high = f.interval("A", 0.9)
    assert 0.04 < high - low < 0.12
    assert f.verdict.asymptote == "weak"


# ---------------------------------------------------------------- what the fit leaves open


def test_a_least_squares_ceiling_at_1_is_an_edge():
    """An accelerating start, (C/C_mid)^B with C ≪ C_mid, wants any ceiling above it."""
    C = np.linspace(0.0, 1000.0, 20)
    run = run_of(C, 0.2 + 0.3 * (C / 1000.0) ** 1.5)
    assert "A = 1.00" in doubt(run, "grid-edge", method="least-squares").message


def test_a_score_that_has_arrived_at_1_is_no_edge():
    C = np.linspace(0.0, 50_000.0, 60)
    run = run_of(C, np.minimum(hill(C, A=1.0, B=2.5, R0=0.0) + np.abs(noise(60, 0.003)), 1.0))
    assert "grid-edge" not in codes(run, method="least-squares")


def test_a_jump_puts_the_steepness_at_its_edge():
    """A step between two evaluations is steeper than any B that is searched."""
    C = np.arange(1.0, 41.0)
    run = run_of(C, np.where(C > 20, 0.6, 0.3) + noise(40, 0.001))
    assert "B" in doubt(run, "grid-edge").message
    assert "grid-edge" not in codes(clean())


def test_without_step_0_R0_is_extrapolated(dense):
    assert dense.compute[0] > 0
    assert doubt(dense, "no-step-0")
    assert "no-step-0" not in codes(clean())


def test_without_step_0_a_first_point_low_enough_does():
    """The first point at C_mid/100 with B = 2 lies (A − R0)/10,000 above R0."""
    C = np.linspace(25.0, 10_000.0, 60)
    run = run_of(C, hill(C, B=2.0) + noise(60, 0.001))
    for method in ("posterior", "least-squares"):
        assert "no-step-0" not in codes(run, method=method)


def test_R0_and_A_trade_off(dense):
    moe = load(DATA / "scalerl_fig1a.csv")["17Bx16 MoE"]
    message = doubt(moe, "r0-a-tradeoff").message
    assert "correlation -0." in message
    assert "lower by 0.020 goes with an A higher by" in message
    with_start = clean()
    assert "r0-a-tradeoff" not in codes(with_start)


def test_a_fixed_R0_says_what_an_error_in_it_would_do(dense):
    f = fit(dense, r0=0.40)
    message = {d.code: d for d in f.doubts}["r0-fixed"].message
    here = fit(dense, r0=0.40, method="least-squares")
    there = fit(dense, r0=0.38, method="least-squares")
    target = [2.0 * dense.compute[-1]]
    change = float(there(target)[0] - here(target)[0])
    assert float(message.rsplit(" ", 1)[1].replace("−", "-")) == pytest.approx(change, rel=0.06)
    assert "r0-fixed" not in codes(dense)


def test_laws_that_fit_alike_and_end_apart():
    """A power-law tail, 1 − (1 + C/c)^−0.4, that a sigmoid follows and then leaves below."""
    C = np.linspace(0.0, 40_000.0, 60)
    power = 0.3 + 0.6 * (1.0 - (1.0 + C / 4000.0) ** -0.4)
    assert "laws-disagree" in codes(run_of(C, power + noise(60, 0.001)))
    assert "laws-disagree" not in codes(clean(ratio=8.0))


def test_far_extrapolation():
    f = fit(clean())  # up to 10,000
    assert far_extrapolation(f, 200_000.0) is None
    found = far_extrapolation(f, 300_000.0)
    assert found is not None
    assert found.code == "far-extrapolation"
    assert "30 times beyond" in found.message
    assert "200,000" in found.remedy
