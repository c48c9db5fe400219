"""What a placement costs and where it waits: memory, speed, GPU-hours, idle shares, best split.

The formulas stand in `trainer.costs`, the devices in ``hardware.toml``. An estimate, not a
measurement: it is as good as the shares of peak it is told, and leaves out verification, start-up
and evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.costs import (
    Precision,
    Work,
    engine_bytes,
    generate_seconds,
    learn_seconds,
    learner_bytes,
    slots_that_fit,
    sync_seconds,
)
from trainer.hardware import Hardware
from trainer.modelsize import Shape
from trainer.settings import Config, passes

__all__ = ["Plan", "Setup", "estimate", "splits"]

SHARE = {"colocated": 0.5, "alone": 0.9}  # of a device's memory, for the engine
EVEN = 0.05  # sides whose times differ by less wait for nobody
SIZE = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class Setup:
    """What a plan is made for.

    Parameters
    ----------
    per_machine : int
        Devices of one machine; beyond them `Hardware.network` connects.
    """

    config: Config
    shape: Shape
    hardware: Hardware
    work: Work
    per_machine: int = 8

    @property
    def precision(self) -> Precision:
        """Bytes of stored parameters and of the passes."""
        return Precision(SIZE[self.config.model.dtype], SIZE[passes(self.config)])

    @property
    def overlaps(self) -> bool:
        """Whether generation goes on while the learner works."""
        return self.config.pipeline.mode == "pipeline"


@dataclass(frozen=True)
class Plan:
    """An estimate of one placement; seconds are of a step.

    Parameters
    ----------
    where : {"colocated", "split", "remote"}
    train, generate : int
        Devices; colocated generates on one of the learner's.
    learner_bytes, engine_bytes : dict
        Memory of one device by part, with its total.
    fits : bool
        Both fit into the device's memory.
    slots : float
        Requests that one engine runs at a time.
    generate_s, learn_s, sync_s, step_s : float
    learn_parts : dict
        Seconds of passes, head, optimiser and ranks.
    generate_rate, learn_rate : float
        Tokens drawn and completion tokens learned a second, while at it.
    gpu_hours : float
        Of 100 steps, idle time included.
    idle : dict
        Share of a step that learner and generators wait.
    waits : str
        Which side waits for which.
    """

    where: str
    train: int
    generate: int
    learner_bytes: dict[str, float]
    engine_bytes: dict[str, float]
    fits: bool
    slots: float
    generate_s: float
    learn_s: float
    sync_s: float
    step_s: float
    learn_parts: dict[str, float]
    generate_rate: float
    learn_rate: float
    gpu_hours: float
    idle: dict[str, float]
    waits: str


def estimate(setup: Setup, where: str, train: int, generate: int) -> Plan:
    """Estimate `train` learner devices and `generate` generator devices.

    Parameters
    ----------
    where : {"colocated", "split", "remote"}
        Colocated: `generate` is 0 and one of the learner's devices generates in turn.
    """
    s, hw, work, by = setup.shape, setup.hardware, setup.work, setup.precision
    learner, link = _learner(setup, train), _link(setup, train)
    tp = setup.config.engine.tensor_parallel
    replicas = max(1, generate // tp)
    slots, engine = _engine(setup, where, replicas)
    fits = _fits(setup, where, learner["total"], engine["total"]) and slots >= 1
    generate_s = generate_seconds(
        s,
        by.c,
        hw,
        work,
        replicas=replicas,
        tp=tp,
        batch=max(1.0, slots),
        waits_for_longest=not setup.overlaps,
    )
    learn = learn_seconds(
        s,
        by,
        hw,
        work,
        train,
        checkpointing=setup.config.learner.checkpointing,
        link=link,
        reshard=setup.config.learner.reshard,
    )
    sync_s = sync_seconds(s, by.c, train, _path(setup, where, train, generate), link)
    apart = where != "colocated" and setup.overlaps
    sides = generate_s, learn["total"]
    step_s = (max(sides) if apart else sum(sides)) + sync_s
    devices = train + generate
    return Plan(
        where=where,
        train=train,
        generate=generate,
        learner_bytes=learner,
        engine_bytes=engine,
        fits=fits,
        slots=slots,
        generate_s=generate_s,
        learn_s=learn["total"],
        sync_s=sync_s,
        step_s=step_s,
        learn_parts=learn,
        generate_rate=work.samples * work.length / generate_s,
        learn_rate=work.learned / learn["total"],
        gpu_hours=100 * step_s * devices / 3600,
        idle=_idle(where, train, generate_s, learn["total"], sync_s, step_s),
        waits=_waits(where, apart, train, *sides),
    )


def splits(setup: Setup, gpus: int) -> list[Plan]:
    """All splits of `gpus` devices that fit, fastest first; one device is colocated."""
    tp = setup.config.engine.tensor_parallel
    plans = [estimate(setup, "colocated", 1, 0)] if gpus == 1 else []
    where = "split" if gpus <= setup.per_machine else "remote"
    plans += [estimate(setup, where, gpus - g, g) for g in range(tp, gpus, tp)]
    return sorted((p for p in plans if p.fits), key=lambda p: p.step_s)


def _learner(setup: Setup, train: int) -> dict[str, float]:
    c, work = setup.config, setup.work
    held = (work.read + work.learned) / train
    tokens = min(held, work.micro) if work.micro else held
    return learner_bytes(
        setup.shape,
        setup.precision,
        train,
        tokens,
        checkpointing=c.learner.checkpointing,
        reshard=c.learner.reshard,
        reference=c.kl.coef > 0,
    )


def _engine(setup: Setup, where: str, replicas: int) -> tuple[float, dict[str, float]]:
    """Requests that one engine runs, and its memory with them."""
    s, c, work, e = setup.shape, setup.precision.c, setup.work, setup.config.engine
    share = e.memory or SHARE["colocated" if where == "colocated" else "alone"]
    memory = share * setup.hardware.memory
    context = work.prompt + work.length
    rounds = setup.config.pipeline.k + 1 if setup.overlaps else 1
    wanted = min(e.slots, rounds * work.samples / replicas)
    slots = min(wanted, slots_that_fit(s, c, setup.hardware, e.tensor_parallel, memory, context))
    return slots, engine_bytes(s, c, setup.hardware, e.tensor_parallel, slots, context)


def _fits(setup: Setup, where: str, learner: float, engine: float) -> bool:
    """Whether memory suffices: apart each its own, colocated in turn, for the engine sleeps."""
    memory = setup.hardware.memory
    if where == "colocated" and setup.overlaps:
        return learner + engine <= memory
    return max(learner, engine) <= memory


def _link(setup: Setup, train: int) -> float:
    hw = setup.hardware
    return hw.link if train <= setup.per_machine else hw.network


def _path(setup: Setup, where: str, train: int, generate: int) -> float:
    """byte/s from the learner to generators: memory, a link of the machine, or the network."""
    hw = setup.hardware
    if where == "colocated":
        return hw.bandwidth / 2  # read and written
    apart = where == "remote" or train + generate > setup.per_machine
    return hw.network if apart else hw.link


def _idle(
    where: str, train: int, generate_s: float, learn_s: float, sync_s: float, step_s: float
) -> dict[str, float]:
    learner = 1 - (learn_s + sync_s) / step_s
    if where == "colocated":  # one of the learner's devices generates meanwhile
        return {"learner": learner * (train - 1) / train, "generator": 0.0}
    return {"learner": learner, "generator": 1 - (generate_s + sync_s) / step_s}


def _waits(where: str, apart: bool, train: int, generate_s: float, learn_s: float) -> str:
    if where == "colocated":
        if train == 1:
            return "nobody: one device does both in turn"
        return f"{train - 1} of {train} learner devices wait while one generates"
    if not apart:
        return (
            "both in turn: generation and learning do not overlap outside pipeline.mode = pipeline"
        )
    if abs(generate_s - learn_s) <= EVEN * max(generate_s, learn_s):
        return "nobody: the two sides take the same time"
    return "the learner waits" if generate_s > learn_s else "the generators wait"
