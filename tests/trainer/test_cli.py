"""The command line: help, recipes, names of runs, what goes to which stream."""

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from trainer.cli import help_text, main, resolve_config, split
from trainer.ledger import read
from trainer.settings import SECTIONS


def test_help_lists_every_setting_with_its_meaning(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert text.strip() == help_text()
    for section, cls in SECTIONS.items():
        for f in fields(cls):
            assert f"--{section}.{f.name} " in text
            assert f.metadata["help"] in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("arguments", [[], ["export", "a", "b"], ["serve", "a"]])
def test_without_torch_one_line_says_what_to_install(tmp_path, arguments):
    code = (
        "import sys; sys.modules['torch'] = None\n"  # as if it were not installed
        "from trainer.cli import main; raise SystemExit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == 'train-rl: needs torch: pip install "rl-curvefit[train]"\n'
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_refused_run_leaves_no_folder_behind(tmp_path, tiny_model, capsys):
    out = tmp_path / "a" / "b"
    for words, part in (
        (["--recipe", "gpu"], "finds no GPU: set it to cpu"),
        (["--task.name", "math"], "math: no file"),
        (["--model.path", str(tmp_path / "none")], "none: no such directory"),
        (["--model.path", str(tiny_model), "--eval.prompts", "100000"], "lower eval.prompts"),
    ):
        assert main([*words, "--run.out", str(out)]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert part in line
        assert not list(tmp_path.iterdir())


def test_what_stood_in_the_folder_of_a_refused_run_stays(tmp_path, capsys):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "notes.txt").write_text("mine")
    words = ["--task.name", "math", "--run.out", str(tmp_path), "--run.name"]
    assert main([*words, "r"]) == main([*words, "s"]) == 2
    assert [path.name for path in tmp_path.rglob("*")] == ["r", "notes.txt"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--recipe"], "--recipe needs a value"),
        (["a.toml", "b.toml"], "two files"),
        (["none.toml"], "cannot read none.toml"),
        (["--resume", "x", "--recipe", "tiny"], "--resume takes its settings"),
        (["tiny-model"], "needs a directory"),
        (["tiny-model", "d", "--size", "3"], "unknown key model.tiny.size"),
        (["--run.steps"], "--run.steps needs a value"),
        (["plna"], "neither a settings file nor a command (did you mean plan?)"),
        (["--dry-run", "--placement", "split", "--engine", "local"], "engine.kind = local"),
        (["--engine", "vlm"], "engine.kind = 'vlm' (did you mean vllm?)"),
        (["--placement"], "--engine.placement needs a value"),
        (["--dry-run", "--placement", "remote"], "need engine.addresses"),
    ],
)
def test_wrong_usage_is_one_line_on_stderr_and_exit_2(
    arguments, part, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert part in captured.err
    assert len(captured.err.strip().splitlines()) == 1


def test_a_run_is_named_after_recipe_and_seed_and_never_overwrites(tmp_path, tiny_model, capsys):
    flags = ["--run.out", str(tmp_path), "--model.path", str(tiny_model), "--run.steps", "1"]
    flags += ["--sample.prompts=2", "--sample.group=2", "--eval.prompts=4"]
    names = []
    for arguments in ([], ["--recipe", "grpo+tiny"], ["--recipe=tiny"]):
        assert main([*arguments, *flags]) == 0
        captured = capsys.readouterr()
        (log,) = captured.out.strip().splitlines()
        names.append(log.split("/")[-2])
        assert f"fit-curve {log} --until 50%" in captured.err
        assert next(read(Path(log)))["event"] == "run"
    assert names == ["tiny-0", "grpo+tiny-0", "tiny-0-2"]


def test_a_settings_file_alone_starts_from_the_defaults(tmp_path, tiny_model, capsys):
    path = str(tiny_model)
    (tmp_path / "mine.toml").write_text(
        f"[run]\nsteps = 1\nseed = 5\nout = {json.dumps(str(tmp_path))}\n"
        f"[model]\npath = {json.dumps(path)}\n"
        "[sample]\nprompts = 2\ngroup = 2\n[eval]\nprompts = 4\n"
    )
    assert main([str(tmp_path / "mine.toml")]) == 0
    assert "mine-5" in capsys.readouterr().out


def test_shorthands_are_the_settings_they_stand_for():
    words = split(["--engine", "vllm", "--placement=split", "--dry-run", "--run.steps", "3"])
    assert words.dry_run
    long = ["--engine.kind", "vllm", "--engine.placement=split", "--run.steps", "3"]
    assert words.flags == long
    assert resolve_config(words)[0] == resolve_config(split(long))[0]


def test_a_dry_run_says_who_runs_where_and_writes_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["--dry-run", "--placement", "split", "--run.gpus_generate", "2"]) == 0
    out = capsys.readouterr().out
    assert "placement split, engine served, weights travel as a file" in out
    assert "CPU-device-hours count 3 devices, idle or not: 1 learn, 2 generate" in out
    assert out.count("train-rl serve") == 3  # two roles, a command
    assert "the same at 127.0.0.1:8101" in out
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_more_devices_than_are_here_is_a_note_not_an_error(capsys):
    flags = ["--model.device", "cuda", "--model.path", "/m", "--placement", "split"]
    assert main(["--dry-run", *flags, "--run.gpus_generate", "500"]) == 0
    assert "note: this machine would refuse the run: 501 CUDA devices" in capsys.readouterr().out


def test_commands_answer_help(capsys):
    assert main(["plan", "--help"]) == 0
    assert "--hardware" in capsys.readouterr().out
    for command in ("plan", "serve", "export", "tiny-model"):
        assert f"train-rl {command}" in help_text()
