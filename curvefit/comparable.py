"""Which runs can be compared, as seeds of which recipes, and why the others cannot.

A recipe's seeds are told by the names of runs, ``grpo, seed 1`` and ``grpo, seed 2``, unless a
mapping or a function says. Left out, each with the reason: runs that cannot be fitted; runs whose
compute or score has another unit than most, or whose score is of another benchmark by the name of
its column; runs that do not rise or fell after their peak, which no rising curve describes; recipes
that share no compute with any other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from curvefit.errors import CurvefitError, InputError
from curvefit.fit import fit
from curvefit.fitted import Fit
from curvefit.predictive import forecaster_of
from curvefit.runs import Run
from curvefit.units import x_words, y_words
from curvefit.wording import quoted

__all__ = ["Excluded", "Grouped", "RecipeOf", "grouped", "recipe_namer"]

RecipeOf = Mapping[str, str] | Callable[[Run], str] | None
SEED = re.compile(r"^(?P<recipe>.*?)[\s,;:/_.(\[-]*seed[\s=_:-]*\d+\W*$", re.IGNORECASE)
COLLAPSED = ("no-rise", "fall-after-peak")
BENCHMARK = re.compile(
    r"(?<![a-z])(math[ _-]?500|aime[ _-]?(?:20)?2\d|amc[ _-]?(?:20)?2\d|gsm[ _-]?8k|olympiad[a-z]*|"
    r"minerva|gpqa|mmlu|arc|humaneval|mbpp|livecodebench|ifeval|bbh|countdown|polaris|deepscaler)",
    re.IGNORECASE,
)
OF_SEVERAL = re.compile(r"(?<![a-z])(pass|best|maj|worst)[ _-]?(?:@|at)[ _-]?(\d+)", re.IGNORECASE)


class Excluded(NamedTuple):
    """A run that is left out of the comparison, and why."""

    run: str
    recipe: str
    why: str


class Grouped(NamedTuple):
    """The fits of each recipe, in the order of the runs, and the runs left out."""

    recipes: dict[str, list[Fit]]
    excluded: list[Excluded]


def recipe_namer(recipe: RecipeOf, word: str = "recipe") -> Callable[[Run], str]:
    """Return the function that names a run's recipe; `word` is what messages call one.

    >>> name = recipe_namer(None)
    >>> import numpy as np
    >>> one = np.ones(3)
    >>> names = "grpo, seed 1", "grpo-seed2", "grpo (seed=3)", "grpo (b), seed 0", "grpo v2"
    >>> [name(Run(n, one, one, None, one)) for n in names]
    ['grpo', 'grpo', 'grpo', 'grpo (b)', 'grpo v2']
    """
    if recipe is None:
        return _by_name
    if not isinstance(recipe, Mapping):
        return recipe

    def looked_up(run: Run) -> str:
        if run.name not in recipe:
            raise InputError(f"{word}= names no {word} for run {quoted(run.name)}; add it")
        return str(recipe[run.name])

    return looked_up


def _by_name(run: Run) -> str:
    found = SEED.match(run.name)
    return (found["recipe"] if found else "") or run.name


def grouped(
    runs: Iterable[Run | Fit], recipe: RecipeOf, options: dict[str, Any], word: str = "recipe"
) -> Grouped:
    """Fit the runs (those that are fits already stay as they are) and group what is comparable.

    `word` is what messages call a recipe.
    """
    name_of = recipe_namer(recipe, word)
    fits: list[tuple[str, Fit]] = []
    excluded: list[Excluded] = []
    for one in runs:
        run = one.run if isinstance(one, Fit) else one
        name = name_of(run)
        try:
            fitted = one if isinstance(one, Fit) else fit(one, **options)
        except CurvefitError as error:
            excluded.append(Excluded(run.name, name, str(error)))
            continue
        forecaster_of(fitted)
        fits.append((name, fitted))
    for reason in (_other_x, _other_y, _other_metric, _collapsed, partial(_apart, word=word)):
        whys = reason(fits)
        excluded += [
            Excluded(f.run.name, name, why)
            for (name, f), why in zip(fits, whys, strict=True)
            if why
        ]
        fits = [one for one, why in zip(fits, whys, strict=True) if not why]
    recipes: dict[str, list[Fit]] = {}
    for name, fitted in fits:
        recipes.setdefault(name, []).append(fitted)
    return Grouped(recipes, excluded)


def _most(keys: list[str], fits: list[tuple[str, Fit]]) -> tuple[str, str]:
    """The most frequent key, the first of several, and whose it is."""
    if not keys:
        return "", ""
    usual, often = Counter(keys).most_common(1)[0]
    first = quoted(fits[keys.index(usual)][1].run.name)
    return usual, "most runs" if 2 * often > len(keys) else f"run {first}"


def _other_x(fits: list[tuple[str, Fit]]) -> list[str]:
    units = [x_words(f.run) for _, f in fits]
    usual, whose = _most(units, fits)
    return [
        "" if unit == usual else f"its compute is in {unit}, that of {whose} in {usual}"
        for unit in units
    ]


def _other_y(fits: list[tuple[str, Fit]]) -> list[str]:
    """A pass rate is one whatever its column; rewards are alike only under one name."""
    units = [
        y_words(f.run) if f.run.bounded else f"{y_words(f.run)} {quoted(f.run.y.column)}"
        for _, f in fits
    ]
    usual, whose = _most(units, fits)
    return [
        "" if unit == usual else f"its score is a {unit}, that of {whose} a {usual}"
        for unit in units
    ]


def _other_metric(fits: list[tuple[str, Fit]]) -> list[str]:
    """Pass rates of different benchmarks, or the best of several samples against a mean.

    Only the names of columns tell; one that names no benchmark may hold any.
    """
    whys = [""] * len(fits)
    for what, of in (("of ", _benchmark), ("", _of_several)):
        keys = [of(f.run.y.column) for _, f in fits]
        named = [i for i, key in enumerate(keys) if key]
        usual, whose = _most([keys[i] for i in named], [fits[i] for i in named])
        for i in named:
            if keys[i] != usual and not whys[i]:
                whys[i] = f"its score is {what}{keys[i]}, that of {whose} {what}{usual}"
    return whys


def _benchmark(column: str) -> str:
    """The benchmark that a column names, if it names one.

    >>> [_benchmark(c) for c in ("val/test_score/MATH500", "AIME-2024 acc", "march_score", "acc")]
    ['math500', 'aime24', '', '']
    """
    found = {name.lower() for name in BENCHMARK.findall(column)}
    plain = {re.sub(r"[ _-]", "", name).replace("202", "2") for name in found}
    return plain.pop() if len(plain) == 1 else ""


def _of_several(column: str) -> str:
    """Which statistic of several samples a column names; a mean, or pass@1, is an accuracy.

    >>> [_of_several(c) for c in ("val/pass@8", "mean@16", "pass@1", "accuracy")]
    ['pass@8', 'accuracy', 'accuracy', 'accuracy']
    """
    found = OF_SEVERAL.search(column)
    if found is None or int(found[2]) == 1:
        return "accuracy"
    return f"{found[1].lower()}@{int(found[2])}"


def _collapsed(fits: list[tuple[str, Fit]]) -> list[str]:
    """The first doubt that says no rising curve describes the run."""
    whys = []
    for _, f in fits:
        found = [d.message for d in f.doubts if d.code in COLLAPSED]
        whys.append(found[0] if found else "")
    return whys


def _apart(fits: list[tuple[str, Fit]], word: str) -> list[str]:
    """Recipes whose compute overlaps that of no other recipe."""
    ends: dict[str, tuple[float, float]] = {}
    for name, f in fits:
        first, last = float(f.run.compute[0]), float(f.run.compute[-1])
        low, high = ends.get(name, (first, last))
        ends[name] = min(low, first), max(high, last)
    if len(ends) < 2:
        return [""] * len(fits)

    def alone(name: str) -> bool:
        first, last = ends[name]
        others = (ends[other] for other in ends if other != name)
        return not any(first <= end and start <= last for start, end in others)

    return [
        "its compute, {:g} to {:g}, overlaps that of no other ".format(*ends[name]) + word
        if alone(name)
        else ""
        for name, _ in fits
    ]
