"""Recipes side by side: which is better, by how much, how surely, and from which compute on.

Two questions, two rankings: the score at a stated compute, which is forecast by all laws, and the
asymptote A of ScaleRL's sigmoid, by which the paper ranks (arXiv 2510.13786, section 7). Both allow
for what differs from seed to seed (`pooling`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from curvefit.atoms import ATOMS, mixture
from curvefit.comparable import Grouped, RecipeOf, grouped
from curvefit.comparison import Comparison, Pair, Recipe
from curvefit.errors import InputError
from curvefit.fit_doubts import span
from curvefit.fitted import Fit
from curvefit.fixed_asymptote import MARGIN, FixedA, compare_at_fixed_A
from curvefit.pairs import crossing, difference, ln_reach, pairings_for, ratio
from curvefit.pooled_curves import (
    clip_to_bounds,
    estimate,
    last_compute,
    recipe_curves,
    score_pool,
    seed_margin,
)
from curvefit.pooling import SEED_B, Pool, pool
from curvefit.ranking import rank
from curvefit.recipe_notes import column_notes, lost_notes, seed_note
from curvefit.results import Estimate, Reach
from curvefit.runs import Run
from curvefit.units import x_words, y_words
from curvefit.window import checked_level
from curvefit.wording import listed

__all__ = ["compare"]

FloatArray = NDArray[np.float64]

LEAD = 0.005  # by so much a curve must be ahead on its side of a crossing
CURVE_POINTS = 64
BEYOND = 100.0  # curves are followed to so many times the last compute
NAN = float("nan")


class Pools(NamedTuple):
    """Each recipe's equally likely values, in the order of `names`; B and C_mid as logarithms.

    `curves` has shape (recipes, M, K) at `ln_C`; `ln_reach`, (recipes, scores to reach, M), is the
    ln of the compute that first reaches a score.
    """

    names: tuple[str, ...]
    score: Pool
    A: Pool
    ln_B: Pool
    ln_C_mid: Pool
    curves: FloatArray
    ln_C: FloatArray
    ln_reach: FloatArray


def compare(
    runs: Iterable[Run | Fit],
    *,
    recipe: RecipeOf = None,
    at: float | None = None,
    reach: Sequence[float] = (),
    level: float = 0.9,
    law: str = "average",
    r0: str | float = "fit",
    skip: float | str = 0.0,
    until: float | str | None = None,
) -> Comparison:
    """Compare recipes, each of one or several runs.

    Parameters
    ----------
    runs : iterable of Run or Fit
        Runs are fitted; fits stay as they are.
    recipe : mapping or callable, optional
        The recipe of each run, by its name, or as a function of the run. Left out, runs whose names
        differ in a seed's number alone (``grpo, seed 1``) are seeds of one recipe.
    at : float, optional
        Compute at which scores are compared; twice the largest last compute when left out.
    reach : sequence of float
        Scores of which the compute to reach them is compared.
    level : float
        Probability content of the intervals.
    law, r0, skip, until
        As in `curvefit.fit`.

    Raises
    ------
    InputError
        If there are not two runs, or an option cannot be used.

    Examples
    --------
    >>> import curvefit
    >>> C = [200.0 * k for k in range(41)]
    >>> noise = 0.002 * np.sin(7.0 * np.arange(41))
    >>> scores = {A: curvefit.curve(C, A, 1.8, 1000, 0.3) + noise for A in (0.5, 0.62)}
    >>> runs = [curvefit.load({"step": C, "pass_rate": y})[0] for y in scores.values()]
    >>> recipe = dict(zip(runs, "ab")).__getitem__
    >>> compare(runs, recipe=recipe).rankings[1].places[0].recipe
    'b'
    """
    runs = list(runs)
    if len(runs) < 2:
        raise InputError(f"a comparison needs at least 2 runs, there are {len(runs)}")
    level = checked_level(level)
    options = {"law": law, "r0": r0, "skip": skip, "until": until, "level": level}
    found = grouped(runs, recipe, options)
    fits = [fitted for of_recipe in found.recipes.values() for fitted in of_recipe]
    if not fits:
        return _nothing(found, level, tuple(reach))
    return _compared(found, _checked_at(at, fits), tuple(reach), level)


def _compared(found: Grouped, at: float, reach: tuple[float, ...], level: float) -> Comparison:
    """The comparison of the recipes that are left, at a common compute."""
    pools = _pools(found.recipes, at, reach)
    order = np.argsort(-np.median(pools.score.draws, axis=1), kind="stable").tolist()
    several = any(len(of_recipe) > 1 for of_recipe in found.recipes.values())
    recipes = [_recipe(pools, i, found.recipes, reach, level) for i in order]
    pairs = [_pair(pools, i, j, found.recipes, level) for i, j in combinations(order, 2)]
    run = next(iter(found.recipes.values()))[0].run
    words = f"the {y_words(run)} at {at:,.7g} {x_words(run)}"
    rankings = (
        rank("score", words, pools.names, pools.score.draws),
        rank("A", "the asymptote A", pools.names, pools.A.draws, _open_A(found)),
    )
    spread = {
        "A": estimate(pools.A.spread, level),
        "score": estimate(pools.score.spread, level),
    }
    return Comparison(
        at=at,
        reach=tuple(float(y) for y in reach),
        level=level,
        recipes=tuple(recipes),
        pairs=tuple(pairs),
        rankings=rankings if len(recipes) > 1 else (),
        spread=spread,
        spread_known=several,
        excluded=tuple(found.excluded),
        notes=tuple(_notes(found, several, spread)),
        fits={name: tuple(found.recipes[name]) for name in (r.recipe for r in recipes)},
    )


def _nothing(found: Grouped, level: float, reach: tuple[float, ...]) -> Comparison:
    notes = ("no run is left to compare",)
    return Comparison(NAN, reach, level, (), (), (), {}, False, tuple(found.excluded), notes, {})


def _checked_at(at: float | None, fits: Sequence[Fit]) -> float:
    if at is None:
        return 2.0 * last_compute([fits])
    if not (np.isfinite(at) and at > 0):
        raise InputError(f"cannot compare at compute {at:g}: give a number above 0")
    return float(at)


# ---------------------------------------------------------------- pooling


def _pools(recipes: dict[str, list[Fit]], at: float, reach: Sequence[float]) -> Pools:
    groups = list(recipes.values())
    score, margin = score_pool(groups, at), seed_margin(groups)
    tables = [[_parameters(f) for f in group] for group in groups]
    A, ln_B, ln_C_mid = (
        pool([np.array([t[k] for t in group]) for group in tables], prior)
        for k, prior in enumerate((margin, SEED_B, SEED_B))
    )
    clip_to_bounds(A.draws, groups)
    ln_C = _grid(groups)
    together = recipe_curves(groups, ln_C, score.spread, at)
    reached = np.array([[ln_reach(R, ln_C, y) for y in reach] for R in together])
    return Pools(tuple(recipes), score, A, ln_B, ln_C_mid, together, ln_C, reached)


def _parameters(fit: Fit) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Equally likely values of A, ln B and ln C_mid of the sigmoid, each of shape (M,)."""
    assert fit.sigmoid is not None
    a = mixture([fit.sigmoid], [1.0], ATOMS)
    return a.A, np.log(a.B), a.ln_c


