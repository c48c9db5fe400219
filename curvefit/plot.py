"""Score against compute, drawn: what was seen, what was fitted, what is forecast, what is in doubt.

Fitted points are solid and held-out points hollow in the same hue; the curve is solid over the
fitted points and dashed beyond; the band bounds the mean curve. Colour carries no meaning alone:
runs differ in marker and in lightness too. No global state of matplotlib is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import ArrayLike

from curvefit import digits
from curvefit.compact import shorten
from curvefit.errors import InputError
from curvefit.labels import direct_labels, key, run_legend
from curvefit.units import x_words, y_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from curvefit.fit import Fit
    from curvefit.runs import Run

__all__ = ["plot"]

DIRECT = 3  # up to so many runs are labelled at their curves
BANDED = 12  # up to so many runs have bands; more would hide each other
SAMPLES = 80  # of each curve inside the fit, and as many beyond
MARGIN = 0.06  # of the height, above and below what is drawn
RASTER = 2000  # from so many points on, they become a picture inside an SVG or PDF


class Style(NamedTuple):
    """How a run looks: a hue that colour-blind readers tell apart, and a marker."""

    color: str
    marker: str


# Hues after Okabe and Ito and after Tol; neighbours in the list differ in lightness.
HUES = (
    "#0059a0 #d97700 #00785a #cc79a7 #332288 #56b4e9 "
    "#882255 #999933 #222222 #44aa99 #d55e00 #6b3e1d"
)
STYLES = tuple(map(Style, HUES.split(), "os^DvPX<p>h*"))


def plot(fit: Fit | Iterable[Fit], ax: Axes | None = None, *, at: ArrayLike = ()) -> Axes:
    """Draw one fit or several.

    Parameters
    ----------
    fit : Fit or iterable of Fit
    ax : Axes, optional
        Where to draw; a new figure, with constrained layout, when left out.
    at : array_like
        Computes that the picture must reach; it always reaches ten times the last fitted one.

    Returns
    -------
    Axes
        ``axes.figure.savefig("curve.png", dpi=200)`` saves it.

    Raises
    ------
    InputError
        If there is no fit to draw.
    """
    fits = list(fit) if isinstance(fit, Iterable) else [fit]
    if not fits:
        raise InputError("there is no fit to draw: give one Fit or several")
    few, banded = len(fits) <= DIRECT, len(fits) <= BANDED
    if ax is None:
        size = (7.4, 4.4) if few else (9.6, 5.4)
        ax = Figure(figsize=size, layout="constrained").add_subplot()
    reach = _x_range(fits, at)
    drawn = [_run(ax, one, style, reach, few, banded) for one, style in _styled(fits)]
    _axes(ax, fits, reach, drawn)
    (direct_labels if few else run_legend)(ax, list(_styled(fits)), reach[1])
    key(ax, fits, banded)
    return ax


def _styled(fits: Sequence[Fit]) -> Iterable[tuple[Fit, Style]]:
    return zip(fits, cycle(STYLES), strict=False)


def _x_range(fits: Sequence[Fit], at: ArrayLike) -> tuple[float, float]:
    """Return from just before the first positive compute to ten times the last fitted one."""
    seen = np.concatenate([run.compute for fit in fits for run in _runs(fit)])
    last = max(float(fit.run.compute[-1]) for fit in fits)
    right = max([10.0 * last, float(seen.max()), *np.atleast_1d(np.asarray(at, float)).tolist()])
    return float(seen[seen > 0].min()) / 1.25, right


def _runs(fit: Fit) -> list[Run]:
    return [fit.run] if fit.held_out is None else [fit.run, fit.held_out]


def _run(
    ax: Axes, fit: Fit, style: Style, reach: tuple[float, float], few: bool, banded: bool
) -> tuple[float, float]:
    """Draw one run; return the lowest and the highest score drawn."""
    left, right = reach
    start = left if fit.run.compute[0] == 0.0 else float(fit.run.compute[0])
    last = float(fit.run.compute[-1])
    samples = SAMPLES if few else SAMPLES // 2
    inside, beyond = (np.geomspace(*ends, samples) for ends in ((start, last), (last, right)))
    width = 1.8 if few else 1.2
    ax.plot(inside, fit(inside), color=style.color, lw=width, zorder=4)
    ax.plot(beyond, fit(beyond), color=style.color, lw=width, ls=(0, (4, 2)), zorder=4)
    drawn = [fit(inside), fit(beyond), *(run.score for run in _runs(fit))]
    if banded and fit.forecaster is not None:
        C = np.concatenate([inside, beyond])
        low, high = fit.band(C)
        ax.fill_between(C, low, high, color=style.color, alpha=0.2 if few else 0.08, lw=0, zorder=1)
        drawn += [low, high]
    for run, fill in zip(_runs(fit), (style.color, "none"), strict=False):
        _points(ax, run, style, fill, few)
    if few and fit.verdict.asymptote != "not identified":
        ax.axhline(fit.params["A"].value, color=style.color, lw=0.7, ls=(0, (1, 2)), zorder=2)
        drawn.append(np.array([fit.params["A"].value]))
    return min(float(v.min()) for v in drawn), max(float(v.max()) for v in drawn)


def _points(ax: Axes, run: Run, style: Style, fill: str, few: bool) -> None:
    """Draw points, those at zero compute on the left edge, since a log axis has no zero."""
    crowded = len(run) > 80 or not few
    looks: dict[str, Any] = {
        "ls": "none",
        "marker": style.marker,
        "ms": 3.6 if crowded else 5.5,
        "mec": style.color,
        "mfc": fill,
        "mew": 0.9,
        "alpha": 0.45 if len(run) > 80 else None,  # so that the curve shows through the crowd
        "zorder": 3,
        "rasterized": len(run) > RASTER,
    }
    positive = run.compute > 0
    ax.plot(run.compute[positive], run.score[positive], **looks)
    if not positive.all():
        edge = np.zeros(int((~positive).sum()))
        on_axis = ax.get_yaxis_transform()
        ax.plot(edge, run.score[~positive], transform=on_axis, clip_on=False, **looks)


def _axes(
    ax: Axes,
    fits: Sequence[Fit],
    reach: tuple[float, float],
    drawn: Sequence[tuple[float, float]],
) -> None:
    ax.set_xscale("log")
    ax.set_xlim(*reach)
    if 1e-2 <= reach[0] and reach[1] < 1e8:
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: digits.compute(value)))
    ax.xaxis.set_minor_formatter(NullFormatter())
    low, high = min(d[0] for d in drawn), max(d[1] for d in drawn)
    room = MARGIN * ((high - low) or max(abs(high), 1.0))
    ax.set_ylim(low - room, high + room)
    ax.set_xlabel(_title((x_words(f.run), f.run.x.column) for f in fits), parse_math=False)
    ax.set_ylabel(_title((y_words(f.run), f.run.y.column) for f in fits), parse_math=False)
    ax.grid(axis="y", color="0.9", lw=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _title(axes: Iterable[tuple[str, str]]) -> str:
    """Return unit and column of an axis; the column only where it says something else."""
    titles = []
    for words, column in axes:
        plain = words.lower().replace("-", "_").replace(" ", "_")
        same = plain.rstrip("s") == column.lower().rstrip("s")
        titles.append(shorten(words if same else f"{words} ({column})", 60))
    return ", ".join(list(dict.fromkeys(titles))[:3])
