"""--compare from outside: what cannot be compared is said and left out, and what the files hold."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import curvefit

ROOT = Path(__file__).parents[2]
C = np.linspace(0.0, 4000.0, 41)


def noise(seed):
    return 0.003 * np.random.default_rng(seed).standard_normal(len(C))


def rising(A=0.62, C=C, C_mid=500.0, seed=3):
    return curvefit.curve(C, A, 1.8, C_mid, 0.3) + noise(seed)


def write(folder, name, y, x="step", column="pass_rate", C=C):
    rows = zip(C.tolist(), np.asarray(y).tolist(), strict=True)
    text = f"{x},{column}\n" + "".join(f"{c:.8g},{v:.8g}\n" for c, v in rows)
    (folder / f"{name}.csv").write_text(text)


def fit_curve(folder, *args):
    """The real command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "curvefit", *args],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        timeout=120,
        check=False,
    )


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, "a", rising(0.60, seed=1))
    write(tmp_path, "b", rising(0.65, seed=2))
    return tmp_path


LATER = np.linspace(5000.0, 9000.0, 41)
FELL = rising() - np.where(C > 2400, 0.25 * (C - 2400) / 1600, 0.0)


@pytest.mark.parametrize(
    ("y", "options", "why"),
    [
        (rising(), {"x": "gpu_hours"}, "its compute is in GPU-hours, that of most runs in steps"),
        (10 * rising() - 7, {"column": "reward"}, "its score is a reward 'reward', that of most"),
        (rising()[:1], {"C": C[:1]}, "has 1 point, a fit needs at least 3"),
        (
            rising(C=LATER, C_mid=6e3),
            {"C": LATER},
            "its compute, 5000 to 9000, overlaps that of no",
        ),
        (0.3 + noise(5), {}, "no rise beyond noise"),
        (FELL, {}, "a rising curve does not describe what follows"),
        (rising(), {"column": "pass@8"}, "its score is pass@8, that of most runs accuracy"),
    ],
    ids=["x-unit", "reward", "one-point", "apart", "flat", "fell", "pass@8"],
)
def test_what_cannot_be_compared_is_left_out_with_the_reason(folder, y, options, why):
    write(folder, "c", y, **options)
    done = fit_curve(folder, "a.csv", "b.csv", "c.csv", "--compare")
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    ranking, _, left_out = done.stdout.partition("Left out of the ranking")
    assert why in " ".join(left_out.split())
    assert left_out.split()[0] == "c:"
    recipes = ranking.partition("Recipes, the best")[2].splitlines()[2:4]
    assert [line.split()[0] for line in recipes] == ["b", "a"]
    said = json.loads(fit_curve(folder, "a.csv", "b.csv", "c.csv", "--compare", "--json").stdout)
    (excluded,) = said["comparison"]["excluded"]
    assert excluded["run"] == "c"
    assert why in excluded["why"]
    ranked = [p["recipe"] for r in said["comparison"]["rankings"] for p in r["places"]]
    assert sorted(ranked) == ["a", "a", "b", "b"]


def test_percent_against_fraction_is_read_as_one_unit_and_said(folder):
    """62 % is 0.62: the run is compared, between 0.60 and 0.65."""
    write(folder, "c", 100 * rising(0.62))
    done = fit_curve(folder, "a.csv", "b.csv", "c.csv", "--compare", "--json")
    comparison = json.loads(done.stdout)["comparison"]
    assert [r["recipe"] for r in comparison["recipes"]] == ["b", "c", "a"]
    assert "read as percent and divided by 100" in done.stderr


def test_different_benchmarks_are_not_compared(folder):
    """Two of MATH500, one of AIME; a column that names none may be of any."""
    for name, column in (("a", "test/MATH500"), ("b", "math_500_acc"), ("c", "AIME24/mean@32")):
        write(folder, name, rising(seed=len(name)), column=column)
    write(folder, "d", rising(seed=9), column="accuracy")
    fits = [curvefit.load(folder / f"{name}.csv", y=column)[0] for name, column in (
        ("a", "test/MATH500"), ("b", "math_500_acc"), ("c", "AIME24/mean@32"), ("d", "accuracy"),
    )]  # fmt: skip
    (excluded,) = curvefit.compare(fits).excluded
    assert excluded.run == "c"
    assert excluded.why == "its score is of aime24, that of most runs of math500"


def test_of_two_runs_the_first_sets_the_unit(folder):
    write(folder, "c", rising(), x="gpu_hours")
    done = fit_curve(folder, "a.csv", "c.csv", "--compare")
    assert "its compute is in GPU-hours, that of run 'a' in steps" in done.stdout


def test_nothing_left_to_compare_is_said(folder):
    write(folder, "a", 0.3 + noise(5))
    write(folder, "b", FELL)
    done = fit_curve(folder, "a.csv", "b.csv", "--compare", "--plot", "x.png", "--csv", "x.csv")
    assert "No run is left to compare" in done.stdout
    assert "there is no recipe to draw" in done.stderr
    assert not (folder / "x.png").exists()
    assert len((folder / "x.csv").read_text().splitlines()) == 1
    assert done.returncode == 2


def test_one_run_is_no_comparison(folder):
    done = fit_curve(folder, "a.csv", "--compare", "--csv", "x.csv")
    assert done.returncode == 2
    assert "a comparison needs at least 2 runs, there are 1" in done.stderr
    assert "A = 0.599" in done.stdout


def test_files_hold_the_comparison(folder):
    files = ["--csv", "t.csv", "--plot", "p.svg", "--html", "h.html"]
    done = fit_curve(folder, "a.csv", "b.csv", "--compare", *files)
    assert done.returncode == 0
    rows = list(csv.DictReader(io.StringIO((folder / "t.csv").read_text())))
    assert [(row["recipe"], row["rank_by_A"]) for row in rows] == [("b", "1"), ("a", "2")]
    drawing = (folder / "p.svg").read_text()
    assert "asymptote A" in drawing
    assert "ln F(R)" not in drawing  # 0.05 apart, no A in common
    page = (folder / "h.html").read_text()
    assert page.count("<svg") == 2  # the runs, and the comparison
    assert "recipes compared" in page


def test_recipes_of_one_A_are_drawn_as_straight_lines_too(folder):
    write(folder, "b", rising(0.605, C_mid=800.0, seed=2))
    fit_curve(folder, "a.csv", "b.csv", "--compare", "--plot", "p.svg")
    drawing = (folder / "p.svg").read_text()
    assert "ln F(R) at A = 0.60" in drawing


def test_latex_is_written_for_a_tex_file(folder):
    done = fit_curve(folder, "a.csv", "b.csv", "--compare", "--csv", "t.tex")
    assert done.returncode == 0
    lines = (folder / "t.tex").read_text().splitlines()
    assert lines[:2] == [r"\begin{tabular}{lrrrrr}", r"\toprule"]
    assert lines[4].startswith("b & 1 & 0.6")
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
