"""Simulated recipes: seeds of one curve, binomial evaluations, as runs named "NAME, seed K"."""

import numpy as np

import curvefit

N_EVAL = 16_000
SEED_SD = 0.0075


def seed_run(recipe, seed, *, A=0.61, B=1.9, C_mid=2500.0, R0=0.38, ratio=8.0, points=41, **labels):
    """One seed of a recipe: A shifted by N(0, SEED_SD²), evaluated up to ratio × C_mid."""
    rng = np.random.default_rng([abs(hash_of(recipe)), seed])
    C = np.linspace(0.0, ratio * C_mid, points)
    truth = curvefit.curve(C, A + SEED_SD * rng.standard_normal(), B, C_mid, R0)
    y = rng.binomial(N_EVAL, truth) / N_EVAL
    name = f"{recipe}, seed {seed}"
    table = {"gpu_hours": C, "pass_rate": y, "run": [name] * points}
    return curvefit.load(table, run="run", n=N_EVAL, **labels)[0]


def hash_of(name):
    """A number from a name, the same on every machine and in every process."""
    return sum((i + 1) * byte for i, byte in enumerate(name.encode()))
