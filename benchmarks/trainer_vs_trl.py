"""The trainer beside TRL's GRPOTrainer: samples per second, time to a pass rate of 0.9, ratios.

    pip install '.[train,trl]' && python benchmarks/trainer_vs_trl.py --samples 512 --repeats 3

Same tiny model, prompts, batch, group, lengths, learning rate, float32, one thread, CPU. Each
measurement is a process of its own; imports, set-up and the first two steps are left out; ours and
TRL's alternate, and the figures are medians of the ratios of neighbours. Rows:

* ``trl``: GRPOTrainer, CISPO loss, advantages scaled over the batch, no KL.
* ``all rows``: ours in one process, differentiating every rollout as TRL does.
* ``default``: ours in one process, groups without a gradient left out (ScaleRL).
* ``pipeline``: ours with the engine in a second process, k = 2.

CPU seconds (of the whole process tree) are printed beside wall seconds, because they hold on a busy
machine; for ``pipeline`` the wall clock is what counts. The share of the peak is that of nominal
arithmetic, 8 N FLOP for each token of prompt and completion, in the matrix throughput measured in
the same run; work that is saved (a prompt computed once for its group) counts as done.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KINDS = ("trl", "all rows", "default", "pipeline")
SKIP = 2  # steps left out at the start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--child", choices=KINDS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(args.child, args.samples, args.steps)))
        return
    runs: dict[str, list[dict]] = {kind: [] for kind in args.kinds}
    for _ in range(args.repeats):
        for kind in args.kinds:
            runs[kind].append(child(kind, args))
            show(kind, runs[kind][-1])
    for kind in args.kinds[1:]:
        summary(kind, runs["trl"], runs[kind])


def child(kind: str, args: argparse.Namespace) -> dict:
    command = [sys.executable, __file__, "--child", kind]
    command += ["--samples", str(args.samples), "--steps", str(args.steps)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, env=env, capture_output=True)
    if done.returncode:
        raise SystemExit(done.stderr.decode()[-3000:])
    return json.loads(done.stdout.decode().strip().splitlines()[-1])


def show(kind: str, r: dict) -> None:
    reach = "-" if r["to_0.9_s"] is None else f"{r['to_0.9_s']:.1f} s, {r['to_0.9_cpu']:.1f} CPU-s"
    print(
        f"{kind:9s} {r['samples_per_s']:7.0f} samples/s  {r['samples_per_cpu_s']:7.0f} per CPU-s  "
        f"peak {r['peak'] / 1e9:.0f} GFLOP/s, share {r['share']:.0%} (CPU {r['share_cpu']:.0%})  "
        f"0.9 after {reach}  {r.get('phases', '')}",
        flush=True,
    )


def summary(kind: str, trl: list[dict], ours: list[dict]) -> None:
    """Print medians of the ratios of neighbouring measurements."""

    def ratio(key: str, upside: bool = True) -> str:
        pairs = [(o[key], t[key]) for o, t in zip(ours, trl, strict=True) if o[key] and t[key]]
        if not pairs:
            return "-"
        return f"{statistics.median((o / t) if upside else (t / o) for o, t in pairs):.2f}"

    print(
        f"{kind:9s} / trl: samples/s {ratio('samples_per_s')}, per CPU-s "
        f"{ratio('samples_per_cpu_s')}; to 0.9: {ratio('to_0.9_s', False)} times faster, CPU "
        f"{ratio('to_0.9_cpu', False)}"
    )


def measure(kind: str, samples: int, steps: int) -> dict:
    import torch

    torch.set_num_threads(1)
    from trainer.tinymodel import make_tiny_model

    directory = make_tiny_model()
    peak = matrix_peak()
    run = trl_run if kind == "trl" else our_run
    ticks, rewards, extra = run(kind, directory, samples, steps)
    first, last = ticks[SKIP - 1], ticks[-1]
    n = samples * (len(ticks) - SKIP)
    wall, cpu = last[0] - first[0], last[1] - first[1]
    nominal = 8 * extra.pop("parameters") * n * extra.pop("tokens_per_sample")
    reached = next(
        (i for i in range(2, len(rewards)) if sum(rewards[i - 2 : i + 1]) / 3 >= 0.9), None
    )
    start = extra.pop("start")
    return {
        "samples_per_s": n / wall,
        "samples_per_cpu_s": n / cpu,
        "peak": peak,
        "share": nominal / wall / peak,
        "share_cpu": nominal / cpu / peak,
        "to_0.9_s": None if reached is None else ticks[reached][0] - start[0],
        "to_0.9_cpu": None if reached is None else ticks[reached][1] - start[1],
        "rewards": [round(r, 3) for r in rewards],
        **extra,
    }


def now() -> tuple[float, float]:
    """Wall seconds, and CPU seconds of this process and its living children."""
    me, cpu = os.getpid(), time.process_time()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[1]) == me:
            cpu += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return time.perf_counter(), cpu


def matrix_peak() -> float:
    """FLOP per CPU second of a float32 matrix product, best of five."""
    import torch

    a = torch.randn(1024, 1024)
    best = 0.0
    for _ in range(5):
        start = time.process_time()
        for _ in range(4):
            a @ a
        best = max(best, 4 * 2 * 1024**3 / (time.process_time() - start))
    return best


def our_run(kind: str, directory: Path, samples: int, steps: int) -> tuple[list, list, dict]:
    from trainer import loop
    from trainer.config import load
    from trainer.ledger import read
    from trainer.progress import Progress

    group = 16 if samples >= 256 else 8
    flags = ["--model.path", str(directory), "--run.steps", str(steps)]
    flags += ["--sample.prompts", str(samples // group), "--sample.group", str(group)]
    flags += ["--eval.every", "1000000", "--eval.prompts", "16", "--checkpoint.every", "0"]
    if kind == "all rows":
        flags += ["--curriculum.filter_zero_variance", "false"]
    if kind == "pipeline":
        flags += ["--pipeline.mode", "pipeline", "--pipeline.k", "2"]
    ticks: list[tuple[float, float]] = []
    started: list[tuple[float, float]] = []

    class Clock(Progress):
        def evaluation(self, run: object) -> None:
            started.append(now())

        def step(self, run: object) -> None:
            ticks.append(now())

    sys.modules["trainer.run"].Progress = Clock  # a clock in place of the progress line
    with tempfile.TemporaryDirectory() as folder:
        log = loop.train(load(["tiny"], None, flags), Path(folder) / "run")
        rows = [r for r in read(log) if r["event"] == "step"]
        model = next(r for r in read(log) if r["event"] == "run")["model"]
    phases = {
        k: sum(r.get(k, 0) for r in rows) for k in ("generate_s", "wait_s", "train_s", "sync_s")
    }
    length = sum(r["length"] for r in rows) / len(rows)
    extra = {
        "parameters": model["parameters"],
        "tokens_per_sample": length + 9,
        "start": started[0],
        "phases": {k: round(v, 2) for k, v in phases.items() if v},
    }
    return ticks, [r["reward"] for r in rows], extra


def trl_run(kind: str, directory: Path, samples: int, steps: int) -> tuple[list, list, dict]:
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from trainer.tasks.registry import make_task

    task, tokenizer = make_task("chain"), AutoTokenizer.from_pretrained(directory)
    group = 16 if samples >= 256 else 8
    items = [task.item("train", i) for i in range(samples // group * steps)]
    data = Dataset.from_list([{"prompt": i.text, "answer": i.answer} for i in items])
    rewards: list[float] = []
    lengths: list[float] = []

    def reward(completion_ids: list, answer: list, **_: object) -> list[float]:
        texts = tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
        scores = [task.score(t, None, a) for t, a in zip(texts, answer, strict=True)]
        rewards.append(sum(scores) / len(scores))
        lengths.append(sum(map(len, completion_ids)) / len(completion_ids))
        return scores

    ticks: list[tuple[float, float]] = []
    started: list[tuple[float, float]] = []

    class Clock(TrainerCallback):
        def on_train_begin(self, *_: object, **__: object) -> None:
            started.append(now())

        def on_step_end(self, *_: object, **__: object) -> None:
            ticks.append(now())

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=samples,
            num_generations=group,
            max_completion_length=16,
            max_steps=steps,
            learning_rate=1e-3,
            lr_scheduler_type="constant_with_warmup",
            warmup_steps=5,
            weight_decay=0.0,
            max_grad_norm=1.0,
            beta=0.0,
            loss_type="cispo",
            epsilon_high=5.0,
            scale_rewards="batch",
            logging_steps=10_000,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_num_workers=0,
        )
        trainer = GRPOTrainer(
            model=str(directory),
            reward_funcs=reward,
            args=config,
            train_dataset=data,
            processing_class=tokenizer,
            callbacks=[Clock()],
        )
        parameters = sum(p.numel() for p in trainer.model.parameters())
        trainer.train()
    length = sum(lengths) / len(lengths)
    extra = {"parameters": parameters, "tokens_per_sample": length + 9, "start": started[0]}
    return ticks, rewards, extra


if __name__ == "__main__":
    main()
