"""The three estimators and the posterior tell the same story where the data tell one."""

import numpy as np
import pytest

from curvefit.estimate import least_squares
from curvefit.fit import fit
from curvefit.laws import curve
from curvefit.lmfit_model import SigmoidModel
from curvefit.marginal import Bounds
from curvefit.runs import Run
from curvefit.scalerl_grid import scalerl_grid

RATES = Bounds(0.0, 1.0)


def simulate(seed, last=16_000.0, n=60, sd=0.004):
    C = np.linspace(0.0, last, n)
    noise = np.random.default_rng(seed).normal(0.0, sd, n)
    return C, curve(C, 0.61, 1.92, 2542.0, 0.30) + noise


@pytest.mark.parametrize("seed", range(5))
def test_least_squares_and_lmfit_find_the_same_optimum(seed):
    C, y = simulate(seed)
    ours = least_squares(C, y, bounds=RATES)
    model = SigmoidModel()
    start = model.make_params(A=0.7, B=1.2, C_mid=4000.0, R0=0.25)
    theirs = model.fit(y, start, C=C, fit_kws={"xtol": 1e-12, "ftol": 1e-12})
    assert ours.rss <= theirs.chisqr * (1.0 + 1e-8)
    for name in ("A", "B", "C_mid", "R0"):
        parameter = theirs.params[name]
        assert abs(getattr(ours, name) - parameter.value) < 1e-3 * parameter.stderr, name


@pytest.mark.parametrize("seed", range(5))
def test_the_published_grid_is_as_near_as_its_resolution_allows(seed):
    """Same points, same R0: the grid's winner costs at most the best nearby node's excess."""
    C, y = simulate(seed)
    later = C > 1500.0
    exact = least_squares(C[later], y[later], r0=0.30, bounds=RATES)
    grid = scalerl_grid(C, y, r0=0.30, C_mid="small")
    assert grid.A == pytest.approx(exact.A, abs=0.0075)
    assert grid.C_mid == pytest.approx(exact.C_mid, abs=3 * 39.4)
    assert exact.rss <= grid.rss * (1.0 + 1e-9)
    assert grid.rss <= exact.rss * 1.05


def test_on_noiseless_data_all_three_give_the_truth():
    C, y = simulate(0, sd=0.0)
    ours = least_squares(C, y, bounds=RATES)
    model = SigmoidModel()
    theirs = model.fit(y, model.guess(y, C=C), C=C).params
    grid = scalerl_grid(C, y, r0=0.30, C_mid="small")
    truth = (0.61, 1.92, 2542.0, 0.30)
    assert ours[1:5] == pytest.approx(truth, rel=1e-6)
    assert [theirs[k].value for k in ("A", "B", "C_mid", "R0")] == pytest.approx(truth, rel=1e-5)
    assert (grid.A, grid.B, grid.C_mid) == pytest.approx(truth[:3], rel=0.01)


def test_fit_hands_over_to_each_method():
    C, y = simulate(1)
    run = Run("a", C, y, None, np.arange(1, 61))
    assert fit(run, method="least-squares").point == least_squares(C, y, bounds=RATES)
    assert fit(run, method="scalerl-grid", r0=0.3).point == scalerl_grid(C, y, r0=0.3)


def test_posterior_median_is_near_the_least_squares_fit_of_an_identified_run():
    C, y = simulate(2)
    run = Run("a", C, y, None, np.arange(1, 61))
    posterior, point = fit(run, law="sigmoid"), least_squares(C, y, bounds=RATES)
    for name, estimate in posterior.params.items():
        width = estimate.high - estimate.low
        assert abs(estimate.value - getattr(point, name)) < 0.25 * width, name
