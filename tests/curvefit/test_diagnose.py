"""The list of doubts, clean runs, and answers to whatever comes."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from doubtful_runs import ROOT, clean, hill, run_of
from hypothesis import given, settings
from hypothesis import strategies as st

from curvefit.diagnose import CHECKS
from curvefit.errors import InputError
from curvefit.fit import METHODS, fit
from curvefit.runs import Axis, Run

# ---------------------------------------------------------------- nothing wrong


def test_a_clean_run_past_its_midpoint_raises_no_doubt():
    f = fit(clean(ratio=8.0))
    assert f.doubts == ()
    assert f.verdict.asymptote == "identified"
    assert f.interval("A", 0.9)[0] < 0.6 < f.interval("A", 0.9)[1]


def test_a_noiseless_run_raises_no_doubt():
    C = np.linspace(0.0, 20_000.0, 40)
    f = fit(run_of(C, hill(C)))
    assert f.doubts == ()
    assert f.verdict.asymptote == "identified"


def test_codes_are_kebab_case_and_every_check_has_its_own():
    names = {check.__name__.replace("_", "-") for check in CHECKS}
    assert len(names) == len(CHECKS)
    listed = (ROOT / "docs" / "doubts.md").read_text(encoding="utf-8")
    for name in names - {"asymptote"} | {
        "asymptote-not-identified",
        "asymptote-bounded-below",
        "far-extrapolation",
    }:
        assert f"### `{name}`" in listed


# ---------------------------------------------------------------- whatever comes


def numbers_in(record):
    if isinstance(record, dict):
        for value in record.values():
            yield from numbers_in(value)
    elif isinstance(record, list):
        for value in record:
            yield from numbers_in(value)
    elif isinstance(record, float):
        yield record


def check_answer(f):
    record = f.to_dict(at=[3.0 * float(f.run.compute[-1])])
    assert all(math.isfinite(value) for value in numbers_in(record))
    json.dumps(record, allow_nan=False)
    assert f.verdict.asymptote in {"identified", "weak", "not identified"}
    for found in f.doubts:
        words = f"{found.message} {found.remedy}".lower()
        assert found.message
        assert found.remedy
        assert not {"nan", "inf", "-inf"} & set(words.replace(",", " ").replace("(", " ").split())
        assert "\n" not in words


@st.composite
def runs(draw):
    n = draw(st.integers(3, 40))
    gaps = draw(st.lists(st.floats(1e-3, 1e5), min_size=n, max_size=n))
    C = np.cumsum(gaps) - (gaps[0] if draw(st.booleans()) else 0.0)
    bounded = draw(st.booleans())
    rate = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0]))
    reward = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([-1.0, 0.0, 2.0]))
    y = draw(st.lists(rate if bounded else reward, min_size=n, max_size=n))
    size = draw(st.sampled_from([None, 1, 64, 16_000]))
    return run_of(C, y, n=size, unit="pass_rate" if bounded else "reward")


@settings(max_examples=60, deadline=None)
@given(run=runs(), method=st.sampled_from(["posterior", "posterior", "least-squares"]))
def test_no_run_is_too_odd(run, method):
    check_answer(fit(run, method=method))


@pytest.mark.parametrize("method", ["posterior", "least-squares"])
@pytest.mark.parametrize(
    "run",
    [
        run_of([0, 1, 2], [0.1, 0.2, 0.4]),
        run_of([1, 2, 3], [0.5, 0.5, 0.5]),
        run_of(range(30), np.full(30, 0.25)),
        run_of(range(30), np.zeros(30)),
        run_of(range(30), np.ones(30), n=500),
        run_of(range(30), np.full(30, -7.0), unit="reward"),
        run_of(range(30), np.linspace(0.0, 1.0, 30)),
        run_of(range(1, 31), np.linspace(0.9, 0.1, 30)),
        run_of(range(40), 1e9 * hill(np.arange(40.0), C_mid=8.0) - 1e9, unit="reward"),
        run_of(range(40), 1e-9 * hill(np.arange(40.0), C_mid=8.0), unit="reward"),
        run_of(np.geomspace(1e-6, 1e6, 30), hill(np.geomspace(1e-6, 1e6, 30), C_mid=1.0)),
    ],
    ids=lambda run: f"{len(run)} points from {run.score[0]:g} to {run.score[-1]:g}",
)
def test_degenerate_runs_get_an_answer(run, method):
    check_answer(fit(run, method=method))
    check_answer(fit(run, method=method, r0="first"))


def test_scores_next_to_nothing_get_an_answer():
    """Their squares are 0 in floating point: 1.5e-161² < 5e-324."""
    run = Run("faint", np.arange(1.0, 4.0), np.array([0.0, 0.0, 1.5e-161]), None, np.arange(1, 4))
    check_answer(fit(run))


@pytest.mark.parametrize("method", METHODS)
def test_scores_too_large_to_be_multiplied_are_refused_with_the_remedy(method):
    y = np.array([1e150, 2e150, 3e150, 3.1e150])
    reward = Axis("reward", "reward")
    run = Run("vast", np.arange(1.0, 5.0), y, None, np.arange(1, 5), y=reward)
    with pytest.raises(InputError, match=r"'vast' has scores of up to 3\.1e\+150.*power of ten"):
        fit(run, method=method)
