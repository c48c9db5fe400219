"""A scan drawn: A and the forecast against the end of the window, a series a start.

Series differ in marker and lightness, so that no colour carries meaning; where A is not identified
the marker is hollow and its interval dotted, and may leave the picture. The grey band is the
interval of all points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from curvefit import digits
from curvefit.compact import shorten
from curvefit.errors import InputError
from curvefit.plot import STYLES
from curvefit.units import x_words, y_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from curvefit.results import Estimate
    from curvefit.scan import Window, WindowScan

__all__ = ["plot_scan", "scan_figure"]

MANY = 12  # scans in one picture
SPREAD = 0.5  # of the least distance between two ends, taken up by the series of all starts
ROOM = 0.08


def scan_figure(scans: Sequence[WindowScan]) -> Figure:
    """Draw each scan in a row: A to the left, the forecast to the right.

    Raises
    ------
    InputError
        If there is no scan, or more than a picture holds.
    """
    if not 0 < len(scans) <= MANY:
        raise InputError(
            f"a picture holds 1 to {MANY} scans, there are {len(scans)}: read fewer runs at once"
        )
    figure = Figure(figsize=(9.6, 0.5 + 3.2 * len(scans)), layout="constrained")
    for s, (left, right) in zip(scans, figure.subplots(len(scans), 2, squeeze=False), strict=True):
        _panel(left, s, "A")
        _panel(right, s, "score")
        _legend(right, s, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(s.starts) + 1)
        left.set_title(shorten(s.run.name, 60), loc="left", fontsize=10, parse_math=False)
    return figure


def plot_scan(scan: WindowScan, ax: Axes | None = None) -> Axes:
    """Draw one scan: A and the forecast, or A alone on axes of one's own.

    Parameters
    ----------
    scan : WindowScan
    ax : Axes, optional
        Where to draw A; a new figure with both panels when left out.

    Returns
    -------
    Axes
        Those of A.
    """
    if ax is None:
        return scan_figure([scan]).axes[0]
    _panel(ax, scan, "A")
    _legend(ax, scan)
    return ax


def _panel(ax: Axes, s: WindowScan, what: str) -> None:
    whole: Estimate = getattr(s.whole, what)
    if np.isfinite(whole.value):
        ax.axhspan(whole.low, whole.high, color="0.9", lw=0, zorder=0)
        ax.axhline(whole.value, color="0.55", lw=0.9, zorder=1)
    gaps = np.diff(np.log(s.ends))
    step = SPREAD * float(gaps.min()) / max(len(s.starts), 2) if len(gaps) else 0.04
    for i, start in enumerate(s.starts):
        shift = float(np.exp(step * (i - 0.5 * (len(s.starts) - 1))))
        drawn = [w for w in s.windows if w.start == start and w.asymptote]
        _series(ax, drawn, what, shift, i)
    _axes(ax, s, what)


def _series(ax: Axes, windows: Sequence[Window], what: str, shift: float, i: int) -> None:
    style = STYLES[i % len(STYLES)]
    for w in windows:
        e: Estimate = getattr(w, what)
        x = w.end * shift
        line = {"lw": 1.6} if w.identified else {"lw": 1.0, "ls": (0, (1, 1.5))}
        ax.plot([x, x], [e.low, e.high], color=style.color, zorder=2, **line)
        fill = style.color if w.identified else "white"
        dot: dict[str, Any] = {"marker": style.marker, "ms": 6, "mec": style.color, "mew": 1.1}
        ax.plot([x], [e.value], ls="none", mfc=fill, zorder=3, **dot)
    known = [w for w in windows if w.identified]
    ends, values = [w.end * shift for w in known], [getattr(w, what).value for w in known]
    ax.plot(ends, values, color=style.color, lw=0.8, zorder=2)


def _axes(ax: Axes, s: WindowScan, what: str) -> None:
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator(s.ends))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: digits.compute(round(value, 6))))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.tick_params(axis="x", which="minor", length=0)
    ax.tick_params(labelsize=8.5)
    ax.set_xlabel(f"fitted up to ({x_words(s.run)})", parse_math=False)
    at = f"{digits.compute(s.at)} {x_words(s.run)}"
    ax.set_ylabel("A" if what == "A" else f"{y_words(s.run)} at {at}", parse_math=False)
    ax.set_ylim(*_y_range(s, what))
    ax.grid(axis="y", color="0.93", lw=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _y_range(s: WindowScan, what: str) -> tuple[float, float]:
    """From the lowest to the highest of all values and of the intervals that mean something."""
    fitted = [w for w in s.windows if w.asymptote]
    values = [getattr(w, what).value for w in fitted]
    for w in fitted:
        if w.identified or what == "score" or not any(v.identified for v in fitted):
            values += [getattr(w, what).low, getattr(w, what).high]
    if not values:
        return 0.0, 1.0
    room = ROOM * ((max(values) - min(values)) or 0.1)
    return min(values) - room, max(values) + room


def _legend(ax: Axes, s: WindowScan, **place: Any) -> None:
    handles, words = [], []
    for i, start in enumerate(s.starts):
        style = STYLES[i % len(STYLES)]
        handles.append(Line2D([], [], color=style.color, marker=style.marker, ms=5.5, lw=0.8))
        words.append(f"from {digits.compute(start)}")
    if any(w.asymptote and not w.identified for w in s.windows):
        look: dict[str, Any] = {"color": "0.3", "marker": "o", "mfc": "white", "ms": 5.5}
        handles.append(Line2D([], [], lw=1.0, ls=(0, (1, 1.5)), **look))
        words.append("A not identified")
    ax.legend(handles, words, frameon=False, fontsize=8.5, **place)
