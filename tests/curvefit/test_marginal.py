"""The marginal likelihood against dense linear algebra and numerical integration."""

import numpy as np
import pytest
from scipy.integrate import dblquad

from curvefit.laws import LAWS, curve
from curvefit.marginal import Bounds, Marginal, log_compute, shape_box
from curvefit.noise import evaluation_distance, noise_grid

RATES = Bounds(0.0, 1.0)


def example(n=12, n_eval=None, seed=0, **options):
    """A run, its Marginal, and the dense covariance of each noise model."""
    C = np.linspace(0.0, 6000.0, n)
    y = curve(C, 0.61, 1.92, 2542.0, 0.30) + np.random.default_rng(seed).normal(0.0, 0.005, n)
    noise = noise_grid(y, None if n_eval is None else np.full(n, n_eval))
    distance = evaluation_distance(C)
    marginal = Marginal(log_compute(C), y, noise, distance, RATES, resolution=1e-9, **options)
    position = np.append(0.0, np.cumsum(distance))
    lag = np.abs(position[:, None] - position)
    V = [
        np.diag(white) + run * rho**lag
        for white, run, rho in zip(noise.white, noise.run, noise.rho, strict=True)
    ]
    return C, y, marginal, V


def design(C, law, u, b):
    s = LAWS[law].s(log_compute(C) - u, np.exp(np.array(b)))
    return np.stack([1.0 - s, s], axis=1)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n_eval", [None, 3000.0])
def test_moments_are_generalised_least_squares(law, n_eval):
    C, y, marginal, V = example(n_eval=n_eval)
    u, b = np.array([7.5, 8.3]), np.array([0.5, 0.1]) * LAWS[law].free_B
    m = marginal.moments(marginal.coefficients(law, u, b))
    for j in range(len(V)):
        for g in range(2):
            X = design(C, law, u[g], b[g])
            info = X.T @ np.linalg.solve(V[j], X)
            best = np.linalg.solve(info, X.T @ np.linalg.solve(V[j], y))
            residual = y - X @ best
            cov = np.linalg.inv(info)
            found = (m.R0[j, g] + marginal.shift, m.A[j, g] + marginal.shift)
            assert found == pytest.approx(best, rel=1e-7)
            assert m.rss[j, g] == pytest.approx(
                residual @ np.linalg.solve(V[j], residual), rel=1e-6
            )
            assert m.info[j, g] == pytest.approx(np.linalg.det(info), rel=1e-7)
            assert m.i_R0[j, g] == pytest.approx(info[0, 0], rel=1e-7)
            assert (m.var_A[j, g], m.cov[j, g]) == pytest.approx((cov[1, 1], cov[0, 1]), rel=1e-6)
            assert m.var_rise[j, g] == pytest.approx(
                cov[0, 0] + cov[1, 1] - 2 * cov[0, 1], rel=1e-6
            )


@pytest.mark.parametrize("n_eval", [None, 3000.0])
def test_log_m_is_the_integral_over_R0_and_A(n_eval):
    """Ratios between shapes and noise models of ∫∫ |V|^(−1/2) RSS^(−n/2) or exp(−RSS/2)."""
    C, y, marginal, V = example(n_eval=n_eval)
    pairs = [(0, 7.8, 0.6), (5, 7.8, 0.6), (5, 8.2, 0.3)]
    numeric, found = [], []
    for j, u, b in pairs:
        m = marginal.moments(marginal.coefficients("sigmoid", np.array([u]), np.array([b])))
        found.append(marginal.log_const[j] - marginal.noise.log_prior[j] + marginal.log_m(m)[j, 0])
        numeric.append(_log_integral(y, V[j], design(C, "sigmoid", u, b), n_eval is not None))
    assert np.diff(found) == pytest.approx(np.diff(numeric), abs=1e-5)


