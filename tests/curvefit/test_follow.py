"""``fit-curve --follow``: the real command on files that grow while it looks at them."""

import csv
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from following import END, ROOT, following, trainer_log
from test_cli import FIG1A, RISE, assert_one_error_line, csv_of, fit_curve

import curvefit

sys.path.append(str(ROOT / "docs"))
from update import alike

MORE = [(640, 0.55), (1280, 0.56)]


def append(file, text):
    with file.open("a", encoding="utf-8") as log:
        log.write(text)


@pytest.fixture
def log(tmp_path):
    file = tmp_path / "alpha.csv"
    file.write_text(csv_of(RISE))
    return file


# ---------------------------------------------------------------- growth


def test_a_new_evaluation_is_a_line_with_the_forecast_and_how_it_moved(log):
    before = curvefit.fit(*zip(*RISE, strict=True))
    after = curvefit.fit(*zip(*RISE, MORE[0], strict=True))
    (old,), (new,) = before.forecast([1280]), after.forecast([1280])
    with following(log) as command:
        report = command.said("Forecast of pass_rate")
        assert report[0].startswith("alpha (")
        command.started()
        append(log, "640,0.55\n")
        line = command.said("moved")[-1]
        clock, rest = line.split("  ", 1)
        assert [part.isdigit() for part in clock.split(":")] == [True] * 3
        assert rest.startswith("alpha  640 GPU-hours  0.55")
        value, low, high, _, moved = rest.partition("at 2 x: ")[2].split()[:5]
        numbers = [float(word.strip("[],")) for word in (value, low, high, moved)]
        expected = [new.score, new.low, new.high, new.score - old.score]
        assert numbers == pytest.approx(expected, abs=0.006)


def test_a_half_written_line_waits_for_the_rest(log):
    with following(log) as command:
        command.started()
        command.said("Doubts")
        while not command.out.empty():
            command.out.get()
        append(log, "640,0.5")  # a whole number already, yet not the one that is being written
        assert command.quiet()
        append(log, "5\n")
        assert " 0.55" in command.said("640 GPU-hours")[-1].partition("at 2 x")[0]


def test_a_line_without_its_break_counts_once_the_following_ends(log):
    append(log, "640,0.55")
    with following(log, "--json") as command:
        assert "the last line is read when" in command.noted("line break")[-1]
        command.started()
        code, out, _ = command.end(signal.SIGINT)
    assert code == 130
    assert [json.loads(line)["runs"][0]["points"]["used"] for line in out] == [7, 8]


def test_a_file_that_is_not_there_yet_is_waited_for(tmp_path):
    file = tmp_path / "new" / "log.csv"
    with following(file) as command:
        assert command.noted("waiting")[-1] == f"fit-curve: waiting: {file} does not exist"
        command.started()
        file.parent.mkdir()
        file.write_text(csv_of(RISE[:2]))
        assert "has 2 points" in command.noted("waiting", "at least 3")[-1]
        append(file, csv_of(RISE[2:]).partition("\n")[2])
        assert command.said("points used")[0].startswith("new (")


def test_a_truncated_and_a_replaced_file_are_read_anew(log, tmp_path):
    with following(log) as command:
        command.started()
        log.write_text(csv_of(RISE[:5]))
        command.said("80 GPU-hours")
        assert "2 earlier points are gone" in command.said("gone")[-1]
        new = tmp_path / "new.csv"
        new.write_text(csv_of([(x, y + 0.01) for x, y in RISE]))
        os.replace(new, log)
        command.said("320 GPU-hours")
        assert "5 earlier points are gone" in command.said("gone")[-1]


def test_a_file_that_breaks_is_said_once_and_loses_nothing(log):
    with following(log) as command:
        command.started()
        append(log, "640,0.55,7,7\n1280,0.56\n")
        wrong = command.noted("error")[-1]
        assert "alpha.csv, line 9: 4 cells" in wrong
        assert wrong.endswith("its last forecast stands")
        append(log, "2560,0.57\n")
        log.write_text(csv_of([*RISE, *MORE]))
        notes = command.noted("can be read again")
        assert not any("error" in line for line in notes)
        assert "1,280 GPU-hours" in command.said("moved")[-1]


