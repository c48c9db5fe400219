"""The callback under the real Trainer: a clock of our own, and a real kill."""

import json
import os
import signal
import subprocess
import sys

import pytest

import curvefit
from curvefit.cli import main
from curvefit.transformers import GpuHoursCallback

pytest.importorskip("torch")
pytest.importorskip("accelerate")
transformers = pytest.importorskip("transformers")

from tiny_trainer import (  # noqa: E402
    ROOT,
    Clock,
    accuracy,
    example,
    examples,
    hours,
    rows,
    start,
    trainer,
)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "runs" / "tiny" / "log.jsonl"


def test_gpu_hours_are_those_of_a_hand_calculation_through_kill_9(tmp_path, log):
    """Six devices: a step is 0.1 GPU-hours, an evaluation 0.2; the fifth step is trained twice."""
    code = f"""
import tiny_trainer as t
t.start({str(tmp_path / "out")!r}, {str(log)!r}, t.Clock(), t.Kill()).train()
"""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "curvefit")])
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    before = [
        ("eval", 0, 0.0),
        ("step", 1, 0.3),
        ("step", 2, 0.4),
        ("eval", 2, 0.4),
        ("step", 3, 0.7),
        ("step", 4, 0.8),
        ("eval", 4, 0.8),
        ("step", 5, 1.1),
    ]
    assert hours(log) == before
    start(tmp_path / "out", log, Clock(now=5e6)).train(resume_from_checkpoint=True)
    assert hours(log) == [
        *before,
        ("resume", 4, 1.1),
        ("eval", 4, 0.8),  # the weights of the checkpoint cost what they did
        ("step", 5, 1.4),
        ("step", 6, 1.5),
        ("eval", 6, 1.5),
        ("end", 6, 1.7),
    ]
    after = [row["gpu_hours_after"] for row in rows(log, "eval")]
    assert after == pytest.approx([0.2, 0.6, 1.0, 1.3, 1.7])
    (run,) = curvefit.load(log)
    assert (run.name, run.x.unit, run.y.column) == ("tiny", "gpu_hours", "pass_rate")
    assert run.compute.tolist() == pytest.approx([0.0, 0.4, 0.8, 1.5])  # step 4 once


