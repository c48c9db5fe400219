"""`skip="auto"`: transients that are there are found and left out, clean runs are let be."""

import json

import numpy as np
import pytest
from doubtful_runs import clean, hill, noise, run_of
from scipy.stats import f as f_distribution
from scipy.stats import norm

from curvefit.backtest import backtest
from curvefit.cli import main
from curvefit.compare import compare
from curvefit.errors import InputError
from curvefit.fit import fit
from curvefit.transient import Expected, _early, _length, _scores
from curvefit.window import TRANSIENT

C = np.linspace(0.0, 10_000.0, 61)  # to 4 C_mid; three points between 0 and 0.25 C_mid (625)


def dipped(depth=0.05, seed=1):
    """A sigmoid that loses `depth` right after step 0, and half of it by the second point."""
    off = np.where(C > 0, -depth * 0.5 ** np.arange(-1, 60), 0.0)
    return run_of(C, hill(C) + off + noise(61, seed=seed))


def said(fitted):
    (message,) = [note.message for note in fitted.run.notes if note.code == TRANSIENT]
    return message


def test_a_dip_is_left_out_and_step_0_kept():
    found = fit(dipped(), skip="auto")
    gone = [int(d.row) for d in found.run.dropped]
    assert gone == list(range(2, 2 + len(gone)))  # row 1 is step 0
    assert 1 <= len(gone) <= 3
    assert found.run.compute[0] == 0.0
    assert "early transient" in found.run.dropped[0].why
    assert "below what step 0 and the later points predict" in said(found)


def test_early_is_a_quarter_of_the_midpoint_or_of_the_data():
    """0.25 × 2,500 holds 3 points of 166.7 each after step 0; 0.25 × 10,000 holds 15."""
    run = clean(n=61)
    assert run.compute[_early(run, 2500.0)].tolist() == run.compute[1:4].tolist()
    assert _early(run, 1e9).sum() == 15
    assert not _early(run, 100.0).any()


def test_a_clean_run_is_let_be_and_says_so():
    found = fit(clean(n=61), skip="auto")
    assert len(found.run) == 61
    assert "no early transient" in said(found)


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (clean(n=8), "no point lies between 0 and 0.25 C_mid"),
        (run_of(C[:9], hill(C[:9]) + noise(9)), "points lie beyond 0.25 C_mid"),
    ],
)
def test_too_few_points_are_said(run, why):
    found = fit(run, skip="auto")
    assert len(found.run) == len(run)
    assert why in said(found)


def test_a_forecast_after_a_dip_is_closer_without_it():
    """Truth at 40,000: 0.3 + 0.3/(1 + (1/16)^1.5) = 0.5953."""
    errors = {
        skip: np.mean(
            [
                abs(fit(dipped(seed=s), skip=skip, law="sigmoid")([40_000])[0] - 0.5953)
                for s in range(5)
            ]
        )
        for skip in (0.0, "auto")
    }
    assert errors["auto"] < 0.75 * errors[0.0]


def test_the_held_out_part_has_no_say():
    """At an origin the detector sees what the fit sees."""
    y = dipped().score.copy()
    y[31:] = 0.9
    one, other = (fit(run_of(C, v), skip="auto", until=5000.0) for v in (y, dipped().score))
    assert one.run.compute.tolist() == other.run.compute.tolist()


def test_scores_are_those_of_the_f_and_the_normal_distribution():
    """Paulson's cube root against scipy, and an offset of 3 standard errors in the first point."""
    off = np.array([0.02, -0.01, 0.015, 0.005])
    S = np.diag([1e-4, 2e-4, 1e-4, 3e-4])
    F = float((off**2 / np.diag(S)).mean())
    distance, _ = _scores(off, Expected(np.zeros(4), S, 30))
    assert distance == pytest.approx(norm.isf(f_distribution.sf(F, 4, 26)), abs=0.02)
    _, offset = _scores(np.array([0.03]), Expected(np.zeros(1), np.array([[1e-4]]), 30))
    assert offset == pytest.approx(3.0)


def test_the_length_of_a_transient_is_where_the_rest_agrees():
    S = 1e-4 * np.eye(5)
    off = np.array([-0.05, -0.04, 0.002, -0.003, 0.001])
    assert _length(off, Expected(np.zeros(5), S, 30)) == 2
    assert _length(0.1 * off, Expected(np.zeros(5), S, 30)) == 0


def test_backtest_and_compare_take_it():
    assert len(backtest(dipped(), [0.5], skip="auto").origins) == 1
    (of_one, _) = compare([dipped(), clean(n=61)], recipe=lambda r: str(id(r)), skip="auto").recipes
    assert of_one.points <= 61


@pytest.mark.parametrize("skip", ["soon", "-1", float("nan"), -2.0])
def test_a_skip_that_is_none_is_refused(skip):
    with pytest.raises(InputError, match="neither a compute of 0 or more nor 'auto'"):
        fit(clean(), skip=skip)


def test_the_command_line_says_what_was_skipped(tmp_path, capsys):
    run = dipped()
    file = tmp_path / "log.csv"
    rows = zip(run.compute.tolist(), run.score.tolist(), strict=True)
    file.write_text("step,pass_rate\n" + "".join(f"{c},{y}\n" for c, y in rows))
    assert main([str(file), "--skip", "auto", "--json"]) == 0
    out, err = capsys.readouterr()
    points = json.loads(out)["runs"][0]["points"]
    assert points["read"] == points["used"] + len(points["dropped"]) == 61
    assert points["dropped"][0]["row"] == 3  # line 2 is step 0
    assert points["transient"] in err
    main([str(file), "--skip", "auto"])
    assert "left out: early transient" in " ".join(capsys.readouterr().out.split())
    assert main([str(file), "--json"]) == 0
    assert "transient" not in json.loads(capsys.readouterr().out)["runs"][0]["points"]
