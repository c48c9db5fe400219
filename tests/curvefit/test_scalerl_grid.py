"""The published procedure: its grid, its resolution, its warnings, and curve_fit at every node."""

import csv
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import curve_fit

from curvefit.errors import CurvefitWarning, InputError
from curvefit.laws import curve
from curvefit.scalerl_grid import A_GRID, RANGES, scalerl_grid

TABLE = Path(__file__).parents[2] / "data" / "scalerl_published_fits.csv"


def published():
    with TABLE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [(float(r["A"]), float(r["B"]), float(r["C_mid"])) for r in rows]


def test_grid_is_the_published_one():
    assert len(A_GRID) == 71
    assert A_GRID[[0, 1, -1]].tolist() == [0.45, 0.455, 0.8]
    assert RANGES["printed"] == (100.0, 40_000.0)


@pytest.mark.parametrize(("A", "B", "C_mid"), published())
def test_published_fits_come_back_to_the_resolution_of_the_grid(A, B, C_mid):
    """Noiseless curves of Table 1, 75 evaluations, in the range that holds C_mid."""
    name = "small" if C_mid < 4000 else "large"
    low, high = RANGES[name]
    C = np.linspace(0.0, 50_000.0 if name == "large" else 16_000.0, 75)
    fit = scalerl_grid(C, curve(C, A, B, C_mid, 0.38), r0=0.38, C_mid=name)
    assert fit.A == pytest.approx(A, abs=0.0025)
    assert fit.C_mid == pytest.approx(C_mid, abs=0.5 * (high - low) / 99 * 1.001)
    assert pytest.approx(B, abs=0.05) == fit.B
    assert fit.edges == ()


def _curve_of_B(C, B, *, A, c):
    return curve(C, A, B, c, 0.30)


def test_every_node_of_a_small_grid_is_what_curve_fit_finds():
    """The winner among 12 × 12 nodes around the best, each fitted by scipy as the paper does."""
    rng = np.random.default_rng(0)
    C = np.linspace(1600.0, 16_000.0, 40)
    y = curve(C, 0.61, 1.92, 2542.0, 0.30) + rng.normal(0.0, 0.004, 40)
    found = scalerl_grid(C, y, r0=0.30, C_mid="small")
    low, high = RANGES["small"]
    best = (np.inf, 0.0, 0.0, 0.0)
    for A in A_GRID[np.abs(A_GRID - found.A) < 0.03]:
        for c in np.linspace(low, high, 100):
            if abs(c - found.C_mid) < 240.0:
                law = partial(_curve_of_B, A=A, c=c)
                (B,), _ = curve_fit(law, C, y, p0=[1.0])
                best = min(best, (((law(C, B) - y) ** 2).sum(), A, c, B))
    assert found.rss == pytest.approx(best[0], rel=1e-9)
    assert (found.A, found.C_mid) == (best[1], best[2])
    assert found.B == pytest.approx(best[3], rel=1e-5)


def test_points_up_to_the_start_do_not_count():
    C = np.array([0.0, 500.0, 1500.0, *np.linspace(1600.0, 16_000.0, 30)])
    y = curve(C, 0.61, 1.92, 2542.0, 0.30)
    spoilt = np.where(C <= 1500.0, y + 0.02, y)
    assert scalerl_grid(C, spoilt, r0=0.3) == scalerl_grid(C, y, r0=0.3)
    assert scalerl_grid(C, spoilt, r0=0.3, start=0.0) != scalerl_grid(C, y, r0=0.3, start=0.0)


def test_r0_is_the_first_fitted_evaluation_unless_given():
    C = np.linspace(0.0, 16_000.0, 81)
    y = curve(C, 0.61, 1.92, 2542.0, 0.30)
    assert scalerl_grid(C, y).R0 == y[C > 1500.0][0]


@pytest.mark.parametrize(("A", "edge"), [(0.40, "A"), (0.95, "A")])
def test_an_asymptote_off_the_grid_ends_on_its_edge_with_a_warning(A, edge):
    C = np.linspace(0.0, 30_000.0, 60)
    with pytest.warns(CurvefitWarning, match=r"edge of its grid \(A = 0\.(45|8) "):
        fit = scalerl_grid(C, curve(C, A, 1.5, 6000.0, 0.2), r0=0.2)
    assert edge in fit.edges


def test_a_midpoint_off_the_grid_ends_on_its_edge_with_a_warning():
    C = np.linspace(0.0, 60_000.0, 60)
    with pytest.warns(CurvefitWarning, match="C_mid = 4000 of 100 to 4000"):
        fit = scalerl_grid(C, curve(C, 0.61, 1.92, 11_000.0, 0.3), r0=0.3, C_mid="small")
    assert "C_mid" in fit.edges


def test_compute_that_never_passes_the_start_is_refused():
    steps = np.linspace(0.0, 400.0, 20)
    with pytest.raises(InputError, match=r"compute ends at 400 .* starts after 1500 GPU-hours"):
        scalerl_grid(steps, curve(steps, 0.6, 1.5, 100.0, 0.3))


def test_too_few_evaluations_beyond_the_start_are_refused():
    with pytest.raises(InputError, match="2 evaluations lie beyond the start of 1500"):
        scalerl_grid([0.0, 1000.0, 2000.0, 3000.0], [0.3, 0.35, 0.4, 0.45])


@pytest.mark.parametrize("C_mid", ["tiny", (5000.0, 100.0), (0.0, 10.0)])
def test_a_range_that_is_none_is_refused(C_mid):
    C = np.linspace(0.0, 16_000.0, 20)
    with pytest.raises(InputError, match="range"):
        scalerl_grid(C, curve(C, 0.6, 1.5, 3000.0, 0.3), C_mid=C_mid)