def test_a_run_that_did_not_change_is_not_fitted_again(log, tmp_path):
    other = tmp_path / "beta.csv"
    other.write_text(csv_of(RISE))
    with following(log, other, "--at", "5000") as command:
        command.started()
        append(log, "640,0.55\n")
        command.said("alpha", "640 GPU-hours", "at 5,000")
        append(log, "1280,0.56\n")
        lines = command.said("alpha", "1,280 GPU-hours")
        append(other, "640,0.55\n")
        lines += command.said("beta", "640 GPU-hours")
    assert sum("moved" in line and "beta" in line for line in lines) == 1


def test_recipes_are_ranked_again(log, tmp_path):
    other = tmp_path / "beta.csv"
    other.write_text(csv_of([(x, y + 0.05) for x, y in RISE]))
    with following(log, other, "--compare", "--at", "1000") as command:
        assert "best is beta" in command.said("comparison", "at 1,000 GPU-hours")[-1]
        command.started()
        append(log, "640,0.8\n")
        command.said("alpha", "moved")
        assert "best is alpha" in command.said("comparison", "at 1,000 GPU-hours")[-1]
        _, out, _ = command.end(signal.SIGTERM)
    assert "Comparison" in out


def test_files_are_written_anew_and_whole(log, tmp_path):
    table, page = tmp_path / "table.csv", tmp_path / "page.html"
    with following(log, "--csv", table, "--html", page) as command:
        command.started()
        first = table.stat().st_ino
        append(log, "640,0.55\n")
        command.said("640 GPU-hours")
        with table.open(encoding="utf-8") as rows:
            assert [row["points"] for row in csv.DictReader(rows)] == ["8"]
        assert table.stat().st_ino != first  # a new file took the name: nobody reads half of one
        assert "8 points used" in page.read_text(encoding="utf-8")
    assert len(list(tmp_path.iterdir())) == 3


def test_the_lines_that_the_how_to_shows_are_printed(tmp_path):
    page = (ROOT / "docs/how-to.md").read_text(encoding="utf-8")
    section = page.partition("## Watch a run while it trains")[2]
    shown = section.partition("```text\n")[2].partition("```")[0].splitlines()
    header, *rows = (ROOT / FIG1A).read_text(encoding="utf-8").splitlines(keepends=True)
    rows = [row for row in rows if row.startswith("8B dense")]
    file, first = tmp_path / "log.csv", 17
    file.write_text("".join([header, *rows[:first]]))
    refits = sum(" moved " in line for line in shown)
    with following(file, "--at", "100000") as command:
        command.started()
        command.said("Doubts")
        lines = []
        for row in rows[first : first + refits]:
            append(file, row)
            lines += command.said(" moved ")
        lines += command.end(signal.SIGINT)[1]
    printed = [line for line in lines if line[2:3] == line[5:6] == ":"]
    assert alike("\n".join(line[8:] for line in shown), "\n".join(line[8:] for line in printed))


# ---------------------------------------------------------------- the end


def test_a_training_run_is_followed_to_its_end(tmp_path):
    file = tmp_path / "tiny" / "log.jsonl"
    file.parent.mkdir()
    text = "".join([*trainer_log([(x / 100, y) for x, y in [*RISE, *MORE]]), END])
    seen = threading.Event()

    def train():
        """Write in pieces that end anywhere, the last ones when a forecast was seen."""
        size = len(text) // 12 + 1
        with file.open("w", encoding="utf-8") as log:
            for i in range(12):
                log.write(text[i * size : (i + 1) * size])
                log.flush()
                seen.wait(0.02 if i < 8 else 20)

    with following(file, "--json") as command:
        command.started()
        trainer = threading.Thread(target=train)
        trainer.start()
        out = command.said("curvefit/1")
        seen.set()
        code, more, err = command.end()
        trainer.join()
    plain = fit_curve(file, "--json")
    last, expected = json.loads(more[-1]), json.loads(plain.stdout)
    assert last.pop("command")[:2] == expected.pop("command")[:2]
    assert last == expected
    assert code == plain.returncode == 0
    used = [json.loads(line)["runs"][0]["points"]["used"] for line in [*out, *more]]
    assert used == sorted(set(used))  # each refit has new points
    assert used[-1] == 9
    assert err[-1] == "fit-curve: note: the log says that the run has ended"


