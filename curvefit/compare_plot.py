"""Recipes drawn: intervals of score and asymptote side by side, and ScaleRL's straight lines.

`plot_recipes` shows what the ranking rests on; `plot_linearised` draws ln F(R) against ln C with
all recipes refitted at one A, so that B is the slope (arXiv 2510.13786, leave-one-out figure);
`plot_comparison` draws both, one above the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from curvefit import digits
from curvefit.compact import shorten
from curvefit.errors import InputError
from curvefit.fit_doubts import span
from curvefit.fixed_asymptote import MARGIN, linearised, refit
from curvefit.plot import STYLES
from curvefit.units import x_words, y_words
from curvefit.wording import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from curvefit.comparison import Comparison, Recipe
    from curvefit.results import Estimate

__all__ = ["alike_in_A", "plot_comparison", "plot_linearised", "plot_recipes"]

ROW = 0.42  # inches
SCORE, ASYMPTOTE = STYLES[0], STYLES[1]


def alike_in_A(c: Comparison) -> list[Recipe]:
    """Return the recipes whose A lies within the margin of the median recipe's."""
    unit = span(next(iter(c.fits.values()))[0])
    middle = sorted(c.recipes, key=lambda r: r.A.value)[(len(c.recipes) - 1) // 2].A.value
    return [r for r in c.recipes if abs(r.A.value - middle) <= MARGIN * unit]


def _refuse_empty(c: Comparison) -> None:
    if not c.recipes:
        raise InputError("there is no recipe to draw: all runs were left out of the comparison")


def plot_comparison(comparison: Comparison) -> Axes:
    """Draw what a ranking rests on and, where two recipes or more share an A, their lines below.

    Raises
    ------
    InputError
        If no recipe is left to draw.
    """
    _refuse_empty(comparison)
    alike = len(alike_in_A(comparison)) > 1
    heights = [1.3 + ROW * len(comparison.recipes)] + [4.2] * alike
    figure = Figure(figsize=(7.4, sum(heights)), layout="constrained")
    panels = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    plot_recipes(comparison, ax=panels[0])
    if alike:
        plot_linearised(comparison, ax=panels[1])
    first: Axes = panels[0]
    return first


def plot_recipes(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """Draw each recipe's score at the common compute and its A, with their intervals.

    Parameters
    ----------
    comparison : Comparison
    ax : Axes, optional
        Where to draw; a new figure when left out.

    Raises
    ------
    InputError
        If no recipe is left to draw.
    """
    c = comparison
    _refuse_empty(c)
    run = next(iter(c.fits.values()))[0].run
    if ax is None:
        height = 1.3 + ROW * len(c.recipes)
        ax = Figure(figsize=(7.4, height), layout="constrained").add_subplot()
    rows = np.arange(len(c.recipes))
    at = f"{digits.compute(c.at)} {x_words(run)}"
    _intervals(ax, rows - 0.13, [r.score for r in c.recipes], SCORE, f"{y_words(run)} at {at}")
    _intervals(ax, rows + 0.13, [r.A for r in c.recipes], ASYMPTOTE, "asymptote A")
    ax.set_yticks(rows, [_label(r.recipe, len(r.runs)) for r in c.recipes], parse_math=False)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlabel(f"{y_words(run)}, {digits.percent(c.level)} intervals", parse_math=False)
    ax.grid(axis="x", color="0.9", lw=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(
        handles, labels, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False
    )
    return ax


def _label(recipe: str, seeds: int) -> str:
    return shorten(recipe, 30) + (f" ({seeds} seeds)" if seeds > 1 else "")


def _intervals(ax: Axes, y: Any, estimates: list[Estimate], style: Any, label: str) -> None:
    """Draw points with their intervals, one below the other."""
    low, middle, high = (np.array([getattr(e, k) for e in estimates]) for k in _ENDS)
    ax.hlines(y, low, high, color=style.color, lw=2.2, alpha=0.75)
    ax.plot(middle, y, ls="none", marker=style.marker, ms=6, color=style.color, label=label)


_ENDS = ("low", "value", "high")


def plot_linearised(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """Draw ln F(R) against ln C at one A: one line a recipe, its slope B.

    Drawn are the recipes whose A lies within the margin of the median recipe's; A is their mean.
    The others have no common A, so that their slopes say nothing, and are left out.

    Parameters
    ----------
    comparison : Comparison
    ax : Axes, optional

    Raises
    ------
    InputError
        If no recipe is left to draw.
    """
    c = comparison
    _refuse_empty(c)
    if ax is None:
        ax = Figure(figsize=(7.4, 4.6), layout="constrained").add_subplot()
    alike = alike_in_A(c)
    A = float(np.mean([r.A.value for r in alike]))
    for i, recipe in enumerate(alike):
        style = STYLES[i % len(STYLES)]
        for k, fitted in enumerate(c.fits[recipe.recipe]):
            point = refit(fitted.run, A)
            ln_C, ln_F = linearised(fitted.run, point)
            shown = np.abs(ln_F - point.B * ln_C) < 4.0
            dots: dict[str, Any] = {"ls": "none", "marker": style.marker, "ms": 4}
            ax.plot(ln_C[shown], ln_F[shown], color=style.color, mfc="none", **dots)
            words = f"{shorten(recipe.recipe, 24)}: B = {digits.significant(point.B, 3)}"
            label = words if k == 0 else "_"
            ax.plot(ln_C, point.B * ln_C, color=style.color, lw=1.4, label=label)
    run = next(iter(c.fits.values()))[0].run
    ax.set_xlabel(f"ln C, C in {x_words(run)}", parse_math=False)
    ax.set_ylabel(f"ln F(R) at A = {digits.significant(A, 3)}")
    ax.grid(color="0.9", lw=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    left_out = len(c.recipes) - len(alike)
    title = f"{count(left_out, 'recipe')} of other A left out" if left_out else None
    legend = ax.legend(frameon=False, fontsize=8.5, title=title, title_fontsize=8.5)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return ax
