"""How A and the forecast move with the window: a fit for each start and each end.

The published procedure leaves out what lies before 1,500 GPU-hours and shows for one run that A
stays at 0.645 to 0.655 when the start moves (arXiv 2510.13786, A.7); no end before half of the
budget is reported there, and the end is what moves A. A scan shows both, with intervals, and says
in which windows A is not identified at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from curvefit.errors import FitError, InputError
from curvefit.fit import check_choices, fit
from curvefit.reported import Reported
from curvefit.results import Estimate
from curvefit.runs import Run
from curvefit.window import checked_level

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Window", "WindowScan", "scan"]

FloatArray = NDArray[np.float64]

END_SHARES = (0.25, 0.35, 0.5, 0.7, 1.0)  # of the last compute
START_SHARES = (0.0, 0.1, 0.25, 0.5)  # of C_mid, or of half of the last compute if that is less
UNKNOWN = Estimate(float("nan"), float("nan"), float("nan"))


class Window(NamedTuple):
    """A window, what was fitted in it, or why nothing could be.

    `score` is the forecast at the scan's `at`; `asymptote` the grade of A, empty without a fit.
    """

    start: float
    end: float
    points: int
    A: Estimate
    score: Estimate
    asymptote: str
    why: str

    @property
    def identified(self) -> bool:
        """Whether A is identified at least weakly."""
        return self.asymptote in ("identified", "weak")


@dataclass(frozen=True, eq=False)
class WindowScan(Reported):
    """The result of `scan`.

    Attributes
    ----------
    run : Run
    at : float
        Compute of the forecasts.
    level : float
        Probability content of the intervals.
    starts, ends : tuple of float
        In ascending order.
    windows : tuple of Window
        By start, then by end.
    """

    _report = "curvefit.scan_report"

    run: Run
    at: float
    level: float
    starts: tuple[float, ...]
    ends: tuple[float, ...]
    windows: tuple[Window, ...]

    @property
    def whole(self) -> Window:
        """The window with the first start and the last end."""
        return self.windows[len(self.ends) - 1]

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the scan shows, in words."""
        from curvefit.scan_report import sentences

        return sentences(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw A against the end of the window, a series a start; see `scan_plot`."""
        from curvefit.scan_plot import plot_scan

        return plot_scan(self, ax=ax)

    def to_csv(self) -> str:
        """The table of windows as CSV."""
        from curvefit.scan_report import csv_table

        return csv_table([self])


def scan(
    run: Run,
    *,
    starts: Sequence[float] | None = None,
    ends: Sequence[float] | None = None,
    at: float | None = None,
    level: float = 0.9,
    law: str = "average",
    r0: str | float = "fit",
) -> WindowScan:
    """Fit a run in every window of a start and an end.

    Parameters
    ----------
    run : Run
    starts : sequence of float, optional
        Compute below which points are left out (never step 0). Left out: 0 and 0.1, 0.25 and 0.5 of
        C_mid, as far as they leave out different points.
    ends : sequence of float, optional
        Compute up to which points are fitted. Left out: 25, 35, 50, 70 and 100 % of the last.
    at : float, optional
        Compute of the forecasts; twice the last one when left out.
    level, law, r0
        As in `curvefit.fit`.

    Raises
    ------
    InputError
        If an option cannot be used, or the whole run cannot be fitted.

    Examples
    --------
    >>> import curvefit
    >>> C = [200.0 * k for k in range(41)]
    >>> y = curvefit.curve(C, 0.6, 1.8, 1000, 0.3) + 0.002 * np.sin(7.0 * np.arange(41))
    >>> found = scan(curvefit.load({"step": C, "pass_rate": y})[0], starts=[0], ends=[1000, 8000])
    >>> [window.asymptote for window in found.windows]
    ['weak', 'identified']
    """
    level = checked_level(level)
    check_choices(law, "posterior")
    last = float(run.compute[-1])
    at = 2.0 * last if at is None else float(at)
    if not 0.0 < at < float("inf"):
        raise InputError(f"cannot forecast at compute {at:g}: give a number above 0")
    options: dict[str, Any] = {"level": level, "law": law, "r0": r0}
    if starts is None:
        starts = _starts(run, float(fit(run, **options).params["C_mid"].value))
    first = _checked("start", starts)
    if ends is None:
        ends = _different(run, [last * share for share in END_SHARES])
    final = _checked("end", ends)
    windows = tuple(_window(run, start, end, at, options) for start in first for end in final)
    return WindowScan(run, at, level, first, final, windows)


def _checked(what: str, values: Sequence[float]) -> tuple[float, ...]:
    found = tuple(sorted({float(value) for value in np.atleast_1d(np.asarray(values, float))}))
    bad = [value for value in found if not 0.0 <= value < float("inf")]
    if bad or not found:
        said = f"{what} {bad[0]:g}" if bad else f"no {what}"
        raise InputError(f"{said}: give computes of 0 or more")
    return found


def _starts(run: Run, C_mid: float) -> tuple[float, ...]:
    """Computes of points, each the first at or above a share of C_mid."""
    C = run.compute
    scale = min(C_mid, 0.5 * float(C[-1]))
    first = {0.0: 0.0}
    for share in START_SHARES[1:]:
        start = float(C[np.searchsorted(C, share * scale)])
        if int(((C > 0.0) & (C < start)).sum()):
            first[start] = start
    return tuple(first)


def _different(run: Run, ends: Sequence[float]) -> tuple[float, ...]:
    """The last compute seen up to each end, each once; ends before the third point are left out."""
    seen = (run.compute[run.compute <= end * (1.0 + 1e-12)] for end in ends)
    return tuple(dict.fromkeys(float(C[-1]) for C in seen if len(C) >= 3))


def _window(run: Run, start: float, end: float, at: float, options: dict[str, Any]) -> Window:
    C = run.compute
    points = int((((C == 0.0) | (C >= start)) & (C <= end)).sum())
    try:
        found = fit(run, skip=start, until=end, **options) if end > 0.0 else None
    except FitError as error:
        return Window(start, end, points, UNKNOWN, UNKNOWN, "", str(error))
    if found is None:
        return Window(start, end, points, UNKNOWN, UNKNOWN, "", "the window ends at 0")
    (said,) = found.forecast([at])
    score = Estimate(said.score, said.low, said.high)
    return Window(start, end, points, found.params["A"], score, found.verdict.asymptote, "")
