"""A scan of windows: what is fitted in each, how A moves, every face."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from doubtful_runs import clean, hill, noise, run_of

import curvefit
from curvefit.cli import main
from curvefit.errors import InputError
from curvefit.scan import scan
from curvefit.scan_plot import scan_figure

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture(scope="module")
def moved():
    """A run of the first kind up to 5,000, whose level then rises by 0.05: A moves with the end."""
    C = np.linspace(0.0, 20_000.0, 81)
    y = hill(C, C_mid=1000.0, B=2.0) + 0.05 / (1.0 + (9000.0 / np.maximum(C, 1e-9)) ** 6)
    return scan(run_of(C, y + noise(81, sd=0.003)), starts=[0, 500], ends=[100, 5000, 20_000])


def test_each_window_is_the_fit_of_its_points(moved):
    assert [(w.start, w.end) for w in moved.windows] == [
        (start, end) for start in (0.0, 500.0) for end in (100.0, 5000.0, 20_000.0)
    ]
    window = moved.windows[4]
    assert window.points == 1 + 19  # step 0, and 500 to 5,000 in steps of 250
    alone = curvefit.fit(moved.run, skip=500, until=5000)
    assert window.A == alone.params["A"]
    (said,) = alone.forecast([moved.at])
    assert tuple(window.score) == (said.score, said.low, said.high)
    assert window.asymptote == alone.verdict.asymptote


def test_a_window_of_too_few_points_says_so(moved):
    window = moved.windows[0]
    assert (window.points, window.asymptote, window.identified) == (1, "", False)
    assert "1 of 81 points remain" in window.why
    assert np.isnan(window.A.value)


def test_the_end_moves_A_and_the_start_does_not(moved):
    """0.6 up to 5,000; some of the 0.05 above that at 20,000."""
    early, late = moved.windows[1].A.value, moved.windows[2].A.value
    assert early == pytest.approx(0.6, abs=0.01)
    assert 0.62 < late < 0.68
    text = " ".join(moved.sentences)
    assert "moving the end alone moves A by 0.0" in text
    assert "not hold the A of all points" in text


def test_windows_that_do_not_identify_A_are_flagged():
    found = scan(clean(ratio=4.0, n=60), starts=[0], ends=[1500, 10_000])
    assert [w.asymptote for w in found.windows] == ["not identified", "identified"]
    assert "1 does not" in found.sentences[0]
    none = scan(clean(ratio=0.6), starts=[0], ends=[1500])
    assert none.sentences == ("A is not identified in any window",)


def test_defaults_are_starts_and_ends_that_differ():
    run = clean(n=41)  # one point each 250; C_mid 2,500
    found = scan(run)
    assert found.starts[0] == 0.0
    assert set(found.starts[1:]) <= set(run.compute.tolist())
    assert found.starts[-1] == pytest.approx(1250.0, abs=250.0)
    assert found.ends == (2500.0, 3500.0, 5000.0, 7000.0, 10_000.0)
    assert found.at == 20_000.0


def test_json_csv_and_html_hold_the_windows(moved):
    record = json.loads(json.dumps(moved.to_dict(), allow_nan=False))
    assert record["windows"][0]["A"] == {"value": None, "low": None, "high": None}
    rows = list(csv.DictReader(io.StringIO(moved.to_csv())))
    assert len(rows) == 6
    assert rows[0]["A"] == ""
    assert float(rows[4]["A_low"]) == pytest.approx(record["windows"][4]["A"]["low"])
    page = moved._repr_html_()
    assert page.count("<tr>") == 7
    assert "<svg" in page


def test_the_picture_tells_series_apart_without_colour(moved):
    panel, forecasts = scan_figure([moved]).axes
    markers = {line.get_marker() for line in panel.lines} - {"None", "none"}
    assert len(markers) == 2
    words = [text.get_text() for text in forecasts.get_legend().get_texts()]
    assert words[:2] == ["from 0", "from 500"]
    axes = moved.plot()
    assert axes.get_ylabel() == "A"
    assert curvefit.WindowScan is type(moved)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"starts": []}, "no start"),
        ({"ends": [-1.0]}, "end -1"),
        ({"at": 0.0}, "cannot forecast at compute 0"),
        ({"level": 2.0}, "level 2"),
        ({"law": "hill"}, "law 'hill'"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options, why):
    with pytest.raises(InputError, match=why):
        scan(clean(), **options)


def test_a_picture_of_no_scan_is_refused():
    with pytest.raises(InputError, match="there are 0"):
        scan_figure([])


def test_the_command_line_writes_all_faces(tmp_path, capsys):
    file, table, drawing = DATA / "scalerl_fig1a.csv", tmp_path / "w.csv", tmp_path / "w.png"
    argv = [str(file), "--scan", "--at", "1e5", "--csv", str(table), "--plot", str(drawing)]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "Scan of the window: 8B dense" in out
    assert "at 100,000" in out
    assert max(map(len, out.splitlines())) <= 100
    assert {row["run"] for row in csv.DictReader(io.StringIO(table.read_text()))} == {
        "8B dense",
        "17Bx16 MoE",
    }
    assert drawing.read_bytes()[:4] == b"\x89PNG"
    assert main([*argv[:4], "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["scan"]["at"] for run in runs] == [1e5, 1e5]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--compare", "--scan", "--plot", "x.png"], "--plot holds the answer to one of"),
        (["--compare", "--scan", "--csv", "x.csv"], "--csv holds the answer to one of"),
        (["--scan", "--csv", "x.tex"], "LaTeX is written for --compare"),
    ],
)
def test_files_that_cannot_hold_the_answers_are_refused(options, why, capsys):
    assert main([str(DATA / "scalerl_fig1a.csv"), *options]) == 2
    assert why in capsys.readouterr().err
