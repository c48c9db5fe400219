"""Who runs where: learner ranks, generators and verifiers, from the settings and the machine.

::

    colocated   the engine in the learner's process: on a GPU it sleeps while the learner works
    split       generators on devices of their own on this machine, started and ended by the run
    remote      generators are servers that run already, at ``engine.addresses``

`resolve` decides from settings and ranks alone and refuses contradictions, so that a dry run works
on any machine; `fit` then holds the decision against the devices that are really here.
Nothing here imports torch before a GPU is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import NamedTuple

from trainer.conflicts import contradictions, refuse, unfit
from trainer.settings import Config

__all__ = [
    "FIRST_PORT",
    "Choice",
    "Machine",
    "Placement",
    "Role",
    "fit",
    "here",
    "placed",
    "resolve",
]

FIRST_PORT = 8100  # of servers shown in a dry run; a run takes free ports


@dataclass(frozen=True)
class Machine:
    """What a process sees of where it was started.

    Parameters
    ----------
    world, local_world : int
        Learner ranks in all and on this machine, as torchrun sets them.
    devices : tuple of str or None
        CUDA devices by the names that CUDA_VISIBLE_DEVICES uses; None: not asked.
    vllm : bool
        Whether vLLM is installed.
    """

    world: int = 1
    local_world: int = 1
    devices: tuple[str, ...] | None = None
    vllm: bool = True


class Choice(NamedTuple):
    """What ``auto`` came to.

    Parameters
    ----------
    kind : {"local", "process", "vllm", "served"}
        The engine that the learner's rank 0 opens.
    where : {"colocated", "split", "remote"}
    software : {"local", "vllm"}
        What generates, in whichever process.
    transfer : {"memory", "file", "nccl", "ipc"}
        How weights travel to it: within the machine's memory, as a file, between GPUs, within one.
    """

    kind: str
    where: str
    software: str
    transfer: str


@dataclass(frozen=True)
class Role:
    """One line of a dry run: who, on which machine and devices, and doing what."""

    name: str
    machine: str
    devices: tuple[str, ...]
    what: str


@dataclass(frozen=True)
class Placement:
    """The decision.

    Parameters
    ----------
    choice : Choice
    device : {"cpu", "cuda"}
    learners : tuple of str
        CUDA devices of the learner's ranks on this machine; empty on a CPU.
    servers : tuple of tuple of str
        Devices of each server that the run starts itself; empty tuples on a CPU.
    addresses : tuple of str
        Servers that run already.
    sleep : bool
        The engine gives up its memory while the learner works.
    gpus_train, gpus_generate : int
        Accelerators held, busy or idle: what GPU-hours count. On a CPU: processes.
    roles : tuple of Role
    notes : tuple of str
        What is allowed and wasteful.
    """

    choice: Choice
    device: str
    learners: tuple[str, ...]
    servers: tuple[tuple[str, ...], ...]
    addresses: tuple[str, ...]
    sleep: bool
    gpus_train: int
    gpus_generate: int
    roles: tuple[Role, ...]
    notes: tuple[str, ...]

    @property
    def engine_device(self) -> str:
        """Torch device of an engine on this machine that is no server."""
        beside = self.choice.kind == "process" and self.choice.where == "split"
        if self.device == "cuda" and beside:
            return f"cuda:{len(self.learners)}"
        return self.device

    @property
    def gpus(self) -> dict[str, int]:
        """Devices held, as the log's header says."""
        return {"train": self.gpus_train, "generate": self.gpus_generate}


