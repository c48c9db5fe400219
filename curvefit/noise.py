"""The noise of a run: evaluation noise, run noise that neighbours share, drift away from the law.

    y_i = R(C_i) + u_i + e_i,    Var e_i = d_i,    Cov(u_i, u_k) = τ² ρ^(distance of i and k)

e is evaluation noise: binomial when the number of graded samples is known, a single unknown
variance otherwise. u is run noise: the policy itself wanders from checkpoint to checkpoint, so two
neighbouring evaluations err together (an AR(1) process observed with error). Ignoring u makes every
interval too narrow, the more so the more points there are; ρ and the share of u cannot be estimated
well from 10 to 40 points, so both are integrated over a small grid.

The grid's prior was chosen on simulated runs (docs/log.md): no run noise with probability 0.4, else
mostly strong correlation, since weak correlation hardly widens an interval and strong correlation,
wrongly excluded, ruins it.

Distance is counted in evaluations: a gap in the log is as many steps as it is typical spacings
wide.

A forecast that does not believe its law has `drift_grid` instead: u is a random walk in ln C that
starts at 0, Var(u_b − u_a) = δ ln(C_b / C_a). Real runs stall, sag and pick up again, as no rising
law does; what the law misses stays missed, and may grow with every e-fold of compute. δ is
integrated over the grid, from next to nothing to far more than the evaluation noise. The grid was
chosen on real curves, and checked on simulated ones (docs/log.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "NoiseGrid",
    "Whitened",
    "drift_grid",
    "e_folds",
    "evaluation_distance",
    "noise_grid",
    "pin_first",
    "whiten",
]

FloatArray = NDArray[np.float64]

RHO, RHO_PRIOR = (0.65, 0.88, 0.96), (0.13, 0.43, 0.44)
WHITE_PRIOR = 0.4  # probability that there is no run noise at all
SHARES = (0.25, 0.55, 0.85)
RATIOS = (0.2, 0.6, 1.8, 5.0, 15.0, 60.0)
MAX_GAP = 5.0
DRIFTS = (0.1, 0.6, 3.5, 20.0, 100.0)  # variance an e-fold, in units of the evaluation noise
EXTRA = (0.25, 1.0, 4.0)  # evaluation noise in units of the binomial: see drift_grid
FROM_ZERO = 1.0  # e-folds between step 0 and the first checkpoint


class NoiseGrid(NamedTuple):
    """J candidate noise models for n points.

    Attributes
    ----------
    white : ndarray, shape (J, n)
        Variance of the evaluation noise of each point.
    run : ndarray, shape (J,)
        Variance τ² of the run noise.
    rho : ndarray, shape (J,)
        Its correlation from one evaluation to the next; 1 for a drift, which is never forgotten.
    drift : ndarray, shape (J,)
        Variance δ that the drift gains in an e-fold of compute.
    log_prior : ndarray, shape (J,)
        Log prior weight, normalised.
    scale_known : bool
        False when all variances are relative to one unknown σ².
    pinned : bool
        Whether the first point is an exact observation, free of run noise.
    """

    white: FloatArray
    run: FloatArray
    rho: FloatArray
    drift: FloatArray
    log_prior: FloatArray
    scale_known: bool
    pinned: bool = False


class Whitened(NamedTuple):
    """Columns after whitening under each of J noise models.

    Attributes
    ----------
    columns : ndarray, shape (J, n, r)
        W·X with WᵀW = V⁻¹.
    log_det : ndarray, shape (J,)
        ln |V|.
    state : ndarray, shape (J, r)
        The run noise or drift at the last point that each column would imply: E[u_n | column].
    state_var : ndarray, shape (J,)
        Var[u_n | columns].
    """

    columns: FloatArray
    log_det: FloatArray
    state: FloatArray
    state_var: FloatArray


def evaluation_distance(C: FloatArray) -> FloatArray:
    """Distance of each point from the one before, in evaluations, shape (n − 1,).

    At least 1, since every row is an evaluation, and at most `MAX_GAP`.
    """
    step = np.diff(C)
    return np.clip(step / max(float(np.median(step)), 1e-300), 1.0, MAX_GAP)


def e_folds(x: FloatArray) -> FloatArray:
    """Growth of ln C from each point to the next, shape (n − 1,), for ln C = x; finite from 0."""
    step = np.diff(x)
    return np.where(np.isfinite(step), step, FROM_ZERO)


def noise_grid(score: FloatArray, n_eval: FloatArray | None) -> NoiseGrid:
    """The candidates for a run: white noise alone, and run noise of several sizes and ρ.

    With `n_eval` the evaluation noise is binomial, (p(1−p))/n with p shrunk towards ½ by two
    pseudo-counts so that a score of 0 or 1 keeps an error bar; it is a floor, and the run noise is
    a multiple of its mean. Without, run noise is a share of one unknown variance.
    """
    n = len(score)
    if n_eval is None:
        share = np.array([0.0, *np.repeat(SHARES, len(RHO))])
        white = np.repeat((1.0 - share)[:, None], n, axis=1)
        run, scale_known = share, False
    else:
        binomial = _binomial(score, n_eval)
        run = float(binomial.mean()) * np.array([0.0, *np.repeat(RATIOS, len(RHO))])
        white, scale_known = np.repeat(binomial[None], len(run), axis=0), True
    rho = np.array([0.0, *np.tile(RHO, (len(run) - 1) // len(RHO))])
    correlated = np.tile(RHO_PRIOR, (len(run) - 1) // len(RHO)) * len(RHO) / (len(run) - 1)
    log_prior = np.log(np.append(WHITE_PRIOR, (1.0 - WHITE_PRIOR) * correlated))
    return NoiseGrid(white, run, rho, np.zeros_like(run), log_prior, scale_known)


def drift_grid(score: FloatArray, n_eval: FloatArray | None) -> NoiseGrid:
    """The candidates for a forecast that does not believe its law: drifts of several sizes.

    Without `n_eval` the evaluation noise is a single unknown variance. With it the noise is a
    multiple of the binomial p(1 − p)/n, which is neither a floor nor a ceiling: prompts that stay
    the same and are all easy or hopeless make it less, since p_i(1 − p_i) averages to less than
    p(1 − p); seeds and templates that change between evaluations make it more.
    """
    n = len(score)
    if n_eval is None:
        drift, white, scale_known = np.array(DRIFTS), np.ones((len(DRIFTS), n)), False
    else:
        binomial = _binomial(score, n_eval)
        white = np.repeat(EXTRA, len(DRIFTS))[:, None] * binomial
        drift, scale_known = white.mean(axis=1) * np.tile(DRIFTS, len(EXTRA)), True
    J = len(drift)
    return NoiseGrid(white, np.zeros(J), np.ones(J), drift, np.full(J, -np.log(J)), scale_known)


def _binomial(score: FloatArray, n_eval: FloatArray) -> FloatArray:
    """p(1 − p)/n, with p shrunk towards ½ so that a score of 0 or 1 keeps an error bar."""
    p = np.clip((score * n_eval + 1.0) / (n_eval + 2.0), 0.0, 1.0)
    return np.asarray(p * (1.0 - p) / n_eval)


def pin_first(noise: NoiseGrid, resolution: float) -> NoiseGrid:
    """Prepend an exact observation (up to `resolution`) to the candidates."""
    exact = np.full((len(noise.run), 1), resolution**2 if noise.scale_known else 1e-9)
    return noise._replace(white=np.concatenate([exact, noise.white], axis=1), pinned=True)


def whiten(noise: NoiseGrid, distance: FloatArray, growth: FloatArray, X: FloatArray) -> Whitened:
    """Whiten the columns of X under every noise model at once, by a Kalman filter, in O(n).

    Parameters
    ----------
    noise : NoiseGrid
    distance : ndarray, shape (n − 1,)
        From `evaluation_distance`.
    growth : ndarray, shape (n − 1,)
        From `e_folds`.
    X : ndarray, shape (n, r)
    """
    n, r = X.shape
    J = len(noise.run)
    phi = noise.rho ** np.append(distance, 1.0)[:, None]
    fresh = noise.run * (1.0 - phi**2) + noise.drift * np.append(growth, 0.0)[:, None]
    gain, F = np.empty((n, J)), np.empty((n, J))
    p = np.zeros(J) if noise.pinned else noise.run
    for t in range(n):
        np.add(p, noise.white[:, t], out=F[t])
        np.divide(p, F[t], out=gain[t])
        last_p = p * (1.0 - gain[t])
        p = phi[t] ** 2 * last_p + fresh[t]
    out = np.empty((n, J, r))
    a = np.zeros((J, r))
    for t in range(n):
        np.subtract(X[t], a, out=out[t])
        state = a + gain[t, :, None] * out[t]
        a = phi[t, :, None] * state
    out /= np.sqrt(F)[:, :, None]
    return Whitened(out.transpose(1, 0, 2), np.log(F).sum(axis=0), state, last_p)
