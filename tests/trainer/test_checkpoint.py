"""Checkpoints are there whole or not at all, and belong to one model."""

import subprocess
import sys

import factory
import pytest
import torch

from trainer import checkpoint
from trainer.errors import CheckpointError


def meta(model):
    return {"model": checkpoint.fingerprint(model)}


def test_state_comes_back_bit_for_bit(tmp_path):
    model = factory.model()
    state = {"model": model.state_dict(), "step": 3, "retired": ["a"], "nested": {1: [0.5, None]}}
    path = checkpoint.save(tmp_path, 3, state, meta(model), keep=2)
    step, loaded = checkpoint.load(path, checkpoint.fingerprint(model))
    assert step == 3
    assert loaded["nested"] == {1: [0.5, None]}
    for name, w in state["model"].items():
        assert torch.equal(w, loaded["model"][name])


def test_the_newest_is_found_and_only_so_many_are_kept(tmp_path):
    model = factory.model()
    for step in (5, 10, 15):
        checkpoint.save(tmp_path, step, {"step": step}, meta(model), keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000010", "step-000015"]
    assert checkpoint.latest(tmp_path).name == "step-000015"


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    path = checkpoint.save(tmp_path, 1, {}, meta(factory.model()), keep=1)
    with pytest.raises(CheckpointError, match="is of another model"):
        checkpoint.load(path, checkpoint.fingerprint(factory.model(layers=1)))


def test_a_damaged_checkpoint_is_named(tmp_path):
    model = factory.model()
    path = checkpoint.save(tmp_path, 1, {"x": 1}, meta(model), keep=1)
    (path / "state.pt").write_bytes(b"half")
    with pytest.raises(CheckpointError, match="cannot read the checkpoint"):
        checkpoint.load(path, checkpoint.fingerprint(model))


def test_a_kill_while_writing_leaves_the_last_whole_one(tmp_path):
    code = (
        "import os, sys, torch; from pathlib import Path; from trainer import checkpoint\n"
        "folder = Path(sys.argv[1])\n"
        "checkpoint.save(folder, 1, {'x': torch.ones(3)}, {'model': 'm'}, 2)\n"
        "write = torch.save\n"
        "def killed(state, path):\n"
        "    write(state, path); os.kill(os.getpid(), 9)\n"
        "torch.save = killed\n"
        "checkpoint.save(folder, 2, {'x': torch.zeros(3)}, {'model': 'm'}, 2)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -9
    assert len(list(tmp_path.glob(".partial-*"))) == 1
    newest = checkpoint.latest(tmp_path)
    assert newest.name == "step-000001"
    assert torch.equal(checkpoint.load(newest, "m")[1]["x"], torch.ones(3))
    assert list(tmp_path.glob(".partial-*")) == []


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write the checkpoint"):
        checkpoint.save(tmp_path / "file", 1, {}, {"model": "m"}, 1)


def test_too_small_a_disk_is_refused_before_training(tmp_path, monkeypatch):
    import shutil

    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(CheckpointError, match="make room"):
        checkpoint.check_room(tmp_path, factory.model(), keep=2)
    weights = sum(4 * p.numel() for p in factory.model().parameters())
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10 * weights))
    checkpoint.check_room(tmp_path, factory.model(), keep=2)  # three of three copies: 9
    with pytest.raises(CheckpointError, match="make room"):  # three of four
        checkpoint.check_room(tmp_path, factory.model(), keep=2, reference=True)
