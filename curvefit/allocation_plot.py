"""An allocation drawn: every setting's score against the budget, and below, which one leads.

A curve is solid over the data and dashed beyond, and thick where its setting is the likeliest best;
the thick pieces are the frontier. The ribbon names the setting that leads, hatched where the matter
is not decided. Settings differ in marker, lightness and, in the ribbon, hatching: no colour carries
meaning alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, NullFormatter

from curvefit import digits
from curvefit.compact import shorten
from curvefit.labels import apart, darker
from curvefit.picture import saved, svg_element
from curvefit.plot import STYLES
from curvefit.units import x_words, y_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend
    from numpy.typing import NDArray

    from curvefit.allocation import Allocation
    from curvefit.frontier import Region
    from curvefit.plot import Style

__all__ = ["allocation_picture", "allocation_svg", "plot_allocation"]

DASHES = (0, (4, 2))
RIBBON = 0.075  # of the height of the axes
LETTER = 0.0125  # of their width, one letter in the ribbon
HATCHES = ("", "..", "\\\\", "xx", "++", "oo", "--", "||", "**", "OO", "\\.", "-.")
SIZE = 8.5  # points
DIRECT = 8  # up to so many settings are named at their curves


def plot_allocation(allocation: Allocation, ax: Axes | None = None) -> Axes:
    """Draw the frontier of score against compute, and which setting leads where.

    Parameters
    ----------
    allocation : Allocation
    ax : Axes, optional
        Where to draw; a new figure when left out.
    """
    a = allocation
    if ax is None:
        ax = Figure(figsize=(7.8, 4.8), layout="constrained").add_subplot()
    for i in range(len(a.settings)):
        _setting(ax, a, i)
    _axes(ax, a)
    _ribbon(ax, a)
    (_named if len(a.settings) <= DIRECT else _legend)(ax, a)
    _key(ax, a)
    return ax


def allocation_picture(allocation: Allocation, kind: str) -> bytes:
    """Draw it as a file: ``png``, ``svg`` or ``pdf``."""
    return saved(lambda: plot_allocation(allocation), kind)


def allocation_svg(allocation: Allocation) -> str:
    """Draw it as an ``<svg>`` element to stand inside HTML."""
    return svg_element(allocation_picture(allocation, "svg"), "which setting leads at each budget")


def _style(i: int) -> Style:
    return STYLES[i % len(STYLES)]


# ---------------------------------------------------------------- curves


def _setting(ax: Axes, a: Allocation, i: int) -> None:
    """Draw the points, the band and the curve of one setting."""
    f, style = a.frontier, _style(i)
    C, last = f.compute, a.settings[i].last
    for fitted in a.fits[a.settings[i].setting]:
        run = fitted.run
        seen = (run.compute >= C[0]) & (run.compute <= C[-1])
        crowded = int(seen.sum()) > 80
        looks: dict[str, Any] = {"mfc": "none", "mec": style.color, "mew": 0.7, "alpha": 0.45}
        size = 2.5 if crowded else 3.6
        dots = {"ls": "none", "marker": style.marker, "ms": size, "zorder": 2, **looks}
        ax.plot(run.compute[seen], run.score[seen], **dots)
    faint = 0.16 if len(a.settings) <= 4 else 0.09
    ax.fill_between(C, f.low[i], f.high[i], color=style.color, alpha=faint, lw=0, zorder=1)
    best = f.probability.argmax(axis=0) == i
    seen = last >= C
    for where, dashes in ((seen, "-"), (_and_before(~seen), DASHES)):
        for leads, width in ((~best, 1.1), (_and_before(best), 2.8)):
            score = np.where(where & leads, f.score[i], np.nan)
            ax.plot(C, score, color=style.color, lw=width, ls=dashes, zorder=4)


def _and_before(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Select the point before each piece of a curve too, so that pieces meet."""
    wider = mask.copy()
    wider[:-1] |= mask[1:]
    return wider


