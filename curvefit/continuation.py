"""A run continued: evaluations to come, simulated from what the fit holds possible.

Each continuation follows one equally likely curve of the forecast, with its run noise or its
departure from the law, which start from where they stand at the last evaluation, and its evaluation
noise. The same fit gives the same
continuations.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from curvefit.atoms import Atoms
from curvefit.fitted import Fit
from curvefit.marginal import log_compute
from curvefit.predictive import forecaster_of
from curvefit.runs import Run

__all__ = ["continuations"]

FloatArray = NDArray[np.float64]

MOST = 1000  # evaluations in a continuation


def continuations(
    fit: Fit, last: float, count: int, *, samples: float = 1.0, checkpoints: float = 1.0
) -> list[Run]:
    """Continue a run `count` times to compute `last`.

    Parameters
    ----------
    fit : Fit
    last : float
        Compute of the last evaluation to come, beyond the data.
    count : int
    samples : float
        Evaluation size of those to come, in units of that seen.
    checkpoints : float
        How many evaluations there are for each one at the spacing seen.
    """
    atoms = forecaster_of(fit)
    C = _to_come(fit, last, checkpoints)
    spread_out = np.argsort(atoms.A, kind="stable")
    chosen = spread_out[((np.arange(count) + 0.5) / count * len(atoms)).astype(int)]
    x = log_compute(C)
    mean = atoms.take(chosen).law_curve(x)
    runs = []
    for k, atom in enumerate(chosen.tolist()):
        rng = np.random.default_rng([2510_13786, k])
        if atoms.track is None:
            noise = _run_noise(atoms, atom, len(C), checkpoints, rng)
        else:
            noise = atoms.track.wandering(atoms, atom, x, rng)
        y, n = _evaluated(fit, mean[k] + noise, float(atoms.white[atom]), samples, rng)
        runs.append(_joined(fit.run, C, y, n))
    return runs


def _to_come(fit: Fit, last: float, checkpoints: float) -> FloatArray:
    """Compute of the evaluations to come, evenly spaced as those seen, the last one at `last`."""
    seen = fit.run.compute
    spacing = float(np.median(np.diff(np.unique(seen)))) / checkpoints
    steps = int(np.clip(round((last - seen[-1]) / spacing), 1, MOST))
    return np.asarray(seen[-1] + (last - seen[-1]) * np.arange(1, steps + 1) / steps)


def _run_noise(
    atoms: Atoms, atom: int, steps: int, checkpoints: float, rng: np.random.Generator
) -> FloatArray:
    """An AR(1) process that starts from where the atom's run noise stands."""
    memory = float(atoms.rho[atom]) ** (1.0 / checkpoints)
    state = atoms.last[atom] + np.sqrt(atoms.last_var[atom]) * rng.standard_normal()
    fresh = np.sqrt(atoms.run[atom] * (1.0 - memory**2)) * rng.standard_normal(steps)
    noise = np.empty(steps)
    for t in range(steps):
        state = memory * state + fresh[t]
        noise[t] = state
    return noise


def _evaluated(
    fit: Fit, truth: FloatArray, white: float, samples: float, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray | None]:
    """Scores of evaluations whose expectation is `truth`, and their sizes if these are known."""
    if fit.run.n_eval is None or not fit.run.bounded:
        y = truth + np.sqrt(white / samples) * rng.standard_normal(len(truth))
        return (np.clip(y, 0.0, 1.0) if fit.run.bounded else y), None
    n = np.full(len(truth), max(round(samples * float(np.median(fit.run.n_eval))), 1))
    return rng.binomial(n, np.clip(truth, 0.0, 1.0)) / n, n.astype(float)


def _joined(run: Run, C: FloatArray, y: FloatArray, n: FloatArray | None) -> Run:
    sizes = None if run.n_eval is None else run.n_eval
    if sizes is not None:
        sizes = np.append(sizes, np.full(len(C), np.median(sizes)) if n is None else n)
    return replace(
        run,
        compute=np.append(run.compute, C),
        score=np.append(run.score, y),
        n_eval=sizes,
        row=np.append(run.row, int(run.row[-1]) + np.arange(1, len(C) + 1)),
    )
