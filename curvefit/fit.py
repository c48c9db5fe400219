"""`fit`: from a run, or arrays, to a `Fit` that answers questions.

::

    Run ─ window ─► Marginal ─► ridge of each law ─► Atoms ─► Fit ─► params, forecast, reach

Twice, by default: the sigmoid's parameters come from a posterior that believes the sigmoid; the
forecast from one over all laws that believes none of them to the end (`drift`, `stall`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from curvefit.atoms import ATOMS, Atoms, mixture
from curvefit.drift import Track
from curvefit.errors import InputError
from curvefit.estimate import least_squares
from curvefit.fitted import Fit
from curvefit.laws import LAWS
from curvefit.marginal import Marginal, log_compute
from curvefit.noise import drift_grid, evaluation_distance, noise_grid
from curvefit.posterior import asymptote_of, atoms_of, law_weights, ridge_of
from curvefit.results import LawWeight
from curvefit.runs import Run
from curvefit.window import AUTO, bounds_of, checked_level, fixed_r0, window

__all__ = ["METHODS", "Fit", "check_choices", "fit", "marginal_of"]

METHODS = ("posterior", "least-squares", "scalerl-grid")
LEAST_WEIGHT = 0.005  # laws less probable are left out of the forecast
LEAST_ATOMS = 64
LEAST_SPREAD = 1e-50  # of scores; its square must still be a number
LARGEST_SCORE = 1e15  # single precision, in which starts are searched, holds its squares


def _as_run(data: object, y: ArrayLike | None, n: Any, columns: Mapping[str, Any]) -> Run:
    """A Run from what `fit` accepts."""
    if isinstance(data, Run):
        if y is not None or any(v is not None for v in columns.values()):
            raise InputError("a Run brings its own columns; leave out y, x and name")
        return data
    from curvefit.readers import load

    if y is not None and not isinstance(y, str):
        table: dict[str, Any] = {"compute": data, "score": y}
        if n is not None and not isinstance(n, (int, float, str)):
            table["n"], n = n, "n"
        runs = load(table, x="compute", y="score", n=n)
    elif isinstance(data, Mapping) or hasattr(data, "keys"):
        runs = load(data, x=columns["x"], y=y, n=n)
    else:
        raise InputError("fit() takes a Run, or compute and score, or a mapping of columns")
    if len(runs) != 1:
        raise InputError(
            f"the data hold {len(runs)} runs; fit them one by one: [fit(r) for r in load(…)]"
        )
    return runs[0]


def fit(
    data: Run | ArrayLike | Mapping[str, ArrayLike],
    y: ArrayLike | str | None = None,
    *,
    x: str | None = None,
    n: ArrayLike | str | None = None,
    law: str = "average",
    method: str = "posterior",
    level: float = 0.9,
    r0: str | float = "fit",
    skip: float | str = 0.0,
    until: float | str | None = None,
) -> Fit:
    """Fit a run and say what is known of its future.

    Parameters
    ----------
    data : Run, array_like or mapping
        A run of `load`; or the compute of each evaluation, shape (n,); or a mapping of columns
        (dict, DataFrame), whose columns `x` and `y` name (found among known names if left out).
    y : array_like of shape (n,), or str
        Scores, when `data` is compute; the score column, when `data` is a mapping.
    x : str, optional
        The compute column of a mapping.
    n : int, array_like or str, optional
        Evaluation size, prompts × samples: one number, one a point, or a column.
    law : str
        What forecasts: ``average``, or a key of `curvefit.laws.LAWS`.
    method : str
        ``posterior``, ``least-squares`` or ``scalerl-grid`` (arXiv 2510.13786, appendix A.5).
    level : float
        Probability content of the intervals, between 0 and 1.
    r0 : str or float
        ``fit`` leaves R0 free; ``first`` fixes it to the first score; a number fixes it there.
    skip : float or str
        Leave out compute between 0 and `skip`; a step-0 evaluation stays. ``auto`` leaves out the
        early transient if there is one (`curvefit.transient`), at most 0.25 C_mid; the run's
        `notes` say what was found.
    until : float or str, optional
        Fit only up to this compute, or, as ``"50%"``, up to that share of the last compute; later
        points are held out and scored.

    Returns
    -------
    Fit

    Raises
    ------
    InputError
        If an option or the data cannot be used.
    FitError
        If fewer than 3 points remain.

    Examples
    --------
    Seven checkpoints of a run that has not reached its midpoint:

    >>> import curvefit
    >>> C = [0, 500, 1000, 1500, 2000, 2500, 3000]
    >>> f = curvefit.fit(C, [0.251, 0.262, 0.281, 0.299, 0.322, 0.345, 0.362])
    >>> f.verdict.asymptote
    'not identified'
    """
    run = _as_run(data, y, n, {"x": x})
    level = checked_level(level)
    check_choices(law, method)
    used, later = window(run, skip=skip, until=until)
    _check_size(used)
    if skip == AUTO:
        from curvefit.transient import without_transient

        used = without_transient(used, fit)
    fixed = fixed_r0(used, r0)
    if method != "posterior":
        return _point_only(used, later, level, law, method, r0, fixed)
    return _with_posterior(used, later, level, law, r0, fixed)


def check_choices(law: str, method: str) -> None:
    """Refuse a law or a method that does not exist.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if law != "average" and law not in LAWS:
        raise InputError(f"law {law!r} is unknown; choose average, {', '.join(LAWS)}")
    if method not in METHODS:
        raise InputError(f"method {method!r} is unknown; choose {', '.join(METHODS)}")


