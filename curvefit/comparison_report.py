"""A comparison as text, HTML and JSON, all from the same rows."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from curvefit import digits
from curvefit.compact import shorten
from curvefit.layout import grid_lines, joined, paragraph, table, wrapped
from curvefit.plain import plain
from curvefit.record import finite
from curvefit.tables import Grid, filled
from curvefit.units import x_words, y_words

if TYPE_CHECKING:
    from curvefit.comparison import Comparison, Pair
    from curvefit.pairs import Difference

__all__ = ["grids", "html", "record", "text"]

NAME = 18
LISTED = 24  # runs left out
ALL_PAIRS = 15  # beyond so many pairs, only those with the leading recipe are shown


def recipe_grid(c: Comparison) -> Grid:
    """Return a line a recipe: A, B, C_mid and the score at the common compute."""
    level = digits.percent(c.level)
    rows = []
    for r in c.recipes:
        A, A_low, A_high = digits.scores(*r.A)
        score, low, high = digits.scores(*r.score)
        B, C_mid = digits.amounts(*r.B)[0], digits.amounts(*r.C_mid)[0]
        A_ends, ends = digits.interval(A_low, A_high), digits.interval(low, high)
        rows.append((r.recipe, str(len(r.runs)), A, A_ends, B, C_mid, score, ends))
    header = ("recipe", "runs", "A", level, "B", "C_mid", _at(c), level)
    return Grid(f"Recipes, the best {_y(c)} at {digits.compute(c.at)} {_x(c)} first", header, rows)


def _at(c: Comparison) -> str:
    return f"at {digits.compute(c.at)}"


def _x(c: Comparison) -> str:
    return x_words(next(iter(c.fits.values()))[0].run)


def _y(c: Comparison) -> str:
    return y_words(next(iter(c.fits.values()))[0].run)


def _shown_pairs(c: Comparison) -> list[Pair]:
    if len(c.pairs) <= ALL_PAIRS:
        return list(c.pairs)
    return [pair for pair in c.pairs if pair.first == c.recipes[0].recipe]


def _neighbours(c: Comparison) -> list[Pair]:
    """All pairs, or of many those that stand next to each other in the table of recipes."""
    if len(c.pairs) <= ALL_PAIRS:
        return list(c.pairs)
    names = [recipe.recipe for recipe in c.recipes]
    return [c.pair(*two) for two in pairwise(names)]


def _gap(d: Difference) -> tuple[str, str, str]:
    """A difference, its interval, and the probability that the first is the larger."""
    value, low, high = digits.scores(d.value, d.low, d.high)
    signed = value if value.startswith("-") else f"+{value}"
    return signed, digits.interval(low, high), digits.counted(d.probability)


def difference_grid(c: Comparison, by: str) -> Grid:
    """Return a line a pair: how far apart they are by ``score`` or by ``A``."""
    rows = [
        (shorten(p.first, NAME), shorten(p.second, NAME), *_gap(getattr(p, by)))
        for p in _shown_pairs(c)
    ]
    words = "A" if by == "A" else f"{_y(c)} at {digits.compute(c.at)} {_x(c)}"
    header = ("first", "second", "difference", digits.percent(c.level), "first higher")
    return Grid(f"First minus second: {words}", header, rows, (0, 1))


def efficiency_grid(c: Comparison) -> Grid:
    """Return a line a pair: B at the mean A where the asymptotes agree, and the crossing."""
    rows = []
    for p in _neighbours(c):
        steep = ("", "", "")
        if p.fixed_A is not None:
            f = p.fixed_A
            value, *_ = digits.amounts(f.ratio, f.low, f.high)
            ends = digits.interval(digits.significant(f.low, 2), digits.significant(f.high, 2))
            steep = (value, ends, digits.counted(f.probability))
        x = p.crossing
        at, low, high = digits.amounts(x.compute, x.low, x.high)
        where = (at, digits.interval(low, high)) if x.probability >= 0.05 else ("", "")
        crosses = digits.counted(x.probability)
        rows.append((shorten(p.first, NAME), shorten(p.second, NAME), *steep, crosses, *where))
    level = digits.percent(c.level)
    header = ("first", "second", "B/B", level, "steeper", "cross", "at", level)
    title = "B at the mean A, first over second, where A agree within 0.02; where the curves cross"
    return filled(Grid(title, header, rows, (0, 1)))


def reach_grid(c: Comparison) -> Grid:
    """Return a line a recipe and score: the compute to reach it."""
    rows = []
    for r in c.recipes:
        for answer in r.reach:
            shown = digits.amounts(answer.compute, answer.low, answer.high)
            value, low, high = ("never" if v == digits.UNKNOWN else v for v in shown)
            ends = "" if low == "never" else f"[{low}, {high}]"
            share = digits.counted(answer.probability)
            rows.append((r.recipe, f"{answer.score:g}", value, ends, share))
    header = ("recipe", _y(c), _x(c), f"{digits.percent(c.level)} interval", "reached by")
    return filled(Grid("Compute to reach a score, within 100 x the data", header, rows))


def grids(c: Comparison) -> list[Grid]:
    """Return the tables of a comparison."""
    tables = [recipe_grid(c)] if c.recipes else []
    if c.pairs:
        tables += [difference_grid(c, "score"), difference_grid(c, "A"), efficiency_grid(c)]
    if c.recipes and c.reach:
        tables.append(reach_grid(c))
    return tables


def sentences(c: Comparison) -> list[str]:
    """Return the rankings and the notes as sentences."""
    said = [ranking.sentence for ranking in c.rankings] or ["nothing to rank"]
    return [f"{s[:1].upper()}{s[1:].rstrip('.')}." for s in (*said, *c.notes)]


def text(c: Comparison) -> str:
    """Return the comparison as plain text, without a final line break."""
    blocks = [grid_lines(grid) for grid in grids(c)]
    said = [line for sentence in sentences(c) for line in wrapped(sentence)]
    return joined(["Comparison"], blocks[0] if blocks else [], said, *blocks[1:], _left_out(c))


def _left_out(c: Comparison) -> list[str]:
    lines = ["Left out of the ranking"] if c.excluded else []
    for e in c.excluded[:LISTED]:
        lines += wrapped(e.why, f"{shorten(e.run, NAME)}: ", indent=2)
    more = len(c.excluded) - LISTED
    return [*lines, f"  and {more:,} more"] if more > 0 else lines


def html(c: Comparison) -> str:
    """Return the comparison as a fragment of HTML."""
    parts = [table(grid) for grid in grids(c)]
    said = [paragraph(sentence) for sentence in sentences(c)]
    if c.excluded:
        rows = [(e.run, e.why) for e in c.excluded]
        parts.append(table(Grid("Left out of the ranking", ("run", "why"), rows, (0, 1))))
    drawn = [_drawn(c)] if c.recipes else []
    return f"<div>{''.join([*parts[:1], *said, *drawn, *parts[1:]])}</div>"


def _drawn(c: Comparison) -> str:
    from curvefit.compare_plot import plot_comparison
    from curvefit.picture import saved, svg_element

    return svg_element(saved(lambda: plot_comparison(c), "svg"), "recipes compared")


def record(c: Comparison) -> dict[str, Any]:
    """Return the value of the JSON key ``comparison``."""
    return {
        "at": finite(c.at),
        "level": c.level,
        "recipes": [plain(recipe) for recipe in c.recipes],
        "pairs": [plain(pair) for pair in c.pairs],
        "rankings": [plain(ranking) for ranking in c.rankings],
        "spread": {
            "known": c.spread_known,
            **{name: plain(estimate) for name, estimate in c.spread.items()},
        },
        "excluded": [plain(excluded) for excluded in c.excluded],
        "notes": list(c.notes),
    }
