"""Where growth ends: the hazard against its closed form."""

import numpy as np
import pytest

from curvefit.stall import EXPONENT, LENGTH, stops

LUCK = np.array([0.1, 0.5, 0.9])


def test_a_run_on_its_plateau_stops_after_exponentially_distributed_e_folds():
    ln_c, B = np.full(3, -30.0), np.full(3, 2.0)  # s = 1 up to rounding: local exponent 0
    stop = stops("sigmoid", ln_c, B, end=5.0, luck=LUCK)
    assert stop - 5.0 == pytest.approx(-LENGTH * np.log(1.0 - LUCK), rel=1e-9)


def test_a_run_that_grows_steadily_stops_later_by_the_exponential_of_its_exponent():
    B = 0.8  # far below its midpoint a sigmoid gains as C^B: here up to s = 1e-4
    stop = stops("sigmoid", np.full(3, 28.0), np.full(3, B), end=5.0, luck=LUCK)
    expected = -LENGTH * np.log(1.0 - LUCK) * np.exp(B / EXPONENT)
    within = expected < 12.0
    assert within.tolist() == [True, True, False]
    assert stop[within] - 5.0 == pytest.approx(expected[within], rel=2e-3)
    assert np.isinf(stop[2])


def test_a_steep_rise_does_not_stop():
    stop = stops("sigmoid", np.array([8.0]), np.array([4.0]), end=5.0, luck=LUCK[:1])
    assert stop[0] > 8.0  # not before its midpoint: e = 4, a hazard of e^-10
