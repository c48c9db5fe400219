"""The books of other trainers: hours with a clock of our own, a log that survives kills."""

import json
import subprocess
import sys

import pytest

import curvefit
from curvefit.logged_metrics import evaluated, pass_rate, signals, tokens
from curvefit.run_log import RunLog


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def header(train=1, generate=0):
    return {"run": "r", "gpus": {"train": train, "generate": generate, "kind": "cpu"}}


def rows(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_hours_of_learner_and_generators_add_up_over_two_starts_and_the_pause_is_free(tmp_path):
    path, clock = tmp_path / "new" / "log.jsonl", Clock()
    log = RunLog(path, clock)
    assert log.begin(header(16, 8), 0) == 0.0
    clock.now = 600.0
    log.write("step", step=10)  # 24 devices × 10 minutes = 4 hours
    clock.now = 900.0
    log.write("step", step=15)  # 6 hours; then the process is killed
    again = Clock()
    again.now = 1e6
    log = RunLog(path, again)
    assert log.begin(header(8, 4), 10) == 4.0  # what step 10 cost, not what was spent
    assert log.gpu_hours == 6.0
    again.now += 300.0  # 12 devices × 5 minutes = 1 hour
    log.end(15, "done")
    again.now += 7777.0
    assert (log.gpu_hours, log.wall_s) == (7.0, 1200.0)
    assert [(r["event"], r.get("gpu_hours"), r.get("wall_s")) for r in rows(path)] == [
        ("run", None, None),
        ("step", 4.0, 600.0),
        ("step", 6.0, 900.0),
        ("resume", 6.0, 900.0),
        ("end", 7.0, 1200.0),
    ]


def test_weights_of_an_unlogged_step_cost_what_was_spent(tmp_path):
    path, clock = tmp_path / "log.jsonl", Clock()
    RunLog(path, clock).begin(header(), 0)
    log = RunLog(path, clock)
    log.begin(header(), 0, resume=True)
    clock.now = 3600.0
    log.write("step", step=7)
    assert RunLog(path, clock).begin(header(), 5) == 1.0
    assert RunLog(path, clock).begin(header(), 0, resume=True) == 0.0


def test_an_evaluation_before_the_kill_counts_with_its_own_time(tmp_path):
    path, clock = tmp_path / "log.jsonl", Clock()
    log = RunLog(path, clock)
    log.begin(header(2), 0)
    clock.now = 1800.0
    log.write("eval", step=0, gpu_hours=0.0, gpu_hours_after=log.gpu_hours)
    log = RunLog(path, clock)
    log.begin(header(2), 0, resume=True)
    assert log.gpu_hours == 1.0


def test_two_runs_are_never_mixed(tmp_path):
    path = tmp_path / "log.jsonl"
    with pytest.raises(curvefit.InputError, match=r"resumes at step 40, but there is no .*spent="):
        RunLog(path).begin(header(), 40)
    log = RunLog(path, Clock())
    assert log.begin(header(), 40, spent=12.5) == 12.5
    assert log.gpu_hours == 12.5
    with pytest.raises(curvefit.InputError, match=r"log.jsonl exists and .* resume=True"):
        RunLog(path).begin(header(), 0)
    path.write_text('{"step": 1, "reward": 0.2}\n')
    with pytest.raises(curvefit.InputError, match="no log of schema trainer-log/1"):
        RunLog(path).begin(header(), 40)
    folder = tmp_path / "file"
    folder.write_text("")
    with pytest.raises(curvefit.InputError, match="cannot write the log"):
        RunLog(folder / "log.jsonl").begin(header(), 0)


def test_a_log_that_was_killed_within_a_line_goes_on_with_a_whole_one(tmp_path):
    path = tmp_path / "log.jsonl"
    code = f"""
import os, signal
from curvefit.run_log import RunLog
log = RunLog({str(path)!r})
log.begin({header()!r}, 0)
log.write("step", step=1)
with open(log.path, "ab") as file:
    file.write(b'{{"event": "step", "gpu_ho')
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    RunLog(path).begin(header(), 1)
    assert [r["event"] for r in rows(path)] == ["run", "step", "resume"]


def test_a_full_disk_costs_lines_and_not_the_run(tmp_path):
    with pytest.warns(curvefit.CurvefitWarning, match="cannot write a line of .*full: No space"):
        RunLog("/dev/full").write("step", step=1)
    log = RunLog(tmp_path / "log.jsonl", Clock())
    log.begin(header(), 0)
    log.path.rename(tmp_path / "kept")
    log.path.mkdir()
    with pytest.warns(curvefit.CurvefitWarning, match="goes on without it"):
        log.write("step", step=1)
    log.path.rmdir()
    (tmp_path / "kept").rename(log.path)
    log.write("step", step=2)  # on a line of its own, whatever was torn
    lines = log.path.read_text().splitlines()
    assert [json.loads(line).get("step") for line in lines if line] == [None, 2]
    RunLog(log.path).begin(header(), 2)


def test_numbers_that_json_lacks_are_null_with_the_reason_beside(tmp_path):
    log = RunLog(tmp_path / "log.jsonl", Clock())
    log.write("step", step=1, loss=float("nan"), entropy=0.5)
    (row,) = rows(log.path)
    assert (row["loss"], row["entropy"], row["not_finite"]) == (None, 0.5, {"loss": "nan"})


def test_a_run_is_called_after_its_folder_or_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert RunLog("runs/a/log.jsonl").name == "a"
    assert RunLog("runs/a.jsonl").name == "a"
    assert RunLog("log.jsonl").name == tmp_path.name


TRL = {
    "eval_loss": -0.1,
    "eval_runtime": 0.3,
    "eval_num_tokens": 96.0,
    "eval_completions/clipped_ratio": 0.0,
    "eval_rewards/correct/mean": 0.25,
    "eval_rewards/correct/std": 0.4,
    "eval_reward": 0.5,
    "eval_reward_std": 0.4,
    "epoch": 1.0,
}


@pytest.mark.parametrize(
    ("metrics", "prefix", "wanted", "key"),
    [
        (TRL, "eval", None, "eval_rewards/correct/mean"),  # eval_reward has its weight
        (TRL, "eval", "eval_reward", "eval_reward"),
        (TRL, "eval", "reward", "eval_reward"),
        (TRL | {"eval_math_runtime": 1.0}, "eval_math", None, "eval_rewards/correct/mean"),
        (TRL | {"eval_pass_rate": 0.2}, "eval", None, "eval_pass_rate"),
        ({"eval_loss": 1.0, "eval_reward": 0.5}, "eval", None, "eval_reward"),
        ({"eval_math_accuracy": 0.5}, "eval_math", "eval_accuracy", "eval_math_accuracy"),
        ({"test_accuracy": 0.5}, "test", None, "test_accuracy"),
    ],
)
def test_the_pass_rate_is_found(metrics, prefix, wanted, key):
    assert pass_rate(metrics, prefix, wanted) == key


@pytest.mark.parametrize(
    ("metrics", "wanted", "error", "line"),
    [
        (
            TRL | {"eval_rewards/format/mean": 1.0},
            None,
            curvefit.AmbiguousColumn,
            "several metrics of the evaluation could be the pass rate, eval_rewards/correct/mean, "
            'eval_rewards/format/mean: name one, GpuHoursCallback(..., metric="eval_rewards/'
            'correct/mean")',
        ),
        (
            {"eval_loss": 1.0, "eval_runtime": 2.0, "eval_bleu": 0.3, "epoch": 1.0},
            None,
            curvefit.InputError,
            "no metric of the evaluation is known as a pass rate: name one with metric=, there are "
            "eval_loss, eval_bleu",
        ),
        (
            TRL,
            "eval_rewards/corect/mean",
            curvefit.InputError,
            "the evaluation has no metric 'eval_rewards/corect/mean': did you mean "
            "'eval_rewards/correct/mean' or 'eval_rewards/correct/std' or 'eval_reward_std'?",
        ),
    ],
)
def test_a_missing_or_doubtful_pass_rate_is_one_line_with_the_candidates(
    metrics, wanted, error, line
):
    with pytest.raises(error) as caught:
        pass_rate(metrics, "eval", wanted)
    assert str(caught.value) == line


def test_metrics_of_a_step_have_our_names_where_they_mean_the_same():
    logs = {
        "loss": 0.1,
        "completions/clipped_ratio": 0.02,
        "frac_reward_zero_std": 0.25,
        "clip_ratio/region_mean": 0.3,
        "num_tokens": 4608.0,
        "train_runtime": 3.0,  # transformers logs it at every step when it counts tokens
    }
    assert evaluated(logs) is None
    assert tokens(logs) == 4608.0
    assert signals(logs) == {"truncation_rate": 0.02, "zero_variance_fraction": 0.25, "loss": 0.1}
