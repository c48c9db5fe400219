"""The real command, run as a user runs it."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIG1A = "data/scalerl_fig1a.csv"


def fit_curve(*args, stdin=None, env=None, cwd=ROOT):
    """Run the command; text in, text out."""
    return subprocess.run(
        [sys.executable, "-m", "curvefit", *map(str, args)],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", **(env or {})},
        timeout=120,
        check=False,
    )


def csv_of(rows, header="gpu_hours,pass_rate"):
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


RISE = [(0, 0.20), (10, 0.24), (20, 0.29), (40, 0.36), (80, 0.44), (160, 0.50), (320, 0.53)]


def assert_one_error_line(done, code, *words):
    assert done.returncode == code, done.stderr
    errors = [line for line in done.stderr.splitlines() if not line.startswith("fit-curve: note: ")]
    assert len(errors) == 1, done.stderr
    assert errors[0].startswith("fit-curve: error: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    for word in words:
        assert word in errors[0]


# ---------------------------------------------------------------- the main job


def test_both_runs_of_figure_1a_are_fitted_and_forecast():
    done = fit_curve(FIG1A, "--at", "100000")
    assert done.returncode == 0
    assert done.stderr == "fit-curve: note: x = gpu_hours, y = pass_rate, run = run\n"
    for words in ("8B dense", "17Bx16 MoE", "100,000", "GPU-hours", "90 % of the mean curve"):
        assert words in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_the_held_out_half_of_figure_1a_is_covered():
    done = fit_curve(FIG1A, "--until", "50%", "--at", "89367,44162", "--json")
    runs = json.loads(done.stdout)["runs"]
    with (ROOT / FIG1A).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for run, which in zip(runs, (0, 1), strict=True):
        scores = [float(row["pass_rate"]) for row in rows if row["run"] == run["run"]]
        forecast = run["forecasts"][which]
        mean_of_last_five = sum(scores[-5:]) / 5
        assert forecast["observed_low"] < mean_of_last_five < forecast["observed_high"]
        assert run["held_out"]["points"] == run["points"]["held_out"] > 5


def test_standard_input_several_files_and_options_between_files(tmp_path):
    file = tmp_path / "second.csv"
    file.write_text(csv_of(RISE))
    done = fit_curve("-", "--json", file, stdin=csv_of(RISE))
    assert [run["file"] for run in json.loads(done.stdout)["runs"]] == ["-", str(file)]


def test_four_runs_are_a_line_each(tmp_path):
    files = []
    for name in ("alpha", "beta", "gamma", "delta"):
        files.append(tmp_path / f"{name}.csv")
        files[-1].write_text(csv_of(RISE))
    done = fit_curve(*files, "--at", "640", "--reach", "0.5")
    lines = done.stdout.splitlines()
    assert lines[0] == "4 runs; compute in GPU-hours"
    (alpha,) = [line for line in lines if line.startswith("  alpha") and "640" not in line][:1]
    assert " 7 " in alpha
    assert sum(line.startswith("  delta") for line in lines) == 3  # overview, forecast, reach
    assert max(map(len, lines)) <= 100


def test_gpus_turn_hours_into_gpu_hours(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text(csv_of(RISE, "elapsed_hours,pass_rate"))
    done = fit_curve(file, "--gpus", "8", "--json")
    (run,) = json.loads(done.stdout)["runs"]
    assert run["x"]["unit"] == "gpu_hours"
    assert [forecast["at"] for forecast in run["forecasts"]] == [2 * 8 * 320, 10 * 8 * 320]


def test_skip_leaves_out_early_points_but_keeps_step_0(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text(csv_of(RISE))
    done = fit_curve(file, "--skip", "15", "--json")
    points = json.loads(done.stdout)["runs"][0]["points"]
    assert (points["read"], points["used"]) == (7, 6)  # all but compute 10, on line 3
    assert points["dropped"] == [{"row": 3, "why": "compute below 15 (skip)"}]


def test_least_squares_has_no_intervals(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text(csv_of(RISE))
    (run,) = json.loads(fit_curve(file, "--method", "least-squares", "--json").stdout)["runs"]
    for name in ("A", "B", "C_mid", "R0"):
        assert run["params"][name]["value"] > 0
        assert run["params"][name]["low"] is None
        assert run["params"][name]["high"] is None
    assert "no intervals" in fit_curve(file, "--method", "least-squares").stdout


@pytest.mark.parametrize("law", ["sigmoid", "power", "exponential", "weibull", "gompertz"])
def test_a_law_alone_forecasts(law, tmp_path):
    file = tmp_path / "log.csv"
    file.write_text(csv_of(RISE))
    assert f"the {law} law alone" in fit_curve(file, "--law", law).stdout


def test_r0_first_is_fixed_to_the_first_score(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text(csv_of(RISE))
    (run,) = json.loads(fit_curve(file, "--r0", "first", "--json").stdout)["runs"]
    assert run["params"]["R0"]["value"] == pytest.approx(0.20, abs=1e-6)


def test_evaluation_size_is_used(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text(csv_of(RISE))
    (known,) = json.loads(fit_curve(file, "--n", "400", "--json").stdout)["runs"]
    # a pass rate near 0.4 of 400 samples: sqrt(0.4 * 0.6 / 400) = 0.0245
    assert known["noise"]["evaluation"] == pytest.approx(0.0245, rel=0.2)


# ---------------------------------------------------------------- output


def test_json_is_the_same_bytes_each_time_and_has_the_command():
    first, second = (fit_curve(FIG1A, "--json").stdout for _ in range(2))
    assert first == second
    assert json.loads(first)["command"] == ["fit-curve", FIG1A, "--json"]


def test_all_files_are_written(tmp_path):
    names = ["table.csv", "page.html", "plot.svg"]
    table, page, plot = (tmp_path / name for name in names)
    done = fit_curve(FIG1A, "--csv", table, "--html", page, "--plot", plot)
    assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)  # nothing temporary
    rows = list(csv.DictReader(io.StringIO(table.read_text(encoding="utf-8"))))
    assert [row["run"] for row in rows] == ["8B dense", "17Bx16 MoE"]
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert plot.read_text(encoding="utf-8").startswith("<?xml")


def test_plots_are_the_same_bytes_in_each_process(tmp_path):
    first, second = tmp_path / "a.svg", tmp_path / "b.SVG"
    for path in (first, second):
        assert fit_curve(FIG1A, "--plot", path).returncode == 0
    assert first.read_bytes() == second.read_bytes()


def test_an_existing_output_keeps_its_permissions_and_links_stay_links(tmp_path):
    target, link = tmp_path / "table.csv", tmp_path / "link.csv"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    assert fit_curve(FIG1A, "--csv", link).returncode == 0
    assert link.is_symlink()
    assert target.read_text().startswith("run,file,")
    assert target.stat().st_mode & 0o777 == 0o640


def test_strict_turns_a_doubt_into_exit_code_1():
    plain, strict = (fit_curve(FIG1A, *more) for more in ([], ["--strict"]))
    assert (plain.returncode, strict.returncode) == (0, 1)
    assert plain.stdout == strict.stdout


def test_a_forecast_too_far_is_a_doubt():
    done = fit_curve(FIG1A, "--at", "1e8", "--json")
    for run in json.loads(done.stdout)["runs"]:
        assert "far-extrapolation" in [doubt["code"] for doubt in run["doubts"]]


def test_text_survives_a_terminal_without_unicode():
    done = fit_curve(FIG1A, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m curvefit {FIG1A} --json | head -c 10"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )
    assert done.stdout == '{\n  "schem'
    assert done.stderr == "fit-curve: note: x = gpu_hours, y = pass_rate, run = run\n"


def test_version_and_help_say_what_they_should():
    from curvefit import __version__

    assert fit_curve("--version").stdout == f"fit-curve {__version__}\n"
    help_text = fit_curve("--help").stdout
    assert help_text.splitlines()[0] == "usage: fit-curve FILE... [options]"
    assert f"fit-curve {FIG1A} --until 50% --at 100000" in help_text


def test_a_warning_is_one_note(tmp_path):
    """The published grid says when it ends on its edge: A = 0.8 for a run that reaches 1."""
    file = tmp_path / "runs.csv"
    file.write_text(csv_of([(2000 * k, k / (k + 2)) for k in range(1, 30)]))
    done = fit_curve(file, "--method", "scalerl-grid")
    assert done.returncode == 0
    assert all(line.startswith("fit-curve: note: ") for line in done.stderr.splitlines())
    assert "runs: the published grid search ended on an edge" in done.stderr


def test_columns_of_intervals_are_left_out_where_there_are_none(tmp_path):
    file = tmp_path / "runs.csv"
    file.write_text(csv_of(RISE))
    done = fit_curve(file, "--method", "least-squares", "--law", "power", "--r0", "0.2")
    assert "interval" not in done.stdout.partition("The power law")[2].partition("Forecast by")[0]
    assert "pass rate at zero compute (fixed)" in done.stdout
