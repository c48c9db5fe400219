"""`Allocation`: which setting to spend a budget on, immutable; every face is laid out from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from curvefit.comparable import Excluded
from curvefit.fitted import Fit
from curvefit.frontier import Frontier, Overtaking, Region
from curvefit.pairs import Difference
from curvefit.reported import Reported
from curvefit.results import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Allocation", "Budget", "Choice", "Setting"]


class Setting(NamedTuple):
    """A setting: its runs, their points, and the first positive and the last compute of them."""

    setting: str
    runs: tuple[str, ...]
    points: int
    first: float
    last: float


class Choice(NamedTuple):
    """A setting at a budget: its score, its probability to be the best, what choosing it may cost.

    `regret` is the score by which the best setting is ahead of it, on average over what the data
    leave possible; `beyond` is the budget in units of the setting's last compute.
    """

    setting: str
    score: Estimate
    probability: float
    regret: float
    beyond: float


class Budget(NamedTuple):
    """A budget: the settings, the likeliest best first, and what the first has over the second.

    `cost` is in the unit of the price, NaN when none is known. `lead` is the first's score minus
    the second's; `suffices` the compute with which the first reaches the second's score, as its
    interval, and not below the smallest budget (NaN if not within the range).
    """

    budget: float
    cost: float
    decided: bool
    choices: tuple[Choice, ...]
    lead: Difference
    suffices: Estimate


@dataclass(frozen=True, eq=False)
class Allocation(Reported):
    """The result of `allocate`.

    Attributes
    ----------
    level : float
        Probability content of all intervals, and from which a setting leads.
    price : float
        Of a unit of compute; NaN when unknown.
    settings : tuple of Setting
    budgets : tuple of Budget
        In ascending order.
    regions : tuple of Region
        The range of budgets, cut where the answer changes.
    overtakings : tuple of Overtaking
        Each ordered pair of settings, the most probable first.
    frontier : Frontier
        Every setting's score and probability over the range, for plots.
    excluded : tuple of Excluded
    notes : tuple of str
        What else to know before spending.
    fits : dict from str to tuple of Fit
        The fits of each setting.
    """

    _report = "curvefit.allocation_report"

    level: float
    price: float
    settings: tuple[Setting, ...]
    budgets: tuple[Budget, ...]
    regions: tuple[Region, ...]
    overtakings: tuple[Overtaking, ...]
    frontier: Frontier
    excluded: tuple[Excluded, ...]
    notes: tuple[str, ...]
    fits: dict[str, tuple[Fit, ...]]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw every setting's curve and band, and which leads; see `allocation_plot`."""
        from curvefit.allocation_plot import plot_allocation

        return plot_allocation(self, ax=ax)

    def to_csv(self) -> str:
        """The settings at each budget as CSV, one row a budget and setting."""
        from curvefit.allocation_report import csv_table

        return csv_table(self)

    def __repr__(self) -> str:
        names = ", ".join(setting.setting for setting in self.settings)
        low, high = self.frontier.compute[[0, -1]]
        return f"<Allocation of {low:.4g} to {high:.4g} to {len(self.settings)} settings: {names}>"
