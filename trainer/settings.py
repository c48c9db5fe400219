"""The settings: one frozen dataclass a concern, and the one place where they are checked.

The defaults are ScaleRL's objective (arXiv:2510.13786) at the size of the tiny model; the symbols
are those of ``losses.py`` and ``advantages.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainer.conflicts import of_engine, of_learner, of_reset
from trainer.errors import ConfigError

__all__ = ["SECTIONS", "Config", "check", "passes"]

PHRASE = (
    "Okay, time is up. Let me stop thinking and formulate a final answer now. </think>"  # ScaleRL
)


def _s(default: Any, meaning: str, choices: tuple[str, ...] = ()) -> Any:
    metadata = {"help": meaning, "choices": choices}
    if default is dict or default is list:
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Run:
    """Where the run lives and how long it lasts."""

    name: str = _s("", "folder under run.out; empty: recipe and seed")
    out: str = _s("runs", "folder of all runs")
    seed: int = _s(0, "seed of prompts, sampling and the tiny model")
    steps: int = _s(80, "optimiser steps")
    threads: int = _s(1, "torch threads in each process")
    gpus_train: int = _s(0, "accelerators held by the learner, for GPU-hours; 0: count them")
    gpus_generate: int = _s(0, "further accelerators held by generators; 0: count them")


@dataclass(frozen=True)
class Model:
    """The policy."""

    path: str = _s("", "model directory with its tokenizer; empty: make the tiny model")
    tiny: dict[str, Any] = _s(dict, "settings of the tiny model")  # noqa: RUF009 (a field)
    dtype: str = _s("float32", "of the weights; the head is float32", ("float32", "bfloat16"))
    device: str = _s("cpu", "cpu or cuda", ("cpu", "cuda"))
    attention: str = _s("sdpa", "the learner's attention", ("sdpa", "eager", "flash_attention_2"))


@dataclass(frozen=True)
class Task:
    """Where prompts and rewards come from."""

    name: str = _s("chain", "a registered task")
    seed: int = _s(0, "seed of its items")
    args: dict[str, Any] = _s(dict, "settings of the task itself")  # noqa: RUF009 (a field)
    workers: int = _s(1, "verifier processes")
    deadline_s: float = _s(10.0, "seconds a verification may take")


@dataclass(frozen=True)
class Sample:
    """How rollouts are drawn."""

    prompts: int = _s(32, "B, prompts a step")
    group: int = _s(16, "G, rollouts a prompt")
    max_tokens: int = _s(16, "completion budget; with thinking_tokens, budget of the whole")
    temperature: float = _s(1.0, "sampling temperature; the learner divides its logits by it too")
    top_p: float = _s(1.0, "below 1 refused: it renormalises what the learner cannot see")
    top_k: int = _s(0, "above 0 refused, for the same reason")
    thinking_tokens: int = _s(0, "thinking budget before the phrase is inserted; 0: off")
    answer_tokens: int = _s(0, "budget after the phrase")
    phrase: str = _s(PHRASE, "text inserted when the thinking budget is spent")
    stop: str = _s("</think>", "text that ends thinking")
    prompt_tokens: int = _s(2048, "longest prompt that is accepted")


@dataclass(frozen=True)
class Pipeline:
    """How generation and learning interleave."""

    mode: str = _s(
        "sync", "how generation and learning interleave", ("sync", "off-policy", "pipeline")
    )
    k: int = _s(0, "off-policy: steps a generated batch serves; pipeline: greatest staleness")
    keep_cache: bool = _s(True, "keep keys and values over an in-flight update")
    deadline_s: float = _s(300.0, "seconds that a generation or a weight update may take")


@dataclass(frozen=True)
class Engine:
    """What generates: the sampler here (local) or in a process, vllm here, or servers (served)."""

    kind: str = _s(
        "auto",
        "auto: local, or process in a pipeline",
        ("auto", "local", "process", "vllm", "served"),
    )
    placement: str = _s(
        "auto",
        "where engine and learner run; auto: by engine.kind",
        ("auto", "colocated", "split", "remote"),
    )
    addresses: list[str] = _s(list, "servers, host:port each")  # noqa: RUF009 (a field)
    transfer: str = _s(
        "auto",
        "how weights travel to servers; auto: file on a CPU, nccl on GPUs",
        ("auto", "file", "nccl", "ipc"),
    )
    folder: str = _s("", "shared folder of transfer = file; empty: a temporary one")
    slots: int = _s(512, "requests that run at the same time; further ones wait")
    max_length: int = _s(0, "longest prompt plus completion; 0: the model's own limit")
    start_s: float = _s(600.0, "seconds that servers started by the run have to become healthy")
    memory: float = _s(0.0, "vllm: share of the accelerator's memory; 0: by placement")
    tensor_parallel: int = _s(1, "vllm: accelerators that one copy of the model is spread over")
    eager: bool = _s(False, "vllm: no CUDA graphs, no compilation")


@dataclass(frozen=True)
class Learner:
    """How the policy is differentiated; ranks come from torchrun."""

    compute: str = _s(
        "same", "dtype of the passes; bfloat16 keeps float32 weights", ("same", "bfloat16")
    )
    packing: bool = _s(False, "several samples a row, attention kept within each")
    micro_tokens: int = _s(0, "packing: tokens a backward pass, at least a sample; 0: all")
    checkpointing: bool = _s(False, "recompute activations in the backward pass")
    reshard: bool = _s(True, "FSDP2: free gathered weights after the forward pass")
    deadline_s: float = _s(300.0, "seconds that ranks wait for one another")
    lora_rank: int = _s(0, "rank of LoRA adapters; 0: all weights are trained")
    lora_alpha: float = _s(32.0, "LoRA's scale is lora_alpha / lora_rank")
    lora_targets: list[str] = _s(list, "modules with adapters; empty: all linear ones")  # noqa: RUF009


@dataclass(frozen=True)
class Curriculum:
    """Which prompts are drawn and which groups are learned from."""

    filter_zero_variance: bool = _s(True, "drop groups whose rewards are all equal")
    tolerance: float = _s(1e-6, "rewards this close are equal")
    retire_above: float = _s(
        0.9, "No-Positive-Resampling: pass rate at which a prompt retires; 0: off"
    )
    refill: bool = _s(False, "dynamic sampling: draw on until the batch is full of live groups")
    refill_rounds: int = _s(10, "batches that dynamic sampling may draw for a step")
    floor: float = _s(0.1, "stop when this share of a finite pool is left")
    pool: int = _s(0, "use the task's first items only; 0: all")


@dataclass(frozen=True)
class Loss:
    """The objective; the symbols are those of losses.py."""

    name: str = _s("cispo", "policy loss", ("cispo", "clip", "gspo"))
    advantage: str = _s("batch", "scale of advantages", ("prompt", "batch", "none", "loo", "token"))
    aggregation: str = _s("prompt", "mean over", ("token", "sample", "prompt", "constant"))
    anchor: str = _s("sampler", "denominator of the ratio", ("sampler", "old"))
    clip_low: float = _s(0.2, "1 - clip_low is the lower bound of the ratio")
    clip_high: float = _s(0.2, "1 + clip_high is the upper bound of the ratio")
    dual_clip: float = _s(0.0, "bound of the ratio for negative advantages; 0: off")
    is_cap: float = _s(5.0, "CISPO: greatest importance weight, absolute (not 1 + something)")
    tis_cap: float = _s(0.0, "truncated importance sampling from μ to old; 0: off")
    length_constant: int = _s(0, "L_max of the constant aggregation; 0: sample.max_tokens")
    mask_truncated: bool = _s(False, "truncated samples carry no gradient")
    renormalise: bool = _s(True, "masked samples leave the denominator too")


@dataclass(frozen=True)
class Reward:
    """Shaping of the verifier's reward."""

    overlong_max: int = _s(0, "L_max of DAPO's overlong shaping; 0: off")
    overlong_cache: int = _s(0, "L_cache: tokens before L_max over which the penalty grows to 1")


