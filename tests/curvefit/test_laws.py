"""The laws: hand-calculated values, limits, inverses and derivatives."""

import math

import numpy as np
import pytest

from curvefit.laws import LAWS, curve

E = math.e


@pytest.mark.parametrize(
    ("law", "C", "B", "expected"),
    [
        ("sigmoid", 1.0, 1.7, 1 / 2),  # half at c, whatever B
        ("sigmoid", 3.0, 2.0, 9 / 10),  # 1 / (1 + 1/9)
        ("sigmoid", 1 / 3, 2.0, 1 / 10),
        ("power", 1.0, 2.0, 3 / 4),  # 1 − 2^−2
        ("power", 7.0, 1 / 3, 1 / 2),  # 1 − 8^(−1/3)
        ("exponential", 1.0, 1.0, 1 - 1 / E),
        ("exponential", math.log(4.0), 1.0, 3 / 4),
        ("weibull", 1.0, 2.0, 1 - 1 / E),
        ("weibull", 2.0, 2.0, 1 - E**-4),
        ("gompertz", 1.0, 2.0, 1 / E),
        ("gompertz", 2.0, 1.0, E**-0.5),
    ],
)
def test_values_by_hand(law, C, B, expected):
    assert LAWS[law].s(np.array(math.log(C)), np.array(B)) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_nothing_at_zero_compute_and_everything_at_infinite_compute(law):
    ends = law.s(np.array([-np.inf, np.inf]), np.array(1.0))
    assert ends.tolist() == pytest.approx([0.0, 1.0], abs=1e-15)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
@pytest.mark.parametrize("B", [0.25, 1.0, 8.0])
def test_rises_everywhere_and_stays_between_0_and_1(law, B):
    s = law.s(np.linspace(-200.0, 200.0, 4001), np.array(B))
    assert (np.diff(s) >= 0.0).all()
    assert s.min() >= 0.0
    assert s.max() <= 1.0


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
@pytest.mark.parametrize("B", [0.5, 1.0, 3.0])
def test_inverse_undoes_s(law, B):
    q = np.array([0.01, 0.3, 0.5, 0.9, 0.999])
    assert law.s(law.inverse(q, np.array(B)), np.array(B)) == pytest.approx(q, rel=1e-11)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_gradient_is_the_central_difference(law):
    d, ln_B, h = np.linspace(-4.0, 4.0, 33), (0.0 if not law.free_B else 0.4), 1e-5
    out = np.empty((3, len(d)))
    law.gradient(d, math.exp(ln_B), out)

    def s(shift, ln_B):
        return law.s(d + shift, np.exp(np.array(ln_B)))

    assert out[0] == pytest.approx(s(0.0, ln_B), abs=1e-15)
    assert out[1] == pytest.approx((s(h, ln_B) - s(-h, ln_B)) / (2 * h), abs=1e-9)
    if law.free_B:
        assert out[2] == pytest.approx((s(0.0, ln_B + h) - s(0.0, ln_B - h)) / (2 * h), abs=1e-9)
    else:
        assert (out[2] == 0.0).all()


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_gradient_far_from_the_scale_is_finite(law):
    out = np.empty((3, 2))
    law.gradient(np.array([-1000.0, 300.0]), law.B_range[1], out)
    assert np.isfinite(out).all()
    assert out[0].tolist() == pytest.approx([0.0, 1.0], abs=1e-15)


def test_weibull_with_B_1_is_the_exponential():
    d = np.linspace(-5.0, 3.0, 20)
    one = np.array(1.0)
    assert LAWS["weibull"].s(d, one) == pytest.approx(LAWS["exponential"].s(d, one), rel=1e-15)


def test_curve_of_the_published_100k_run():
    """Table 1 of arXiv 2510.13786, ScaleRL-bs2048, with R0 as in figure 1a; eq. 1 by hand."""
    at_50k = 0.4017 + (0.645 - 0.4017) / (1 + (10909 / 50000) ** 1.70)
    assert curve(50_000, A=0.645, B=1.70, C_mid=10909, R0=0.4017) == pytest.approx(at_50k)
    assert curve(0.0, A=0.645, B=1.70, C_mid=10909, R0=0.4017) == 0.4017


def test_curve_keeps_the_shape_of_compute():
    assert curve(np.ones((2, 3)), A=0.6, B=1.0, C_mid=1.0, R0=0.2).shape == (2, 3)
