"""The posterior of a law for one run: weighted atoms, without random numbers.

`ridge.find_ridge` grids the shape (ln c, ln B) under every noise model. Here the grid becomes
`ATOMS` atoms (A, B, c, R0, σ², noise model): a low-discrepancy sequence is pushed through the
grid's cells and through the conditional distributions of A and R0, and each atom is weighted by the
exact posterior density over the density it was placed with. The grid's coarseness and the
approximations in it thus cost a little efficiency, never exactness; the same input gives the same
atoms. Everything else (intervals, bands, probabilities, comparisons) is a weighted average over
atoms.

Prior: flat in ln c (2 e-folds below to 9 e-folds above the data) and in ln B over the law's range;
flat in R0 and A over low ≤ R0 ≤ A ≤ high; 1/σ² on an unknown scale; the grid of `noise`; half for
the power law, whose tail is nearest to that of real runs, a quarter for the sigmoid, the law that
the field reports, and the rest for the others.

With a `Track` the atoms forecast what real runs do rather than what the law says: they depart from
the law (`drift`) and their growth ends (`stall`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from curvefit.atoms import ATOMS, Atoms, IntArray, quantile
from curvefit.drift import Track
from curvefit.laws import LAWS
from curvefit.marginal import TINY, Marginal, Moments, shape_box
from curvefit.normal import normal_cdf, normal_quantile
from curvefit.ridge import Ridge, find_ridge
from curvefit.sobol import hammersley
from curvefit.stall import stops

__all__ = ["asymptote_of", "atoms_of", "law_weights", "ridge_of"]

FloatArray = NDArray[np.float64]

SPLIT = 3
STEEPEST = 2.5
ORDER_DIGITS = 9  # asymptotes closer than this tie, so that rounding never reorders cells
NEGLIGIBLE = 14.0  # nats below the heaviest cell
LAW_PRIOR = {
    "sigmoid": 0.25,
    "power": 0.5,
    "exponential": 0.05,
    "weibull": 0.1,
    "gompertz": 0.1,
}


def _truncated(
    marginal: Marginal,
    nu: int,
    mean: FloatArray,
    sd: FloatArray,
    low: FloatArray | float,
    high: FloatArray,
    p: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Quantile p of Student's t (normal when the scale is known) cut to [low, high].

    Returns the value and the log density it was placed with. The t distribution is reached through
    Wallace's transformation to a normal score; the density returned is that of the transformed
    variable, so the approximation costs no exactness.
    """
    known = marginal.noise.scale_known
    z0 = marginal.normal_score((low - mean) / sd, nu)
    z1 = marginal.normal_score((high - mean) / sd, nu)
    flip = z0 + z1 > 0
    z0, z1 = np.where(flip, -z1, z0), np.where(flip, -z0, z1)
    P0 = normal_cdf(z0)
    mass = normal_cdf(z1) - P0
    narrow = (z1 - z0 < 1e-3) | (mass <= 1e-18)
    q = np.where(flip, 1.0 - p, p)
    z = normal_quantile(P0 + q * mass)
    z = np.where(flip, -z, z)
    shrink = 1.0 if known else (8.0 * nu + 1.0) / (8.0 * nu + 3.0)
    if known:
        t, dz_dt = z, np.ones_like(z)
    else:
        growth = np.exp(np.minimum((z / shrink) ** 2 / nu, 600.0))
        t = np.copysign(np.sqrt(nu * (growth - 1.0)), z)
        small = np.abs(z) < 1e-6
        dz_dt = np.where(small, shrink, shrink**2 * t / (growth * np.where(small, 1.0, z)))
    with np.errstate(divide="ignore"):
        log_q = -0.5 * z * z - 0.9189385332046727 + np.log(dz_dt / (sd * mass))
    flat = low + p * (high - low)
    value = np.where(narrow, flat, np.clip(mean + sd * t, low, high))
    return value, np.where(narrow, -np.log(np.maximum(high - low, 1e-300)), log_q)


