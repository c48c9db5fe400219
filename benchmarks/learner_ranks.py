"""One optimiser step: two ranks against one, and the ways of reading a batch against each other.

    torchrun --nproc-per-node 2 benchmarks/learner_ranks.py [--hidden 256] [--layers 4]

Every contestant differentiates the same batch of groups, with prompts and ragged completions, on
one thread a rank; they take turns, so that a busy machine slows all alike, and the median counts.
Wall time is what a quiet machine with a core a rank shows; processor time is that of the busiest
rank. The ratio is to one rank that shares prompts, the default; above 1 is faster.

* shared: each prompt once for its samples, through a cache;
* branched: the same in one row, without a cache;
* packed: prompt and completion as rows, several samples a row;
* recomputed: branched, with activation checkpointing;
* two ranks: FSDP2 over gloo, scatter of the parts included;
* gather: the whole weights on rank 0, as the engine gets them after every step.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

from trainer.batch import make_batch, shaped_rewards
from trainer.config import load
from trainer.learner import Learner
from trainer.packing import lengths
from trainer.ranks import joined
from trainer.team import cut
from trainer.types import Group, Prompt, Rollout

VOCABULARY = 512


def make_model(hidden, layers):
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=hidden,
            intermediate_size=3 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=hidden // 32,
            tie_word_embeddings=True,
        )
    )


def make_rollout(number, prompt, length, reward, g):
    return Rollout(
        group=number,
        prompt_id=prompt.id,
        prompt_ids=list(prompt.ids),
        ids=torch.randint(VOCABULARY, (length,), generator=g).tolist(),
        logprobs=[-6.0] * length,
        mask=[1] * length,
        finish_reason="stop",
        versions=[(0, 0, length)],
        reward=reward,
    )


def make_groups(n, size, prompt_tokens, completion_tokens):
    """Groups whose lengths are drawn evenly from a quarter of the most to the most."""
    g = torch.Generator().manual_seed(0)

    def draw(most):
        return int(torch.randint(max(1, most // 4), most + 1, (), generator=g))

    groups = []
    for i in range(n):
        ids = torch.randint(VOCABULARY, (draw(prompt_tokens),), generator=g).tolist()
        prompt = Prompt(str(i), tuple(ids), None, None, i)
        rollouts = [
            make_rollout(i, prompt, draw(completion_tokens), float(j % 2), g) for j in range(size)
        ]
        groups.append(Group(i, prompt, rollouts))
    return groups


def config(*flags):
    return load([], None, ["--optim.lr", "1e-6", *flags])


def alone(model, *flags):
    """Build the learner of one rank; the process group comes later."""
    learner, batch = Learner(model, cfg := config(*flags)), make_batch(*BATCH, cfg)
    return lambda ranks: learner.step(batch) if ranks.rank == 0 else None


def together(model, ranks, *flags):
    """Build the learner of all ranks, and the gathering of its weights."""
    learner, batch = Learner(model, cfg := config(*flags)), make_batch(*BATCH, cfg)
    parts = [part for _, part in cut(batch, ranks.size)]
    return (
        lambda ranks: learner.step(ranks.scatter(parts if ranks.rank == 0 else None)),
        lambda ranks: learner.weights(),
    )


def timed(call, ranks):
    """Milliseconds of wall and of the busiest rank's processor, on rank 0."""
    dist.barrier()
    wall, processor = time.perf_counter(), time.process_time()
    call(ranks)
    mine = time.perf_counter() - wall, time.process_time() - processor
    seen = ranks.collect(mine)
    return [1e3 * max(column) for column in zip(*seen, strict=True)]


def report(times, model, batch):
    n, tokens = sum(p.numel() for p in model.parameters()), int(lengths(batch).sum())
    print(f"{n / 1e6:.2f} M parameters, {len(batch)} samples, {tokens:,} tokens read unshared")
    print(f"{'':<24}{'wall ms':>10}{'ratio':>8}{'CPU ms':>10}{'ratio':>8}")
    middle = {k: [statistics.median(c) for c in zip(*v, strict=True)] for k, v in times.items()}
    base = middle["one rank, shared"]
    for name, (wall, processor) in middle.items():
        print(
            f"{name:<24}{wall:>10.1f}{base[0] / wall:>8.2f}{processor:>10.1f}"
            f"{base[1] / processor:>8.2f}"
        )
    step, gather = middle["two ranks, branched"], middle["two ranks, gather"]
    print(
        f"gather: {gather[0] / (n / 1e6):.2f} ms per million parameters, "
        f"{gather[0] / step[0]:.1%} of a step of two ranks"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--completion-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    o = parser.parse_args()
    torch.set_num_threads(1)
    groups = make_groups(o.groups, o.size, o.prompt_tokens, o.completion_tokens)
    global BATCH
    BATCH = groups, shaped_rewards(groups, config())
    packed = ("--learner.packing", "true")
    recomputed = ("--learner.checkpointing", "true")
    contestants = {
        "one rank, shared": alone(make_model(o.hidden, o.layers)),
        "one rank, packed": alone(make_model(o.hidden, o.layers), *packed),
        "one rank, recomputed": alone(make_model(o.hidden, o.layers), *recomputed),
    }
    with joined(config()) as ranks:
        branched, _ = together(make_model(o.hidden, o.layers), ranks)
        both, gather = together(make_model(o.hidden, o.layers), ranks, *packed)
        contestants |= {
            "two ranks, branched": branched,
            "two ranks, packed": both,
            "two ranks, gather": gather,
        }
        times = {name: [] for name in contestants}
        for i in range(o.rounds + 1):
            for name, call in contestants.items():
                took = timed(call, ranks)
                if i and ranks.rank == 0:  # the first warms up
                    times[name].append(took)
        if ranks.rank == 0:
            report(times, make_model(o.hidden, o.layers), make_batch(*BATCH, config()))


if __name__ == "__main__":
    main()
