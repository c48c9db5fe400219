"""docs/multi-node.md: every train-rl command parses, and its dry runs print what it shows."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from trainer.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "multi-node.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
VARIABLES = {
    "$START": "--recipe scalerl run.toml",
    '"$LIST"': """'["n:8000", "n:8001"]'""",
    "$SLURM_NNODES": "2",
    "$SLURM_PROCID": "0",
    "$MASTER_ADDR": "n",
}


def commands():
    """Words of every train-rl or torchrun command in the page's shell blocks."""
    for kind, block in BLOCKS:
        if kind not in ("sh", "console"):
            continue
        text = block.replace("\\\n", " ").replace("bash -c '", "\n").replace("]'\"'", "]'")
        for name, value in VARIABLES.items():
            text = text.replace(name, value)
        for line in text.splitlines():
            line = line.strip().removeprefix("$ ")
            if line.startswith(("train-rl ", "torchrun ")):
                yield shlex.split(line.removesuffix("'") if line.count("'") % 2 else line)


def shown():
    """Dry runs of the page with the output below them."""
    for kind, block in BLOCKS:
        if kind == "console":
            first, _, rest = block.partition("\n")
            yield shlex.split(first.removeprefix("$ ")), rest


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the page's run.toml, and torchrun's environment for a command."""
    (settings,) = [block for kind, block in BLOCKS if kind == "toml"]
    (tmp_path / "run.toml").write_text(settings)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def arguments(words):
        if words[0] == "train-rl":
            return words[1:]
        flags = dict(pairwise(words))
        local, machines = int(flags["--nproc-per-node"]), int(flags.get("--nnodes", 1))
        monkeypatch.setenv("WORLD_SIZE", str(local * machines))
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local))
        return words[words.index("trainer") + 1 :]

    return arguments


@pytest.mark.parametrize("words", list(commands()), ids=lambda words: " ".join(words)[:60])
def test_every_command_of_the_page_is_understood(words, place, capsys, tmp_path):
    arguments = place(words)
    if arguments[0] == "serve":
        assert main([*arguments, "--port", "none"]) == 2  # all words before are read
        assert "--port = none" in capsys.readouterr().err
        return
    if arguments[0] == "export":
        assert len(arguments) == 3
        return
    if "--resume" in arguments:  # of a run that is not here: its settings are the page's
        at = arguments.index("--resume")
        assert arguments[at + 1] == "/shared/runs/qwen3-8b"
        arguments[at : at + 2] = ["--recipe", "scalerl", "run.toml"]
    assert main(arguments if arguments[0] == "plan" else [*arguments, "--dry-run"]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(("words", "output"), list(shown()), ids=["split", "remote"])
def test_dry_runs_print_what_the_page_shows(words, output, place, capsys):
    assert main(place(words)) == 0
    printed = capsys.readouterr().out.splitlines()
    kept = [line for line in printed if "this machine would refuse" not in line]
    assert "\n".join(kept).strip() == output.strip()


def test_the_shortened_server_command_is_the_printed_one():
    (script,) = [b for kind, b in BLOCKS if kind == "sh" and "exec vllm serve" in b]
    ours = set(shlex.split(script.replace("\\\n", " ")))
    (printed,) = [
        line.strip()
        for _, output in shown()
        for line in output.splitlines()
        if "--host node3" in line
    ]
    # left out: what vLLM does without being told, and what --tokens-only implies
    implied = {"--no-enforce-eager", "--no-enable-sleep-mode", "--skip-tokenizer-init"}
    theirs = {w for w in shlex.split(printed) if "CUDA_VISIBLE" not in w} - implied
    assert theirs - ours == {"node3", "8000"}
    assert ours - theirs == {"exec", "$HOST", "$PORT"}


def test_all_of_the_page_is_tried():
    tried = [" ".join(words) for words in commands()]
    assert len(tried) >= 9
    assert any("--placement colocated" in words for words in tried)
    assert any("plan" in words for words in tried)
    assert sum("torchrun" in words for words in tried) == 5