@dataclass(frozen=True)
class Kl:
    """The pull to the reference policy: the model that the run started from, or the last reset."""

    coef: float = _s(0.0, "β; 0: no reference is kept")
    estimator: str = _s("k2", "k1, k2 or k3", ("k1", "k2", "k3"))
    place: str = _s("loss", "in the loss or in the reward", ("loss", "reward"))


@dataclass(frozen=True)
class Reset:
    """ProRL's reset of reference and optimiser; the rule stands in reset.py. All 0: never."""

    stall_evals: int = _s(
        0, "W: reset when the best pass rate has not risen in so many evaluations"
    )
    min_gain: float = _s(0.0, "δ: a rise of the best that is no larger counts as none")
    drop_se: float = _s(0.0, "z: reset when two evaluations running are so many errors below best")
    kl_above: float = _s(0.0, "κ: reset when the mean KL since the last evaluation is above")
    every_evals: int = _s(0, "N: reset after so many evaluations in any case (ProRLv2)")
    optimizer: bool = _s(True, "forget AdamW's moments too (ProRL); false: keep them (ProRLv2)")


@dataclass(frozen=True)
class Optim:
    """AdamW and what surrounds a step."""

    lr: float = _s(1e-3, "learning rate after warm-up, constant")
    beta1: float = _s(0.9, "AdamW")
    beta2: float = _s(0.999, "AdamW")
    eps: float = _s(1e-8, "AdamW")
    weight_decay: float = _s(0.0, "AdamW")
    warmup: int = _s(5, "steps of linear warm-up")
    clip: float = _s(1.0, "greatest gradient norm; 0: off")
    micro_batch: int = _s(0, "samples a backward pass; 0: all")
    max_skipped: int = _s(3, "non-finite steps in a row that stop the run")


