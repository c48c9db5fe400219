"""A decision as text, HTML and JSON, all from the same rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from curvefit import digits
from curvefit.layout import grid_lines, joined, paragraph, table, wrapped
from curvefit.record import finite
from curvefit.tables import Grid, filled
from curvefit.units import x_words, y_words

if TYPE_CHECKING:
    from curvefit.decide import Decision

__all__ = ["html", "record", "sentences", "text"]


def _cost(value: float) -> str:
    """Money in the unit of the price; nothing when no price is known."""
    return digits.rounded(value, 0 if value >= 100 else 2) if math.isfinite(value) else ""


def _priced(value: float) -> str:
    return f" (cost {_cost(value)})" if math.isfinite(value) else ""


def _last(d: Decision) -> float:
    return float(d.run.compute[-1])


def _handful(d: Decision) -> float:
    """A round amount of compute, between a hundredth and a tenth of that spent."""
    return float(10.0 ** math.floor(math.log10(_last(d) / 10.0)))


def gain_grid(d: Decision) -> Grid:
    """Return a line for each further compute: what it gains and costs."""
    rows = []
    for g in d.gains:
        value, low, high = digits.scores(g.gain, g.low, g.high)
        share = digits.percent(g.more / _last(d))
        per = digits.significant(g.per_unit * _handful(d), 2)
        ends = digits.interval(low, high)
        rows.append((share, digits.amount(g.more), value, ends, per, _cost(g.cost)))
    unit = x_words(d.run)
    per = f"mean per {digits.compute(_handful(d))}"
    header = ("more", unit, f"{y_words(d.run)} gained", _level(d), per, "cost")
    return filled(Grid("What further compute gains", header, rows, ()))


def _level(d: Decision) -> str:
    return digits.percent(d.level)


def step_grid(d: Decision) -> Grid:
    """Return a line for each multiple of the compute: how narrow the interval is then."""
    s = d.settling
    rows = [
        (
            f"{step.multiple:g} x",
            digits.amount(step.compute),
            digits.significant(step.width, 2),
            digits.percent(round(step.share, 2)),
        )
        for step in s.steps
    ]
    header = ("compute", x_words(d.run), "width", f"under {s.width:.3g}")
    return Grid(f"Width of the {_level(d)} interval of {_subject(d)}, simulated", header, rows, ())


def option_grid(d: Decision) -> Grid:
    """Return a line for each way to spend: what the interval is after it."""
    rows = [
        (
            o.what,
            digits.amount(o.compute),
            str(o.evaluations),
            digits.significant(o.width, 2),
            _cost(o.cost),
        )
        for o in d.options
    ]
    header = ("way", f"until {x_words(d.run)}", "evaluations", "width", "cost")
    title = f"Ways to narrow the interval of {_subject(d)}, {digits.significant(d.settling.now, 2)}"
    return filled(Grid(f"{title} today, simulated", header, rows))


def _subject(d: Decision) -> str:
    return "A" if d.settling.of == "A" else f"the score at {float(d.settling.of):,.7g}"


def sentences(d: Decision) -> list[str]:
    """Return the answers as sentences: the pace, the risk of stopping, what settles the matter."""
    unit, last = x_words(d.run), digits.compute(_last(d))
    handful = _handful(d)
    mean, *ends = (digits.significant(v * handful, 2) for v in d.rate)
    said = [
        f"At {last} {unit}, a further {digits.compute(handful)} gains {mean} "
        f"({ends[0]} to {ends[1]}).",
        f"Stopping now loses less than {d.stop.loss:.3g} with probability "
        f"{digits.probability(d.stop.probability)}, against going on to "
        f"{digits.compute(d.stop.target)} {unit}.",
        _settled(d),
    ]
    return said + [f"Caution: {message}." for message in d.cautions]


def _settled(d: Decision) -> str:
    s, unit = d.settling, x_words(d.run)
    now, simulated = digits.significant(s.now, 2), f"{s.continuations} simulated continuations"
    known = f"{_subject(d)} is known to {now} (width of the {_level(d)} interval)"
    known = known[:1].upper() + known[1:]
    if s.more == 0.0:
        return f"{known}, which is within {s.width:.3g} already."
    if not math.isfinite(s.more):
        best = s.steps[-1]
        return (
            f"{known}; not even {best.multiple:g} x the compute brings it under {s.width:.3g} in "
            f"{digits.percent(s.sure)} of {simulated}."
        )
    return (
        f"{known}; {digits.amount(s.more)} further {unit}{_priced(s.cost)} bring it under "
        f"{s.width:.3g} in {round(s.probability * s.continuations)} of {simulated}."
    )


def _grids(d: Decision) -> list[Grid]:
    steps = [step_grid(d)] if d.settling.steps else []
    return [gain_grid(d), *steps, option_grid(d)]


def text(d: Decision) -> str:
    """Return the decision as plain text, without a final line break."""
    said = [line for sentence in sentences(d) for line in wrapped(sentence)]
    return joined([f"Decision: {d.run.name}"], said, *map(grid_lines, _grids(d)))


def html(d: Decision) -> str:
    """Return the decision as a fragment of HTML."""
    said = "".join(map(paragraph, (f"Decision: {d.run.name}", *sentences(d))))
    return f"<div>{said}{''.join(map(table, _grids(d)))}</div>"


def record(d: Decision) -> dict[str, Any]:
    """Return the decision as plain values."""
    settling = _numbers(d.settling)
    settling["steps"] = [_numbers(step) for step in d.settling.steps]
    return {
        "run": d.run.name,
        "level": d.level,
        "price": finite(d.price),
        "rate": _numbers(d.rate),
        "gains": [_numbers(g) for g in d.gains],
        "stop": _numbers(d.stop),
        "settling": settling,
        "options": [_numbers(o) for o in d.options],
        "cautions": list(d.cautions),
    }


def _numbers(row: Any) -> dict[str, Any]:
    return {k: finite(v) if isinstance(v, float) else v for k, v in row._asdict().items()}
