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