def _axes(ax: Axes, a: Allocation) -> None:
    run = next(iter(a.fits.values()))[0].run
    C = a.frontier.compute
    ax.set_xscale("log")
    ax.set_xlim(C[0], C[-1])
    if C[0] >= 1e-2 and C[-1] < 1e8:
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: digits.compute(value)))
    ax.xaxis.set_minor_formatter(NullFormatter())
    low, high = float(a.frontier.low.min()), float(a.frontier.high.max())
    height = (high - low) or max(abs(high), 1.0)
    ax.set_ylim(low - (RIBBON + 0.06) * 1.1 * height, high + 0.06 * height)
    ax.set_xlabel(x_words(run), parse_math=False)
    ax.set_ylabel(y_words(run), parse_math=False)
    ax.grid(axis="y", color="0.9", lw=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


# ---------------------------------------------------------------- who leads


def _ribbon(ax: Axes, a: Allocation) -> None:
    """Draw a strip along the bottom: in each region the setting that leads, or that none does."""
    names = [s.setting for s in a.settings]
    width = float(np.log(a.frontier.compute[-1] / a.frontier.compute[0]))
    for region in a.regions:
        i = names.index(region.shares[0].setting)
        style = _style(i)
        box = Rectangle((region.low, 0.0), region.high - region.low, RIBBON, lw=0.8, zorder=5)
        box.set_transform(ax.get_xaxis_transform())
        if region.decided:
            box.set(facecolor=style.color, edgecolor="white", hatch=HATCHES[i % len(HATCHES)])
        else:
            box.set(facecolor="white", edgecolor="0.75", hatch="////")
        ax.add_patch(box)
        said = shorten(names[i], 24) if region.decided else "not decided"
        share = float(np.log(region.high / region.low)) / width
        _ribbon_word(ax, region, said, style, len(said) * LETTER < share)


def _ribbon_word(ax: Axes, region: Region, said: str, style: Style, fits: bool) -> None:
    """Name a region of the ribbon, by the marker of its setting where there is no room."""
    middle, on_axis = float(np.sqrt(region.low * region.high)), ax.get_xaxis_transform()
    ink, paper = ("white", darker(style.color)) if region.decided else ("0.2", "white")
    if fits:
        frame: dict[str, Any] = {"boxstyle": "square,pad=0.15", "fc": paper, "ec": "none"}
        word = ax.text(middle, RIBBON / 2, said, transform=on_axis, zorder=6, color=ink)
        word.set(ha="center", va="center_baseline", fontsize=SIZE, bbox=frame, parse_math=False)
    elif region.decided:
        dot: dict[str, Any] = {"marker": style.marker, "ms": 6, "mfc": "white", "mec": paper}
        ax.plot([middle], [RIBBON / 2], ls="none", transform=on_axis, zorder=6, **dot)


def _named(ax: Axes, a: Allocation) -> None:
    """Write each setting's name at the right margin, beside the end of its curve."""
    low, high = ax.get_ylim()
    at = np.clip((a.frontier.score[:, -1] - low) / (high - low), 0.0, 1.0)
    height = 1.5 * SIZE / 72 / (ax.bbox.height / ax.figure.dpi)
    free: dict[str, Any] = {"transform": ax.transAxes, "clip_on": False}
    for i, (end, place) in enumerate(zip(at, apart(at, height), strict=True)):
        style = _style(i)
        ax.plot([1.005, 1.025], [end, place], color=style.color, lw=0.8, **free)
        ax.plot([1.035], [place], color=style.color, marker=style.marker, ms=4.5, **free)
        name = shorten(a.settings[i].setting, 26)
        words: dict[str, Any] = {"va": "center", "fontsize": SIZE, "parse_math": False}
        ax.text(1.05, place, name, color=darker(style.color), **words, **free)


def _legend(ax: Axes, a: Allocation) -> None:
    """List the settings beside the axes, in the order in which their curves end."""
    order = np.argsort(-a.frontier.score[:, -1], kind="stable").tolist()
    styles = [_style(i) for i in order]
    lines = [Line2D([], [], color=s.color, marker=s.marker, ms=4.5, lw=1.2) for s in styles]
    legend = _words(ax, lines, [shorten(a.settings[i].setting, 26) for i in order], (1.01, 1.02))
    ax.add_artist(legend)  # the key, made next, would take its place
    legend.set_clip_on(False)  # or layout would not make room for it


def _key(ax: Axes, a: Allocation) -> None:
    """Explain lines and band above the axes."""
    grey: dict[str, Any] = {"color": "0.25"}
    handles = [
        Line2D([], [], lw=2.8, **grey),
        Line2D([], [], lw=1.1, ls=DASHES, **grey),
        Patch(alpha=0.2, lw=0, **grey),
    ]
    level = digits.percent(a.level)
    words = ["likeliest best (the frontier)", "beyond the data", f"{level} of the mean curve"]
    _words(ax, handles, words, (0.0, 1.0))


def _words(ax: Axes, handles: list[Any], words: list[str], corner: tuple[float, float]) -> Legend:
    """Make a legend whose words are taken literally, also those that begin with _ or hold $."""
    beside = corner[0] > 0.5
    legend = ax.legend(
        handles,
        [str(i) for i in range(len(handles))],
        fontsize=SIZE,
        frameon=False,
        ncols=1 if beside else len(handles),
        loc="upper left" if beside else "lower left",
        bbox_to_anchor=corner,
    )
    for text, word in zip(legend.get_texts(), words, strict=True):
        text.set_parse_math(False)
        text.set_text(word)
    return legend