@dataclass(frozen=True)
class Eval:
    """Held-out evaluation."""

    every: int = _s(5, "steps between evaluations")
    prompts: int = _s(128, "held-out prompts")
    samples: int = _s(4, "rollouts a prompt")
    temperature: float = _s(1.0, "sampling temperature")
    top_p: float = _s(1.0, "probability of the likeliest tokens that are drawn from")
    ks: list[int] = _s(list, "k of pass@k; empty: 1 and eval.samples")  # noqa: RUF009 (a field)
    seed: int = _s(1234, "its own seed")


@dataclass(frozen=True)
class Watch:
    """What an alarm does; thresholds stand in watch.py with their sources."""

    on_critical: str = _s("warn", "action of critical alarms", ("warn", "checkpoint", "abort"))
    hang_s: float = _s(900.0, "seconds without a step that stop the run")


@dataclass(frozen=True)
class Checkpoint:
    """Exact resume."""

    every: int = _s(20, "steps between checkpoints; 0: only at the end")
    keep: int = _s(2, "checkpoints kept")


@dataclass(frozen=True)
class Config:
    """All settings of a run."""

    run: Run = field(default_factory=Run)
    model: Model = field(default_factory=Model)
    task: Task = field(default_factory=Task)
    sample: Sample = field(default_factory=Sample)
    pipeline: Pipeline = field(default_factory=Pipeline)
    engine: Engine = field(default_factory=Engine)
    learner: Learner = field(default_factory=Learner)
    curriculum: Curriculum = field(default_factory=Curriculum)
    loss: Loss = field(default_factory=Loss)
    reward: Reward = field(default_factory=Reward)
    kl: Kl = field(default_factory=Kl)
    reset: Reset = field(default_factory=Reset)
    optim: Optim = field(default_factory=Optim)
    eval: Eval = field(default_factory=Eval)
    watch: Watch = field(default_factory=Watch)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)


def passes(config: Config) -> str:
    """Return the dtype in which the model computes, on both sides."""
    return "bfloat16" if config.learner.compute == "bfloat16" else config.model.dtype


SECTIONS: dict[str, type] = {
    c.__name__.lower(): c
    for c in (
        Run,
        Model,
        Task,
        Sample,
        Pipeline,
        Engine,
        Learner,
        Curriculum,
        Loss,
        Reward,
        Kl,
        Reset,
        Optim,
        Eval,
        Watch,
        Checkpoint,
    )
}


def check(config: Config) -> None:
    """Refuse what cannot be right, before anything is loaded; the first problem is raised."""
    for problem, message in [
        *_problems(config),
        *of_engine(config),
        *of_learner(config),
        *of_reset(config),
    ]:
        if problem:
            raise ConfigError(message)


