"""Point fits: exact recovery, the global optimum against scipy, bounds, weights, input errors."""

import numpy as np
import pytest
from scipy.optimize import least_squares as scipy_least_squares

from curvefit.errors import InputError
from curvefit.estimate import least_squares
from curvefit.laws import LAWS, curve
from curvefit.marginal import Bounds

RATES = Bounds(0.0, 1.0)
C = np.linspace(0.0, 12_000.0, 60)


def simulate(seed, n=60, sd=0.005):
    """A random run that ends at 0.5 to 8 times C_mid."""
    rng = np.random.default_rng(seed)
    A, B = rng.uniform(0.52, 0.71), rng.uniform(0.8, 3.0)
    C_mid, R0 = np.exp(rng.uniform(np.log(500), np.log(8000))), rng.uniform(0.15, 0.35)
    compute = np.linspace(0.0, rng.choice([0.5, 1, 2, 4, 8]) * C_mid, n)
    return compute, curve(compute, A, B, C_mid, R0) + rng.normal(0.0, sd, n)


def scipy_best(C, y, law="sigmoid", weights=None, bounds=RATES):
    """The lowest RSS that a bounded trust-region search finds from 24 starts."""
    first, last = np.log(C[C > 0][[0, -1]])
    low, high = LAWS[law].B_range
    lower = [first - 2.0, np.log(low) - 1e-9, bounds.low, bounds.low]
    upper = [last + 9.0, np.log(high) + 1e-9, np.inf, bounds.high]
    root = np.ones(len(C)) if weights is None else np.sqrt(weights)

    def residual(p):
        return root * (y - curve(C, p[3], np.exp(p[1]), np.exp(p[0]), p[2], law=law))

    starts = [
        (u, b, 0.25, 0.6)
        for u in np.linspace(first, last + 6.0, 6)
        for b in np.clip(np.linspace(lower[1], upper[1], 4), lower[1] + 5e-10, upper[1] - 5e-10)
    ]
    strict = {"xtol": 1e-13, "ftol": 1e-13, "gtol": 1e-13, "max_nfev": 400}
    fits = [
        scipy_least_squares(residual, s, bounds=(lower, upper), x_scale=[1, 1, 0.1, 0.1], **strict)
        for s in starts
    ]
    return 2.0 * min(f.cost for f in fits)


@pytest.mark.parametrize("law", LAWS)
def test_noiseless_curves_come_back(law):
    B = 1.0 if law == "exponential" else 1.92
    fit = least_squares(C, curve(C, 0.61, B, 2542.0, 0.30, law=law), law=law)
    assert fit[1:5] == pytest.approx((0.61, B, 2542.0, 0.30), rel=1e-6)
    assert fit.edges == ()