def atoms_of(
    marginal: Marginal,
    law: str,
    count: int = ATOMS,
    ridge: Ridge | None = None,
    track: Track | None = None,
) -> Atoms:
    """The posterior of one law.

    Parameters
    ----------
    marginal : Marginal
    law : str
        A key of `LAWS`.
    count : int
        Number of atoms.
    ridge : Ridge, optional
        The law's grid, from `ridge_of`, when it is known already.
    track : Track, optional
        Makes atoms that depart from the law and whose growth ends.
    """
    box = shape_box(marginal.x, law)
    cube = hammersley(count)
    ridge = ridge_of(marginal, law) if ridge is None else ridge
    j, u, b, log_q = _place_shapes(ridge, _expected_A(marginal, law, ridge), cube)
    T = marginal.coefficients(law, u, b)
    m = marginal.moments_at(j, T)
    A, R0, log_q_linear = _place_linear(marginal, m, cube)
    log_p, sigma2 = _density(marginal, m, A, R0, j, cube[5])
    inside = (u >= box[0]) & (u <= box[1]) & (b >= box[2]) & (b <= box[3])
    log_w = np.where(inside, log_p - log_q - log_q_linear, -np.inf)
    log_w -= np.log(box[1] - box[0]) + (np.log(box[3] - box[2]) if box[2] < box[3] else 0.0)
    top = log_w.max()
    w = np.exp(log_w - top)
    noise, white = marginal.noise, marginal.white
    state, state_var = marginal.last_state(j, T, R0, A), sigma2 * white.state_var[j]
    nothing = np.zeros(count)
    run_noise, departure = (state, state_var), (nothing, nothing)
    if track is not None:
        run_noise, departure = departure, run_noise
    forever = np.full(count, np.inf)
    return Atoms(
        law=np.full(count, list(LAWS).index(law), dtype=np.intp),
        A=A + marginal.shift,
        B=np.exp(b),
        R0=R0 + marginal.shift,
        ln_c=u,
        weight=w / w.sum(),
        white=sigma2 * noise.white.mean(axis=1)[j],
        run=sigma2 * noise.run[j],
        rho=noise.rho[j] * (noise.drift[j] == 0.0),
        last=run_noise[0],
        last_var=run_noise[1],
        drift=sigma2 * noise.drift[j],
        level=departure[0],
        level_var=departure[1],
        stop=forever if track is None else stops(law, u, np.exp(b), track.end, cube[9]),
        draw=normal_quantile(cube[6]),
        tilt=normal_quantile(cube[7]),
        wander=normal_quantile(cube[8]),
        log_evidence=float(top + np.log(w.mean())),
        track=track,
    )


def ridge_of(marginal: Marginal, law: str) -> Ridge:
    """The grid of a law's shape."""
    box = shape_box(marginal.x, law)
    return find_ridge(lambda u, b, j: marginal.log_nodes(law, u, b, j), box)


def _between(values: FloatArray, axis: int, position: FloatArray, steepest: float) -> FloatArray:
    """Values at positions (in nodes, SPLIT to a cell), linear between nodes.

    Within a cell they fall at most `steepest` below the cell's own node, so that a cliff between
    two nodes leaves no part of the cell without atoms.
    """
    n = values.shape[axis]
    left = np.clip(np.floor(position).astype(int), 0, n - 2)
    shape = [1, 1, 1]
    shape[axis] = -1
    part = np.clip(position - left, 0.0, 1.0).reshape(shape)
    low = values.take(left, axis)
    fine = low + part * (values.take(left + 1, axis) - low)
    return np.asarray(np.maximum(fine, values.repeat(SPLIT, axis) - steepest))


def _expected_A(marginal: Marginal, law: str, ridge: Ridge) -> FloatArray:
    """A at the ridge's nodes, kept within bounds, shape (J, K, N)."""
    J, K, N = ridge.log_w.shape
    T = marginal.coefficients(law, np.repeat(ridge.u, N), ridge.nodes.ravel())
    return np.clip(marginal.moments(T).A, *marginal.bounds).reshape(J, K, N)


