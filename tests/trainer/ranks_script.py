"""What two ranks do in test_ranks.py: rank 0 writes what it saw for the test to compare.

Arguments: a folder with a one-rank checkpoint in it, and a model directory.
"""

import math
import sys
from importlib.util import find_spec
from pathlib import Path

import factory
import torch
import torch.distributed as dist

from trainer import setup
from trainer.learner import Learner
from trainer.ranks import joined
from trainer.tally import Tally
from trainer.team import Team, cut, follow

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


def row(result):
    kl = result.kl_loss
    return {"loss": result.loss, "kl": kl, "grad_norm": result.grad_norm, **result.tally.signals()}


def trajectory(learner, cfg, steps=STEPS):
    rows = []
    for _ in range(steps):
        rows.append(row(learner.step(part(cfg))))
    return rows


def reset_configs():
    """Of a model and of its adapters, where peft is installed."""
    adapters = {"adapters": ("--learner.lora_rank", "4")} if find_spec("peft") else {}
    return {n: config("--kl.coef", "0.1", *f) for n, f in {"all": (), **adapters}.items()}


def reset(folder, cfg):
    """Two steps, a reset, a checkpoint, two steps: by the learner, and by one that resumes."""
    first, second = Learner(factory.model(), cfg), Learner(factory.model(), cfg)
    before = trajectory(first, cfg, 2)
    first.reset(optimizer=True)
    path = folder / f"reset-{cfg.learner.lora_rank}"
    first.save(path / "learner")
    after = trajectory(first, cfg, 2)
    second.load(path)
    return before + after, trajectory(second, cfg, 2) == after


def alone(folder):
    """What a learner sees whose every call this rank makes."""
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

    out["reset"] = {name: reset(folder, cfg) for name, cfg in reset_configs().items()}

    learner = Learner(factory.model(), cfg := config())
    trajectory(learner, cfg, 1)
    before = {n: w.clone() for n, w in learner.model.state_dict().items()}
    bad = part(cfg)
    bad.advantages[0] = math.nan if dist.get_rank() == 1 else bad.advantages[0]
    out["skipped"] = bool(learner.step(bad).skipped)
    after = learner.model.state_dict()
    out["unmoved"] = all(torch.equal(after[n].to_local(), w.to_local()) for n, w in before.items())

    tally = Tally()
    tally.add("reward", 1.0, 1 if dist.get_rank() == 0 else 3)
    tally.peak("length", dist.get_rank())
    tally.reduce()
    out["signals"] = tally.signals()
    return out


def led(team, cfg):
    """What rank 0 sees of the learner that all ranks are together, and writes for the test."""
    batch, seen = factory.batch(cfg), {"exported": team.weights()}
    seen["reference"] = team.logprobs(batch, reference=True, temperature=0.7)
    seen["old"] = team.logprobs(batch)
    seen["steps"] = [row(team.step(batch, 0, seen["old"])) for _ in range(2)]
    seen["new"] = team.logprobs(batch)
    team.reset(optimizer=True)
    seen["anew"] = team.logprobs(batch, reference=True)
    seen["steps"] += [row(team.step(batch, 0, seen["new"]))]
    return seen


def led_config(directory):
    flags = ("--loss.name", "clip", "--loss.anchor", "old", "--kl.coef", "0.1")
    cut_up = ("--optim.micro_batch", "3", "--learner.checkpointing", "true")
    return config("--model.path", str(directory), *flags, *cut_up)


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, directory = Path(sys.argv[1]), sys.argv[2]
    cfg = led_config(directory)
    with joined(cfg) as ranks:
        seen = alone(folder)
        if ranks.rank > 0:
            follow(ranks)
        else:
            model, _ = setup.load_model(Path(directory), cfg)
            torch.save({**seen, **led(Team(model, cfg, ranks), cfg)}, folder / "out.pt")