def _check_size(run: Run) -> None:
    """Refuse scores too large to be multiplied."""
    largest = float(np.abs(run.score).max())
    if largest > LARGEST_SCORE:
        raise InputError(
            f"run {run.name!r} has scores of up to {largest:.3g}, beyond {LARGEST_SCORE:g}; divide "
            "them by a power of ten"
        )


def marginal_of(run: Run, fixed_r0: float | None = None, *, drift: bool = False) -> Marginal:
    """The marginal likelihood of a run's shapes, R0 free or fixed, with run noise or with drift."""
    bounds = bounds_of(run)
    spread = float(np.ptp(run.score))
    scale = spread if spread > LEAST_SPREAD else max(abs(float(run.score[0])), 1.0)
    grid = drift_grid if drift else noise_grid
    return Marginal(
        log_compute(run.compute),
        run.score,
        grid(run.score, run.n_eval if run.bounded else None),
        evaluation_distance(run.compute),
        bounds,
        resolution=1e-6 * scale,
        fixed_r0=fixed_r0,
    )


def _with_posterior(
    run: Run, later: Run | None, level: float, law: str, r0: str | float, fixed: float | None
) -> Fit:
    marginal = marginal_of(run, fixed)
    ridge = ridge_of(marginal, "sigmoid")
    sigmoid = atoms_of(marginal, "sigmoid", ATOMS, ridge)
    if law == "average":
        forecaster, laws = _doubting(run, fixed)
    else:
        if law != "sigmoid":
            ridge = ridge_of(marginal, law)
        atoms = sigmoid if law == "sigmoid" else atoms_of(marginal, law, ATOMS, ridge)
        forecaster = mixture([atoms], [1.0])
        laws = (LawWeight(law, 1.0, asymptote_of(marginal, law, ridge)),)
    point = least_squares(run.compute, run.score, r0=fixed, bounds=bounds_of(run))
    return Fit(run, later, level, law, "posterior", r0, point, laws, sigmoid, forecaster)


def _doubting(run: Run, fixed: float | None) -> tuple[Atoms, tuple[LawWeight, ...]]:
    """The forecast of all laws, with a departure from them and an end of growth."""
    marginal = marginal_of(run, fixed, drift=True)
    ridges = {name: ridge_of(marginal, name) for name in LAWS}
    weights = law_weights(ridges, marginal.x)
    laws = tuple(
        LawWeight(name, w, asymptote_of(marginal, name, ridges[name]))
        for name, w in weights.items()
    )
    track = _track(run, marginal)
    chosen = {name: w for name, w in weights.items() if w > LEAST_WEIGHT}
    parts = [
        atoms_of(marginal, name, max(round(w * ATOMS), LEAST_ATOMS), ridges[name], track)
        for name, w in chosen.items()
    ]
    return mixture(parts, list(chosen.values())), laws


def _track(run: Run, marginal: Marginal) -> Track:
    white = marginal.noise.white[0, -len(run) :]
    return Track(log_compute(run.compute), run.score, white / white.mean(), *bounds_of(run))


def _point_only(
    run: Run,
    later: Run | None,
    level: float,
    law: str,
    method: str,
    r0: str | float,
    fixed: float | None,
) -> Fit:
    if method == "scalerl-grid":
        from curvefit.scalerl_grid import scalerl_grid

        point = scalerl_grid(run.compute, run.score, r0=fixed)
    else:
        name = "sigmoid" if law == "average" else law
        point = least_squares(run.compute, run.score, law=name, r0=fixed, bounds=bounds_of(run))
    return Fit(run, later, level, point.law, method, r0, point, (), None, None)
