"""Which setting to spend a budget on: model sizes, lengths or batch sizes, at each compute.

ScaleRL finds that a larger model reaches a higher score at the same compute (arXiv 2510.13786,
section 5). Here that is a computed answer: each setting's runs are pooled into one curve as
`compare` does, all laws forecasting, and at every budget the probability is counted that a setting
is the best. What a step of each setting costs is the business of the compute axis: on steps the
question has no answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from curvefit.allocation import Allocation, Budget, Choice, Setting
from curvefit.budgets import budgets_of, checked_end, common_start, grid_of
from curvefit.comparable import Grouped, RecipeOf, grouped
from curvefit.compare import LEAD
from curvefit.errors import InputError
from curvefit.fit_doubts import span
from curvefit.fitted import Fit
from curvefit.frontier import Frontier, frontier, overtakings, regions
from curvefit.narrowing import checked_price
from curvefit.pairs import difference, ln_reach
from curvefit.pooled_curves import (
    clip_to_bounds,
    estimate,
    last_compute,
    recipe_curves,
    score_pool,
)
from curvefit.recipe_notes import column_notes, lost_notes, seed_note
from curvefit.results import Estimate
from curvefit.runs import Run
from curvefit.units import x_words
from curvefit.window import checked_level
from curvefit.wording import listed, printable, quoted

__all__ = ["allocate"]

FloatArray = NDArray[np.float64]

FAR = 20.0  # times the last compute, beyond which nothing but the form of the law speaks
COUNTED = ("step", "samples", "tokens")  # units of which a larger model makes each dearer


def allocate(
    runs: Iterable[Run | Fit],
    *,
    setting: RecipeOf = None,
    budgets: Sequence[float] | None = None,
    at: float | None = None,
    level: float = 0.9,
    price: float | None = None,
    law: str = "average",
    r0: str | float = "fit",
    skip: float | str = 0.0,
    until: float | str | None = None,
) -> Allocation:
    """Say which setting is best at each budget, and how probably.

    Parameters
    ----------
    runs : iterable of Run or Fit
        Runs are fitted; fits stay as they are.
    setting : mapping or callable, optional
        The setting of each run (its model size, length or batch size), by the run's name, or as a
        function of the run. Left out, runs whose names differ in a seed's number alone are seeds of
        one setting.
    budgets : sequence of float, optional
        Computes to answer for, in the unit of the runs; round ones over the whole range when left
        out. Those beyond `at` extend the range.
    at : float, optional
        Where the range ends; ten times the last compute of the longest run when left out (or the
        largest of `budgets`). It begins at the smallest compute that every setting has.
    level : float
        Probability content of the intervals, and the probability from which a setting leads.
    price : float, optional
        Of a unit of compute.
    law, r0, skip, until
        As in `curvefit.fit`.

    Raises
    ------
    InputError
        If fewer than two settings can be set against each other, compute is in steps, or an option
        cannot be used.

    Examples
    --------
    >>> import curvefit
    >>> runs = curvefit.load("data/scalerl_fig1a.csv")
    >>> allocation = curvefit.allocate(runs, budgets=[10_000, 100_000])
    >>> [(b.choices[0].setting, b.decided) for b in allocation.budgets]
    [('17Bx16 MoE', True), ('17Bx16 MoE', True)]
    """
    level, cost = checked_level(level), checked_price(price)
    options = {"law": law, "r0": r0, "skip": skip, "until": until, "level": level}
    found = grouped(list(runs), setting, options, "setting")
    _refuse(found)
    return _allocated(found, budgets, at, level, cost)


def _allocated(
    found: Grouped, budgets: Sequence[float] | None, at: float | None, level: float, cost: float
) -> Allocation:
    """Set the settings' curves against each other over the range of budgets."""
    groups = list(found.recipes.values())
    start = common_start(found.recipes)
    end = checked_end(at, budgets, start, 10.0 * last_compute(groups))
    rows = budgets_of(budgets, start, end)
    C, at_rows = grid_of(rows, start, end)
    ln_C = np.log(C)
    reference = 2.0 * last_compute(groups)
    spread = score_pool(groups, reference).spread
    curves = recipe_curves(groups, ln_C, spread, reference)
    clip_to_bounds(curves, groups)
    names, f = tuple(found.recipes), frontier(curves, C, level)
    passed = overtakings(names, curves, ln_C, level, LEAD * span(groups[0][0]))
    settings = tuple(_setting(name, fits) for name, fits in found.recipes.items())
    return Allocation(
        level=level,
        price=cost,
        settings=settings,
        budgets=tuple(_budget(k, settings, curves, f, level, cost) for k in at_rows),
        regions=regions(names, f, level),
        overtakings=tuple(sorted(passed, key=lambda o: -o.probability)),
        frontier=f,
        excluded=tuple(found.excluded),
        notes=tuple(_notes(found, settings, spread, end, level)),
        fits={name: tuple(fits) for name, fits in found.recipes.items()},
    )


