"""Fit, extrapolate and doubt the compute-performance curves of RL training runs.

::

    import curvefit

    runs = curvefit.load("runs.csv")        # CSV, JSONL, event files, …; or a dict, a DataFrame
    fit = curvefit.fit(runs[0], until="50%")
    fit.params["A"], fit.forecast([1e5]), fit.doubts
    curvefit.plot(fit)

Importing the package loads none of its dependencies; each name is loaded when it is first used.
"""

from __future__ import annotations

import sys
from types import ModuleType

from curvefit._version import __version__

TYPE_CHECKING = False  # as in typing, whose import costs more than all of this
if TYPE_CHECKING:
    from curvefit.allocate import allocate
    from curvefit.allocation import Allocation
    from curvefit.backtest import Backtest, backtest
    from curvefit.compare import compare
    from curvefit.comparison import Comparison
    from curvefit.decide import Decision, decide
    from curvefit.errors import (
        AmbiguousColumn,
        CurvefitError,
        CurvefitWarning,
        FitError,
        InputError,
    )
    from curvefit.fit import Fit, fit
    from curvefit.follow import follow
    from curvefit.laws import LAWS, curve
    from curvefit.plot import plot
    from curvefit.readers import load
    from curvefit.results import Doubt, Estimate, Forecast, HeldOut, Reach, Verdict
    from curvefit.runs import Run, Runs
    from curvefit.scan import WindowScan, scan

__all__ = [
    "LAWS",
    "Allocation",
    "AmbiguousColumn",
    "Backtest",
    "Comparison",
    "CurvefitError",
    "CurvefitWarning",
    "Decision",
    "Doubt",
    "Estimate",
    "Fit",
    "FitError",
    "Forecast",
    "HeldOut",
    "InputError",
    "Reach",
    "Run",
    "Runs",
    "Verdict",
    "WindowScan",
    "__version__",
    "allocate",
    "backtest",
    "compare",
    "curve",
    "decide",
    "fit",
    "follow",
    "load",
    "plot",
    "scan",
]

_MODULES = {
    "curvefit.allocate": "allocate",
    "curvefit.allocation": "Allocation",
    "curvefit.backtest": "Backtest backtest",
    "curvefit.compare": "compare",
    "curvefit.comparison": "Comparison",
    "curvefit.decide": "Decision decide",
    "curvefit.errors": "AmbiguousColumn CurvefitError CurvefitWarning FitError InputError",
    "curvefit.fit": "Fit fit",
    "curvefit.follow": "follow",
    "curvefit.laws": "LAWS curve",
    "curvefit.plot": "plot",
    "curvefit.readers": "load",
    "curvefit.results": "Doubt Estimate Forecast HeldOut Reach Verdict",
    "curvefit.runs": "Run Runs",
    "curvefit.scan": "WindowScan scan",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}


class _Package(ModuleType):
    """A package in which `fit` or `plot` stay functions when modules of that name load."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
