"""The words of a plot: names at the curves or in a legend, the asymptote's interval, the key.

Names come from files: nothing in them is read as mathematics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from curvefit import digits
from curvefit.compact import shorten

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

    from curvefit.fit import Fit
    from curvefit.plot import Style

__all__ = ["apart", "asymptote_words", "direct_labels", "key", "run_legend"]

SIZE = 8.5  # points
LISTED = 24  # runs in a legend
SPACIOUS = 12  # up to so many have their asymptote there
BAR = 0.009  # of the width of the axes, for each bar at their right
GREY = "0.25"
CORNERS = {"lower right": (1, 0), "upper left": (0, 1), "lower left": (0, 0), "upper right": (1, 1)}


def asymptote_words(fit: Fit) -> str:
    """Return what is known of A: a value only where it is identified."""
    value, low, high = digits.scores(*fit.params["A"])
    interval = digits.interval(low, high)
    if fit.sigmoid is None:
        return f"A {value}, no interval"
    if fit.verdict.asymptote == "not identified":
        return f"A not identified, {interval}"
    weak = " (weak)" if fit.verdict.asymptote == "weak" else ""
    return f"A {value} {interval}{weak}"


def direct_labels(ax: Axes, fits: Sequence[tuple[Fit, Style]], right: float) -> None:
    """Write each run's name and asymptote at the right margin, beside the end of its curve."""
    low, high = ax.get_ylim()
    texts = [f"{shorten(f.run.name, 28)}\n{asymptote_words(f)}" for f, _ in fits]
    ends = [_end(f, right) for f, _ in fits]
    at = np.clip((np.array(ends) - low) / (high - low), 0.0, 1.0)
    height = 2 * 1.35 * SIZE / 72 / (ax.bbox.height / ax.figure.dpi)  # of two lines, in axes
    places = apart(at, height)
    free: dict[str, Any] = {"transform": ax.transAxes, "clip_on": False}
    begin = 1.006 + BAR * len(fits)
    for i, (fit, style) in enumerate(fits):
        _bracket(ax, fit, style, 1.006 + BAR * i)
        ax.plot([begin, begin + 0.02], [at[i], places[i]], color=style.color, lw=0.7, **free)
        words: dict[str, Any] = {
            "va": "center",
            "fontsize": SIZE,
            "linespacing": 1.2,
            "parse_math": False,
        }
        ax.text(begin + 0.025, places[i], texts[i], color=darker(style.color), **words, **free)


def darker(color: str) -> tuple[float, ...]:
    """Return a colour dark enough for small letters on white."""
    return tuple(0.75 * part for part in to_rgb(color))


def _end(fit: Fit, right: float) -> float:
    """Return where a label points: the asymptote where it is known, else the curve's end."""
    known = fit.verdict.asymptote != "not identified"
    return fit.params["A"].value if known else float(fit(np.array([right]))[0])


def _bracket(ax: Axes, fit: Fit, style: Style, x: float) -> None:
    """Draw the interval of A as a bar right of the axes, cut where the axes end."""
    _, low, high = fit.params["A"]
    if np.isfinite(low):
        bottom, top = ax.get_ylim()
        ends = np.clip([low, high], bottom, top)
        ax.plot(
            [x, x],
            ends,
            color=style.color,
            lw=2.6,
            alpha=0.7,
            solid_capstyle="butt",
            transform=ax.get_yaxis_transform(),
            clip_on=False,
        )


def apart(at: NDArray[np.float64], height: float) -> NDArray[np.float64]:
    """Move positions in [0, 1] apart by at least `height`, as little as that takes.

    >>> apart(np.array([0.5, 0.5, 0.0]), 0.2)
    array([0.4, 0.6, 0. ])
    """
    order = np.argsort(at, kind="stable")
    steps = np.arange(len(at)) * height
    free = np.asarray(at, dtype=float)[order] - steps  # now they need only not decrease
    blocks: list[tuple[float, int]] = []
    for value in free.tolist():
        mean, size = value, 1
        while blocks and blocks[-1][0] > mean:
            previous, count = blocks.pop()
            mean = (mean * size + previous * count) / (size + count)
            size += count
        blocks.append((mean, size))
    settled = np.concatenate([np.full(size, mean) for mean, size in blocks])
    placed = np.empty(len(at))
    placed[order] = np.clip(settled, 0.0, max(0.0, 1.0 - steps[-1])) + steps
    return placed


