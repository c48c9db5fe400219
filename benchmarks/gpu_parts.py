"""The parts of ``gpu.py``; each is a function of its options and returns figures."""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trainer import setup
from trainer.batch import make_batch, shaped_rewards
from trainer.config import load
from trainer.engine import open_engine
from trainer.engine.base import Completion, Request, SamplingParams, generate
from trainer.hardware import hardware
from trainer.learner import Learner
from trainer.modelsize import Shape, read_shape
from trainer.plan import Setup, estimate
from trainer.ranks import joined
from trainer.settings import Config
from trainer.types import Group, Prompt, Rollout

numbers = itertools.count()


class Size:
    """How much work: the tiny model and a little, or Qwen3-0.6B and enough to fill a GPU."""

    def __init__(self, tiny: bool) -> None:
        self.prompts, self.group = (4, 4) if tiny else (32, 8)
        self.prompt, self.length = (9, 16) if tiny else (128, 512)
        self.steps = 6 if tiny else 12
        self.square = 512 if tiny else 8192
        self.micro = 0 if tiny else 16


def run(options: argparse.Namespace) -> dict:
    """Run the part that `options` names."""
    import gpu_runs

    parts: dict[str, Callable[[argparse.Namespace, Size], dict]] = {
        "peak": peak,
        "parity": parity,
        "swap": swap,
        "engine": engine,
        "learner": learner,
        "k0": lambda o, size: gpu_runs.whole(o, size, pipelined=False),
        "k8": lambda o, size: gpu_runs.whole(o, size, pipelined=True),
        "trl": gpu_runs.trl,
    }
    if options.device == "cpu":
        torch.set_num_threads(1)
    return parts[options.part](options, Size(options.tiny))


# Models and settings


