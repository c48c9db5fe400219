"""What transformers and TRL log, in the words of ``trainer-log/1``.

A metric has a name here only if it means the same there: TRL's ``clip_ratio/region_mean`` counts a
token only where its clip binds, so it is no ``capped_fraction``, and it is left out. Values are
means over the steps since the last log (``logging_steps``); ``grad_norm`` and ``lr`` are the last
step's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from curvefit.errors import AmbiguousColumn, InputError
from curvefit.wording import listed, nearest, quoted

__all__ = ["evaluated", "pass_rate", "signals", "tokens"]

SIGNALS = {
    "reward": "reward",
    "completions/clipped_ratio": "truncation_rate",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "frac_reward_zero_std": "zero_variance_fraction",
    "sampling/sampling_logp_difference/mean": "logp_gap",
    "completions/mean_length": "length",
    "loss": "loss",
    "learning_rate": "lr",
}
TOKENS = ("num_tokens", "eval_num_tokens", "num_input_tokens_seen")
RATES = ("pass_rate", "pass@1", "accuracy", "acc", "exact_match", "solve_rate", "success_rate")
REWARD = re.compile(r"rewards/.+/mean")
RUNTIME = "_runtime"

Metrics = Mapping[str, float | None]


def evaluated(logs: Metrics) -> str | None:
    """Return the prefix of an evaluation's metrics; None when the logs are none.

    >>> evaluated({"eval_loss": 2.0, "eval_runtime": 3.1}), evaluated({"loss": 2.0})
    ('eval', None)
    """
    found = [key for key in logs if key.endswith(RUNTIME) and key != "train_runtime"]
    return found[0].removesuffix(RUNTIME) if found else None


def tokens(logs: Metrics) -> float | None:
    """Tokens of prompts and completions trained on so far, where they are counted."""
    return next((logs[name] for name in TOKENS if name in logs), None)


def signals(logs: Metrics) -> dict[str, float | None]:
    """Return the metrics of a training step that have a name in the log."""
    return {ours: logs[theirs] for theirs, ours in SIGNALS.items() if theirs in logs}


def pass_rate(metrics: Metrics, prefix: str, wanted: str | None = None) -> str:
    """Return the key of an evaluation's pass rate.

    Without `wanted` it is the metric that is called one (pass_rate, accuracy, ...), else the mean
    of the only reward function, else the reward.

    Raises
    ------
    InputError
        There is none.
    AmbiguousColumn
        Several could be it.
    """
    keys = {_bare(key, prefix): key for key in metrics}
    if wanted is not None:
        if wanted in metrics:
            return wanted
        key = keys.get(_bare(wanted, prefix))
        if key is None:
            hint = nearest(wanted, _scores(metrics))
            raise InputError(f"the evaluation has no metric {quoted(wanted)}: {hint}")
        return key
    rates = [key for name, key in keys.items() if name in RATES]
    found = rates or [key for name, key in keys.items() if REWARD.fullmatch(name)]
    if not found and "reward" in keys:
        found = [keys["reward"]]
    if len(found) > 1:
        raise AmbiguousColumn(
            f"several metrics of the evaluation could be the pass rate, {listed(found)}: "
            f'name one, GpuHoursCallback(..., metric="{found[0]}")'
        )
    if not found:
        raise InputError(
            "no metric of the evaluation is known as a pass rate: name one with metric=, there are "
            f"{listed(_scores(metrics), 30)}"
        )
    return found[0]


def _bare(key: str, prefix: str) -> str:
    """Return a metric's name without its prefix; TRL says ``eval_`` for every dataset."""
    bare = key.removeprefix(f"{prefix}_")
    return bare if bare != key else key.removeprefix("eval_")


def _scores(metrics: Metrics) -> list[str]:
    """Return the names of metrics that do not say how long the evaluation took."""
    timing = ("_runtime", "_per_second", "_time")
    return [key for key in metrics if key != "epoch" and not key.endswith(timing)]