# ---------------------------------------------------------------- refusals


def _refuse(found: Grouped) -> None:
    """Refuse compute in steps, and fewer than two settings."""
    fits = [f for group in found.recipes.values() for f in group]
    steps = [f.run for f in fits if f.run.x.unit == "step"]
    if steps:
        raise InputError(
            f"compute is in steps ({printable(steps[0].x.column)}), and a step of a larger model, "
            "batch or length costs more: name a column of compute with --x (GPU-hours, FLOPs), "
            "give --gpus N with a time column, or --gpu-hours-per-step if all settings share it"
        )
    if len(found.recipes) > 1:
        return
    whys = [f"{printable(e.run)}: {e.why}" for e in found.excluded]
    if whys:
        why = f"left out are {'; '.join(whys[:3])}" + "; and more" * (len(whys) > 3)
    elif fits:
        name = next(iter(found.recipes))
        why = f"all runs are of setting {quoted(name)}; tell settings apart with --run COL"
    else:
        why = "there is no run"
    raise InputError(f"an allocation needs at least 2 settings with a fit: {why}")


# ---------------------------------------------------------------- rows


def _setting(name: str, fits: Sequence[Fit]) -> Setting:
    first = min(float(f.run.compute[f.run.compute > 0][0]) for f in fits)
    runs = tuple(f.run.name for f in fits)
    return Setting(name, runs, sum(len(f.run) for f in fits), first, last_compute([fits]))


def _budget(
    k: int,
    settings: Sequence[Setting],
    curves: FloatArray,
    f: Frontier,
    level: float,
    price: float,
) -> Budget:
    """The settings at the k-th compute of the frontier, the likeliest best first."""
    C, scores = float(f.compute[k]), curves[:, :, k]
    regret = (scores.max(axis=0) - scores).mean(axis=1)
    order = sorted(range(len(settings)), key=lambda i: (-f.probability[i, k], -f.score[i, k], i))
    choices = tuple(
        Choice(
            settings[i].setting,
            Estimate(float(f.score[i, k]), float(f.low[i, k]), float(f.high[i, k])),
            float(f.probability[i, k]),
            float(regret[i]),
            C / settings[i].last,
        )
        for i in order
    )
    first, second = order[:2]
    lead = difference(scores[first], scores[second], level)
    suffices = _compute_at(ln_reach(curves[first], np.log(f.compute), scores[second]), level)
    return Budget(C, C * price, choices[0].probability >= level, choices, lead, suffices)


def _compute_at(ln_C: FloatArray, level: float) -> Estimate:
    """Median and interval of compute from its equally likely logarithms; NaN for never."""
    tail = (1.0 - level) / 2.0
    low, middle, high = np.quantile(ln_C, (tail, 0.5, 1.0 - tail), method="higher").tolist()
    return Estimate(*(float(np.exp(v)) if v < np.inf else np.nan for v in (middle, low, high)))


# ---------------------------------------------------------------- notes


def _notes(
    found: Grouped, settings: Sequence[Setting], spread: FloatArray, end: float, level: float
) -> Iterable[str]:
    fits = [f for group in found.recipes.values() for f in group]
    yield _unit_note(fits)
    several = any(len(group) > 1 for group in found.recipes.values())
    yield seed_note("the score", estimate(spread, level), several, "setting")
    far = [s.setting for s in settings if end > FAR * s.last]
    if far:
        yield (
            f"the largest budget is over {FAR:g} times the last compute of {listed(far, 5)}, where "
            "nothing but the form of the law speaks"
        )
    yield from lost_notes(found)
    yield from column_notes(found)


def _unit_note(fits: Sequence[Fit]) -> str:
    """Say what a unit of compute stands for, and when it may not be the same for all settings."""
    unit, words = fits[0].run.x.unit, x_words(fits[0].run)
    priced = {n.message for f in fits for n in f.run.notes if n.message.startswith("GPU-hours = ")}
    if any("GPUs" not in message for message in priced):
        return (
            f"a step was taken to cost the same in every setting ({listed(sorted(priced), 3)}), "
            "which does not hold for models, batches or lengths of different size"
        )
    if unit in COUNTED:
        return f"{words} of a larger model cost more, which this x axis does not show"
    if unit == "hours":
        return "hours are budgets only if all settings ran on as many GPUs; give --gpus N"
    if unit in ("gpu_hours", "flops"):
        return (
            f"budgets are {words} as logged: what a step of each setting costs is in them, and the "
            "answer holds for the hardware and the code that the runs used"
        )
    return f"budgets are {words!r} as logged, which must cost the same in every setting"
