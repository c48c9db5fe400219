"""What column names mean: compute, score, run, evaluation size, and what is none of these.

The names are those that trackers and trainers write (TRL, verl, prime-rl, OpenRLHF, open-instruct,
SkyRL, slime, NeMo-RL, PipelineRL, AReaL, tinker-cookbook, W&B). A rank is a tuple that sorts the
better name first; equal ranks mean that names alone cannot decide.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = [
    "RUN_IDS",
    "RUN_NAMES",
    "SIZE_NAMES",
    "Clock",
    "Meaning",
    "clock",
    "compute_meaning",
    "is_trap",
    "says_rate",
    "score_rank",
    "splits_runs",
    "words",
]

# ---------------------------------------------------------------- compute


class Meaning(NamedTuple):
    """What a compute column counts, and how good a choice it is (smaller first)."""

    unit: str
    rank: tuple[int, int]
    per_step: bool = False


# In order of preference; within a line, alternatives are equally good.
COMPUTE = [
    ("gpu_hours", r"(?:\w+_)?(?:gpu|device|accelerator|tpu|chip|[abh]\d00)_?(?:hours?|hrs?|h)"),
    ("gpu_hours", r"(?:gpu|device)_?time_h(?:ours)?"),
    ("", r"compute|c"),
    ("flops", r"(?:\w+_)?(?:flops?|flos)"),
    ("step", r"step|steps|global_steps?|training_steps?|train_steps?|trainer_step"),
    ("step", r"completed_steps|optimizer_steps?|ckpt_step|checkpoint_step|num_steps|n_steps"),
    ("step", r"iter|iters|iteration|iterations|updates?|batch|checkpoint|total_steps"),
    ("step", r"_step"),
    ("tokens", r"tokens|num_tokens|n_tokens|total_tokens|tokens_seen|num_total_tokens"),
    ("tokens", r"total_num_tokens|num_step_tokens|step_tokens|\w+_tokens_seen"),
    ("samples", r"samples|episodes?|num_samples|prompts|rollouts|trajectories|num_episodes"),
    ("", r"epoch|epochs|x"),
]
COMPUTE_RULES = [(unit, re.compile(pattern)) for unit, pattern in COMPUTE]
PER_STEP_TOKENS = re.compile(r"total_num_tokens|num_step_tokens|step_tokens")


def compute_meaning(name: str) -> Meaning | None:
    """Return what a column counts if its name is known as a measure of compute.

    >>> compute_meaning("train/global_step")
    Meaning(unit='step', rank=(4, 1), per_step=False)
    """
    last = _plain(name).rsplit("/", 1)[-1]
    for rank, (unit, pattern) in enumerate(COMPUTE_RULES):
        if pattern.fullmatch(last):
            per_step = bool(PER_STEP_TOKENS.fullmatch(last))
            return Meaning(unit, (rank, int("/" in name)), per_step)
    return None


class Clock(NamedTuple):
    """A time column: hours in its unit, and what it shows.

    `shows` is ``elapsed`` (time since the start), ``per step`` (to be summed), ``date`` (seconds
    of an epoch) or ``unclear`` (elapsed if it never falls, otherwise per step).
    """

    hours: float
    shows: str


SECOND, MINUTE = 1 / 3600, 1 / 60
CLOCKS = [
    (r"step_time(?:_s)?|time_per_step|sec(?:onds)?_per_step|total_step_time", "per step"),
    (r"(?:time|timing|timing_s|timing/train|timing/\w+)/(?:total|step|step_total)", "per step"),
    (r"_runtime|runtime|wall_s|wall_?(?:clock)?_?(?:time)?_?(?:s|sec|seconds)?", "elapsed"),
    (r"relative_time.*|train_runtime|(?:total|cumulative|cum)_time(?:_s)?|elapsed_s", "elapsed"),
    (r"(?:wall_?(?:clock)?_?|elapsed_|train(?:ing)?_|time_)?(?:hours|hrs|h)", "elapsed"),
    (r"(?:wall_?(?:clock)?_?|elapsed_|train(?:ing)?_|time_)?(?:minutes|mins?)", "elapsed"),
    (r"elapsed(?:_time|_seconds|_sec)?|time(?:_s|_sec|_seconds)?|seconds|duration", "unclear"),
    (r"_?timestamp|unix_time|created_at", "date"),
]
CLOCK_RULES = [(re.compile(pattern), shows) for pattern, shows in CLOCKS]


def clock(name: str) -> Clock | None:
    """Return how to read a time column; None if the name is not one.

    >>> clock("elapsed_hours"), clock("time/total") == Clock(1 / 3600, "per step"), clock("step")
    (Clock(hours=1.0, shows='elapsed'), True, None)
    """
    plain = _plain(name)
    last = plain.rsplit("/", 1)[-1]
    for pattern, shows in CLOCK_RULES:
        if pattern.fullmatch(plain) or pattern.fullmatch(last):
            tail = re.split(r"[_/]", plain)[-1]
            if tail in ("hours", "hrs", "h"):
                return Clock(1.0, shows)
            return Clock(MINUTE if tail in ("minutes", "min", "mins") else SECOND, shows)
    return None


# ---------------------------------------------------------------- score

HELD_OUT = {"val", "valid", "validation", "eval", "evaluation", "test", "heldout", "held", "dev"}
RATE = {"pass", "passrate", "acc", "accuracy", "correct", "correctness", "success", "solve"}
RATE |= {"solved", "win", "winrate", "em", "f1"}
RATE_NAMES = RATE | {"rate", "percent", "percentage", "pct"}
SCORE = {"score", "scores", "performance"}
REWARD = {"reward", "rewards", "return"}
OVERALL = {"all", "overall", "agg", "average"}
TRAIN = {"train", "training"}

# A name with one of these words is never taken for a score: lengths, losses, spreads, times, …
TRAPS = {"length", "lengths", "len", "tokens", "token", "tok", "toks", "turns", "calls", "size"}
TRAPS |= {"loss", "losses", "nll", "perplexity", "ppl", "bpb", "crossentropyloss", "entropy"}
TRAPS |= {"kl", "kld", "logprob", "logprobs", "log", "prob", "probs", "ratio", "ratios"}
TRAPS |= {"std", "stdev", "stddev", "var", "variance", "stderr", "sem", "se", "ci", "median"}
TRAPS |= {"lo", "hi", "low", "high", "max", "min", "p25", "p50", "p75", "p90", "p95", "p99"}
TRAPS |= {"grad", "gradient", "norm", "lr", "learning", "optim", "coef", "weight", "temperature"}
TRAPS |= {"clip", "clipped", "clipfrac", "policy", "ref", "vf", "vpred", "value", "values"}
TRAPS |= {"advantage", "advantages", "adv", "returns", "penalty", "bonus", "margin", "margins"}
TRAPS |= {"time", "times", "timing", "timeperf", "sec", "secs", "second", "seconds", "hours"}
TRAPS |= {"duration", "runtime", "throughput", "speed", "mfu", "flops", "gpu", "memory", "mem"}
TRAPS |= {"step", "steps", "iter", "iteration", "epoch", "epochs", "batch", "batches", "progress"}
TRAPS |= {"count", "counts", "num", "n", "samples", "prompts", "rollouts", "trajectories", "items"}
TRAPS |= {"sequences", "id", "ids", "index", "rank", "seed", "version", "versions", "budget"}
TRAPS |= {"truncated", "truncation", "trunc", "stop", "overflow", "aborted", "timeout", "format"}
TRAPS |= {"error", "errors", "exception", "exceptions", "lag", "staleness", "verifications"}
TRAPS |= {"zero", "frac", "fraction", "delta", "dz", "p", "pvalue", "alpha", "beta", "gamma"}
TRAPS |= {"best", "maj", "worst", "aux", "lambda", "gb", "mb"}
TWINS = ("__min", "__max")  # W&B writes the extremes of each bin beside the value
GROUP_CENTRED = {"rollout/rewards", "rollout/advantages", "rollout/returns"}
EXACT_REWARD = {"reward": -3, "mean_reward": -2, "reward_mean": -2, "reward/mean": -2}
EXACT_REWARD |= {"reward_avg": -2, "avg_reward": -2, "raw_reward": -2, "train/reward": -2}
TIER_HELD_OUT, TIER_RATE, TIER_SCORE, TIER_REWARD, TIER_GENERIC = range(5)
AT_K = re.compile(r"(?:pass|pass_at_|pass@|pass\^)(\d+)")


def words(name: str) -> set[str]:
    """Return the words of a name, in lower case.

    >>> sorted(words("val-core/GSM8K/reward/mean@1"))
    ['1', 'core', 'gsm8k', 'mean', 'reward', 'val']
    """
    return set(re.split(r"[^a-z0-9]+", name.lower())) - {""}


def is_trap(name: str) -> bool:
    """Whether a name says that the column is no score: a loss, a length, a time, a spread."""
    lower = name.lower()
    return bool(words(name) & TRAPS) or lower in GROUP_CENTRED or lower.endswith(TWINS)


def says_rate(name: str) -> bool:
    """Whether a name says that its values are a share, so that 62.5 means 62.5 percent."""
    found = words(name)
    return bool(found & RATE_NAMES) or "%" in name or bool(AT_K.search(name.lower()))


def score_rank(name: str) -> tuple[int, int] | None:
    """Rank a column as the score to fit: held-out evaluation, then rates, scores, rewards.

    None if the name is a trap or says nothing.
    """
    found, lower = words(name), name.strip().lower()
    if lower in ("y", "value"):  # TensorBoard's CSV has Wall time, Step, Value
        return TIER_GENERIC, 0
    if is_trap(name):
        return None
    at_k = AT_K.search(lower)
    rate = bool(found & RATE) or at_k is not None
    reward = bool(found & REWARD)
    sub = EXACT_REWARD.get(lower, 0) if reward else 0
    sub += 2 * (at_k is not None and at_k[1] != "1") - bool(found & OVERALL)
    if _plain(name) == "pass_rate":
        return TIER_HELD_OUT, -9
    if found & HELD_OUT:
        return TIER_HELD_OUT, sub + reward
    sub += 3 * bool(found & TRAIN) * (lower != "train/reward")
    for tier, known in ((TIER_RATE, rate), (TIER_SCORE, found & SCORE), (TIER_REWARD, reward)):
        if known:
            return tier, sub
    return None


# ---------------------------------------------------------------- run and evaluation size

# The first names a run; the others may as well describe it, and do not where they never vary.
RUN_IDS = ["run", "run_id", "run_name", "experiment", "experiment_name", "experiment_id"]
RUN_IDS += ["exp", "exp_name", "curve_id"]
RUN_NAMES = [*RUN_IDS, "recipe", "condition", "variant", "method", "arm", "config", "setting"]
RUN_NAMES += ["treatment", "curve", "model", "model_name", "name", "seed"]
SIZE_NAMES = ("n_prompts × n_samples", "n_eval", "n_evals", "eval_n", "num_eval")
SPLITTERS = {"seed", "task", "dataset", "benchmark", "split", "fold", "env", "domain", "metric"}


def splits_runs(name: str) -> bool:
    """Whether a column of numbers may still be a label, such as a seed."""
    return bool(words(name) & SPLITTERS)


def _plain(name: str) -> str:
    return re.sub(r"[\s\-()]+", "_", name.strip().lower()).strip("_ ") if name[:1] != "_" else name