def _place_shapes(
    ridge: Ridge, A: FloatArray, cube: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Atoms' noise models j and shapes (u, b), and the log density they were placed with.

    Cells are taken in the order of their noise model and, within it, of their A, so that the
    stratified first coordinate of the sequence stratifies A and whatever goes with it.
    """
    _, K, N = ridge.log_w.shape
    m = SPLIT if N > 1 else 1
    part = (np.arange(SPLIT) + 0.5) / SPLIT
    width = np.diff(ridge.edges)
    u_fine = (ridge.edges[:-1, None] + width[:, None] * part).ravel()
    du = (width / SPLIT).repeat(SPLIT)
    at_u = np.interp(u_fine, ridge.u, np.arange(K))
    at_b = (np.arange(N)[:, None] + part - 0.5).ravel() if N > 1 else np.zeros(1)
    log_mass = _cells(ridge.log_w, at_u, at_b, STEEPEST)
    log_mass = log_mass + np.log(_spacing(ridge, u_fine) / m * du)[:, None]
    chosen = np.flatnonzero(log_mass.ravel() > log_mass.max() - NEGLIGIBLE)
    by_A = np.round(_cells(A, at_u, at_b).ravel() / (np.ptp(A) + TINY), ORDER_DIGITS)
    models = np.searchsorted(chosen, np.arange(1, len(log_mass)) * log_mass[0].size)
    order = np.concatenate([c[by_A[c].argsort(kind="stable")] for c in np.split(chosen, models)])
    mass = np.exp(log_mass.ravel()[order] - log_mass.max())
    total = np.cumsum(mass)
    index = np.searchsorted(total, cube[0] * total[-1] * (1.0 - 1e-12))
    j, k, i = np.unravel_index(order[index], log_mass.shape)
    u = u_fine[k] + (cube[1] - 0.5) * du[k]
    spacing = _spacing(ridge, u) / m
    b = _along(ridge, ridge.low, u)
    if N > 1:
        b = b + (i - 0.5 * (m - 1) + cube[2] - 0.5) * spacing
    return j, u, b, np.log(mass[index] / (total[-1] * du[k] * spacing))


def _cells(
    values: FloatArray, at_u: FloatArray, at_b: FloatArray, steepest: float = float("inf")
) -> FloatArray:
    """Values of all cells, each node's cell split SPLIT × SPLIT (SPLIT × 1 where B is fixed)."""
    fine = _between(values, 1, at_u, steepest)
    return _between(fine, 2, at_b, steepest) if values.shape[2] > 1 else fine


def _along(ridge: Ridge, values: FloatArray, u: FloatArray) -> FloatArray:
    """Values given at the columns, interpolated linearly."""
    return np.asarray(np.interp(u, ridge.u, values))


def _spacing(ridge: Ridge, u: FloatArray) -> FloatArray:
    """Distance in ln B between the nodes of a column at u."""
    N = ridge.log_w.shape[2]
    return np.ones_like(u) if N == 1 else _along(ridge, ridge.high - ridge.low, u) / (N - 1)


def _place_linear(
    marginal: Marginal, m: Moments, cube: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Atoms' A and R0 (relative to the shift) and the log density they were placed with."""
    low, high = marginal.bounds
    nu = max(marginal.nu, 1)
    sigma = np.sqrt(marginal.sigma2(m))
    per_A = m.cov / m.var_A
    sd_R0 = sigma / np.sqrt(m.i_R0)
    level = m.R0 + m.slope * (m.A - m.R0)
    least_A = np.clip(level - 6.0 * sd_R0 / np.maximum(1.0 - per_A, 1e-3), low, high)
    top = np.full_like(sigma, high)
    A, log_q_A = _truncated(marginal, nu, m.A, sigma * np.sqrt(m.var_A), least_A, top, cube[3])
    R0_mean = m.R0 + per_A * (A - m.A)
    if not marginal.noise.scale_known:
        sd_R0 = np.sqrt((m.rss + (A - m.A) ** 2 / m.var_A) / (nu + 1) / m.i_R0)
    R0, log_q_R0 = _truncated(marginal, nu + 1, R0_mean, sd_R0, low, A, cube[4])
    return A, R0, log_q_A + log_q_R0


def _density(
    marginal: Marginal, m: Moments, A: FloatArray, R0: FloatArray, j: IntArray, p: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Log posterior density at the atoms, σ² integrated out, and σ² at its quantile p.

    RSS(A, R0) = RSS + (A − Â)²/Var(A) + (1−s)ᵀV⁻¹(1−s) · (R0 − E[R0 | A])², variances in units σ².
    σ² given the rest is inverse gamma; its quantile uses Wilson and Hilferty's cube root.
    """
    dA = A - m.A
    dR0 = R0 - m.R0 - m.cov / m.var_A * dA
    rss = m.rss + dA**2 / m.var_A + m.i_R0 * dR0**2
    constant = marginal.log_const[j]
    if marginal.noise.scale_known:
        return constant - 0.5 * rss, np.ones_like(rss)
    n = marginal.n
    z = normal_quantile(p)
    chi2 = n * np.maximum(1.0 - 2.0 / (9.0 * n) + z * np.sqrt(2.0 / (9.0 * n)), 0.05) ** 3
    return constant - 0.5 * n * np.log(rss), rss / chi2


def law_weights(ridges: Mapping[str, Ridge], x: FloatArray) -> dict[str, float]:
    """Posterior probability of each law, by quadrature over the nodes of its grid.

    Parameters
    ----------
    ridges : mapping from law to Ridge
    x : ndarray, shape (n,)
        ln C of the run, from which the priors' boxes follow.
    """
    log_z = {}
    for law, ridge in ridges.items():
        u0, u1, b0, b1 = shape_box(x, law)
        log_mass = ridge.log_w + np.log(ridge.areas)[:, None]
        top = log_mass.max()
        volume = (u1 - u0) * ((b1 - b0) or 1.0)
        log_z[law] = top + np.log(np.exp(log_mass - top).sum() * LAW_PRIOR[law] / volume)
    best = max(log_z.values())
    total = sum(np.exp(z - best) for z in log_z.values())
    return {law: float(np.exp(z - best) / total) for law, z in log_z.items()}


def asymptote_of(marginal: Marginal, law: str, ridge: Ridge) -> float:
    """Median asymptote of a law, by quadrature over the nodes of its grid."""
    A = _expected_A(marginal, law, ridge).ravel()
    log_mass = (ridge.log_w + np.log(ridge.areas)[:, None]).ravel()
    return marginal.shift + float(quantile(A, np.exp(log_mass - log_mass.max()), (0.5,))[0])
