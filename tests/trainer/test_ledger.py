"""The books: GPU-hours with a clock of our own, and a log that survives kills."""

import json
import math
import os
import subprocess
import sys

import pytest

from trainer.errors import RunStopped, TrainerError
from trainer.ledger import Ledger, read


class Clock:
    def __init__(self, start=0.0):
        self.now = start

    def __call__(self):
        return self.now


@pytest.fixture
def closed_later():
    ledgers = []
    yield lambda ledger: ledgers.append(ledger) or ledger
    for ledger in ledgers:
        ledger.close()


def test_three_machines_of_eight_for_ten_minutes_with_a_restart_are_four_gpu_hours(tmp_path):
    path, hours = tmp_path / "log.jsonl", []
    for session, start in enumerate((0.0, 7777.0)):  # the pause between is not held
        clock = Clock(start)
        ledger = Ledger(path, 3 * 8, clock)
        for minute in range(6):
            clock.now = start + 60.0 * minute
            ledger.write("step", step=5 * session + minute)
            hours.append(ledger.gpu_hours)
        ledger.close()
    assert hours[-1] == 4.0
    assert hours == sorted(hours)
    assert [row["gpu_hours"] for row in read(path)] == hours


def test_idle_time_counts_and_phases_split_the_wall_time(tmp_path, closed_later):
    clock = Clock()
    ledger = closed_later(Ledger(tmp_path / "log.jsonl", 2, clock))
    with ledger.phase("generate"):
        clock.now += 30
    clock.now += 10
    with ledger.phase("train"):
        clock.now += 20
    assert ledger.gpu_hours == pytest.approx(2 * 60 / 3600)
    assert ledger.take_phases() == {"generate_s": 30, "train_s": 20}
    assert ledger.take_phases() == {}


def test_numbers_that_json_lacks_are_null_with_the_reason_beside(tmp_path, closed_later):
    ledger = closed_later(Ledger(tmp_path / "log.jsonl", 1, Clock()))
    ledger.write("step", step=1, loss=math.nan, grad_norm=math.inf, entropy=0.5)
    text = (tmp_path / "log.jsonl").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    (row,) = read(tmp_path / "log.jsonl")
    assert row["loss"] is None
    assert row["not_finite"] == {"loss": "nan", "grad_norm": "inf"}
    assert row["entropy"] == 0.5


def test_a_half_written_last_line_is_dropped_and_the_next_line_is_whole(tmp_path, closed_later):
    path = tmp_path / "log.jsonl"
    ledger = Ledger(path, 1, Clock())
    ledger.write("step", step=1)
    ledger.close()
    with path.open("a") as file:
        file.write('{"event": "step", "st')
    closed_later(Ledger(path, 1, Clock())).write("resume", step=1, reason="start")
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == [
        "step",
        "resume",
    ]


def test_every_line_is_on_disk_when_the_process_is_killed(tmp_path):
    path = tmp_path / "log.jsonl"
    code = (
        "import os, sys; from pathlib import Path; from trainer.ledger import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]), 1)\n"
        "for i in range(50): ledger.write('step', step=i)\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -9
    assert [row["step"] for row in read(path)] == list(range(50))


def test_an_unwritable_log_is_refused_in_one_line(tmp_path):
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(TrainerError, match="cannot write the log"):
        Ledger(tmp_path / "log.jsonl", 1)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_stops_the_run_with_a_remedy(tmp_path, closed_later):
    (tmp_path / "log.jsonl").symlink_to("/dev/full")
    ledger = closed_later(Ledger(tmp_path / "log.jsonl", 1))
    with pytest.raises(RunStopped, match="No space left"):
        ledger.write("step", step=1)
