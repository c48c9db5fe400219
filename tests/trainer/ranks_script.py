"""What two ranks do in test_ranks.py: rank 0 writes what it saw for the test to compare.

Arguments: a folder with a one-rank checkpoint in it, and a model directory.
"""

import sys
from pathlib import Path

import factory
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM

from trainer.learner import Learner
from trainer.tally import Tally
from trainer.team import cut

OPTIONS = {
    **{how: ("--loss.aggregation", how) for how in ("token", "sample", "prompt", "constant")},
    "samples one by one": ("--optim.micro_batch", "1"),
    "packed": ("--learner.packing", "true", "--learner.micro_tokens", "12"),
    "checkpointing": ("--learner.checkpointing", "true", "--learner.reshard", "false"),
    "reference": ("--kl.coef", "0.1"),
    "bfloat16": ("--learner.compute", "bfloat16", "--learner.checkpointing", "true"),
}
STEPS = 4


def config(*flags):
    # eps: where a gradient is rounding alone, Adam without it steps by the learning rate
    return factory.config("--optim.warmup", "0", "--optim.eps", "1e-6", *flags)


def part(cfg):
    return cut(factory.batch(cfg), dist.get_world_size())[dist.get_rank()][1]


def trajectory(learner, cfg, steps=STEPS):
    rows = []
    for _ in range(steps):
        result = learner.step(part(cfg))
        rows.append({"loss": result.loss, "grad_norm": result.grad_norm, **result.tally.signals()})
    return rows


def main(folder, directory):
    out = {"rows": {}, "weights": {}, "gradients": {}}
    for name, flags in OPTIONS.items():
        cfg = config(*flags)
        learner = Learner(factory.model(), cfg)
        out["rows"][name] = trajectory(learner, cfg)
        out["gradients"][name] = factory.gradient(learner)
        out["weights"][name] = learner.weights()

    cfg = config("--kl.coef", "0.1")
    first, second = Learner(factory.model(), cfg), Learner(factory.model(seed=1), cfg)
    trajectory(first, cfg, 2)
    first.save(folder / "two" / "learner")
    second.load(folder / "two")
    out["resumed at 2"] = trajectory(second, cfg, 2) == trajectory(first, cfg, 2)
    second.load(folder / "one")
    out["from one"] = trajectory(second, cfg, 2)

    tally = Tally()
    tally.add("reward", 1.0, 1 if dist.get_rank() == 0 else 3)
    tally.peak("length", dist.get_rank())
    tally.reduce()
    out["signals"] = tally.signals()

    exported = Learner(
        AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32),
        config("--learner.checkpointing", "true"),
    ).weights()
    if dist.get_rank() == 0:
        torch.save({**out, "exported": exported}, folder / "out.pt")
    else:
        assert not exported


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    main(Path(sys.argv[1]), sys.argv[2])
    dist.destroy_process_group()