@pytest.mark.parametrize(
    ("A", "B", "C_mid"),
    [
        (0.610, 1.92, 2542),
        (0.645, 1.89, 11272),
        (0.585, 2.44, 2542),
        (0.590, 2.22, 3054),
        (0.595, 2.07, 2936),
        (0.710, 1.65, 4242),
        (0.605, 1.77, 2818),
        (0.645, 1.70, 10909),
        (0.595, 2.05, 2896),
        (0.615, 1.09, 1675),
    ],
)
def test_published_curves_come_back(A, B, C_mid):
    """Table 1 of arXiv 2510.13786, without noise, seen up to twice the midpoint."""
    compute = np.linspace(0.0, 2.0 * C_mid, 40)
    fit = least_squares(compute, curve(compute, A, B, C_mid, 0.35), bounds=RATES)
    assert fit[1:5] == pytest.approx((A, B, C_mid, 0.35), rel=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_no_start_of_scipy_finds_a_better_fit(seed):
    compute, y = simulate(seed)
    assert least_squares(compute, y, bounds=RATES).rss <= scipy_best(compute, y) * (1 + 1e-7)


@pytest.mark.parametrize("law", LAWS)
def test_no_start_of_scipy_finds_a_better_weighted_fit(law):
    compute, y = simulate(3, n=25)
    weights = np.random.default_rng(4).uniform(0.3, 3.0, 25)
    fit = least_squares(compute, y, law=law, weights=weights, bounds=RATES)
    assert fit.rss <= scipy_best(compute, y, law, weights) * (1 + 1e-6)


def test_no_node_of_a_fine_grid_is_better():
    """300 random runs against 96 × 48 shapes each, R0 and A solved for within their bounds."""
    for seed in range(300):
        compute, y = simulate(seed)
        fit = least_squares(compute, y, bounds=RATES)
        assert fit.rss <= _grid_best(compute, y) * (1 + 1e-9), seed


def _grid_best(compute, y):
    first, last = np.log(compute[compute > 0][[0, -1]])
    u, b = np.linspace(first - 2, last + 9, 96), np.linspace(np.log(0.25), np.log(8.0), 48)
    x = np.log(np.maximum(compute, 1e-300))
    s = LAWS["sigmoid"].s(x - u[:, None, None], np.exp(b)[:, None]).reshape(-1, len(y))
    s_mean = s.mean(axis=1, keepdims=True)
    rise = ((s - s_mean) @ (y - y.mean())) / np.maximum(((s - s_mean) ** 2).sum(axis=1), 1e-300)
    R0 = y.mean() - rise * s_mean[:, 0]
    inside = (R0 >= 0.0) & (R0 + rise <= 1.0)
    at_1 = ((1 - s) * (y - s)).sum(axis=1) / np.maximum(((1 - s) ** 2).sum(axis=1), 1e-300)
    rows = np.where(inside, R0, np.maximum(at_1, 0.0))
    tops = np.where(inside, R0 + rise, 1.0)
    return ((y - rows[:, None] - (tops - rows)[:, None] * s) ** 2).sum(axis=1).min()


def test_asymptote_is_held_at_its_bound():
    compute = np.linspace(0.0, 1000.0, 30)
    y = 0.2 + 0.4 * compute / 1000.0  # a straight line: any A can be had with a large enough C_mid
    fit = least_squares(compute, y, bounds=Bounds(0.0, 0.8))
    assert fit.A == 0.8
    assert "A" in fit.edges
    assert fit.rss <= scipy_best(compute, y, bounds=Bounds(0.0, 0.8)) * (1 + 1e-6)


def test_level_at_zero_compute_is_held_at_its_bound():
    compute = np.linspace(1.0, 5000.0, 30)
    y = curve(compute, 0.6, 1.0, 800.0, -0.1)
    fit = least_squares(compute, y, bounds=RATES)
    assert fit.R0 == 0.0
    assert "R0" in fit.edges
    assert fit.rss <= scipy_best(compute, y) * (1 + 1e-6)


def test_fixed_r0_is_kept_and_the_rest_fits_best():
    y = curve(C, 0.61, 1.92, 2542.0, 0.30)
    right, wrong = (least_squares(C, y, r0=r0, bounds=RATES) for r0 in (0.30, 0.32))
    assert (right.R0, wrong.R0) == (0.30, 0.32)
    assert right[1:4] == pytest.approx((0.61, 1.92, 2542.0), rel=1e-6)
    assert wrong.rss > right.rss


def test_weights_count_like_repeated_points():
    compute, y = simulate(5, n=12)
    weights = np.tile([1.0, 2.0, 3.0], 4)
    repeat = weights.astype(int)
    once = least_squares(compute, y, weights=weights, bounds=RATES)
    many = least_squares(np.repeat(compute, repeat), np.repeat(y, repeat), bounds=RATES)
    assert once[1:6] == pytest.approx(many[1:6], rel=1e-4)


def test_units_of_compute_and_order_of_points_do_not_matter():
    compute, y = simulate(7)
    fit = least_squares(compute, y, bounds=RATES)
    order = np.random.default_rng(0).permutation(len(y))
    other = least_squares(compute[order] * 1e21, y[order], bounds=RATES)
    assert other.C_mid / 1e21 == pytest.approx(fit.C_mid, rel=1e-4)
    assert (other.A, other.B, other.R0) == pytest.approx((fit.A, fit.B, fit.R0), rel=1e-4)


def test_rewards_on_another_scale():
    y = -500.0 + 1000.0 * (curve(C, 0.61, 1.92, 2542.0, 0.30) - 0.30)
    fit = least_squares(C, y)
    assert (fit.A, fit.R0) == pytest.approx((-190.0, -500.0), rel=1e-6)


def test_a_flat_run_is_its_own_mean():
    fit = least_squares(C, np.full(60, 0.4), bounds=RATES)
    assert (fit.A, fit.R0, fit.rss) == pytest.approx((0.4, 0.4, 0.0), abs=1e-12)


def test_residual_sum_is_that_of_the_curve():
    compute, y = simulate(11)
    fit = least_squares(compute, y, bounds=RATES)
    assert fit.rss == pytest.approx(((y - fit(compute)) ** 2).sum(), rel=1e-6)


def test_reach_undoes_the_curve():
    fit = least_squares(C, curve(C, 0.61, 1.92, 2542.0, 0.30))
    assert fit.reach(0.455) == pytest.approx(2542.0, rel=1e-5)  # half of the gain
    assert fit.reach(0.29) == 0.0
    assert fit.reach(0.62) == float("inf")


@pytest.mark.parametrize("compute", [[0.0, 1.0], [5.0, 5.0, 5.0, 5.0], []])
def test_too_little_to_fit_is_refused(compute):
    with pytest.raises(InputError, match="nothing to fit"):
        least_squares(compute, np.zeros(len(compute)))