def test_the_command_line_reads_the_log_without_an_option(tmp_path, log, capsys):
    callback = GpuHoursCallback(log, n_samples=1)
    trainer(tmp_path / "out", [callback], max_steps=8).train()
    capsys.readouterr()  # the trainer prints, too
    assert main([str(log), "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)["runs"]
    assert record["x"] == {"column": "gpu_hours", "unit": "gpu_hours"}
    assert record["y"] == {"column": "pass_rate"}
    assert record["points"]["used"] == 5
    assert curvefit.load(log)[0].n_eval.tolist() == [16.0] * 5


def test_the_run_row_says_what_was_held_and_how_it_was_trained(tmp_path, log):
    callback = GpuHoursCallback(log)
    run = trainer(tmp_path / "out", [callback], max_steps=2, seed=7, weight_decay=0.25)
    run.train()
    (row,) = rows(log, "run")
    assert (row["schema"], row["run"], row["seed"]) == ("trainer-log/1", "tiny", 7)
    assert row["gpus"] == {"train": 1, "generate": 0, "kind": "cpu"}
    assert (row["config"]["weight_decay"], row["config"]["eval_steps"]) == (0.25, 2)
    assert row["task"] == {"size": 64}
    assert row["versions"]["transformers"] == transformers.__version__
    assert row["versions"]["python"] == sys.version.split()[0]
    (end,) = rows(log, "end")
    assert (end["step"], end["reason"]) == (2, "done")


def test_an_evaluation_before_and_after_training_is_logged_with_the_weights_cost(tmp_path, log):
    clock = Clock()
    callback = GpuHoursCallback(log, gpus=60, clock=clock)  # a step takes one GPU-hour
    run = trainer(tmp_path / "out", [clock, callback], max_steps=2, eval_on_start=False)
    run.evaluate()
    assert not log.exists()  # the run may yet go on from a checkpoint
    run.train()
    run.evaluate()
    assert hours(log, "eval") == [("eval", 0, 0.0), ("eval", 2, 2.0), ("eval", 2, 2.0)]


def test_each_evaluation_set_is_a_split(tmp_path, log):
    sets = {"short": examples(16), "long": examples(32)}
    callback = GpuHoursCallback(log, metric="eval_accuracy")
    trainer(tmp_path / "out", [callback], held_out=sets, max_steps=4).train()
    found = [(r["split"], r["metric"], r["n_prompts"]) for r in rows(log, "eval")]
    assert found[:2] == [("short", "eval_short_accuracy", 16), ("long", "eval_long_accuracy", 32)]
    assert {run.name for run in curvefit.load(log)} == {"tiny (short)", "tiny (long)"}


def test_only_the_main_process_writes(tmp_path, log):
    class Other(transformers.Trainer):
        def is_world_process_zero(self):
            return False

    run = trainer(tmp_path / "out", [GpuHoursCallback(log)], max_steps=2)
    run.__class__ = Other
    run.train()
    assert not log.parent.exists()


def test_a_run_is_not_begun_over_another_and_can_go_on_without_a_checkpoint(tmp_path, log):
    trainer(tmp_path / "out", [GpuHoursCallback(log)], max_steps=1).train()
    with pytest.raises(curvefit.InputError, match="exists and training starts at step 0"):
        trainer(tmp_path / "out", [GpuHoursCallback(log)], max_steps=1).train()
    trainer(tmp_path / "out", [GpuHoursCallback(log, resume=True)], max_steps=1).train()
    events = [row["event"] for row in rows(log)]
    assert events.count("run") == 1
    assert events[5:8] == ["resume", "eval", "step"]
    assert [r["step"] for r in rows(log, "eval")] == [0, 1, 0, 1]


def rouge(prediction):
    return {"rouge": 0.5}


def test_a_missing_metric_ends_a_run_only_before_it_has_cost_anything(tmp_path, log):
    with pytest.raises(
        curvefit.InputError, match=r"name one with metric=, .*eval_loss, eval_rouge"
    ):
        trainer(tmp_path / "out", [GpuHoursCallback(log)], metrics=rouge).train()
    late = log.with_name("late.jsonl")
    run = trainer(tmp_path / "out", [GpuHoursCallback(late)], metrics=rouge, eval_on_start=False)
    with pytest.warns(curvefit.CurvefitWarning, match="eval_loss, eval_rouge") as told:
        run.train()
    assert len(told) == 1
    assert [r["pass_rate"] for r in rows(late, "eval")] == [None] * 3
    assert curvefit.load(late, y="eval_rouge")[0].score.tolist() == [0.5] * 3


def test_a_long_silence_is_broken_so_that_a_kill_loses_little(tmp_path, log):
    clock = Clock()
    callback = GpuHoursCallback(log, gpus=60, clock=clock)
    settings = {"logging_steps": 100, "eval_on_start": False, "eval_strategy": "no"}
    trainer(tmp_path / "out", [clock, callback], max_steps=4, **settings).train()
    assert hours(log, "step") == [("step", 2, 2.0), ("step", 4, 4.0)]


def test_the_example_of_the_how_to_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = trainer(tmp_path / "out", [], max_steps=2).args
    model = trainer(tmp_path / "out", []).model
    given = {"Trainer": transformers.Trainer, "model": model, "args": args}
    given |= {"train": examples(64), "held_out": examples(16), "accuracy": accuracy}
    exec(example("trainer = Trainer("), given)
    log = tmp_path / "runs" / "my-run" / "log.jsonl"
    assert [(r["step"], r["n_prompts"], r["n_samples"]) for r in rows(log, "eval")] == [
        (0, 16, 1),
        (2, 16, 1),
    ]


def test_without_transformers_one_line_says_what_to_install():
    code = """
import sys
sys.modules["transformers"] = None
from curvefit.transformers import GpuHoursCallback
assert "torch" not in sys.modules
GpuHoursCallback("log.jsonl")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == (
        'ImportError: GpuHoursCallback needs transformers: pip install "transformers[torch]"'
    )
