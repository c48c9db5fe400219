"""The parts of a run, made from its settings; whatever cannot be used is refused here.

Nothing trains before every part stands: model, tokenizer, task, verifier, gold canary, prompts.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trainer.engine.base import Engine, SamplingParams
from trainer.errors import ConfigError
from trainer.generators import open_generators
from trainer.placement import Placement
from trainer.rollout import Interruption, RolloutWorker
from trainer.settings import Config
from trainer.tasks.base import Task
from trainer.tasks.canary import canary
from trainer.tasks.registry import make_task
from trainer.tasks.source import PromptSource, stop_ids
from trainer.verify import Verifier

__all__ = [
    "load_model",
    "make_prompts",
    "make_worker",
    "model_directory",
    "sampling",
    "task_of",
    "tiny_settings",
]


def model_directory(config: Config) -> Path:
    """Return a local directory: the one named, a hub model's, or the tiny model's, made if need be.

    Raises
    ------
    ConfigError
        There is no such directory, or it holds no model.
    """
    if config.model.path:
        return _local(config.model.path)
    from trainer.tinymodel import make_tiny_model

    return make_tiny_model(None, tiny_settings(config))


def tiny_settings(config: Config) -> Any:
    """Return the settings of the tiny model: the run's task, or what ``model.tiny`` says."""
    from trainer.tinymodel import TinySettings

    known = [f.name for f in fields(TinySettings)]
    for key in config.model.tiny:
        if key not in known:
            raise ConfigError(f"unknown key model.tiny.{key}; there are {', '.join(known)}")
    of_task: dict[str, Any] = {"task": config.task.name, "options": config.task.args}
    if config.model.tiny.get("task", config.task.name) != config.task.name:
        of_task["options"] = {}  # they are another task's
    return TinySettings(**{**of_task, **config.model.tiny})


def _local(path: str) -> Path:
    if Path(path).is_dir():
        if not (Path(path) / "config.json").is_file():
            raise ConfigError(f"model.path = {path}: no config.json there; name a model directory")
        _refuse_quantised(Path(path))
        return Path(path)
    if Path(path).is_absolute() or path.startswith(".") or path.count("/") > 1:
        raise ConfigError(f"model.path = {path}: no such directory")  # nor a name of the hub's
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(path))
    except (OSError, ValueError) as e:
        line = str(e).splitlines()[0]
        raise ConfigError(f"model.path = {path}: no such directory or hub model ({line})") from e


def _refuse_quantised(directory: Path) -> None:
    """Refuse quantised weights: no gradient moves them and their head cannot be float32."""
    try:
        table = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except ValueError as e:
        raise ConfigError(f"{directory}/config.json is not JSON: {e}") from e
    told = table.get("quantization_config")
    if told:
        method = told.get("quant_method", "an unknown method")
        raise ConfigError(
            f"{directory} is quantised ({method}): it cannot be trained, nor its head be float32; "
            "name the model that it was made from"
        )


def load_model(directory: Path, config: Config) -> tuple[Any, Any]:
    """Load the policy and its tokenizer through transformers."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory)
    except (OSError, ValueError, KeyError) as e:
        line = str(e).strip().splitlines()[0]
        raise ConfigError(f"{directory} has no tokenizer that can be loaded: {line}") from e
    try:
        model = AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=getattr(torch, config.model.dtype),
            attn_implementation=config.model.attention,
        )
    except (OSError, ValueError, KeyError, ImportError) as e:
        line = str(e).strip().splitlines()[0]
        raise ConfigError(f"{directory} cannot be loaded as a language model: {line}") from e
    if dist.is_initialized():
        return model, tokenizer  # to be sharded: no device need hold all of it
    return model.to(config.model.device), tokenizer


def task_of(config: Config) -> Task:
    """Make the task: files that cannot be read and a sandbox that is not there are refused here."""
    return make_task(config.task.name, config.task.args, seed=config.task.seed)


def make_prompts(config: Config, task: Task, tokenizer: Any) -> PromptSource:
    """Check that the task's prompts can be encoded."""
    prompts = PromptSource(task, tokenizer, config.sample.prompt_tokens)
    prompts.check()
    return prompts


def make_worker(
    config: Config,
    placement: Placement,
    directory: Path,
    folder: Path,
    tokenizer: Any,
    task: Task,
) -> tuple[RolloutWorker, Engine]:
    """Start verifier and engine; the verifier has paid for gold answers when this returns."""
    verifier = Verifier(
        config.task.name,
        config.task.args,
        seed=config.task.seed,
        workers=config.task.workers,
        deadline_s=config.task.deadline_s,
    )
    try:
        canary(task, verifier)
        engine = open_generators(config, placement, directory, folder)
    except BaseException:
        verifier.close()
        raise
    worker = RolloutWorker(
        engine,
        verifier,
        tokenizer,
        group_size=config.sample.group,
        params=sampling(config, directory, tokenizer, config.sample.temperature),
        seed=config.run.seed,
        interruption=_interruption(config, tokenizer),
    )
    return worker, engine


def sampling(
    config: Config, directory: Path, tokenizer: Any, temperature: float, top_p: float = 1.0
) -> SamplingParams:
    """Return sampling parameters at `temperature`, with every stop id the model knows."""
    return SamplingParams(
        max_tokens=config.sample.max_tokens,
        temperature=temperature,
        stop_ids=stop_ids(tokenizer, directory),
        top_p=top_p,
    )


def _interruption(config: Config, tokenizer: Any) -> Interruption | None:
    s = config.sample
    if s.thinking_tokens == 0:
        return None
    return Interruption.from_text(
        tokenizer,
        thinking_tokens=s.thinking_tokens,
        answer_tokens=s.answer_tokens,
        phrase=s.phrase,
        end=s.stop,
    )
