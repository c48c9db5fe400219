"""The faces of a fit: text, JSON, CSV, HTML, and the digits they show."""

import csv
import io
import json
import math
import re
import warnings
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvefit import digits, fit, report
from curvefit.errors import CurvefitWarning, FitError, InputError
from curvefit.fit import METHODS
from curvefit.laws import curve
from curvefit.runs import Axis, Dropped, Run

EVIL = '=cmd|"x"!A1 <script>alert(1)</script> & $x_1$ \u202e "quote", comma'


def a_run(name="8B", n=16, end=8000.0, A=0.6, **changes):
    """A noiseless sigmoid with a wobble of ± 0.004 that alternates, step 0 included."""
    C = np.linspace(0.0, end, n)
    wobble = 0.004 * np.where(np.arange(n) % 2, 1.0, -1.0)
    run = Run(
        name,
        C,
        curve(C, A=A, B=1.5, C_mid=2000.0, R0=0.2) + wobble,
        None,
        np.arange(n) + 2,
        "runs.csv",
        Axis("gpu_hours", "gpu_hours"),
        Axis("pass_rate", "pass_rate"),
    )
    return Run(**{**{key: getattr(run, key) for key in Run.__slots__}, **changes})


@pytest.fixture(scope="module")
def one():
    return fit(a_run(dropped=(Dropped(3, "no score"),)), until="75%")


# ---------------------------------------------------------------- digits


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (0.6123, 0.604, 0.620, ("0.6123", "0.6040", "0.6200")),  # half-width 0.008
        (0.6123, 0.59, 0.63, ("0.612", "0.590", "0.630")),  # 0.02
        (0.6123, 0.41, 0.97, ("0.61", "0.41", "0.97")),  # 0.28
        (34.87, 30.1, 41.9, ("34.9", "30.1", "41.9")),  # 5.9
        (-1200.0, -3000.0, 900.0, ("-1,200", "-3,000", "900")),  # 1950
        (0.6123, math.nan, math.nan, ("0.6123", "-", "-")),
    ],
)
def test_digits_of_a_score_follow_its_half_width(value, low, high, shown):
    assert digits.scores(value, low, high) == shown


@given(st.floats(1e-12, 1e25), st.floats(0.001, 1.0), st.floats(1.0, 1e9))
def test_amounts_keep_two_to_four_significant_digits(value, shrink, grow):
    for shown, true in zip(
        digits.amounts(value, value * shrink, value * grow),
        (value, value * shrink, value * grow),
        strict=True,
    ):
        number = float(shown.replace(",", ""))
        assert number == pytest.approx(true, rel=0.051)
        mantissa = re.sub(r"e.*|[,.]", "", shown).strip("0")
        assert len(mantissa) <= 4


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_any_number_can_be_written(value):
    for shown in (digits.compute(value), digits.amount(value), digits.scores(value, 0.0, 1.0)[0]):
        assert shown
        assert "nan" not in shown
        assert "inf" not in shown


@given(st.floats(0.0, 1.0))
def test_percent_is_within_its_digits(share):
    shown = digits.percent(share)
    value = float(shown.removesuffix(" %")) / 100
    assert abs(value - share) <= 0.0051
    assert (value == 0.0) == (share == 0.0) or share < 1e-300


# ---------------------------------------------------------------- text


def test_text_says_what_was_used_what_is_forecast_and_what_is_in_doubt(one):
    text = report.text(one, at=[16000], reach=[0.5, 0.99])
    assert text.splitlines()[:2] == [
        "8B (runs.csv)",
        "12 points used, 0 to 5,866.667 GPU-hours; 4 held out",
    ]
    assert "  A " in text
    assert re.search(r"16,000 +2\.73 x +0\.5", text)
    assert re.search(r"0\.5 +[\d,]+ +\[[\d,]+, ([\d,]+|never)\] +\d+ %", text)
    assert re.search(r"0\.99 +never", text)
    for doubt in one.doubts:
        assert doubt.code in text
    assert str(one) == report.text(one)


def test_every_line_fits_the_terminal():
    fits = [
        fit(a_run(f"run {i} " + "x" * 180, y=Axis("val/" + "y" * 90, "pass_rate")))
        for i in range(4)
    ]
    for text in (report.text(fits[0]), report.texts(fits[:2]), report.texts(fits, at=[1e5])):
        assert max(map(len, text.splitlines())) <= 100


def test_many_runs_explain_each_doubt_once():
    fits = [fit(a_run(f"run {i}", n=5, end=1500.0)) for i in range(5)]
    text = report.texts(fits)
    assert len(re.findall("few-points", text)) == 1
    assert "few-points (5 runs)" in text


# ---------------------------------------------------------------- JSON


def test_the_record_has_the_keys_of_the_schema_in_order(one):
    record = report.run_record(one, at=[16000], reach=[0.5])
    assert list(record) == (
        [
            "run",
            "file",
            "x",
            "y",
            "points",
            "params",
            "noise",
            "laws",
            "forecasts",
            "reach",
            "held_out",
            "verdict",
            "doubts",
        ]
    )
    assert record["x"] == {"column": "gpu_hours", "unit": "gpu_hours"}
    assert record["y"] == {"column": "pass_rate"}
    assert record["points"] == {
        "read": 17,
        "used": 12,
        "held_out": 4,
        "dropped": [{"row": 3, "why": "no score"}],
    }
    assert list(record["params"]) == ["A", "B", "C_mid", "R0"]
    assert list(record["params"]["A"]) == ["value", "low", "high"]
    assert list(record["noise"]) == ["evaluation", "run", "correlation"]
    assert sum(law["weight"] for law in record["laws"]) == pytest.approx(1.0)
    (forecast,) = record["forecasts"]
    assert list(forecast) == ["at", "score", "low", "high", "observed_low", "observed_high"]
    assert forecast["observed_low"] < forecast["low"] < forecast["score"] < forecast["high"]
    (reach,) = record["reach"]
    assert list(reach) == ["score", "compute", "low", "high", "probability"]
    assert list(record["held_out"]) == ["points", "mae", "inside"]
    assert list(record["verdict"]) == ["asymptote", "sentence"]
    assert one.to_dict(at=[16000], reach=[0.5]) == record


