"""Simulated recipes: seeds of one curve, binomial evaluations, as runs named "NAME, seed K"."""

import zlib

import numpy as np

import curvefit

N_EVAL = 16_000
SEED_SD = 0.0075


def seed_run(
    recipe, seed, *, A=0.61, B=1.9, C_mid=2500.0, R0=0.38, ratio=8.0, points=41, sd=SEED_SD
):
    """One seed of a recipe: A shifted by N(0, sd²), evaluated up to ratio × C_mid."""
    rng = np.random.default_rng([zlib.crc32(recipe.encode()), seed])
    C = np.linspace(0.0, ratio * C_mid, points)
    truth = curvefit.curve(C, A + sd * rng.standard_normal(), B, C_mid, R0)
    y = rng.binomial(N_EVAL, truth) / N_EVAL
    name = f"{recipe}, seed {seed}"
    table = {"gpu_hours": C, "pass_rate": y, "run": [name] * points}
    return curvefit.load(table, run="run", n=N_EVAL)[0]
