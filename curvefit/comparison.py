"""`Comparison`: recipes side by side, immutable, from which every face is laid out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from curvefit.comparable import Excluded
from curvefit.fitted import Fit
from curvefit.fixed_asymptote import FixedA
from curvefit.pairs import Crossing, Difference
from curvefit.ranking import Ranking
from curvefit.reported import Reported
from curvefit.results import Estimate, Reach

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Comparison", "Pair", "Recipe"]


class Recipe(NamedTuple):
    """A recipe: its runs, and the mean over seeds of A, B, C_mid and of the score at `at`.

    `last` is the last compute of its longest run.
    """

    recipe: str
    runs: tuple[str, ...]
    points: int
    last: float
    A: Estimate
    B: Estimate
    C_mid: Estimate
    score: Estimate
    reach: tuple[Reach, ...]


class Pair(NamedTuple):
    """Two recipes: differences in score and A, ratios (first over second) in B, C_mid, compute.

    `probability` is always that the first is the larger; of `reach`, that the first needs more
    compute. `fixed_A` is None unless the asymptotes lie within the margin of each other.
    """

    first: str
    second: str
    score: Difference
    A: Difference
    B: Difference
    C_mid: Difference
    reach: tuple[Difference, ...]
    crossing: Crossing
    fixed_A: FixedA | None


@dataclass(frozen=True, eq=False)
class Comparison(Reported):
    """The result of `compare`.

    Attributes
    ----------
    at : float
        The common compute of the scores.
    reach : tuple of float
        The scores of each recipe's and each pair's `reach`.
    level : float
        Probability content of all intervals.
    recipes : tuple of Recipe
        The best score first.
    pairs : tuple of Pair
        Each two recipes once, in that order.
    rankings : tuple of Ranking
        By the score at `at`, and by A.
    spread : dict from str to Estimate
        The seed-to-seed standard deviation of A and of the score at `at`.
    spread_known : bool
        Whether any recipe has several seeds, so that the spread is estimated, not assumed.
    excluded : tuple of Excluded
    notes : tuple of str
        What else to know before believing the ranking.
    fits : dict from str to tuple of Fit
        The fits of each recipe.
    """

    _report = "curvefit.comparison_report"

    at: float
    reach: tuple[float, ...]
    level: float
    recipes: tuple[Recipe, ...]
    pairs: tuple[Pair, ...]
    rankings: tuple[Ranking, ...]
    spread: dict[str, Estimate]
    spread_known: bool
    excluded: tuple[Excluded, ...]
    notes: tuple[str, ...]
    fits: dict[str, tuple[Fit, ...]]

    def pair(self, first: str, second: str) -> Pair:
        """Return the pair of two recipes, in the order of `pairs`.

        Raises
        ------
        InputError
            If the two are not compared.
        """
        from curvefit.errors import InputError

        for pair in self.pairs:
            if {pair.first, pair.second} == {first, second}:
                return pair
        names = ", ".join(recipe.recipe for recipe in self.recipes)
        raise InputError(f"{first!r} and {second!r} are not two of the recipes compared: {names}")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the asymptotes and scores of the recipes; see `compare_plot`."""
        from curvefit.compare_plot import plot_recipes

        return plot_recipes(self, ax=ax)

    def to_csv(self) -> str:
        """The table of recipes as CSV."""
        from curvefit.comparison_table import csv_table

        return csv_table(self)

    def to_latex(self) -> str:
        """The table of recipes as a LaTeX tabular."""
        from curvefit.comparison_table import latex_table

        return latex_table(self)

    def __repr__(self) -> str:
        names = ", ".join(recipe.recipe for recipe in self.recipes)
        return f"<Comparison of {len(self.recipes)} recipes: {names}>"
