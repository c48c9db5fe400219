"""``train-rl``: the command line.

    train-rl                                   train the tiny model on this machine's CPU
    train-rl --recipe scalerl --model.path DIR --task.name math --task.args.path problems.jsonl
    train-rl --resume runs/tiny-0
    train-rl --placement split --dry-run       say who would run where, and stop
    train-rl plan --recipe scalerl --model.path DIR --hardware H100   memory, speed, GPU-hours
    train-rl serve DIR --port 8100             generate for a learner elsewhere
    train-rl export runs/tiny-0 DIR            write the trained model as a model directory
    train-rl tiny-model DIR                    write the tiny model and its tokenizer

Results on stdout (the path of the log), everything else on stderr. Exit: 0 done, 1 stopped by a
guard, 2 usage or unusable input.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from trainer.config import load, recipe_names
from trainer.errors import ConfigError, RankError, TrainerError
from trainer.settings import SECTIONS, Config

__all__ = ["help_text", "main", "resolve_config", "split"]

TRAIN = ("torch", "transformers", "safetensors", "tokenizers")  # what the extra `train` brings


def main(argv: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = COMMANDS.get(arguments[0] if arguments else "")
    try:
        if command is not None:
            return command(arguments[1:])
        if "-h" in arguments or "--help" in arguments:
            print(help_text())
            return 0
        return _train(arguments)
    except TrainerError as e:
        if os.environ.get("RANK", "0") == "0" or isinstance(e, RankError):  # not once a rank
            print(f"train-rl: {e}", file=sys.stderr)
        return e.exit_code
    except ModuleNotFoundError as e:
        if e.name not in TRAIN:
            raise
        print(f'train-rl: needs {e.name}: pip install "rl-curvefit[train]"', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("train-rl: interrupted; resume from the last checkpoint", file=sys.stderr)
        return 130


def help_text() -> str:
    """Return the help: usage, recipes, and every setting with its default and meaning."""
    lines = [
        "usage: train-rl [CONFIG.toml] [--recipe NAME]... [--section.key VALUE]...",
        "       train-rl --resume RUN_FOLDER [--section.key VALUE]...",
        "       train-rl plan [CONFIG.toml] [--recipe NAME]... [--gpus N]... [--json]",
        "       train-rl serve MODEL_FOLDER [--port N]...",
        "       train-rl export RUN_FOLDER DIR",
        "       train-rl tiny-model DIR [--key VALUE]...",
        "",
        "Train a language model by reinforcement learning and log what fit-curve reads.",
        "Without options: the tiny model on a CPU. Recipes lie one over the other in order,",
        "then the file, then flags. Shorthands: --engine KIND for --engine.kind, --placement PLACE",
        "for --engine.placement. --dry-run says who would run where, and stops. plan, serve and",
        "export answer --help.",
        "",
        f"recipes: {', '.join(recipe_names())}",
        "",
        "settings (default):",
    ]
    for section, cls in SECTIONS.items():
        lines += ["", f"{section}: {cls.__doc__}"]
        for f in fields(cls):
            default = str(getattr(cls(), f.name)) or "empty"
            shown = default if len(default) <= 24 else f"{default[:21]}..."
            choices = f" [{', '.join(f.metadata['choices'])}]" if f.metadata["choices"] else ""
            lines.append(f"  --{section}.{f.name} ({shown})  {f.metadata['help']}{choices}")
    return "\n".join(lines)


def _train(arguments: list[str]) -> int:
    words = split(arguments)
    config, folder = resolve_config(words)
    if words.dry_run:
        from trainer.dryrun import describe

        text = describe(config)
        if os.environ.get("RANK", "0") == "0":  # torchrun starts us several times
            print(text)
        return 0
    from trainer.loop import train

    log = train(config, folder, resume=words.resume is not None)
    if log is not None:  # rank 0 alone speaks
        print(log)
    return 0


class Words(NamedTuple):
    """A command line taken apart; `flags` are settings, still as text."""

    recipes: list[str]
    resume: Path | None
    file: Path | None
    flags: list[str]
    dry_run: bool


def resolve_config(words: Words) -> tuple[Config, Path]:
    """The settings that a command line stands for, and the run's folder."""
    recipes, resume, file, flags, _ = words
    if resume is not None:
        if recipes or file:
            raise ConfigError("--resume takes its settings from the run's folder: leave the others")
        if not (resume / "config.toml").is_file():
            raise ConfigError(f"{resume} has no config.toml: nothing to resume there")
        return load([], resume / "config.toml", flags), resume
    recipes = recipes or ([] if file else ["tiny"])
    config = load(recipes, file, flags)
    return config, _folder(config, recipes, file)


def split(arguments: list[str]) -> Words:
    """Tell recipes, the folder to resume, the file and the flags apart."""
    recipes: list[str] = []
    resume: Path | None = None
    file: Path | None = None
    flags: list[str] = []
    dry_run = False
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, eq, value = word.partition("=")
        if word == "--dry-run":
            dry_run = True
        elif name in ("--recipe", "--resume"):
            if not eq and not rest:
                raise ConfigError(f"{name} needs a value")
            value = value if eq else rest.pop(0)
            if name == "--recipe":
                recipes += value.split("+")
            else:
                resume = Path(value)
        elif word.startswith("--"):
            word = SHORT.get(name, name) + eq + value
            flags += [word] if eq else [word, *rest[:1]]
            rest = rest if eq else rest[1:]
        elif file is None:
            file = _file(word)
        else:
            raise ConfigError(f"two files, {file} and {word}: give one, and flags for the rest")
    return Words(recipes, resume, file, flags, dry_run)


def _file(word: str) -> Path:
    path = Path(word)
    if not path.suffix and not path.exists():
        close = difflib.get_close_matches(word, COMMANDS, n=1)
        near = f" (did you mean {close[0]}?)" if close else ""
        raise ConfigError(
            f"{word} is neither a settings file nor a command{near}; commands are "
            f"{', '.join(COMMANDS)}, and a recipe is named with --recipe"
        )
    return path


def _folder(config: Config, recipes: list[str], file: Path | None) -> Path:
    """Name the run's folder: as told, or a free name of recipes or file and the seed."""
    out = Path(config.run.out)
    if config.run.name:
        return out / config.run.name
    base = f"{'+'.join(recipes) or (file.stem if file else 'run')}-{config.run.seed}"
    names = [base, *(f"{base}-{i}" for i in range(2, 10_000))]
    return next(out / name for name in names if not (out / name).exists())


def _tiny_model(arguments: list[str]) -> int:
    if "-h" in arguments or "--help" in arguments:
        print(help_text())
        return 0
    if not arguments or arguments[0].startswith("-"):
        raise ConfigError("train-rl tiny-model needs a directory to write to")
    flags = [f"--model.tiny.{a[2:]}" if a.startswith("--") else a for a in arguments[1:]]
    config = load([], None, flags)
    from trainer.setup import tiny_settings
    from trainer.tinymodel import make_tiny_model

    print(make_tiny_model(arguments[0], tiny_settings(config)))
    return 0


def _plan(arguments: list[str]) -> int:
    from trainer.plan_command import main as plan

    return plan(arguments)


def _serve(arguments: list[str]) -> int:
    from trainer.engine.server import main as serve

    return serve(arguments) or 0


def _export(arguments: list[str]) -> int:
    from trainer.export import main as export

    return export(arguments) or 0


SHORT = {"--engine": "--engine.kind", "--placement": "--engine.placement"}
COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "plan": _plan,
    "serve": _serve,
    "export": _export,
    "tiny-model": _tiny_model,
}
