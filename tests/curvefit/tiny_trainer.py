"""A classifier of two bits that the real Trainer trains in a blink, and what its log holds."""

import json
import os
import re
import signal
from pathlib import Path

import transformers

from curvefit.transformers import GpuHoursCallback

ROOT = Path(__file__).parents[2]
STEP, EVALUATION = 60.0, 120.0  # seconds by the clock of the tests


class Clock(transformers.TrainerCallback):
    """Time that passes only in training steps and evaluations."""

    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now

    def on_step_begin(self, *_, **__):
        self.now += STEP

    def on_prediction_step(self, *_, **__):
        self.now += EVALUATION


class Kill(transformers.TrainerCallback):
    """Ends the process in the sixth step, with nothing said to anybody."""

    def on_step_begin(self, args, state, *_, **__):
        if state.global_step == 5:
            os.kill(os.getpid(), signal.SIGKILL)


def examples(n):
    """Sequences of two tokens, labelled by whether they are the same."""
    bits = [(i % 2, i // 2 % 2) for i in range(n)]
    return [{"input_ids": [a, b], "labels": int(a == b)} for a, b in bits]


def accuracy(prediction):
    return {"accuracy": (prediction.predictions.argmax(-1) == prediction.label_ids).mean()}


def trainer(folder, callbacks, *, held_out=None, metrics=accuracy, **settings):
    """Return a real Trainer that evaluates on 16 examples, in one batch, every two steps."""
    usual = {"max_steps": 6, "logging_steps": 1, "eval_on_start": True, "eval_strategy": "steps"}
    args = transformers.TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        learning_rate=1e-2,
        eval_steps=2,
        save_steps=4,
        report_to="none",
        disable_tqdm=True,
        **usual | settings,
    )
    config = transformers.LlamaConfig(
        vocab_size=4,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=3,
        num_labels=2,
    )
    transformers.set_seed(0)
    return transformers.Trainer(
        model=transformers.LlamaForSequenceClassification(config),
        args=args,
        train_dataset=examples(64),
        eval_dataset=held_out or examples(16),
        compute_metrics=metrics,
        callbacks=callbacks,
    )


def example(words):
    """Return the block of Python in the how-to that holds some words."""
    page = (ROOT / "docs" / "how-to.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if words in block]
    return found


def rows(log, *events):
    found = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    return [row for row in found if not events or row["event"] in events]


def hours(log, *events):
    found = [row for row in rows(log, *events) if row["event"] != "run"]
    return [(row["event"], row["step"], round(row["gpu_hours"], 9)) for row in found]


def start(folder, log, clock, *others):
    counted = GpuHoursCallback(log, gpus=4, generators=2, clock=clock)
    return trainer(folder, [clock, counted, *others])