def test_forecasts_default_to_2_and_10_times_the_last_fitted_compute(one):
    last = 8000.0 * 11 / 15  # the twelfth of sixteen points
    ats = [forecast["at"] for forecast in report.run_record(one)["forecasts"]]
    assert ats == pytest.approx([2 * last, 10 * last])


def test_the_document_is_strict_json_and_keeps_names_exactly():
    names = [EVIL, "ρ-run", "line\u2028break"]
    document = report.document([fit(a_run(name)) for name in names], command=["fit-curve", "x"])
    text = report.dumps(document)
    assert text.isascii()
    read = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert [run["run"] for run in read["runs"]] == names
    answers = ["comparison", "backtest", "allocation"]
    assert list(read) == ["schema", "version", "command", "runs", *answers]
    assert read["schema"] == "curvefit/1"
    assert [read[key] for key in answers] == [None, None, None]


def test_a_file_name_that_is_not_utf8_makes_valid_json():
    name = b"caf\xe9.csv".decode("utf-8", "surrogateescape")
    text = report.dumps(report.document([fit(a_run(file=name))], command=[name]))
    assert json.loads(text)["command"] == ["caf\\udce9.csv"]


def test_without_a_posterior_intervals_are_null():
    record = report.run_record(fit(a_run(), method="least-squares"))
    for estimate in record["params"].values():
        assert estimate["low"] is None
        assert estimate["high"] is None
    assert record["forecasts"][0]["observed_high"] is None
    json.dumps(record, allow_nan=False)


# ---------------------------------------------------------------- CSV


def test_csv_is_one_row_a_run_and_reads_back(one):
    text = report.parameter_csv([one, fit(a_run('comma, "quote"'), method="least-squares")])
    assert text.count("\r\n") == 3
    first, second = csv.DictReader(io.StringIO(text, newline=""))
    assert (first["run"], first["file"], first["points"], first["held_out"]) == (
        "8B",
        "runs.csv",
        "12",
        "4",
    )
    assert float(first["A"]) == pytest.approx(one.params["A"].value, rel=1e-9)
    assert first["doubts"].split() == [doubt.code for doubt in one.doubts]
    assert second["run"] == 'comma, "quote"'
    assert (second["A_low"], second["held_out_mae"]) == ("", "")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_names_are_never_formulas(start):
    text = report.parameter_csv([fit(a_run(f"{start}1+1"))])
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert row["run"] == f"'{start}1+1"


# ---------------------------------------------------------------- HTML


class Tags(HTMLParser):
    """Collect tags and words, and check that every tag is closed in order."""

    VOID = frozenset({"meta", "br", "!doctype"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href"):
                assert value.startswith("#")

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_is_self_contained_and_escapes_names():
    fits = [fit(a_run(EVIL)), fit(a_run("<b>bold</b>", A=0.5))]
    page = report.page(fits, command=["fit-curve", "<i>.csv"], at=[1e5], reach=[0.4])
    seen = Tags(page)
    for tag in ("script", "link", "iframe", "img", "b", "i"):
        assert tag not in seen.tags
    assert seen.tags.count("svg") == 1
    words = "".join(seen.words)
    assert "<script>alert(1)</script>" in words  # as text
    assert "fit-curve '<i>.csv'" in words
    assert not re.search(r"url\((?!#)|@import", page)
    assert 40_000 < len(page.encode()) < 90_000


def test_the_notebook_fragment_has_a_table_the_doubts_and_a_plot(one):
    seen = Tags(one._repr_html_())
    assert seen.tags.count("svg") == 1
    assert seen.tags.count("table") == 2
    words = " ".join(seen.words)
    for doubt in one.doubts:
        assert doubt.remedy in words


def test_a_page_of_many_runs_is_one_table():
    fits = [fit(a_run(f"run {i}", n=6)) for i in range(14)]
    seen = Tags(report.page(fits))
    assert seen.tags.count("table") == 1
    assert seen.tags.count("tr") == 15


# ---------------------------------------------------------------- anything at all


COMPUTE = st.one_of(st.floats(1e-3, 1e6), st.integers(0, 50).map(float), st.floats(1e-9, 1e24))
SCORE = st.one_of(
    st.integers(0, 1000).map(lambda k: k / 1000),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(-(10**9), 10**9).map(lambda k: k / 1000),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(COMPUTE, SCORE), min_size=3, max_size=12), st.sampled_from(METHODS))
def test_any_table_is_refused_in_one_line_or_reported_in_finite_numbers(points, method):
    columns = {"step": [x for x, _ in points], "score": [y for _, y in points]}
    one, refusal = None, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CurvefitWarning)  # the grid's edge
            one = fit(columns, method=method)
    except (InputError, FitError) as error:
        refusal = str(error)
    assert "\n" not in refusal
    if one is None:
        return
    record = report.document([one], at=[0.0, 1e3], reach=[0.5])
    json.dumps(record, allow_nan=False)
    assert max(map(len, report.text(one, at=[0.0, 1e3], reach=[0.5]).splitlines())) <= 100
    assert max(map(len, report.texts([one] * 4, at=[0.0]).splitlines())) <= 100
    assert report.parameter_csv([one]).count("\r\n") == 2
