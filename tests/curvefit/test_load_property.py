"""Whatever is read, only our own errors come out, and every run keeps its promises."""

from __future__ import annotations

import io
import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from curvefit.errors import CurvefitError
from curvefit.readers import load

KNOWN = ["step", "gpu_hours", "_runtime", "step_time", "num_tokens", "perf/total_num_tokens"]
KNOWN += ["epoch", "Wall time", "accuracy", "reward", "eval/acc", "a - eval/acc", "b - eval/acc"]
KNOWN += ["loss", "run", "seed", "task", "n_eval", "x\x1by", "", " "]
NAMES = st.sampled_from(KNOWN)
NUMBERS = st.one_of(
    st.integers(-3, 60),
    st.floats(0, 1),
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(-(10**400), 10**400),
)
CELLS = st.one_of(
    NUMBERS.map(str),
    st.sampled_from(
        ["", "NaN", "-", "50%", "1,234", "0,5", "1.234,5", "abc", "1e999", '"', "\x00"]
    ),
    st.text(max_size=6),
)
VALUES = st.one_of(
    st.none(), st.booleans(), NUMBERS, st.text(max_size=4), st.lists(st.integers(), max_size=2)
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "x": NAMES,
        "y": NAMES,
        "run": NAMES,
        "n": st.one_of(NAMES, st.integers(-1, 9)),
        "gpus": st.floats(),
        "gpu_hours_per_step": st.floats(),
    },
)


SANE = {
    "step": st.integers(0, 12),
    "gpu_hours": st.floats(0, 1e6),
    "_runtime": st.floats(0, 1e6),
    "step_time": st.floats(0, 1e3),
    "accuracy": st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0, 62.5])),
    "a - eval/acc": st.sampled_from([0.1, 0.2, 0.30000000000000004, ""]),
    "b - eval/acc": st.sampled_from([0.1, 0.2, 1.5, ""]),
    "reward": st.floats(-1e308, 1e308),
    "run": st.sampled_from(["a", "b", "\u202ec"]),
    "task": st.sampled_from(["math", "code"]),
    "seed": st.integers(0, 2),
    "n_eval": st.integers(1, 2000),
}


@st.composite
def sane_tables(draw):
    """Tables that are mostly as they should be, with at most one odd cell."""
    names = draw(st.lists(st.sampled_from(sorted(SANE)), min_size=2, max_size=6, unique=True))
    rows = draw(st.lists(st.tuples(*(SANE[name] for name in names)), min_size=1, max_size=40))
    if draw(st.booleans()):
        row, column = draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, len(names) - 1))
        rows[row] = (*rows[row][:column], draw(CELLS), *rows[row][column + 1 :])
    options = {}
    if draw(st.booleans()):
        options["y"] = draw(st.sampled_from(names))
    if draw(st.integers(0, 3)) == 0:
        options[draw(st.sampled_from(["gpus", "gpu_hours_per_step"]))] = draw(st.floats(1e-3, 1e5))
    return names, rows, options


def check(source: object, options: dict[str, object]) -> None:
    try:
        runs = load(source, **options)
    except CurvefitError as error:
        refusal = str(error)
    else:
        refusal = ""
    assert refusal.isprintable()
    if refusal:
        return
    assert len(runs)
    assert len(set(runs.names)) == len(runs)
    for run in runs:
        assert len(run)
        assert np.isfinite(run.compute).all()
        assert (run.compute >= 0).all()
        assert (np.diff(run.compute) > 0).all()
        assert np.isfinite(run.score).all()
        assert run.n_eval is None or (run.n_eval >= 1).all()
        assert not run.bounded or ((run.score >= 0) & (run.score <= 1)).all()
        assert run.name.isprintable()
        assert all(note.message.isprintable() for note in run.notes)


@settings(max_examples=300)
@given(sane_tables(), st.sampled_from(["csv", "jsonl", "json", "columns"]))
def test_tables_that_are_nearly_right(table, form):
    names, rows, options = table
    records = [dict(zip(names, row, strict=True)) for row in rows]
    if form == "csv":
        quoted = [[json.dumps(str(cell)) for cell in row] for row in [names, *rows]]
        check(io.StringIO("\n".join(map(",".join, quoted))), options)
    elif form == "columns":
        check(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)), options)
    else:
        lines = "\n".join(map(json.dumps, records))
        check(io.StringIO(lines if form == "jsonl" else json.dumps(records)), options)


@given(st.binary(max_size=300), OPTIONS)
def test_arbitrary_bytes(content, options):
    check(io.BytesIO(content), options)


@given(st.text(alphabet='0123456789.,;|\t\n"{}[]:- %#\x00\x1b\r abcstep', max_size=200), OPTIONS)
def test_arbitrary_text(content, options):
    check(io.StringIO(content), options)


@settings(max_examples=300)
@given(st.data(), OPTIONS)
def test_arbitrary_tables(data, options):
    names = data.draw(st.lists(NAMES, min_size=1, max_size=6))
    rows = data.draw(
        st.lists(st.lists(CELLS, min_size=len(names), max_size=len(names)), max_size=25)
    )
    separator = data.draw(st.sampled_from([",", "\t", ";", "|"]))
    text = "\n".join(separator.join(row) for row in [names, *rows])
    check(io.StringIO(text), options)


@settings(max_examples=200)
@given(st.data(), OPTIONS)
def test_arbitrary_numbers(data, options):
    names = data.draw(st.lists(NAMES, min_size=2, max_size=5, unique=True))
    length = data.draw(st.integers(1, 30))
    cells = st.lists(
        st.one_of(st.integers(0, 9), st.floats(0, 100)), min_size=length, max_size=length
    )
    check({name: data.draw(cells) for name in names}, options)


@settings(max_examples=200)
@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=5), max_size=15), OPTIONS, st.booleans())
def test_arbitrary_records(records, options, lines):
    text = "\n".join(map(json.dumps, records)) if lines else json.dumps(records)
    check(io.StringIO(text), options)


@given(
    st.recursive(
        VALUES, lambda inner: st.dictionaries(NAMES, st.lists(inner, max_size=3)), max_leaves=20
    ),
    OPTIONS,
)
def test_arbitrary_documents(document, options):
    check(io.StringIO(json.dumps(document)), options)
