"""An allocation as text, HTML, CSV and JSON, all from the same rows."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Any

from curvefit import digits
from curvefit.compact import shorten
from curvefit.layout import grid_lines, joined, paragraph, table, wrapped
from curvefit.parameter_csv import cell, harmless
from curvefit.plain import plain
from curvefit.record import finite
from curvefit.tables import Grid, filled
from curvefit.units import x_words, y_words
from curvefit.wording import printable

if TYPE_CHECKING:
    from curvefit.allocation import Allocation, Budget
    from curvefit.frontier import Overtaking, Region

__all__ = ["csv_table", "html", "record", "sentences", "text"]

NAME = 14
SPOKEN = 8  # regions in the sentence
ROWS = 12  # of overtakings
LISTED = 24  # runs left out
LIKELY = 0.1  # from such a probability on, a setting is named where nothing is decided
WORTH_SAYING = 0.05  # overtakings less probable than this are not shown


def _x(a: Allocation) -> str:
    return x_words(next(iter(a.fits.values()))[0].run)


def _y(a: Allocation) -> str:
    return y_words(next(iter(a.fits.values()))[0].run)


def money(value: float) -> str:
    """Write a cost in the unit of the price; nothing when no price is known."""
    return digits.rounded(value, 0 if value >= 100 else 2) if math.isfinite(value) else ""


def _counted(share: float) -> str:
    """A probability to a thousandth: so closely a thousand curves tell it."""
    return digits.counted(share if share > 0.999 else round(share, 3))


# ---------------------------------------------------------------- sentences


def sentences(a: Allocation) -> list[str]:
    """Return the answer as sentences: who leads where, what it saves, how far it is known."""
    said = [_leads(a), _undecided(a), _saves(a), _known(a), *a.notes]
    return [f"{s[:1].upper()}{s[1:].rstrip('.')}." for s in said if s]


def _leads(a: Allocation) -> str:
    """Say which setting leads in each region, in ascending order of budgets."""
    if len(a.regions) == 1:
        ends = (digits.compute(C) for C in (a.regions[0].low, a.regions[0].high))
        return f"at every budget from {' to '.join(ends)} {_x(a)} {_answer(a.regions[0])}"
    parts = [f"{_where(a, k)} {_answer(r)}" for k, r in enumerate(a.regions[:SPOKEN])]
    more = len(a.regions) - SPOKEN
    return "; ".join([*parts, f"and {more} more regions"] if more > 0 else parts)


def _where(a: Allocation, k: int) -> str:
    region, unit = a.regions[k], f" {_x(a)}" * (k == 0)
    if k == 0:
        return f"below {_cut(a, region.high)}{unit}"
    if k == len(a.regions) - 1:
        return f"above {_cut(a, region.low)}"
    return f"from {_cut(a, region.low)} to {_cut(a, region.high)}"


def _cut(a: Allocation, C: float) -> str:
    """A compute where the answer changes: known to two digits, with its price."""
    cost = money(C * a.price)
    return digits.significant(C, 2) + (f" (cost {digits.amount(C * a.price)})" if cost else "")


def _answer(region: Region) -> str:
    first = region.shares[0]
    if region.decided:
        return f"{printable(first.setting)} leads ({_span(region.least, region.most)})"
    likely = [s for s in region.shares if s.probability >= LIKELY][:4]
    said = [f"{printable(s.setting)} {_counted(s.probability)}" for s in likely]
    return f"it is not decided ({' or '.join(said)})"


def _span(least: float, most: float) -> str:
    """Bounds of a probability, once where both read alike."""
    low, high = _counted(least), _counted(most)
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def _shown(a: Allocation) -> list[Overtaking]:
    return [o for o in a.overtakings if o.probability >= WORTH_SAYING]


def _undecided(a: Allocation) -> str:
    """Say what is lost by going with the likeliest where nothing is decided, and what decides."""
    inside = min(s.last for s in a.settings)
    regions = [r for r in a.regions if not r.decided]
    open_budgets = [b for b in a.budgets if not b.decided]
    means = []
    if any(r.low < inside for r in regions):
        means.append(f"below {digits.compute(inside)} more seeds")
    if any(r.high > inside for r in regions):
        means.append("beyond the data longer runs")
    said = f"what would decide: {' and '.join(means)}" if means else ""
    if not open_budgets:
        return said
    regret = digits.significant(max(b.choices[0].regret for b in open_budgets), 2)
    return f"{said}; the likeliest setting is short of the best by {regret} on average at most"


def _saves(a: Allocation) -> str:
    """Say what the leading setting saves, at the largest budget that the runner-up has run to."""
    measured = [b for b in a.budgets if b.decided and b.choices[1].beyond <= 1.0 + 1e-9]
    if not measured:
        return ""
    b = measured[-1]
    first, second = (printable(choice.setting) for choice in b.choices[:2])
    value, low, high = digits.amounts(*b.suffices)
    if b.suffices.high <= a.frontier.compute[0] * (1.0 + 1e-9):
        value, between = f"less than {digits.compute(a.frontier.compute[0])}", ""
    else:
        between = f" ({digits.percent(a.level)} between {low} and {high})"
    return f"what {second} reaches with {_budget(b)} {_x(a)}, {first} reaches with {value}{between}"


def _budget(b: Budget) -> str:
    return digits.compute(round(b.budget) if b.budget >= 100 else b.budget)


def _known(a: Allocation) -> str:
    """Say from which budget on which settings are extrapolated, and by how much at the end."""
    ends = {s.setting: s.last for s in a.settings}
    end = float(a.frontier.compute[-1])
    first = min(ends, key=lambda name: ends[name])
    if end <= ends[first]:
        return "every budget lies within the data of every setting"
    factor = digits.significant(end / ends[first], 2)
    return (
        f"beyond {digits.compute(ends[first])} {_x(a)}, where {printable(first)} ends, the answer "
        f"rests on forecasts, at the largest budget {factor} x beyond its data; a lead counts from "
        f"{digits.percent(a.level)}"
    )


# ---------------------------------------------------------------- tables


def budget_grid(a: Allocation) -> Grid:
    """Return a line a budget: the likeliest best setting, its score, the runner-up."""
    level = digits.percent(a.level)
    rows = [_budget_row(b) for b in a.budgets]
    header = (_x(a), "cost", "of data", "best", "probably", _y(a), level, "runner-up", "lead")
    title = f"Allocation: the best setting at each budget; ? where none leads with {level}"
    return filled(Grid(title, header, rows, (3, 7)))


def _budget_row(b: Budget) -> tuple[str, ...]:
    best, second = b.choices[:2]
    score, low, high = digits.scores(*best.score)
    lead, *_ = digits.scores(b.lead.value, b.lead.low, b.lead.high)
    reach = max(c.beyond for c in b.choices)
    return (
        _budget(b),
        money(b.cost),
        f"{digits.significant(reach, 2)} x" if reach > 1 else "inside",
        shorten(best.setting, NAME) + " ?" * (not b.decided),
        _counted(best.probability),
        score,
        digits.interval(low, high),
        shorten(second.setting, NAME),
        lead,
    )


def overtaking_grid(a: Allocation) -> Grid:
    """Return a line for each two settings of which one may overtake the other."""
    rows = []
    shown = _shown(a)
    for o in shown[:ROWS]:
        at, low, high = digits.amounts(o.compute, o.low, o.high)
        names = (shorten(o.setting, 2 * NAME), shorten(o.passes, 2 * NAME))
        rows.append((*names, _counted(o.probability), at, digits.interval(low, high)))
    header = ("setting", "overtakes", "probably", f"at {_x(a)}", digits.percent(a.level))
    low, high = (digits.amount(C) for C in a.frontier.compute[[0, -1]].tolist())
    title = f"Where one setting overtakes another for good, between {low} and {high} {_x(a)}"
    more = f"; the {ROWS} likeliest of {len(shown):,}" if len(shown) > ROWS else ""
    return Grid(title + more, header, rows, (0, 1))


def grids(a: Allocation) -> list[Grid]:
    """Return the tables of an allocation."""
    return [budget_grid(a), *([overtaking_grid(a)] if _shown(a) else [])]


# ---------------------------------------------------------------- faces


def text(a: Allocation) -> str:
    """Return the allocation as plain text, without a final line break."""
    said = [line for sentence in sentences(a) for line in wrapped(sentence)]
    first, *others = map(grid_lines, grids(a))
    left_out = ["Left out of the allocation"] if a.excluded else []
    for e in a.excluded[:LISTED]:
        left_out += wrapped(e.why, f"{shorten(e.run, NAME)}: ", indent=2)
    if len(a.excluded) > LISTED:
        left_out.append(f"  and {len(a.excluded) - LISTED:,} more")
    return joined(first, said, *others, left_out)


def html(a: Allocation) -> str:
    """Return the allocation as a fragment of HTML: the answer, its tables, the picture."""
    from curvefit.allocation_plot import allocation_svg

    said = [paragraph(sentence) for sentence in sentences(a)]
    parts = [table(grid) for grid in grids(a)]
    if a.excluded:
        rows = [(e.run, e.why) for e in a.excluded]
        parts.append(table(Grid("Left out of the allocation", ("run", "why"), rows, (0, 1))))
    figure = f"<figure>{allocation_svg(a)}</figure>"
    return f"<div>{''.join([parts[0], *said, figure, *parts[1:]])}</div>"


def csv_table(a: Allocation) -> str:
    """Return one row a budget and setting (RFC 4180), the likeliest best first."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    numbers = ("score", "score_low", "score_high", "probability", "regret", "beyond")
    writer.writerow(("budget", "cost", "level", "rank", "setting", *numbers))
    for b in a.budgets:
        for rank, c in enumerate(b.choices, 1):
            values = (*c.score, c.probability, c.regret, c.beyond)
            row = [cell(b.budget), cell(b.cost), cell(a.level), str(rank), harmless(c.setting)]
            writer.writerow([*row, *map(cell, values)])
    return out.getvalue()


def record(a: Allocation) -> dict[str, Any]:
    """Return the value of the JSON key ``allocation``."""
    return {
        "level": a.level,
        "price": finite(a.price),
        "settings": plain(a.settings),
        "budgets": plain(a.budgets),
        "regions": plain(a.regions),
        "overtakings": plain(a.overtakings),
        "sentences": sentences(a),
        "excluded": plain(a.excluded),
        "notes": list(a.notes),
    }
