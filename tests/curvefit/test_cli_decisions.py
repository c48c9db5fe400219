"""--compare, --allocate, --backtest and --decide from outside."""

import json

import numpy as np
import pytest
from recipes import seed_run

from curvefit.cli import main


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Two recipes of two seeds, 21 evaluations each, in one CSV."""
    lines = ["recipe,seed,gpu_hours,pass_rate"]
    for recipe, A in (("a", 0.58), ("b", 0.64)):
        for seed in (1, 2):
            run = seed_run(recipe, seed, A=A, points=21)
            points = zip(run.compute.tolist(), run.score.tolist(), strict=True)
            lines += [f"{recipe},{seed},{C},{y}" for C, y in points]
    path = tmp_path_factory.mktemp("log") / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def command(capsys, *argv):
    code = main(list(argv))
    return code, *capsys.readouterr()


def test_all_three_fill_their_keys(log, capsys):
    code, out, _ = command(
        capsys, log, "--run", "recipe,seed", "--n", "16000", "--compare", "--backtest", "--decide",
        "--price", "2", "--width", "0.5", "--at", "40000", "--json",
    )  # fmt: skip
    document = json.loads(out)
    assert code == 0
    comparison = document["comparison"]
    assert comparison["at"] == 40_000
    assert {r["recipe"]: len(r["runs"]) for r in comparison["recipes"]} == {"a": 2, "b": 2}
    assert comparison["rankings"][1]["places"][0]["recipe"] == "b"
    assert [p["at"] for p in document["backtest"]["pooled"]] == [0.1, 0.25, 0.5]
    decision = document["runs"][0]["decision"]
    assert decision["stop"]["target"] == 40_000
    assert decision["gains"][0]["cost"] == pytest.approx(2 * decision["gains"][0]["more"])


def test_keys_are_null_when_nothing_is_asked(log, capsys):
    document = json.loads(command(capsys, log, "--json")[1])
    assert document["comparison"] is None
    assert document["backtest"] is None
    assert document["allocation"] is None
    assert "decision" not in document["runs"][0]


def test_the_text_and_the_page_hold_the_answers(log, capsys, tmp_path):
    page = tmp_path / "page.html"
    code, out, _ = command(
        capsys, log, "--compare", "--backtest=50%", "--run", "recipe,seed", "--html", str(page)
    )
    assert code == 0
    assert "By the asymptote A, b is best" in out
    assert "Backtest" in out
    assert max(map(len, out.splitlines())) <= 100
    assert "By the asymptote A, b is best" in page.read_text("utf-8")


def test_an_allocation_fills_its_key_the_picture_and_the_page(log, capsys, tmp_path):
    picture, page = tmp_path / "a.svg", tmp_path / "page.html"
    code, out, _ = command(
        capsys, log, "--run", "recipe,seed", "--allocate", "--at", "40000", "--price", "2",
        "--plot", str(picture), "--html", str(page), "--json",
    )  # fmt: skip
    allocation = json.loads(out)["allocation"]
    assert code == 0
    assert allocation["budgets"][-1]["budget"] == 40_000
    assert allocation["budgets"][-1]["cost"] == 80_000
    assert allocation["budgets"][-1]["choices"][0]["setting"] == "b"
    assert "likeliest best (the frontier)" in picture.read_text("utf-8")
    assert allocation["sentences"][0] in page.read_text("utf-8").replace("&gt;", ">")
    table = tmp_path / "a.csv"
    asked = ["--run", "recipe,seed", "--allocate", "--at", "3e4,9e3", "--csv", str(table), "--json"]
    budgets = json.loads(command(capsys, log, *asked)[1])["allocation"]["budgets"]
    assert [b["budget"] for b in budgets] == [9000, 30_000]
    assert [row.split(",")[0] for row in table.read_text().splitlines()[1:]] == [
        "9000", "9000", "30000", "30000"
    ]  # fmt: skip


def test_steps_cannot_be_allocated_but_are_fitted(tmp_path, capsys):
    path = tmp_path / "steps.csv"
    rows = [(r, c, 0.3 + 0.3 * c / (c + 300)) for r in "ab" for c in range(0, 1001, 50)]
    path.write_text("run,step,pass_rate\n" + "".join(f"{r},{c},{y:.4f}\n" for r, c, y in rows))
    code, out, err = command(capsys, str(path), "--allocate", "--json")
    assert code == 2
    assert json.loads(out)["allocation"] is None
    assert [line for line in err.splitlines() if "a step of a larger model" in line]
    assert err.count("error") == 1


def test_one_run_cannot_be_compared_but_is_fitted(tmp_path, capsys):
    C = np.linspace(0, 1000, 21)
    path = tmp_path / "one.csv"
    path.write_text(
        "step,pass_rate\n" + "".join(f"{c:g},{0.3 + 0.3 * c / (c + 300):.4f}\n" for c in C)
    )
    code, out, err = command(capsys, str(path), "--compare")
    assert code == 2
    assert "at least 2 runs" in err
    assert "ScaleRL's sigmoid" in out


@pytest.mark.parametrize("share", ["0%", "90%", "x", "", "25%,100"])
def test_a_bad_origin_is_refused(log, capsys, share):
    with pytest.raises(SystemExit) as refused:
        main([log, f"--backtest={share}"])
    assert refused.value.code == 2
    assert "below 90" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--price=-1", "--loss=0", "--width=x"])
def test_a_bad_amount_is_refused(log, capsys, option):
    with pytest.raises(SystemExit) as refused:
        main([log, "--decide", option])
    assert refused.value.code == 2
    assert option[2:7].rstrip("=") in capsys.readouterr().err
