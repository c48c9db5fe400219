"""``train-rl export RUN_FOLDER DIR``: a checkpoint as a directory that ``from_pretrained`` loads.

The newest checkpoint, or one named with ``--checkpoint``; whatever number of ranks wrote it.
Adapters are merged into the weights they belong to.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer import checkpoint, lora, setup
from trainer.config import load
from trainer.errors import CheckpointError, ConfigError
from trainer.settings import Config
from trainer.state import load_weights, trained_weights

__all__ = ["export", "main"]

USAGE = "usage: train-rl export RUN_FOLDER DIR [--checkpoint step-NNNNNN]"


def main(arguments: list[str]) -> int:
    """Run the command; return the exit code."""
    if "-h" in arguments or "--help" in arguments:
        print(f"{USAGE}\n\n{__doc__}")
        return 0
    words = list(arguments)
    name = ""
    if "--checkpoint" in words[:-1]:
        at = words.index("--checkpoint")
        name = words[at + 1]
        del words[at : at + 2]
    if len(words) != 2 or any(w.startswith("-") for w in words):
        raise ConfigError(USAGE)
    print(export(Path(words[0]), Path(words[1]), name))
    return 0


def export(run: Path, directory: Path, name: str = "") -> Path:
    """Write the model of a run's checkpoint, and its tokenizer, to an empty directory.

    Raises
    ------
    TrainerError
        No such run or checkpoint, or the directory is in use.
    """
    path = _checkpoint(run, name)
    if directory.exists() and any(directory.iterdir()):
        raise ConfigError(f"{directory} is not empty: name a new directory")
    config = load([], run / "config.toml", [])
    here = replace(config.model, device="cpu", attention="sdpa")
    config = replace(config, model=here)
    source = setup.model_directory(config)
    model, tokenizer = setup.load_model(source, config)
    model = _trained(model, source, config, path)
    try:
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
    except OSError as e:
        raise CheckpointError(f"cannot write {directory}: {e.strerror}; name another") from e
    return directory


def _checkpoint(run: Path, name: str) -> Path:
    if not (run / "config.toml").is_file():
        raise ConfigError(f"{run} has no config.toml: name the folder of a run")
    folder = run / "checkpoints"
    if name:
        if not (folder / name / "meta.json").is_file():
            there = ", ".join(sorted(p.name for p in folder.glob("step-*"))) or "none"
            raise CheckpointError(f"{run} has no checkpoint {name}; there are {there}")
        return folder / name
    newest = checkpoint.latest(folder)
    if newest is None:
        raise CheckpointError(f"{run} has no checkpoint yet: train on, or lower checkpoint.every")
    return newest


def _trained(model: Any, source: Path, config: Config, path: Path) -> Any:
    """Return the model with the weights of the checkpoint."""
    adapted = config.learner.lora_rank > 0
    if adapted:
        lora.add_adapters(model, config)
    checkpoint.load(path, checkpoint.fingerprint(model))  # refuses that of another model
    state = checkpoint.read_learner(path, lambda _: {"model": trained_weights(model)})
    load_weights(model, state["model"])
    if not adapted:
        return model
    whole, _ = setup.load_model(source, config)
    whole.load_state_dict(lora.merged(model, model.state_dict()))
    return whole
