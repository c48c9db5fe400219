"""``train-rl plan``: estimate memory, speed and GPU-hours before anything is bought or started.

    train-rl plan --recipe scalerl --model.path DIR --hardware H100 --gpus 8 --gpus 16
    train-rl plan --params 8e9 --hardware H200 --model.dtype bfloat16 --json

Prints what the placement of the settings would cost, then the best splits of each ``--gpus``, then
every assumption that went in.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trainer.costs import Work
from trainer.errors import ConfigError
from trainer.hardware import hardware, names
from trainer.modelsize import Shape, read_shape, shape_of
from trainer.placement import Machine, resolve
from trainer.plan import Plan, Setup, estimate, splits
from trainer.settings import Config

__all__ = ["main", "make_setup", "record", "report"]

SCHEMA = "trainer-plan/1"
SHOWN = 3  # best splits

HELP = f"""usage: train-rl plan [CONFIG.toml] [--recipe NAME]... [--section.key VALUE]... [options]

Estimate memory, tokens a second and GPU-hours of a run, and say which side waits.

  --hardware NAME       {", ".join(names())};
                        default: H100, or cpu-core when model.device = cpu
  --hardware.KEY VALUE  a number of its data sheet or a share of it that is reached:
                        peak, peak_fp32, bandwidth, memory, link, network, mfu, mfu_fp32, mbu,
                        overhead
  --params N            size in place of --model.path: a model of Llama's proportions
  --gpus N              suggest how to split N devices; may be given several times
  --train N             learner devices of the placement itself (torchrun's ranks; default 1)
  --length N            tokens of the mean completion; default: half of sample.max_tokens
  --prompt N            tokens of a prompt; default: an eighth of sample.prompt_tokens
  --live SHARE          of samples that are learned from; default 1
  --per-machine N       devices of one machine; default 8
  --json                the same as JSON on stdout"""


@dataclass
class Options:
    """Flags of this command alone."""

    hardware: str = ""
    overrides: dict[str, float] = field(default_factory=dict)
    gpus: list[int] = field(default_factory=list)
    json: bool = False
    numbers: dict[str, float] = field(default_factory=dict)


def main(arguments: list[str]) -> int:
    """Run ``train-rl plan``; return the exit code."""
    from trainer.cli import resolve_config, split

    if "-h" in arguments or "--help" in arguments:
        print(HELP)
        return 0
    rest, options = _options(arguments)
    config, _ = resolve_config(split(rest))
    setup = make_setup(config, options)
    where, train, generate = _placed(setup.config, options)
    own = estimate(setup, where, train, generate)
    best = {n: splits(setup, n) for n in options.gpus}
    if options.json:
        print(json.dumps(record(setup, own, best), indent=1))
    else:
        print(report(setup, own, best))
    return 0


NUMBERS = ("--params", "--train", "--length", "--prompt", "--live", "--per-machine", "--gpus")


def _options(arguments: list[str]) -> tuple[list[str], Options]:
    """Take this command's own flags out of the words."""
    rest, out, words = [], Options(), list(arguments)
    while words:
        word = words.pop(0)
        name, eq, value = word.partition("=")
        if word == "--json":
            out.json = True
        elif name in NUMBERS or name == "--hardware" or name.startswith("--hardware."):
            if not eq and not words:
                raise ConfigError(f"{name} needs a value")
            _take(out, name, value if eq else words.pop(0))
        else:
            rest.append(word)
            if word.startswith("--") and not eq and words and word != "--dry-run":
                rest.append(words.pop(0))
    return rest, out


def _take(out: Options, name: str, value: str) -> None:
    if name == "--hardware":
        out.hardware = value
        return
    try:
        number = float(value)
    except ValueError as e:
        raise ConfigError(f"{name} {value}: not a number") from e
    if not 0 < number < float("inf"):
        raise ConfigError(f"{name} {value}: must be above 0")
    if name == "--gpus":
        out.gpus.append(int(number))
    elif name.startswith("--hardware."):
        out.overrides[name.removeprefix("--hardware.")] = number
    else:
        out.numbers[name.removeprefix("--")] = number


def make_setup(config: Config, options: Options) -> Setup:
    """Put together what the plan is for; without --hardware a CPU stays a CPU."""
    kind = options.hardware or ("cpu-core" if config.model.device == "cpu" else "H100")
    device = hardware(kind, options.overrides)
    if not kind.startswith("cpu"):
        config = replace(config, model=replace(config.model, device="cuda"))
    numbers = options.numbers
    live = numbers.get("live", 1.0)
    if live > 1:
        raise ConfigError(f"--live {live:g} is a share: at most 1")
    s, learner = config.sample, config.learner
    length = numbers.get("length", s.max_tokens / 2)
    prompt = numbers.get("prompt", s.prompt_tokens / 8)
    ranks = numbers.get("train", 1) > 1 or max(options.gpus, default=1) > 2
    sharded = ranks or learner.compute != "same"  # where prompts are not shared through a cache
    repeated = learner.packing or learner.checkpointing or sharded
    per_sample = prompt + s.max_tokens
    micro = learner.micro_tokens or config.optim.micro_batch * per_sample
    work = Work(s.prompts, s.group, prompt, length, s.max_tokens, live, repeated, micro)
    return Setup(config, _shape(config, numbers), device, work, int(numbers.get("per-machine", 8)))


def _shape(config: Config, numbers: dict[str, float]) -> Shape:
    if "params" in numbers:
        return shape_of(numbers["params"])
    if config.model.path:
        return read_shape(config.model.path)
    from trainer.setup import tiny_settings
    from trainer.tinymodel import VOCABULARY

    t = tiny_settings(config)
    heads = t.hidden // 32
    norms = 2 * t.hidden + (64 if t.kind == "qwen3" else 0)
    return Shape(
        t.hidden,
        t.layers,
        heads,
        heads,
        32,
        3 * t.hidden,
        len(VOCABULARY),
        tied=True,
        extra=norms,
        qk_norm=t.kind == "qwen3",
        name="the tiny model",
    )


def _placed(config: Config, options: Options) -> tuple[str, int, int]:
    """The placement of the settings, as a run with ``--train`` ranks would decide it."""
    ranks = int(options.numbers.get("train", config.run.gpus_train or 1))
    run = replace(config.run, gpus_train=0)
    placement = resolve(replace(config, run=run), Machine(world=ranks, local_world=ranks))
    return placement.choice.where, ranks, placement.gpus_generate


# Faces


def record(setup: Setup, own: Plan, best: dict[int, list[Plan]]) -> dict[str, Any]:
    """The plan as JSON keeps it."""
    s, work = setup.shape, setup.work
    return {
        "schema": SCHEMA,
        "model": {**asdict(s), "parameters": s.parameters, "kv_bytes": s.kv_bytes(_c(setup))},
        "hardware": asdict(setup.hardware),
        "work": {**asdict(work), "samples": work.samples, "mode": setup.config.pipeline.mode},
        "plan": asdict(own),
        "splits": {str(n): [asdict(p) for p in plans[:SHOWN]] for n, plans in best.items()},
        "assumptions": assumptions(setup),
    }


def report(setup: Setup, own: Plan, best: dict[int, list[Plan]]) -> str:
    """The plan as text."""
    s, hw, work = setup.shape, setup.hardware, setup.work
    lines = [
        f"{s.name}: {_si(s.parameters)} parameters, {s.kv_bytes(_c(setup)):,} bytes of cache for "
        "a token",
        f"{hw.name}: {_si(hw.memory)}B, {_si(hw.peak)}FLOP/s, {_si(hw.bandwidth)}B/s",
        f"a step: {work.prompts} prompts x {work.group} samples of {work.length:g} tokens, "
        f"mode {setup.config.pipeline.mode}",
        "",
        *_own(setup, own),
    ]
    for n, plans in best.items():
        lines += ["", *_suggestion(setup, n, plans)]
    lines += ["", "assumed:", *(f"  {line}" for line in assumptions(setup))]
    return "\n".join(lines)


def _own(setup: Setup, p: Plan) -> list[str]:
    memory = setup.hardware.memory
    devices = f"{p.train} learner" + (f" + {p.generate} generator" if p.generate else "")
    return [
        f"{p.where}, {devices} device(s){'' if p.fits else ': DOES NOT FIT'}",
        f"  learner  {_parts(p.learner_bytes)} of {_si(memory)}B a device",
        f"  engine   {_parts(p.engine_bytes)}, {p.slots:.0f} requests at a time",
        f"  generate {_si(p.generate_rate)}tok/s, {_time(p.generate_s)} a step",
        f"  learn    {_si(p.learn_rate)}tok/s, {_time(p.learn_s)} a step "
        f"(head {p.learn_parts['head'] / p.learn_s:.0%})",
        f"  sync     {_time(p.sync_s)}, {p.sync_s / p.step_s:.1%} of a step",
        f"  step     {_time(p.step_s)}; 100 steps cost {p.gpu_hours:.3g} device-hours",
        f"  idle     learner {p.idle['learner']:.0%}, generators {p.idle['generator']:.0%}; "
        f"waits: {p.waits}",
    ]


def _suggestion(setup: Setup, n: int, plans: list[Plan]) -> list[str]:
    if not plans:
        return [
            f"{n} device(s): nothing fits; more devices, learner.checkpointing, or a smaller "
            "optim.micro_batch or engine.memory"
        ]
    lines = [f"{n} device(s), best first:"]
    lines.append("  learn  generate  step      100 steps  learner idle  generators idle  waits")
    for p in plans[:SHOWN]:
        lines.append(
            f"  {p.train:5d}  {p.generate:8d}  {_time(p.step_s):8s}  {p.gpu_hours:7.3g} h  "
            f"{p.idle['learner']:12.0%}  {p.idle['generator']:15.0%}  {p.waits}"
        )
    return lines


def assumptions(setup: Setup) -> list[str]:
    """Everything that went in and was not measured on the user's machine."""
    hw, work = setup.hardware, setup.work
    lines = [
        f"learning and prefill reach {hw.mfu:.0%} of peak, float32 products {hw.mfu_fp32:.0%} of "
        f"{_si(hw.peak_fp32)}FLOP/s, decoding {hw.mbu:.0%} of the bandwidth",
        f"{hw.overhead * 1e3:g} ms of every decoding step are overhead",
        f"completions have {work.length:g} tokens on average and {work.longest:g} at most, prompts "
        f"{work.prompt:g}; {work.live:.0%} of the samples are learned from",
        f"link {_si(hw.link)}B/s within a machine of {setup.per_machine}, network "
        f"{_si(hw.network)}B/s a device",
        "left out: verification, evaluation, start-up, communication of tensor parallelism",
        f"device figures: {hw.source}",
    ]
    if setup.hardware.peak > 1e12 and setup.precision.c == 4:
        lines.insert(
            0,
            "passes and engine in float32, as model.dtype says: learner.compute = bfloat16 is "
            "what such a device is made for",
        )
    return lines


def _c(setup: Setup) -> int:
    return setup.precision.c


def _parts(parts: dict[str, float]) -> str:
    inside = ", ".join(
        f"{name} {_si(v)}B" for name, v in parts.items() if name != "total" and v > 0
    )
    return f"{_si(parts['total'])}B ({inside})"


def _si(x: float) -> str:
    for factor, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if x >= factor:
            return f"{x / factor:.3g} {unit}"
    return f"{x:.3g} "


def _time(seconds: float) -> str:
    if seconds >= 120:
        return f"{seconds / 60:.3g} min"
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{seconds * 1e3:.3g} ms"
