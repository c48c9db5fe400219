"""The tabulated normal distribution against scipy's."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from curvefit.normal import log_interval, normal_cdf, normal_quantile

Z = np.linspace(-9.0, 9.0, 20011)


def test_cdf_is_within_its_stated_error():
    assert np.abs(normal_cdf(Z) - ndtr(Z)).max() < 5e-7
    assert (np.abs(normal_cdf(Z) / ndtr(Z) - 1.0)).max() < 2e-4


def test_cdf_beyond_its_table_is_0_or_1():
    assert normal_cdf(np.array([-9.001, -np.inf, 9.001, np.inf])).tolist() == [0.0, 0.0, 1.0, 1.0]


def test_quantile_matches_scipy():
    p = np.concatenate([np.geomspace(1e-15, 0.5, 4000), 1.0 - np.geomspace(1e-6, 0.5, 4000)])
    assert normal_quantile(p) == pytest.approx(ndtri(p), abs=1e-4)


def test_quantile_undoes_the_cdf():
    z = np.linspace(-5.0, 5.0, 1001)
    assert normal_quantile(normal_cdf(z)) == pytest.approx(z, abs=1e-5)


def test_quantile_is_cut_off_at_9():
    assert normal_quantile(np.array([0.0, 1.0])).tolist() == [-9.0, 9.0]


@pytest.mark.parametrize(
    ("z0", "z1"), [(-1.0, 1.0), (0.0, 0.5), (-3.0, -1.0), (1.0, 40.0), (-0.01, 0.01)]
)
def test_log_interval_is_close_to_the_probability(z0, z1):
    expected = np.log(ndtr(z1) - ndtr(z0))
    assert log_interval(np.array(z0), np.array(z1 - z0)) == pytest.approx(expected, abs=0.05)


def test_log_interval_is_finite_and_ordered_in_the_far_tails():
    near = log_interval(np.array(20.0), np.array(1.0))
    far = log_interval(np.array(40.0), np.array(1.0))
    assert np.isfinite([near, far]).all()
    assert far < near < -100.0
