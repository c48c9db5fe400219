"""``train-rl``: the command line.

    train-rl                                   train the tiny model on this machine's CPU
    train-rl --recipe scalerl --model.path DIR --task.name math --task.args.file problems.jsonl
    train-rl --resume runs/tiny-0
    train-rl tiny-model DIR                    write the tiny model and its tokenizer

Results on stdout (the path of the log), everything else on stderr. Exit: 0 done, 1 stopped by a
guard, 2 usage or unusable input.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path

from trainer.config import load, recipe_names
from trainer.errors import ConfigError, TrainerError
from trainer.settings import SECTIONS, Config

__all__ = ["help_text", "main"]


def main(argv: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if "-h" in arguments or "--help" in arguments:
        print(help_text())
        return 0
    try:
        if arguments[:1] == ["tiny-model"]:
            return _tiny_model(arguments[1:])
        return _train(arguments)
    except TrainerError as e:
        print(f"train-rl: {e}", file=sys.stderr)
        return e.exit_code
    except KeyboardInterrupt:
        print("train-rl: interrupted; resume from the last checkpoint", file=sys.stderr)
        return 130


def help_text() -> str:
    """Return the help: usage, recipes, and every setting with its default and meaning."""
    lines = [
        "usage: train-rl [CONFIG.toml] [--recipe NAME]... [--section.key VALUE]...",
        "       train-rl --resume RUN_FOLDER [--section.key VALUE]...",
        "       train-rl tiny-model DIR [--key VALUE]...",
        "",
        "Train a language model by reinforcement learning and log what fit-curve reads.",
        "Without options: the tiny model on a CPU. Recipes lie one over the other in order,",
        "then the file, then flags.",
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
    recipes, resume, file, flags = _split(arguments)
    if resume is not None:
        if recipes or file:
            raise ConfigError("--resume takes its settings from the run's folder: leave the others")
        if not (resume / "config.toml").is_file():
            raise ConfigError(f"{resume} has no config.toml: nothing to resume there")
        config, folder = load([], resume / "config.toml", flags), resume
    else:
        recipes = recipes or ([] if file else ["tiny"])
        config = load(recipes, file, flags)
        folder = _folder(config, recipes, file)
    from trainer.loop import train

    print(train(config, folder, resume=resume is not None))
    return 0


def _split(arguments: list[str]) -> tuple[list[str], Path | None, Path | None, list[str]]:
    """Tell recipes, the folder to resume, the file and the flags apart."""
    recipes: list[str] = []
    resume: Path | None = None
    file: Path | None = None
    flags: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, eq, value = word.partition("=")
        if name in ("--recipe", "--resume"):
            if not eq and not rest:
                raise ConfigError(f"{name} needs a value")
            value = value if eq else rest.pop(0)
            if name == "--recipe":
                recipes += value.split("+")
            else:
                resume = Path(value)
        elif word.startswith("--"):
            flags += [word] if eq else [word, *rest[:1]]
            rest = rest if eq else rest[1:]
        elif file is None:
            file = Path(word)
        else:
            raise ConfigError(f"two files, {file} and {word}: give one, and flags for the rest")
    return recipes, resume, file, flags


def _folder(config: Config, recipes: list[str], file: Path | None) -> Path:
    """Name the run's folder: as told, or a free name of recipes or file and the seed."""
    out = Path(config.run.out)
    if config.run.name:
        return out / config.run.name
    base = f"{'+'.join(recipes) or (file.stem if file else 'run')}-{config.run.seed}"
    names = [base, *(f"{base}-{i}" for i in range(2, 10_000))]
    return next(out / name for name in names if not (out / name).exists())


def _tiny_model(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        raise ConfigError("train-rl tiny-model needs a directory to write to")
    flags = [f"--model.tiny.{a[2:]}" if a.startswith("--") else a for a in arguments[1:]]
    config = load([], None, flags)
    from trainer.setup import tiny_settings
    from trainer.tinymodel import make_tiny_model

    print(make_tiny_model(arguments[0], tiny_settings(config)))
    return 0