def _log_integral(y, V, X, scale_known):
    """Ln of the integral over ±14 conditional standard deviations, relative to its peak."""
    inverse = np.linalg.inv(V)
    info = X.T @ inverse @ X
    best = np.linalg.solve(info, X.T @ inverse @ y)
    lowest = (y - X @ best) @ inverse @ (y - X @ best)
    root = np.linalg.inv(np.linalg.cholesky(info)).T
    n = len(y)
    scale = 1.0 if scale_known else np.sqrt(lowest / n)

    def density(a, b):
        rss = lowest + scale**2 * (a * a + b * b)
        return np.exp(-0.5 * (rss - lowest)) if scale_known else (rss / lowest) ** (-n / 2)

    value, _ = dblquad(density, -60, 60, -60, 60, epsabs=1e-10, epsrel=1e-10)
    jacobian = np.log(abs(np.linalg.det(root)) * scale**2)
    peak = -0.5 * lowest if scale_known else -0.5 * n * np.log(lowest)
    return np.log(value) + jacobian + peak - 0.5 * np.linalg.slogdet(V)[1]


def test_moments_at_picks_one_noise_model_a_shape():
    _, _, marginal, _ = example()
    rng = np.random.default_rng(1)
    T = marginal.coefficients("sigmoid", rng.uniform(6, 10, 30), rng.uniform(-1, 2, 30))
    j = np.sort(rng.integers(0, len(marginal.root), 30))
    full, chosen = marginal.moments(T), marginal.moments_at(j, T)
    for a, b in zip(full, chosen, strict=True):
        assert b == pytest.approx(a[j, np.arange(30)], rel=1e-12)


@pytest.mark.parametrize(("law", "B"), [("sigmoid", 1.92), ("weibull", 1.2), ("gompertz", 1.2)])
def test_long_runs_lose_nothing_by_compression(law, B):
    """90 points, fewer columns: A, R0 and RSS at a plausible shape are as in dense algebra."""
    C, y, marginal, V = example(n=90)
    assert marginal.Q.shape[1] < 90
    u, b = np.log(2542.0), np.log(B)
    m = marginal.moments(marginal.coefficients(law, np.array([u]), np.array([b])))
    X = design(C, law, u, b)
    for j in range(len(V)):
        info = X.T @ np.linalg.solve(V[j], X)
        best = np.linalg.solve(info, X.T @ np.linalg.solve(V[j], y))
        residual = y - X @ best
        assert m.A[j, 0] + marginal.shift == pytest.approx(best[1], abs=1e-4)
        assert m.R0[j, 0] + marginal.shift == pytest.approx(best[0], abs=1e-4)
        rss = residual @ np.linalg.solve(V[j], residual)
        assert m.rss[j, 0] == pytest.approx(rss, rel=5e-3)


def test_fixed_r0_is_an_exact_observation():
    _, _, marginal, _ = example(fixed_r0=0.31)
    m = marginal.moments(marginal.coefficients("sigmoid", np.array([7.8]), np.array([0.6])))
    assert m.R0 + marginal.shift == pytest.approx(np.full_like(m.R0, 0.31), abs=1e-6)


def test_log_inside_tells_shapes_within_bounds_from_shapes_beyond():
    _, _, marginal, _ = example()
    u, b = np.array([np.log(2542.0), np.log(1e6)]), np.log([1.92, 1.0])
    m = marginal.moments(marginal.coefficients("sigmoid", u, b))
    inside = marginal.log_inside(m)
    assert m.A[0, 1] > marginal.bounds.high  # a far midpoint asks for an asymptote above 1
    assert inside[:, 0] == pytest.approx(np.zeros(len(inside)), abs=1e-2)
    assert (inside[:, 1] < -3.0).all()


def test_box_reaches_two_e_folds_below_and_nine_above_the_positive_computes():
    x = np.array([-np.inf, 1.0, 4.0])
    assert shape_box(x, "sigmoid") == pytest.approx((-1.0, 13.0, np.log(0.25), np.log(8.0)))
