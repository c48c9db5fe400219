"""KL with and without ProRL's resets on the tiny model: an ablation that the paper does not have.

    python benchmarks/reset_training.py [seeds] [steps] [seed]

Chains of three to six digits, 256 samples a step, GRPO with k3 in the loss; 256 held-out prompts
× 4 every ten steps (standard error .016). A row is the mean over the seeds and, in brackets, each.
A third argument trains that seed alone. About 30 s a run on one core.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from trainer.config import load
from trainer.ledger import read
from trainer.loop import train

TASK = (
    *("--task.name", "mixed", "--sample.prompts", "16", "--optim.lr", "3e-4"),
    *("--eval.every", "10", "--eval.prompts", "256", "--checkpoint.every", "0"),
)
RULE = ("--reset.stall_evals", "3", "--reset.drop_se", "3")
ARMS = {
    "no KL": ("--kl.coef", "0"),
    "β .2": ("--kl.coef", "0.2"),
    "β .2, rule": ("--kl.coef", "0.2", *RULE),
    "β .2, rule, moments kept": ("--kl.coef", "0.2", *RULE, "--reset.optimizer", "false"),
    "β .2, every 5 evaluations": ("--kl.coef", "0.2", "--reset.every_evals", "5"),
    "no KL, rule": ("--kl.coef", "0", *RULE),
}


def trained(arm: str, seed: int, steps: int) -> dict[str, float]:
    """Train one run and return what its log says of the last 50 steps, or 5 evaluations."""
    flags = [*TASK, *ARMS[arm], "--run.seed", str(seed), "--run.steps", str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        log = list(read(train(load(["grpo", "tiny"], None, flags), Path(folder) / "run")))
    last = [r for r in log if r["event"] == "step"][-50:]
    rates = [r["pass_rate"] for r in log if r["event"] == "eval"]
    beta = float(ARMS[arm][1])
    return {
        "pass rate, last 5": sum(rates[-5:]) / 5,
        "best": max(rates),
        "KL": sum(r["kl_loss"] for r in last) / len(last) / beta if beta else float("nan"),
        "entropy": sum(r["entropy"] for r in last) / len(last),
        "resets": sum(r["event"] == "alarm" and r["signal"] == "reset" for r in log),
    }


def main() -> None:
    """Print a row an arm."""
    arguments = [int(word) for word in sys.argv[1:]]
    seeds, steps = (*arguments, *(3, 200)[len(arguments) :])[:2]
    for arm in ARMS:
        runs = [trained(arm, seed, steps) for seed in arguments[2:] or range(seeds)]
        cells = []
        for name in runs[0]:
            values = [run[name] for run in runs]
            each = " ".join(f"{v:.3g}" for v in values)
            cells.append(f"{name} {sum(values) / len(values):.3g} ({each})")
        print(f"{arm}: {'; '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
