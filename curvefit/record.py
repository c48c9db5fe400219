"""The JSON of a fit, schema ``curvefit/1``: the same input gives the same bytes.

Numbers are finite or ``null``; keys stand in the order of the schema; text is ASCII with escapes,
so that a name from a file can harm no reader of the document.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from curvefit._version import __version__
from curvefit.window import TRANSIENT

if TYPE_CHECKING:
    from curvefit.answers import Answers
    from curvefit.fit import Fit
    from curvefit.results import Doubt

__all__ = ["SCHEMA", "default_at", "document", "doubts_of", "dumps", "run_record"]

SCHEMA = "curvefit/1"


def finite(value: float) -> float | None:
    """Return a plain float, or None for what is not a finite number."""
    value = float(value)
    return value if math.isfinite(value) else None


def default_at(fit: Fit) -> tuple[float, float]:
    """Return where to forecast when nobody says: 2 and 10 times the last fitted compute."""
    last = float(fit.run.compute[-1])
    return 2.0 * last, 10.0 * last


def doubts_of(fit: Fit, at: ArrayLike = ()) -> tuple[Doubt, ...]:
    """Return the doubts about a fit, and the one about a forecast too far away."""
    from curvefit.diagnose import far_extrapolation

    far = far_extrapolation(fit, float(np.max(at))) if np.size(at) else None
    return fit.doubts if far is None else (*fit.doubts, far)


def run_record(fit: Fit, at: ArrayLike = (), reach: ArrayLike = ()) -> dict[str, Any]:
    """Return the record of one run.

    Parameters
    ----------
    fit : Fit
    at : array_like
        Computes to forecast at; `default_at` when empty.
    reach : array_like
        Scores to reach.
    """
    run, verdict = fit.run, fit.verdict
    at = at if np.size(at) else default_at(fit)
    return {
        "run": run.name,
        "file": run.file,
        "x": {"column": run.x.column, "unit": run.x.unit},
        "y": {"column": run.y.column},
        "points": _points(fit),
        "params": {name: _numbers(estimate) for name, estimate in fit.params.items()},
        "noise": _numbers(fit.noise),
        "laws": [{"law": w.law, "weight": finite(w.weight), "A": finite(w.A)} for w in fit.laws],
        "forecasts": [_numbers(forecast) for forecast in fit.forecast(at)],
        "reach": [_numbers(answer) for answer in fit.reach(reach)] if np.size(reach) else [],
        "held_out": _held_out(fit),
        "verdict": {"asymptote": verdict.asymptote, "sentence": verdict.sentence},
        "doubts": [doubt._asdict() for doubt in doubts_of(fit, at)],
    }


def _numbers(record: Any) -> dict[str, float | None]:
    """Return a named tuple of floats as an object."""
    return {key: finite(value) for key, value in record._asdict().items()}


def _points(fit: Fit) -> dict[str, Any]:
    held_out = 0 if fit.held_out is None else len(fit.held_out)
    dropped = [{"row": int(row.row), "why": row.why} for row in fit.run.dropped]
    points: dict[str, Any] = {
        "read": len(fit.run) + held_out + len(dropped),
        "used": len(fit.run),
        "held_out": held_out,
        "dropped": dropped,
    }
    sought = [note.message for note in fit.run.notes if note.code == TRANSIENT]
    return points | ({"transient": sought[-1]} if sought else {})


def _held_out(fit: Fit) -> dict[str, Any] | None:
    scored = fit.score_held_out
    if scored is None:
        return None
    return {"points": scored.points, "mae": finite(scored.mae), "inside": finite(scored.inside)}


def document(
    fits: Sequence[Fit],
    *,
    command: Sequence[str] = (),
    at: ArrayLike = (),
    reach: ArrayLike = (),
    answers: Answers | None = None,
) -> dict[str, Any]:
    """Return the document of several runs; `command` is the argv that made it."""
    runs = [run_record(fit, at, reach) for fit in fits]
    comparison = backtest = allocation = None
    if answers is not None:
        comparison, backtest, allocation = answers.comparison, answers.backtest, answers.allocation
        for run in runs:
            if run["run"] in answers.decisions:
                run["decision"] = answers.decisions[run["run"]].to_dict()
            if run["run"] in answers.scans:
                run["scan"] = answers.scans[run["run"]].to_dict()
    return {
        "schema": SCHEMA,
        "version": __version__,
        "command": list(command),
        "runs": runs,
        "comparison": None if comparison is None else comparison.to_dict(),
        "backtest": None if backtest is None else backtest.to_dict(),
        "allocation": None if allocation is None else allocation.to_dict(),
    }


def dumps(record: dict[str, Any], *, one_line: bool = False) -> str:
    """Write a document or a record as ASCII text, laid out for people or on one line.

    A lone surrogate, which stands for a byte that was not UTF-8 in a file name, is written as the
    six characters of its escape: strict readers refuse the surrogate itself.
    """
    return json.dumps(_unicode(record), indent=None if one_line else 2, allow_nan=False)


def _unicode(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_unicode(key): _unicode(item) for key, item in value.items()}
    return [_unicode(item) for item in value] if isinstance(value, list) else value
