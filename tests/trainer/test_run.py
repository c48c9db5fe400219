"""The real command on a real tiny model: it logs, it resumes exactly, it refuses what it must."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from waiting import wait_until

from trainer.cli import main
from trainer.ledger import read

SMALL = {
    "sample.prompts": 4,
    "sample.group": 4,
    "eval.prompts": 8,
    "eval.samples": 2,
    "eval.every": 2,
    "checkpoint.every": 3,
    "run.steps": 6,
}
STEP_KEYS = {"step", "gpu_hours", "wall_s", "tokens", "samples", "flops", "reward", "loss", "lr"}
SIGNAL_KEYS = {
    "truncation_rate",
    "interruption_rate",
    "logp_gap",
    "token_mult_prob_error",
    "mismatch_kl",
    "ess",
    "capped_fraction",
    "entropy",
    "grad_norm",
    "zero_variance_fraction",
    "staleness",
    "error_rate",
}


def flags(out, **settings):
    values = {**SMALL, "run.out": out, **{k.replace("__", "."): v for k, v in settings.items()}}
    return [part for k, v in values.items() for part in (f"--{k}", str(v))]


def command(*arguments):
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "trainer", *arguments],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows(folder, event):
    return [r for r in read(Path(folder) / "log.jsonl") if r["event"] == event]


def timeless(row):
    return {k: v for k, v in row.items() if not k.startswith("gpu_hours") and not k.endswith("_s")}


def by_step(folder, event):
    """The last row of each step: what a resumed run repeats replaces what was lost."""
    return {r["step"]: timeless(r) for r in rows(folder, event)}


def test_a_run_writes_the_log_that_the_schema_promises(tmp_path, tiny_model):
    assert main(["--recipe", "tiny", *flags(tmp_path, run__name="a", model__path=tiny_model)]) == 0
    log = list(read(tmp_path / "a" / "log.jsonl"))
    assert [r["event"] for r in log if r["event"] != "alarm"] == [
        *("run", "eval", "step", "step", "eval", "step", "step", "eval"),
        *("step", "step", "eval", "end"),
    ]
    header, first = log[0], log[1]
    assert header["schema"] == "trainer-log/1"
    assert header["gpus"] == {"train": 1, "generate": 0, "kind": "cpu"}
    assert {"run", "config", "model", "task", "versions", "seed"} <= header.keys()
    assert first["step"] == 0
    assert {"pass_rate", "n_prompts", "n_samples", "pass_at_k", "split"} <= first.keys()
    assert first["pass_at_k"].keys() == {"1", "2"}
    assert first["tokens"] == 0
    assert first["gpu_hours"] == 0 < first["gpu_hours_after"]
    for row in rows(tmp_path / "a", "step"):
        assert STEP_KEYS | SIGNAL_KEYS <= row.keys()
    hours = [r["gpu_hours"] for r in log[1:] if r["event"] != "eval"]
    assert hours == sorted(hours)
    assert rows(tmp_path / "a", "step")[-1]["samples"] == 6 * 4 * 4
    assert tomllib.loads((tmp_path / "a" / "config.toml").read_text())["sample"]["group"] == 4


def test_engine_and_learner_agree_at_every_step_and_evaluation(tmp_path, tiny_model):
    main(["--recipe", "tiny", *flags(tmp_path, run__name="a", model__path=tiny_model)])
    assert all(r.get("logp_gap_max", 0) < 1e-4 for r in rows(tmp_path / "a", "step"))
    assert all(r["logp_gap_max"] < 1e-4 for r in rows(tmp_path / "a", "eval"))
    assert all(r["staleness_max"] == 0 for r in rows(tmp_path / "a", "step"))


OLD = {"loss__name": "clip", "loss__anchor": "old"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"pipeline__mode": "off-policy", "pipeline__k": 3, **OLD},
        {"kl__coef": 0.1, "curriculum__refill": "true", "curriculum__pool": 12},
    ],
)
def test_six_steps_equal_three_a_kill_a_resume_and_three(tmp_path, tiny_model, extra):
    common = {"model__path": tiny_model, **extra}
    assert main(["--recipe", "tiny", *flags(tmp_path, run__name="whole", **common)]) == 0
    process = command("--recipe", "tiny", *flags(tmp_path, run__name="cut", **common))
    folder = tmp_path / "cut"
    wait_until((folder / "checkpoints" / "step-000003").exists, process, "step 3's checkpoint")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = list(read(folder / "log.jsonl"))
    assert main(["--resume", str(folder)]) == 0
    after = list(read(folder / "log.jsonl"))
    assert after[: len(before)] == before  # the log lost nothing
    assert rows(folder, "resume")[0]["step"] == 3
    assert by_step(folder, "step") == by_step(tmp_path / "whole", "step")
    assert by_step(folder, "eval") == by_step(tmp_path / "whole", "eval")
    assert len(by_step(folder, "step")) == 6
    assert rows(folder, "end")[-1]["gpu_hours"] > before[-1]["gpu_hours"]


@pytest.mark.slow
def test_a_pipelined_run_overlaps_bounds_its_staleness_and_resumes(tmp_path, tiny_model):
    common = {"model__path": tiny_model, "pipeline__mode": "pipeline", "pipeline__k": 2}
    assert main(["--recipe", "tiny", *flags(tmp_path, run__name="p", **common)]) == 0
    folder = tmp_path / "p"
    steps = rows(folder, "step")
    assert len(steps) == 6
    assert 0 < max(r["staleness_max"] for r in steps) <= 2
    assert all(r["logp_gap_max"] < 1e-4 for r in rows(folder, "eval"))
    assert rows(folder, "run")[0]["gpus"] == {"train": 1, "generate": 1, "kind": "cpu"}
    assert main(["--resume", str(folder), "--run.steps", "8"]) == 0
    assert [r["step"] for r in rows(folder, "step")] == list(range(1, 9))
    assert all(r["staleness_max"] <= 2 for r in rows(folder, "step"))


@pytest.mark.slow
def test_sigterm_ends_the_run_between_two_steps_with_a_checkpoint(tmp_path, tiny_model):
    arguments = flags(tmp_path, run__name="t", model__path=tiny_model, run__steps=5000)
    process = command("--recipe", "tiny", *arguments)
    log = tmp_path / "t" / "log.jsonl"
    wait_until(lambda: log.exists() and rows(tmp_path / "t", "step"), process, "step 1")
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    end = rows(tmp_path / "t", "end")[0]
    assert end["reason"] == "interrupted"
    assert (tmp_path / "t" / "checkpoints" / f"step-{end['step']:06d}").is_dir()


def refusal(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert code == 2, captured.err
    assert captured.out == ""
    assert lines[-1].startswith("train-rl: ")
    assert sum(line.startswith("train-rl: ") for line in lines) == 1
    return lines[-1]


def test_bad_input_is_one_line_and_exit_2_before_any_training(tmp_path, tiny_model, capsys):
    ok = flags(tmp_path, run__name="x", model__path=tiny_model)
    assert "unknown recipe" in refusal(capsys, "--recipe", "scalerll")
    assert "unknown key" in refusal(capsys, "--loss.cap", "3")
    assert "unknown task" in refusal(capsys, *ok, "--task.name", "chian")
    assert "no option" in refusal(capsys, *ok, "--task.args.terms", "3")
    assert "absolute" in refusal(capsys, *ok, "--loss.is_cap", "0.2")
    assert "prompt" in refusal(capsys, *ok, "--sample.prompt_tokens", "3")
    assert "held-out" in refusal(capsys, *ok, "--eval.prompts", "100000")
    assert "config.json" in refusal(capsys, *flags(tmp_path, model__path=tmp_path))
    assert not (tmp_path / "x" / "log.jsonl").exists()


def test_a_model_without_a_tokenizer_is_refused(tmp_path, tiny_model, capsys):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((Path(tiny_model) / name).read_bytes())
    assert "tokenizer" in refusal(capsys, *flags(tmp_path / "o", model__path=tmp_path))


def test_a_checkpoint_of_another_model_is_refused(tmp_path, tiny_model, capsys):
    assert main(["--recipe", "tiny", *flags(tmp_path, run__name="a", model__path=tiny_model)]) == 0
    capsys.readouterr()
    newest = max((tmp_path / "a" / "checkpoints").iterdir())
    meta = json.loads((newest / "meta.json").read_text())
    (newest / "meta.json").write_text(json.dumps({**meta, "model": "other"}))
    assert "another model" in refusal(capsys, "--resume", str(tmp_path / "a"), "--run.steps", "9")


def test_an_existing_run_is_not_overwritten_and_an_unwritable_one_refused(
    tmp_path, tiny_model, capsys
):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "log.jsonl").write_text("")
    assert "exists" in refusal(capsys, *flags(tmp_path, run__name="a", model__path=tiny_model))
    (tmp_path / "file").write_text("")
    out = flags(tmp_path / "file", run__name="a", model__path=tiny_model)
    assert "run.out" in refusal(capsys, *out)
    assert "nothing to resume" in refusal(capsys, "--resume", str(tmp_path / "none"))


def test_steps_that_stay_non_finite_stop_the_run_with_the_last_good_checkpoint(
    tmp_path, tiny_model, capsys
):
    wild = {"optim__lr": 1e30, "kl__coef": 0.1, "curriculum__filter_zero_variance": "false"}
    settings = {"run__name": "a", "model__path": tiny_model, "checkpoint__every": 1, **wild}
    settings["eval__every"] = 100
    code = main(["--recipe", "tiny", *flags(tmp_path, **settings)])
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert code == 1
    assert "3 steps in a row were not finite" in error
    steps = rows(tmp_path / "a", "step")
    good = len(steps) - 3  # one or two, as the first rollouts fall
    assert good >= 1
    assert [bool(r["skipped"]) for r in steps] == [False] * good + [True] * 3
    assert f"step-{good:06d}" in error  # the last before the steps that were not finite
    assert steps[-1]["grad_norm"] is None
    assert "grad_norm" in steps[-1]["not_finite"]
