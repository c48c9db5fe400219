"""Many fits at once agree with fits one by one, and the bootstrap with its definition."""

import numpy as np
import pytest

from curvefit.batch import bootstrap, least_squares_many
from curvefit.errors import InputError
from curvefit.estimate import least_squares
from curvefit.laws import LAWS, curve
from curvefit.marginal import Bounds

RATES = Bounds(0.0, 1.0)


def random_rows(C, count, seed=0, sd=0.005):
    rng = np.random.default_rng(seed)
    A, B = rng.uniform(0.52, 0.71, count), rng.uniform(0.8, 3.0, count)
    C_mid, R0 = (
        np.exp(rng.uniform(np.log(500), np.log(8000), count)),
        rng.uniform(0.15, 0.35, count),
    )
    curves = [curve(C, *p) for p in zip(A, B, C_mid, R0, strict=True)]
    return np.array(curves) + rng.normal(0.0, sd, (count, len(C)))


def assert_same_fits(many, C, Y, **options):
    for i, y in enumerate(Y):
        alone = least_squares(C, y, **options)
        assert many.rss[i] == pytest.approx(alone.rss, rel=1e-4), i
        at = np.append(C, [2.0 * C[-1], 10.0 * C[-1]])
        assert many[i](at) == pytest.approx(alone(at), abs=2e-4), i


@pytest.mark.parametrize("last", [3_000.0, 16_000.0])
def test_rows_are_fitted_as_if_alone(last):
    """Up to 3,000 many rows end with A at 1; up to 16,000 nearly all are well identified."""
    C = np.linspace(0.0, last, 60)
    Y = random_rows(C, 150)
    many = least_squares_many(C, Y, bounds=RATES)
    alone = [least_squares(C, y, bounds=RATES).rss for y in Y]
    assert many.rss == pytest.approx(alone, rel=2e-4)
    assert (many.A <= 1.0).all()
    assert (many.R0 >= 0.0).all()


def test_identified_rows_agree_in_every_parameter():
    C = np.linspace(0.0, 40_000.0, 60)
    Y = random_rows(C, 100)
    many = least_squares_many(C, Y, bounds=RATES)
    for i, y in enumerate(Y):
        alone = least_squares(C, y, bounds=RATES)
        assert many[i][1:6] == pytest.approx(alone[1:6], rel=2e-3), i


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("r0", [None, 0.25])
def test_every_law_with_weights(law, r0):
    C = np.linspace(0.0, 20_000.0, 25)
    Y = random_rows(C, 20, seed=2)
    options = {
        "law": law,
        "weights": np.random.default_rng(1).uniform(0.5, 2.0, 25),
        "r0": r0,
        "bounds": RATES,
    }
    assert_same_fits(least_squares_many(C, Y, **options), C, Y, **options)


def test_more_rows_than_a_block():
    C = np.linspace(0.0, 16_000.0, 20)
    Y = np.repeat(random_rows(C, 3), 700, axis=0)
    many = least_squares_many(C, Y, bounds=RATES)
    assert len(many) == 2100
    for i in range(3):
        assert np.ptp(many.A[700 * i : 700 * (i + 1)]) < 1e-6


def test_noiseless_rows_come_back():
    C = np.linspace(0.0, 16_000.0, 30)
    A = np.linspace(0.5, 0.7, 8)
    Y = np.array([curve(C, a, 1.92, 2542.0, 0.3) for a in A])
    many = least_squares_many(C, Y, bounds=RATES)
    assert pytest.approx(A, abs=1e-5) == many.A
    assert many.C_mid == pytest.approx(np.full(8, 2542.0), rel=1e-4)


def test_no_rows_give_no_fits():
    assert len(least_squares_many([0.0, 1.0, 2.0], np.empty((0, 3)))) == 0


@pytest.mark.parametrize("Y", [np.zeros(4), np.zeros((2, 3)), np.zeros((1, 2, 4))])
def test_scores_that_do_not_fit_the_axis_are_refused(Y):
    with pytest.raises(InputError, match="do not fit 4 computes"):
        least_squares_many([0.0, 1.0, 2.0, 3.0], Y)


def test_one_compute_is_refused():
    with pytest.raises(InputError, match="nothing to fit"):
        least_squares_many([1.0, 1.0, 1.0], np.zeros((1, 3)))


@pytest.mark.parametrize("ratio", [1.0, 2.0, 8.0])
def test_bootstrap_refits_are_within_a_thousandth_of_their_spread(ratio):
    C = np.linspace(0.0, 2542.0 * ratio, 60)
    y = curve(C, 0.61, 1.92, 2542.0, 0.30) + np.random.default_rng(0).normal(0.0, 0.005, 60)
    count, seed = 200, 7
    fits = bootstrap(C, y, count=count, seed=seed, bounds=RATES)
    middle = least_squares(C, y, bounds=RATES)(C)
    index = np.random.default_rng(seed).integers(0, 60, (count, 60), dtype=np.uint16)
    alone = [least_squares(C, middle + (y - middle)[i], bounds=RATES) for i in index]
    for name in ("A", "B", "C_mid", "R0"):
        expected = np.array([getattr(fit, name) for fit in alone])
        assert np.abs(getattr(fits, name) - expected).max() < 1e-3 * expected.std(), name


def test_bootstrap_spread_is_the_standard_error():
    """Far beyond the midpoint the fit is nearly linear, so the delta method holds."""
    C = np.linspace(0.0, 25_000.0, 100)
    y = curve(C, 0.61, 1.92, 2542.0, 0.30) + np.random.default_rng(3).normal(0.0, 0.004, 100)
    fit = least_squares(C, y)
    theta, h = np.array(fit[1:5]), 1e-5
    J = np.array(
        [
            (curve(C, *(theta * (1 + h * e))) - curve(C, *(theta * (1 - h * e)))) / (2 * h)
            for e in np.eye(4)
        ]
    ).T
    resampled = np.var(y - fit(C))
    expected = np.sqrt(np.diag(np.linalg.inv(J.T @ J)) * resampled) * theta
    fits = bootstrap(C, y, count=4000)
    found = [fits.A.std(), fits.B.std(), fits.C_mid.std(), fits.R0.std()]
    assert found == pytest.approx(expected, rel=0.06)


def test_bootstrap_is_reproducible():
    C = np.linspace(0.0, 8_000.0, 20)
    y = random_rows(C, 1)[0]
    first, again, other = (bootstrap(C, y, count=50, seed=s) for s in (1, 1, 2))
    assert first.A.tolist() == again.A.tolist()
    assert first.A.tolist() != other.A.tolist()
