"""Simulated runs whose truth is known: the design of every calibration table in docs/log.md.

A ~ U(0.52, 0.71), B ~ U(0.8, 3), C_mid ~ log U(500, 8000), R0 ~ U(0.15, 0.35); a step-0 evaluation
and 16 to 96 more, about every 100 GPU-hours, up to ratio × C_mid; the score asked for is the
noise-free R(C_end), C_end ~ log U(max(20,000, 1.25 C_max), 100,000).

Noise: binomial evaluations (16,000 graded samples, 4,000 in `noisy`) plus, except in `white`, an
AR(1) run noise of standard deviation 0.004 and correlation 0.6 or 0.9 between evaluations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from curvefit.laws import curve

FloatArray = NDArray[np.float64]

RATIOS = (0.5, 1.0, 2.0, 4.0, 8.0)
NOISES = {  # name: (graded samples, correlation)
    "white": (16_000, None),
    "rho 0.6": (16_000, 0.6),
    "rho 0.9": (16_000, 0.9),
    "noisy": (4_000, 0.9),
}
RUN_SD = 0.004


class Simulated(NamedTuple):
    """A run and its truth."""

    C: FloatArray
    y: FloatArray
    n_eval: int
    A: float
    B: float
    C_mid: float
    R0: float
    C_end: float
    R_end: float


def simulate(ratio: float, noise: str, seed: int) -> Simulated:
    """One run, cut at `ratio` × C_mid."""
    rng = np.random.default_rng([seed, round(ratio * 10), list(NOISES).index(noise)])
    A, B, R0 = rng.uniform(0.52, 0.71), rng.uniform(0.8, 3.0), rng.uniform(0.15, 0.35)
    C_mid = float(np.exp(rng.uniform(np.log(500.0), np.log(8000.0))))
    C_max = ratio * C_mid
    points = int(np.clip(round(C_max / 100.0), 16, 96))
    C = np.concatenate([[0.0], np.linspace(C_max / points, C_max, points)])
    mean = curve(C, A, B, C_mid, R0)
    n_eval, rho = NOISES[noise]
    if rho is not None:
        u = np.empty(len(C))
        u[0] = RUN_SD * rng.standard_normal()
        for t in range(1, len(C)):
            u[t] = rho * u[t - 1] + RUN_SD * np.sqrt(1.0 - rho**2) * rng.standard_normal()
        mean = np.clip(mean + u, 0.0, 1.0)
    y = rng.binomial(n_eval, mean) / n_eval
    C_end = float(np.exp(rng.uniform(np.log(max(20_000.0, 1.25 * C_max)), np.log(100_000.0))))
    return Simulated(C, y, n_eval, A, B, C_mid, R0, C_end, float(curve(C_end, A, B, C_mid, R0)))