@pytest.mark.parametrize("strict", [[], ["--strict"]])
def test_a_run_that_has_ended_is_reported_once(strict, tmp_path):
    file = tmp_path / "log.jsonl"
    file.write_text("".join([*trainer_log(RISE), END]))
    done, plain = fit_curve(file, "--follow", *strict), fit_curve(file, *strict)
    assert done.stdout.strip() == plain.stdout.strip()
    assert "few-points" in plain.stdout
    assert done.returncode == plain.returncode == len(strict)


def test_a_run_that_ended_too_early_is_an_error_as_without_following(tmp_path):
    file = tmp_path / "log.jsonl"
    for points, words in ((RISE[:2], "has 2 points"), ([], "no evaluation yet")):
        file.write_text("".join([*trainer_log(points), END]))
        done, plain = fit_curve(file, "--follow"), fit_curve(file)
        assert done.returncode == plain.returncode == 2
        assert done.stdout == ""
        assert done.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]
        assert words in done.stderr.splitlines()[-1]


def test_a_run_that_was_resumed_has_not_ended(tmp_path):
    file = tmp_path / "log.jsonl"
    lines = trainer_log(RISE)
    resume = json.dumps({"event": "resume", "step": 6, "gpu_hours": 320}) + "\n"
    file.write_text("".join([*lines, END, resume]))
    with following(file) as command:
        command.started()
        append(file, END)
        code, _, _ = command.end()
    assert code == 0


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_ends_with_the_last_report(number, code, word, log):
    with following(log) as command:
        command.started()
        append(log, "640,0.55\n")
        command.said("moved")
        found, out, err = command.end(number)
    assert found == code
    assert [line for line in out if "points used" in line] == ["8 points used, 0 to 640 GPU-hours"]
    assert err == [f"fit-curve: {word}"]


def test_a_pipe_that_nobody_reads_any_more_ends_quietly_without_a_new_evaluation(log):
    command = f"set -o pipefail; {sys.executable} -m curvefit {log} --follow --json | head -c 10"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    assert done.stdout == '{"schema":'
    assert done.returncode == 141
    assert [line for line in done.stderr.splitlines() if "note: " not in line] == []


# ---------------------------------------------------------------- what does not go


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-", "--follow"], ["standard input"]),
        (["data", "--follow"], ["directory", "data/log.jsonl"]),
        ([os.devnull, "--follow"], ["regular file"]),
        ([FIG1A, "--follow", "--backtest"], ["--backtest", "--follow"]),
        ([FIG1A, "--follow", "--scan"], ["--scan", "--follow"]),
        ([FIG1A, "--follow", "--decide"], ["--decide", "--follow"]),
        ([FIG1A, "--follow", "--allocate"], ["--allocate", "--follow"]),
        ([FIG1A, "--every", "5"], ["--every", "--follow"]),
        ([FIG1A, "--follow", "--every", "0"], ["--every", "above 0"]),
        (["not/yet.csv", "--follow", "--csv", "not/yet.csv"], ["not/yet.csv", "input"]),
    ],
)
def test_what_cannot_be_followed_is_one_line_and_exit_code_2(args, words):
    assert_one_error_line(fit_curve(*args), 2, *words)


def test_what_more_data_cannot_mend_ends_at_once(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text("gpu_hours,eval/a,eval/b\n1,0.2,0.6\n2,0.3,0.5\n3,0.4,0.4\n")
    assert_one_error_line(fit_curve(file, "--follow"), 2, "eval/a", "--y")