def directory(options: argparse.Namespace) -> Path:
    """The model: tiny, or Qwen3-0.6B's dimensions with random weights, made once."""
    from trainer.tinymodel import make_tiny_model

    tiny = make_tiny_model()
    if options.tiny:
        return tiny
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    path = Path(options.folder) / "qwen3-0.6b-random"
    if not (path / "config.json").exists():
        settings = AutoConfig.for_model(
            "qwen3",
            vocab_size=151_936,
            hidden_size=1024,
            intermediate_size=3072,
            num_hidden_layers=28,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=128,
            tie_word_embeddings=True,
            max_position_embeddings=40_960,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
        torch.manual_seed(0)
        AutoTokenizer.from_pretrained(tiny).save_pretrained(path)
        AutoModelForCausalLM.from_config(settings, dtype=torch.float32).save_pretrained(path)
    return path


def flags(options: argparse.Namespace, size: Size) -> list[str]:
    """The settings that all parts share."""
    on_gpu = options.device == "cuda"
    out = ["--model.path", str(directory(options)), "--model.device", options.device]
    out += ["--learner.compute", "bfloat16"] if on_gpu and not options.tiny else []
    out += ["--sample.prompts", str(size.prompts), "--sample.group", str(size.group)]
    out += ["--sample.max_tokens", str(size.length), "--optim.micro_batch", str(size.micro)]
    out += ["--optim.lr", "1e-6", "--curriculum.filter_zero_variance", "false"]
    out += ["--curriculum.retire_above", "0"]
    return out if options.tiny else [*out, "--engine.max_length", "1024"]


def settings(options: argparse.Namespace, size: Size, *more: str) -> Config:
    """The settings as a Config."""
    return load([], None, [*flags(options, size), *more])


def open_one(options: argparse.Namespace, config: Config) -> Any:
    """The engine in this process, with the whole device but the learner's half."""
    more: dict[str, Any] = {"memory": 0.4} if options.engine == "vllm" else {}
    dtype = "bfloat16" if config.learner.compute == "bfloat16" else config.model.dtype
    length = 256 if options.tiny else 1024
    return open_engine(
        options.engine,
        config.model.path,
        device=options.device,
        dtype=dtype,
        max_length=length,
        **more,
    )


def requests(shape: Shape, size: Size, seed: int = 0) -> list[Request]:
    """The prompts of a step, each `group` times, that all run to the full length."""
    g = torch.Generator().manual_seed(seed)
    out = []
    for _ in range(size.prompts):
        ids = torch.randint(3, shape.V, (size.prompt,), generator=g).tolist()
        for _ in range(size.group):
            n = next(numbers)
            out.append(Request(n, tuple(ids), SamplingParams(size.length, seed=n)))
    return out


def groups(asked: list[Request], done: list[Completion], size: Size) -> list[Group]:
    """Completions as the learner takes them."""
    out = []
    for i in range(size.prompts):
        part = slice(i * size.group, (i + 1) * size.group)
        prompt = Prompt(str(i), asked[part][0].ids, None, None, i)
        rollouts = [
            Rollout(
                group=i,
                prompt_id=prompt.id,
                prompt_ids=list(prompt.ids),
                ids=list(c.ids),
                logprobs=list(c.logprobs),
                mask=[1] * len(c.ids),
                finish_reason=c.finish_reason,
                versions=[tuple(s) for s in c.spans],
                reward=float(j % 2),
            )
            for j, c in enumerate(done[part])
        ]
        out.append(Group(i, prompt, rollouts))
    return out


def clock(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


# Parts


def peak(options: argparse.Namespace, size: Size) -> dict:
    """Best of ten: FLOP/s of square products, byte/s of a copy (read and written)."""

    def product(dtype: torch.dtype) -> float:
        a = torch.randn(size.square, size.square, device=options.device).to(dtype)
        return best(lambda: a @ a, 2 * size.square**3)

    def best(call: Callable[[], object], units: float) -> float:
        call()
        seconds = []
        for _ in range(10):
            start = clock(options.device)
            call()
            seconds.append(clock(options.device) - start)
        return units / min(seconds)

    x = torch.empty(2**22 if options.tiny else 2**29, device=options.device)
    y = torch.empty_like(x)
    low = torch.float32 if options.device == "cpu" else torch.bfloat16
    return {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "flops": product(low),
        "flops_fp32": product(torch.float32),
        "bytes": best(lambda: y.copy_(x), 2 * 4 * x.numel()),
    }


def parity(options: argparse.Namespace, size: Size) -> dict:
    """Engine's log-probabilities against the learner's of the same completions, in nats."""
    config = settings(options, size)
    asked = requests(read_shape(config.model.path), size)
    opened = open_one(options, config)
    done = generate(opened, asked)
    opened.close()
    with joined(config):
        model, _ = setup.load_model(Path(config.model.path), config)
        gap = difference(Learner(model, config), config, asked, done, size)
    return {"tokens": sum(len(c.ids) for c in done), **gap}


def difference(
    learner: Learner, config: Config, asked: list[Request], done: list[Completion], size: Size
) -> dict:
    """Mean and greatest difference of log-probabilities over all tokens."""
    made = groups(asked, done, size)
    batch = make_batch(made, shaped_rewards(made, config), config)
    ours = learner.logprobs(batch, temperature=1.0).cpu()
    gap = (ours - batch.logprobs)[batch.mask > 0].abs()
    return {"mean_gap": float(gap.mean()), "max_gap": float(gap.max())}


def swap(options: argparse.Namespace, size: Size) -> dict:
    """New weights while requests run, the cache computed anew, and kept."""
    config = settings(options, size)
    shape = read_shape(config.model.path)
    model, _ = setup.load_model(Path(config.model.path), config)
    opened = open_one(options, config)
    out: dict[str, Any] = {}
    for version, (name, keep) in enumerate((("rebuilt", False), ("kept", True)), start=1):
        weights = {k: v * (1 + 0.01 * version) for k, v in model.state_dict().items()}
        opened.submit(requests(shape, size, version))
        for _ in range(size.length // 2):
            opened.collect(0.0)
        start = clock(options.device)
        opened.pause(keep_cache=keep)
        opened.update(version, weights)
        opened.resume()
        seconds = clock(options.device) - start
        done: list[Completion] = []
        while opened.running:
            done += opened.collect(1.0)
        both = sum(len(c.spans) == 2 and c.spans[-1].version == version for c in done)
        size_bytes = sum(w.numel() * w.element_size() for w in weights.values())
        out[name] = {
            "seconds": seconds,
            "bytes_per_s": size_bytes / seconds,
            "with_both_versions": both / len(done),
        }
    opened.close()
    return out


def engine(options: argparse.Namespace, size: Size) -> dict:
    """Tokens a second, median of five."""
    config = settings(options, size)
    shape = read_shape(config.model.path)
    opened = open_one(options, config)
    rates = []
    for seed in range(6):
        asked = requests(shape, size, seed)
        start = clock(options.device)
        done = generate(opened, asked)
        rates.append(sum(len(c.ids) for c in done) / (clock(options.device) - start))
    opened.close()
    rate = statistics.median(rates[1:])
    context = size.prompt + size.length / 2
    c = 2 if config.learner.compute == "bfloat16" else 4
    batch = size.prompts * size.group
    moved = c * (shape.body + shape.head) / batch + context * shape.kv_bytes(c)
    flop = 2 * (shape.body + shape.head) + shape.attention_flop(context)
    plan = planned(options, size, config, shape)
    return {
        "tokens_per_s": rate,
        "flops": rate * flop,
        "bytes": rate * moved,
        "of_plan": rate / plan.generate_rate,
    }


def learner(options: argparse.Namespace, size: Size) -> dict:
    """Seconds of an optimiser step, median of five after two."""
    config = settings(options, size)
    shape = read_shape(config.model.path)
    asked = requests(shape, size)
    g = torch.Generator().manual_seed(1)
    done = [
        Completion(
            r.id,
            torch.randint(3, shape.V, (size.length,), generator=g).tolist(),
            [-1.0] * size.length,
            "length",
        )
        for r in asked
    ]
    made = groups(asked, done, size)
    for group in made:
        for rollout in group.rollouts:
            rollout.versions = [(0, 0, size.length)]
    batch = make_batch(made, shaped_rewards(made, config), config)
    seconds = []
    with joined(config):
        model, _ = setup.load_model(Path(config.model.path), config)
        ours = Learner(model, config)
        for _ in range(7):
            start = clock(options.device)
            ours.step(batch)
            seconds.append(clock(options.device) - start)
    tokens = size.prompts * size.group * size.length
    rate = tokens / statistics.median(seconds[2:])
    reach = size.prompt + size.length / 2
    flop = 6 * (shape.body + shape.head) + 3 * shape.attention_flop(reach)
    return {
        "tokens_per_s": rate,
        "flops": rate * flop,  # prompts left out, so a share that is told is at least reached
        "of_plan": rate / planned(options, size, config, shape).learn_rate,
        "memory": torch.cuda.max_memory_allocated() if options.device == "cuda" else None,
    }


def planned(options: argparse.Namespace, size: Size, config: Config, shape: Shape) -> Any:
    """The planner's estimate of the same work on this device, or on the nearest it knows."""
    from trainer.costs import Work

    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu-core"
    known = ("GB200", "H200", "H100", "A100", "L40S")
    kind = next((k for k in known if k in name), "cpu-core" if name == "cpu-core" else "H100")
    device = hardware("A100-80" if kind == "A100" else kind)
    work = Work(
        size.prompts,
        size.group,
        size.prompt,
        size.length,
        size.length,
        micro=size.micro * (size.prompt + size.length),
    )
    return estimate(Setup(config, shape, device, work), "colocated", 1, 0)