def run_legend(ax: Axes, fits: Sequence[tuple[Fit, Style]], right: float) -> None:
    """List the runs beside the axes, in the order in which their curves end."""
    ends = [-float(fit(np.array([right]))[0]) for fit, _ in fits]
    order = np.argsort(ends, kind="stable")[:LISTED].tolist()
    handles: list[Artist] = []
    words = []
    for fit, style in (fits[i] for i in order):
        handles.append(Line2D([], [], color=style.color, marker=style.marker, ms=4.5, lw=1.2))
        name = shorten(fit.run.name, 28)
        words.append(f"{name}\n{asymptote_words(fit)}" if len(order) <= SPACIOUS else name)
    if len(fits) > LISTED:
        handles.append(Line2D([], [], ls="none"))
        words.append(f"and {len(fits) - LISTED} more")
    legend = _legend(
        ax, handles, words, loc="upper left", bbox_to_anchor=(1.01, 1.02), frameon=False
    )
    ax.add_artist(legend)  # the key, made next, would take its place
    legend.set_clip_on(False)  # or layout would not make room for it


def key(ax: Axes, fits: Sequence[Fit], banded: bool) -> None:
    """Explain points, lines and band in the emptiest corner."""
    dot: dict[str, Any] = {"ls": "none", "marker": "o", "ms": 5, "mec": GREY, "mew": 0.9}
    at_zero = any((run.compute == 0).any() for run in (fit.run for fit in fits))
    fitted = "fitted (left edge: zero compute)" if at_zero else "fitted"
    entries: list[tuple[Artist, str]] = [(Line2D([], [], mfc=GREY, **dot), fitted)]
    if any(fit.held_out is not None for fit in fits):
        entries.append((Line2D([], [], mfc="none", **dot), "held out"))
    entries.append((Line2D([], [], color=GREY, lw=1.6), "curve"))
    entries.append((Line2D([], [], color=GREY, lw=1.6, ls=(0, (4, 2))), "curve beyond the fit"))
    levels = {digits.percent(fit.level) for fit in fits if fit.forecaster is not None}
    if levels and banded:
        words = f"{' and '.join(sorted(levels))} of the mean curve"
        entries.append((Patch(color=GREY, alpha=0.2, lw=0), words))
    handles, words_of = [e[0] for e in entries], [e[1] for e in entries]
    _legend(ax, handles, words_of, loc=_emptiest_corner(ax))


def _legend(
    ax: Axes,
    handles: Sequence[Artist],
    words: Sequence[str],
    **where: Any,
) -> Legend:
    """Make a legend whose words are taken literally, also those that begin with _ or hold $."""
    numbers = [str(i) for i in range(len(handles))]
    looks: dict[str, Any] = {
        "framealpha": 0.8,
        "edgecolor": "none",
        "handlelength": 2.2,
        "borderaxespad": 0.3,
    }
    legend = ax.legend(handles, numbers, fontsize=SIZE, **looks, **where)
    for text, word in zip(legend.get_texts(), words, strict=True):
        text.set_parse_math(False)
        text.set_text(word)
    return legend


def _emptiest_corner(ax: Axes) -> str:
    """Return the corner whose third of the axes holds the fewest points of lines."""
    xy = np.concatenate(
        [
            ax.transAxes.inverted().transform(line.get_transform().transform(line.get_xydata()))
            for line in ax.get_lines()
            if len(np.atleast_1d(line.get_xdata())) > 0
        ]
    )
    filled = {
        corner: int(((np.abs(xy[:, 0] - x) < 0.42) & (np.abs(xy[:, 1] - y) < 0.36)).sum())
        for corner, (x, y) in CORNERS.items()
    }
    return min(filled, key=lambda corner: filled[corner])