def _code_time(task: Task) -> tuple[bool, str]:
    default = 8.0  # of trainer.sandbox.Limits
    totals = [args.get("total_s", default) for args in _args_of(task, "code")]
    total = max((t for t in totals if isinstance(t, (int, float))), default=0.0)
    return (
        total > 0 and total + 1.5 > task.deadline_s,
        f"task.deadline_s = {task.deadline_s:g} is too short for task.args.total_s = {total}: a "
        "slow program must score 0, not time out the verifier; leave 1.5 seconds between them",
    )


def _args_of(task: Task, name: str) -> list[dict[str, Any]]:
    """Settings of a task by its name, alone or in a mixture, whose tables are checked later."""
    tables: Any = [{"name": task.name, "args": task.args}]
    if task.name == "mixture" and isinstance(task.args.get("tasks"), list):
        tables = task.args["tasks"]
    named = [t.get("args", {}) for t in tables if isinstance(t, dict) and t.get("name") == name]
    return [args for args in named if isinstance(args, dict)]


def _problems(c: Config) -> list[tuple[bool, str]]:
    s, p, lo, kl = c.sample, c.pipeline, c.loss, c.kl
    thinking = s.thinking_tokens > 0
    return [
        (
            lo.is_cap < 1,
            f"loss.is_cap = {lo.is_cap:g} is below 1; it is the absolute cap of the importance "
            "weight, not an addition to 1: 5 is ScaleRL's value",
        ),
        (
            s.top_p < 1 or s.top_k > 0,
            f"sample.top_p = {s.top_p:g}, sample.top_k = {s.top_k}: training needs top_p = 1 and "
            "top_k = 0, else the sampler's log-probabilities are of another distribution",
        ),
        (s.temperature <= 0, f"sample.temperature = {s.temperature:g} must be above 0"),
        (s.prompts < 1 or s.group < 1, "sample.prompts and sample.group must be at least 1"),
        (
            lo.advantage in ("prompt", "loo") and s.group < 2,
            f"loss.advantage = {lo.advantage} needs sample.group of at least 2",
        ),
        (s.max_tokens < 1, f"sample.max_tokens = {s.max_tokens} must be at least 1"),
        (
            thinking and s.answer_tokens < 1,
            "sample.thinking_tokens needs sample.answer_tokens: give the answer a budget",
        ),
        (
            p.mode == "sync" and p.k != 0,
            f"pipeline.k = {p.k} with pipeline.mode = sync: set pipeline.mode to off-policy or "
            "pipeline, or pipeline.k to 0",
        ),
        (
            p.mode != "sync" and p.k < 1,
            f"pipeline.mode = {p.mode} needs pipeline.k of at least 1",
        ),
        (
            p.mode == "pipeline" and lo.anchor == "old",
            "loss.anchor = old has no meaning in a pipeline, where a rollout has tokens of several "
            "weights: set loss.anchor to sampler",
        ),
        (
            lo.tis_cap > 0 and lo.anchor == "sampler",
            "loss.tis_cap corrects an old anchor; with loss.anchor = sampler it would correct "
            "twice: set loss.tis_cap to 0",
        ),
        (
            lo.anchor == "old" and lo.name == "cispo" and p.mode == "sync",
            "loss.name = cispo with loss.anchor = old and one step a batch has ratio 1 everywhere, "
            "so is_cap never acts: set loss.anchor to sampler",
        ),
        (
            kl.coef > 0 and kl.place == "loss" and kl.estimator == "k1",
            "kl.estimator = k1 in the loss has expected gradient 0: use k2, or kl.place = reward",
        ),
        (
            (c.reward.overlong_max > 0) != (c.reward.overlong_cache > 0),
            "reward.overlong_max and reward.overlong_cache go together: set both or neither",
        ),
        (not 0 <= c.curriculum.retire_above <= 1, "curriculum.retire_above must be within 0 and 1"),
        (c.run.steps < 1 or c.eval.every < 1, "run.steps and eval.every must be at least 1"),
        _code_time(c.task),
        (
            not 0 < c.eval.top_p <= 1,
            f"eval.top_p = {c.eval.top_p:g} must be above 0 and at most 1",
        ),
        (
            max(c.eval.ks, default=1) > c.eval.samples,
            f"eval.ks = {c.eval.ks} asks for more than eval.samples = {c.eval.samples} rollouts",
        ),
    ]
