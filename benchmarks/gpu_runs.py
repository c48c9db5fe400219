"""Whole runs for ``gpu.py``: the trainer, synchronous and as a pipeline, and TRL's GRPOTrainer."""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_parts import Size, clock, directory, settings

from trainer.launch import Order, Servers, free_port
from trainer.ledger import read
from trainer.loop import train
from trainer.servers import command, full_environment, runnable
from trainer.settings import Config


def whole(options: argparse.Namespace, size: Size, *, pipelined: bool) -> dict:
    """A run of the trainer: samples a second without its first steps, and where time went."""
    name = "k8" if pipelined else "k0"
    more = ["--run.steps", str(size.steps), "--eval.every", "1000000", "--eval.prompts", "4"]
    more += ["--eval.samples", "1", "--checkpoint.every", "0"]
    if pipelined:
        more += ["--pipeline.mode", "pipeline", "--pipeline.k", "8"]
    folder = Path(options.folder) / name
    if options.device == "cuda" and options.engine == "vllm":
        if pipelined:  # a server on the learner's own GPU
            config = settings(options, size, *more, "--engine.transfer", "ipc")
            with closing(beside(config, folder / "servers")) as servers:
                at = f'["{servers.addresses[0]}"]'
                more += ["--engine.addresses", at, "--engine.transfer", "ipc"]
                log = train(settings(options, size, *more), folder)
                return told(log, size)
        more += ["--engine.placement", "colocated", "--engine.kind", "vllm"]
    log = train(settings(options, size, *more), folder)
    return told(log, size)


def beside(config: Config, folder: Path) -> Any:
    """A vLLM server on GPU 0 with two fifths of its memory."""
    share = replace(config, engine=replace(config.engine, memory=0.4))
    port = free_port()
    words = command(share, "vllm", config.model.path, port)
    order = Order(runnable(words), full_environment(share, "vllm", ("0",)), f"127.0.0.1:{port}")
    return Servers([order], folder, config.engine.start_s)


def told(log: Path, size: Size) -> dict:
    """Samples a second and shares of time, the first two steps left out."""
    rows = [row for row in read(log) if row["event"] == "step"]
    first, last = rows[1], rows[-1]
    seconds = last["wall_s"] - first["wall_s"]
    rest = rows[2:]
    shares = {
        f"{phase}_share": sum(row.get(f"{phase}_s", 0.0) for row in rest) / seconds
        for phase in ("generate", "wait", "train", "sync")
    }
    samples = (len(rows) - 2) * size.prompts * size.group
    return {"samples_per_s": samples / seconds, "steps": len(rows), **shares}


def trl(options: argparse.Namespace, size: Size) -> dict:
    """TRL's GRPOTrainer on the work of k0, vLLM in its process."""
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from trainer.tasks.registry import make_task

    path = directory(options)
    task = make_task("chain")
    items = [task.item("train", i) for i in range(size.prompts * size.steps)]
    ticks: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            ticks.append(clock(options.device))

    samples = size.prompts * size.group
    config = GRPOConfig(
        output_dir=str(Path(options.folder) / "trl"),
        bf16=not options.tiny,
        model_init_kwargs={"dtype": "float32"},
        gradient_checkpointing=False,
        per_device_train_batch_size=size.micro or samples,
        gradient_accumulation_steps=samples // (size.micro or samples),
        num_generations=size.group,
        max_completion_length=size.length,
        max_steps=size.steps,
        learning_rate=1e-6,
        beta=0.0,
        loss_type="cispo",
        epsilon_high=5.0,
        scale_rewards="batch",
        use_vllm=True,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.4,
        vllm_enable_sleep_mode=True,
        logging_steps=10_000,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=str(path),
        reward_funcs=lambda completion_ids, **_: [0.0] * len(completion_ids),
        args=config,
        train_dataset=Dataset.from_list([{"prompt": item.text} for item in items]),
        processing_class=AutoTokenizer.from_pretrained(path),
        callbacks=[Clock()],
    )
    trainer.train()
    seconds = ticks[-1] - ticks[1]
    return {"samples_per_s": (len(ticks) - 2) * samples / seconds, "steps": len(ticks)}