def here(config: Config) -> Machine:
    """What this process sees; torch is asked for devices when the run wants CUDA."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    devices = _cuda_devices(os.environ) if config.model.device == "cuda" else None
    return Machine(world, local, devices, find_spec("vllm") is not None)


def _cuda_devices(environment: Mapping[str, str]) -> tuple[str, ...]:
    import torch

    count = torch.cuda.device_count()
    named = [n.strip() for n in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if n.strip()]
    return tuple(named[:count]) if named else tuple(map(str, range(count)))


def resolve(config: Config, machine: Machine) -> Placement:
    """Decide who runs where.

    Raises
    ------
    ConfigError
        Settings that contradict each other or the number of ranks, with the remedy.
    """
    choice = _choose(config, machine)
    refuse(contradictions(config, machine, choice))
    cuda = config.model.device == "cuda"
    generate = _gpus_generate(config, choice)
    names = _names(machine, generate) if cuda else ()
    servers = _servers(config, choice, names[machine.local_world :], generate)
    learners = names[: machine.local_world]
    return Placement(
        choice=choice,
        device=config.model.device,
        learners=learners,
        servers=servers,
        addresses=tuple(config.engine.addresses),
        sleep=choice.kind == "vllm" and cuda and config.pipeline.mode != "pipeline",
        gpus_train=config.run.gpus_train or machine.world,
        gpus_generate=generate,
        roles=_roles(config, machine, choice, names, servers),
        notes=_notes(config, machine, choice),
    )


def placed(config: Config) -> Placement:
    """Decide, and hold the decision against this machine: what a run does first.

    Raises
    ------
    ConfigError
        As `resolve` and `fit` do.
    """
    machine = here(config)
    placement = resolve(config, machine)
    fit(placement, machine)
    return placement


def fit(placement: Placement, machine: Machine) -> None:
    """Refuse a placement that this machine cannot hold.

    Raises
    ------
    ConfigError
        Too few CUDA devices, or no vLLM where it is to generate.
    """
    generators = sum(map(len, placement.servers))
    if placement.engine_device.startswith("cuda:"):
        generators = 1
    refuse(unfit(machine, placement.choice, placement.device, generators))


# The decision


def _choose(config: Config, machine: Machine) -> Choice:
    """Fill in what is left to ``auto``: kind of engine, place, what generates, transfer."""
    e, cuda = config.engine, config.model.device == "cuda"
    kind, where = e.kind, e.placement
    if where == "auto" and (kind == "served" or e.addresses):
        where = "remote"
    if kind == "auto":
        alone = "process" if config.pipeline.mode == "pipeline" else "local"
        alone = "vllm" if where == "colocated" and cuda else alone
        kind = "served" if where in ("remote", "split") else alone
    software = "vllm" if kind == "vllm" or (kind == "served" and cuda) else "local"
    if kind == "vllm" and where in ("split", "remote"):
        kind = "served"
    if where == "auto":
        spare = not cuda or len(machine.devices or ()) > machine.local_world
        where = "split" if kind == "process" and spare else "colocated"
    return Choice(kind, where, software, _transfer(config, kind))


def _transfer(config: Config, kind: str) -> str:
    if kind != "served":
        return "memory"
    if config.engine.transfer != "auto":
        return config.engine.transfer
    return "nccl" if config.model.device == "cuda" else "file"


def _gpus_generate(config: Config, choice: Choice) -> int:
    """Accelerators beyond the learner's own."""
    told, tp = config.run.gpus_generate, config.engine.tensor_parallel
    if choice.where == "remote":
        return told or len(config.engine.addresses) * tp
    if choice.where == "split":
        return told or tp
    return 0 if config.model.device == "cuda" else told


def _names(machine: Machine, generate: int) -> tuple[str, ...]:
    """Devices of this machine, learners' first; numbers where too few are visible."""
    wanted = machine.local_world + generate
    seen = machine.devices or ()
    return seen if len(seen) >= wanted else tuple(map(str, range(wanted)))


def _servers(
    config: Config, choice: Choice, names: tuple[str, ...], generate: int
) -> tuple[tuple[str, ...], ...]:
    if choice.kind != "served" or choice.where != "split":
        return ()
    tp = config.engine.tensor_parallel
    return tuple(names[i : i + tp] for i in range(0, generate, tp))


# What a dry run says


def _roles(
    config: Config,
    machine: Machine,
    choice: Choice,
    names: tuple[str, ...],
    servers: tuple[tuple[str, ...], ...],
) -> tuple[Role, ...]:
    machines = machine.world // machine.local_world
    place = "this machine" if machines == 1 else f"{machines} machines"
    ranks = "1 rank" if machine.world == 1 else f"{machine.world} ranks, FSDP2"
    mine = names[: machine.local_world]
    learner = Role("learner", place, mine, ranks)
    workers = config.task.workers
    verifier = Role(
        "verifier", "this machine", (), f"{workers} process{'es' if workers > 1 else ''}"
    )
    if choice.where == "remote":
        engines = [Role("server", a, (), "runs already") for a in config.engine.addresses]
    elif servers:
        what = "vllm serve" if choice.software == "vllm" else "train-rl serve"
        engines = [
            Role("server", f"127.0.0.1:{FIRST_PORT + i}", devices, f"{what}, started by the run")
            for i, devices in enumerate(servers)
        ]
    else:
        engines = [_engine_role(choice, machine, names)]
    return (learner, *engines, verifier)


def _engine_role(choice: Choice, machine: Machine, names: tuple[str, ...]) -> Role:
    if choice.kind == "process":
        beside = choice.where == "split"
        devices = names[machine.local_world :][:1] if beside else names[:1]
        return Role("engine", "this machine", devices, "the sampler in a process of its own")
    what = "vLLM" if choice.kind == "vllm" else "the sampler"
    return Role("engine", "this machine", names[:1], f"{what} in the learner's process")


def _notes(config: Config, machine: Machine, choice: Choice) -> tuple[str, ...]:
    notes = []
    if choice.where == "colocated" and machine.world > 1:
        notes.append(
            f"one of {machine.world} ranks generates while the others wait; "
            "engine.placement = split gives generators devices of their own"
        )
    if choice.kind in ("local", "vllm") and config.pipeline.mode == "pipeline":
        notes.append(
            "engine and learner take turns in one process, so the pipeline overlaps nothing; "
            "engine.placement = split or engine.kind = process overlaps them"
        )
    return tuple(notes)
