"""Tokens per second of the local engine against transformers' generate, ragged lengths.

    python benchmarks/generation.py [--batch 8 64 512] [--repeats 5] [--process]

Both sides sample from the same tiny model at temperature 1, one thread, from the same prompts of 4
to 24 tokens, and end each completion at the same length, drawn uniformly from 4 to 64: generate
by a stopping criterion that finishes rows one by one, as an end token would. Generate returns ids
only; the engine returns log-probabilities too. Both run in turn in one process, and the ratio of
each pair counts: the median of the ratios is printed with its range.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time

import numpy as np
import torch
from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList

from trainer.engine import open_engine
from trainer.engine.base import Request, SamplingParams, generate
from trainer.tinymodel import make_tiny_model

numbers = itertools.count()


class RowBudgets(StoppingCriteria):
    """Finishes each row at its own length."""

    def __init__(self, prompt_width, budgets):
        self.ends = prompt_width + torch.tensor(budgets)

    def __call__(self, input_ids, scores, **_):
        """Rows that are done, bool [batch]."""
        return input_ids.shape[1] >= self.ends


def workload(batch, rng):
    prompts = [tuple(rng.integers(3, 18, rng.integers(4, 25)).tolist()) for _ in range(batch)]
    return prompts, rng.integers(4, 65, batch).tolist()


def time_engine(engine, prompts, budgets):
    requests = [
        Request(next(numbers), prompt, SamplingParams(budget, seed=i))
        for i, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True))
    ]
    start = time.perf_counter()
    completions = generate(engine, requests)
    seconds = time.perf_counter() - start
    assert [len(c.ids) for c in completions] == budgets
    return sum(budgets) / seconds


def time_transformers(model, prompts, budgets):
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    start = time.perf_counter()
    out = model.generate(
        ids,
        attention_mask=mask,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=None,
        pad_token_id=0,
        max_new_tokens=max(budgets),
        stopping_criteria=StoppingCriteriaList([RowBudgets(width, budgets)]),
    )
    seconds = time.perf_counter() - start
    assert out.shape[1] == width + max(budgets)
    return sum(budgets) / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--process", action="store_true", help="the engine in its own process")
    options = parser.parse_args()
    torch.set_num_threads(1)
    directory = make_tiny_model()
    engine = open_engine("process" if options.process else "local", directory)
    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    rng = np.random.default_rng(0)
    print(f"{'batch':>5} {'engine tok/s':>13} {'generate tok/s':>15} {'ratio':>6} {'range':>13}")
    for batch in options.batch:
        pairs = []
        for repeat in range(options.repeats + 1):
            prompts, budgets = workload(batch, rng)
            pair = time_engine(engine, prompts, budgets), time_transformers(model, prompts, budgets)
            if repeat:  # the first warms both up
                pairs.append(pair)
        ratios = sorted(ours / theirs for ours, theirs in pairs)
        ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
        print(
            f"{batch:5d} {ours:13,.0f} {theirs:15,.0f} {statistics.median(ratios):6.2f} "
            f"{ratios[0]:6.2f}-{ratios[-1]:.2f}"
        )
    engine.close()


if __name__ == "__main__":
    main()
