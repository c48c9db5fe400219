"""The doubt about misfit: a second rise weighed against correlated noise."""

from pathlib import Path

import numpy as np
import pytest
from doubtful_runs import codes, doubt, hill, noise, run_of, wandering

import curvefit
from curvefit.fit import fit
from curvefit.second_rise import MOST_POINTS, second_rise

DATA = Path(__file__).parents[2] / "data"
C = np.linspace(0.0, 20_000.0, 41)


def double(height, C=C, B=4.0):
    """A first rise to 0.5 at C_mid 1,500, and a second one of `height` at 10,000."""
    return hill(C, A=0.5, B=2.0, C_mid=1500.0) + hill(C, A=height, B=B, C_mid=10_000.0, R0=0.0)


def test_a_second_rise_is_named_with_its_place_and_size():
    found = second_rise(fit(run_of(C, double(0.12) + noise(41))))
    assert found.midpoint == pytest.approx(10_000.0, rel=0.25)
    assert found.size == pytest.approx(0.12, abs=0.03)
    assert found.nats > 4.0
    said = doubt(run_of(C, double(0.12) + noise(41)), "misfit")
    assert "a second rise near" in said.message
    assert "--scan" in said.remedy


def test_the_evaluation_size_may_be_known_or_not():
    y = np.random.default_rng(1).binomial(8000, double(0.12)) / 8000
    known, hidden = (second_rise(fit(run_of(C, y, n=n))) for n in (8000, None))
    assert min(known.nats, hidden.nats) > 4.0


def test_drift_in_real_runs_is_not_taken_for_noise():
    """Two runs of OctoThinker miss their sigmoid at steps 10 to 100, far beyond their noise."""
    first, *others = curvefit.load(DATA / "octothinker_math500.csv")
    assert len(first) == 50
    for run in others:
        assert "a second rise near" in doubt(run, "misfit").message


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.9])
def test_correlated_noise_about_the_law_is_no_second_rise(rho):
    """5 of 20 would be five times the rate that the docs state."""
    runs = [
        run_of(C, hill(C) + wandering(41, rho, 0.005, s) + noise(41, 0.003, s)) for s in range(20)
    ]
    assert sum(second_rise(fit(run)).nats > 4.0 for run in runs) < 5


def test_a_fall_is_no_second_rise():
    """Only rises count: the dip here is as large as the rise above, and downwards."""
    y = hill(C, A=0.6, B=2.0, C_mid=1500.0) - hill(C, A=0.05, B=8.0, C_mid=10_000.0, R0=0.0)
    assert second_rise(fit(run_of(C, y + noise(41)))).size > 0.0


def test_long_runs_are_thinned():
    C = np.linspace(0.0, 20_000.0, 3 * MOST_POINTS)
    found = second_rise(fit(run_of(C, double(0.12, C) + noise(len(C)))))
    assert found.midpoint == pytest.approx(10_000.0, rel=0.25)


def test_without_a_posterior_signs_of_residuals_alone_speak():
    run = run_of(C, double(0.15, B=8.0) + noise(41))
    assert "keep their sign" in doubt(run, "misfit", method="least-squares").message


def test_few_points_and_exact_curves_raise_none():
    assert "misfit" not in codes(run_of(C, hill(C)))
    assert "misfit" not in codes(run_of(C[::3], double(0.15)[::3]))