def _grid(groups: Sequence[Sequence[Fit]]) -> FloatArray:
    """Ln C from the first positive compute of the data to a hundred times the last."""
    first = min(float(f.run.compute[f.run.compute > 0][0]) for group in groups for f in group)
    return np.linspace(np.log(first), np.log(BEYOND * last_compute(groups)), CURVE_POINTS)


# ---------------------------------------------------------------- rows


def _recipe(
    pools: Pools, i: int, recipes: dict[str, list[Fit]], reach: Sequence[float], level: float
) -> Recipe:
    name = pools.names[i]
    fits = recipes[name]
    return Recipe(
        recipe=name,
        runs=tuple(f.run.name for f in fits),
        points=sum(len(f.run) for f in fits),
        last=max(float(f.run.compute[-1]) for f in fits),
        A=estimate(pools.A.draws[i], level),
        B=estimate(np.exp(pools.ln_B.draws[i]), level),
        C_mid=estimate(np.exp(pools.ln_C_mid.draws[i]), level),
        score=estimate(pools.score.draws[i], level),
        reach=tuple(_reach(y, at, level) for y, at in zip(reach, pools.ln_reach[i], strict=True)),
    )


def _reach(y: float, ln_reach: FloatArray, level: float) -> Reach:
    at = np.sort(ln_reach)
    tail = (1.0 - level) / 2.0
    picks = [at[min(int(p * len(at)), len(at) - 1)] for p in (tail, 0.5, 1.0 - tail)]
    low, middle, high = (float(np.exp(v)) if np.isfinite(v) else NAN for v in picks)
    return Reach(float(y), middle, low, high, float(np.isfinite(at).mean()))


def _pair(pools: Pools, i: int, j: int, recipes: dict[str, list[Fit]], level: float) -> Pair:
    unit = span(recipes[pools.names[i]][0])
    pairings = pairings_for(len(pools.names))
    A = difference(pools.A.draws[i], pools.A.draws[j], level, pairings)
    reached = zip(pools.ln_reach[i], pools.ln_reach[j], strict=True)
    return Pair(
        first=pools.names[i],
        second=pools.names[j],
        score=difference(pools.score.draws[i], pools.score.draws[j], level, pairings),
        A=A,
        B=ratio(pools.ln_B.draws[i], pools.ln_B.draws[j], level, pairings),
        C_mid=ratio(pools.ln_C_mid.draws[i], pools.ln_C_mid.draws[j], level, pairings),
        reach=tuple(ratio(first, second, level, pairings) for first, second in reached),
        crossing=crossing(pools.curves[i], pools.curves[j], pools.ln_C, level, LEAD * unit),
        fixed_A=_fixed(pools, i, j, recipes, A.value, level),
    )


def _fixed(
    pools: Pools, i: int, j: int, recipes: dict[str, list[Fit]], gap: float, level: float
) -> FixedA | None:
    """B with the mean A, if the asymptotes lie within the margin of each other."""
    first, second = recipes[pools.names[i]], recipes[pools.names[j]]
    if abs(gap) > MARGIN * span(first[0]):
        return None
    mean = float(np.median(pools.A.draws[i]) + np.median(pools.A.draws[j])) / 2.0
    return compare_at_fixed_A(first, second, mean, float(np.median(pools.ln_B.spread)), level)


# ---------------------------------------------------------------- notes


def _notes(found: Grouped, several: bool, spread: dict[str, Estimate]) -> Iterable[str]:
    yield seed_note("A", spread["A"], several)
    yield from lost_notes(found)
    open_A = _open_A(found)
    if open_A:
        yield (
            f"A is not identified by any run of {listed(open_A, 5)}: what is said of it rests on "
            "the prior; go by the score"
        )
    yield from column_notes(found)


def _open_A(found: Grouped) -> list[str]:
    """Recipes of which no run identifies A."""
    return [name for name, fits in found.recipes.items() if not any(map(_identified, fits))]


def _identified(fit: Fit) -> bool:
    return fit.verdict.asymptote != "not identified"
