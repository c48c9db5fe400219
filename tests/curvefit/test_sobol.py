"""The low-discrepancy sequence against scipy's."""

import numpy as np
from scipy.stats import qmc

from curvefit.sobol import BITS, POLYNOMIALS, hammersley, sobol


def test_points_are_those_of_scipy():
    expected = qmc.Sobol(len(POLYNOMIALS), scramble=False, bits=BITS).random_base2(7)
    assert np.array_equal(sobol(128, len(POLYNOMIALS)).T / 2**BITS, expected)


def test_hammersley_points_are_strictly_inside_and_even_in_every_dimension():
    cube = hammersley(1024)
    assert cube.shape == (len(POLYNOMIALS), 1024)
    assert cube.min() > 0.0
    assert cube.max() < 1.0
    for values in cube:
        counts = np.histogram(values, 16, (0.0, 1.0))[0]
        assert counts.tolist() == [64] * 16
