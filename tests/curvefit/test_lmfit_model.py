"""The lmfit models: names, bounds, guesses, and what lmfit makes of them."""

import math

import lmfit
import numpy as np
import pytest

from curvefit.errors import InputError
from curvefit.laws import LAWS, curve
from curvefit.lmfit_model import LawModel, SigmoidModel, law_model
from curvefit.marginal import Bounds

C = np.linspace(0.0, 12_000.0, 25)
SCORE = curve(C, 0.61, 1.92, 2542.0, 0.30) + np.random.default_rng(1).normal(0.0, 0.004, 25)


def fitted(model=None, score=SCORE):
    model = model or SigmoidModel()
    return model.fit(score, model.guess(score, C=C), C=C)


def test_parameters_have_the_names_and_bounds_of_the_law():
    params = SigmoidModel().make_params(A=0.6, B=1.5, C_mid=2000.0, R0=0.3)
    assert list(params) == ["A", "B", "C_mid", "R0"]
    assert [(p.min, p.max) for p in params.values()] == [
        (0.0, 1.0),
        (0.25, 8.0),
        (0.0, math.inf),
        (0.0, 1.0),
    ]


def test_guess_is_so_good_that_the_fit_hardly_moves():
    model = SigmoidModel()
    guess, result = model.guess(SCORE, C=C), fitted(model)
    for name, parameter in result.params.items():
        assert abs(parameter.value - guess[name].value) < 0.01 * parameter.stderr, name
    assert result.nfev < 20


def test_guess_stays_inside_bounds_where_lmfit_can_move_it():
    line = 0.2 + 0.4 * C / C[-1]
    params = SigmoidModel().guess(line, C=C)
    assert params["A"].value == pytest.approx(0.999)


def test_guess_uses_weights_as_fit_does():
    weights = np.where(C > 6000.0, 1e-3, 1.0)
    spoilt = np.where(C > 6000.0, 0.0, SCORE)
    params = SigmoidModel().guess(spoilt, C=C, weights=weights)
    assert params["R0"].value == pytest.approx(0.30, abs=0.02)


def test_conf_interval_brackets_the_fit_for_all_parameters():
    for rows in fitted().conf_interval(sigmas=[1, 2]).values():
        values = [value for _, value in rows]
        assert len(values) == 5
        assert values == sorted(values)


def test_band_of_eval_uncertainty_grows_with_distance():
    near, far = fitted().eval_uncertainty(C=np.array([6_000.0, 1e6]))
    assert 0.0 < near < far < 0.01


def test_shared_asymptote_between_two_runs():
    """Two prefixed models, one A: lmfit's way of sharing a parameter."""
    first, second = SigmoidModel(prefix="a_"), SigmoidModel(prefix="b_")
    other = curve(C, 0.61, 1.5, 4000.0, 0.30)
    params = first.guess(SCORE, C=C)
    params.update(second.guess(other, C=C))
    params["b_A"].set(expr="a_A")

    def residual(p):
        return np.concatenate([first.eval(p, C=C) - SCORE, second.eval(p, C=C) - other])

    result = lmfit.minimize(residual, params)
    assert result.nvarys == 7
    assert result.params["a_A"].value == result.params["b_A"].value
    assert result.params["a_A"].value == pytest.approx(0.61, abs=0.005)


@pytest.mark.parametrize("law", LAWS)
def test_every_law_recovers_its_own_curve(law):
    B = 1.0 if law == "exponential" else 1.6
    result = fitted(law_model(law), curve(C, 0.61, B, 2542.0, 0.30, law=law))
    found = [result.params[name].value for name in ("A", "B", "C_mid", "R0")]
    assert found == pytest.approx([0.61, B, 2542.0, 0.30], rel=1e-5)
    assert result.params["B"].vary == LAWS[law].free_B


def test_rewards_on_another_scale():
    model = SigmoidModel(bounds=Bounds(-math.inf, math.inf))
    result = fitted(model, 100.0 * SCORE - 200.0)
    assert result.params["A"].value == pytest.approx(-139.0, abs=1.0)


def test_override_of_a_guess():
    params = SigmoidModel().guess(SCORE, C=C, A=0.7)
    assert params["A"].value == 0.7


def test_unknown_law_is_refused():
    with pytest.raises(InputError, match="'hill' is unknown"):
        LawModel("hill")
