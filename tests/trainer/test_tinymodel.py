"""The tiny model is an ordinary model directory, made once, from training questions only."""

from __future__ import annotations

import fcntl
import json
import shutil
import threading

import pytest

from trainer.errors import TaskError, TrainerError
from trainer.tinymodel import TinySettings, _Student, make_tiny_model, new_model


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tiny_model):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tiny_model.parents[1]))


def note(directory):
    return json.loads((directory / "tiny.json").read_text())


def test_it_loads_through_transformers_like_any_model(tiny_model):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    assert 100_000 < model.num_parameters() < 120_000
    assert model.config.model_type == "llama"
    assert model.config.head_dim == 32
    ids = tokenizer("3+5=<think>8</think>8")["input_ids"]
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True) == "3+5=<think>8</think>8"
    assert len(ids) == 9


def test_it_starts_where_reinforcement_learning_has_something_to_do(tiny_model):
    assert 0.15 <= note(tiny_model)["held_out_pass_rate"] <= 0.25


def test_it_is_taken_from_the_cache_and_copied_where_asked(tiny_model, tmp_path):
    before = (tiny_model / "model.safetensors").stat().st_mtime_ns
    assert make_tiny_model() == tiny_model
    copy = make_tiny_model(tmp_path / "copy")
    assert (tiny_model / "model.safetensors").stat().st_mtime_ns == before
    assert note(copy) == note(tiny_model)
    assert make_tiny_model(copy) == copy


@pytest.mark.slow
def test_a_copy_whose_weights_were_damaged_is_made_again(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    mine = tmp_path / "rl-curvefit" / tiny_model.name
    shutil.copytree(tiny_model, mine)
    weights = mine / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    assert make_tiny_model() == mine
    assert note(mine)["sha256"] == note(tiny_model)["sha256"]  # and equal, weight for weight


def test_a_run_waits_for_the_model_that_another_is_making(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    mine, made = tmp_path / "rl-curvefit" / tiny_model.name, []
    mine.parent.mkdir()
    waits = threading.Thread(target=lambda: made.append(make_tiny_model()))
    with (mine.parent / f".{mine.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as the other run holds it
        waits.start()
        waits.join(0.3)
        assert waits.is_alive()
        shutil.copytree(tiny_model, mine)
        inode = mine.stat().st_ino
    waits.join(60)
    assert made == [mine]
    assert mine.stat().st_ino == inode  # taken as it was, not made again


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(TrainerError, match="is not empty and holds no tiny model"):
        make_tiny_model(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_held_out_questions_are_kept_out_of_the_supervised_phases(monkeypatch):
    from trainer.tasks.registry import make_task

    task = make_task("chain")
    asked = []
    monkeypatch.setattr(
        type(task),
        "demonstration",
        lambda self, item, rng, error: asked.append(item.text) or self.gold_of(item),
        raising=True,
    )
    monkeypatch.setattr(
        type(task), "gold_of", lambda self, item: f"<think></think>{item.answer}", raising=False
    )
    settings = TinySettings()
    student = _Student(new_model(settings), task, settings)
    for _ in range(200):
        student._demonstrations(0.5)
    held = {task.item("held-out", i).text for i in range(task.size("held-out"))}
    assert len(asked) == 200 * 64
    assert not held & set(asked)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "gpt2"}, "choose llama or qwen3"),
        ({"hidden": 48}, "multiple of 32"),
        ({"layers": 0}, "layers at least 1"),
    ],
)
def test_sizes_that_cannot_be_are_refused(settings, message):
    with pytest.raises(TrainerError, match=message):
        TinySettings(**settings)


def test_tasks_without_demonstrations_are_refused(tmp_path, monkeypatch):
    pytest.importorskip("reasoning_gym")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    options = {"generators": ["chain_sum"]}
    with pytest.raises(TaskError, match="no tiny model for task reasoning-gym"):
        make_tiny_model(None, TinySettings(task="reasoning-gym", options=options))
    assert not list((tmp_path / "rl-curvefit").glob("tiny-*"))


@pytest.mark.slow
def test_a_qwen3_of_another_seed_is_made_as_well(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = make_tiny_model(None, TinySettings(kind="qwen3", seed=3))
    assert 0.15 <= note(made)["held_out_pass_rate"] <= 0.25
