"""Runs made to show a doubt, and how to ask for it.

What a run shows follows from how it was made: a law that is written out here, plus noise from a
seeded generator.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from curvefit.fit import fit
from curvefit.runs import Axis, Run

ROOT = Path(__file__).parents[2]
DATA, INPUTS = ROOT / "data", Path(__file__).parent / "inputs"
SD = 0.005


def hill(C, A=0.6, B=1.5, C_mid=2500.0, R0=0.3):
    """ScaleRL's sigmoid, arXiv 2510.13786, eq. 1."""
    return R0 + (A - R0) / (1.0 + (C_mid / np.maximum(C, 1e-9)) ** B)


def run_of(C, y, n=None, unit="pass_rate", column="score"):
    C, y = np.asarray(C, dtype=float), np.asarray(y, dtype=float)
    size = None if n is None else np.full(len(C), float(n))
    return Run("run", C, y, size, np.arange(1, len(C) + 1), y=Axis(column, unit))


def noise(n, sd=SD, seed=1):
    return sd * np.random.default_rng(seed).standard_normal(n)


def wandering(n, rho, sd, seed=1):
    """AR(1) noise of standard deviation sd."""
    z = np.random.default_rng(seed).standard_normal(n)
    u = np.empty(n)
    u[0] = sd * z[0]
    for t in range(1, n):
        u[t] = rho * u[t - 1] + sd * math.sqrt(1 - rho**2) * z[t]
    return u


def clean(ratio=4.0, n=40, seed=1, **law):
    """A sigmoid up to ratio × C_mid (2,500), independent noise of 0.005."""
    C = np.linspace(0.0, ratio * 2500.0, n)
    return run_of(C, hill(C, **law) + noise(n, seed=seed))


def codes(run, **options):
    return {doubt.code for doubt in fit(run, **options).doubts}


def doubt(run, code, **options):
    """The doubt with a code; fails when it does not stand."""
    found = {doubt.code: doubt for doubt in fit(run, **options).doubts}
    assert code in found, f"{code} not in {sorted(found)}"
    return found[code]
