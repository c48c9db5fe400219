"""Where the groups of a step come from: the three ways in which generation meets learning.

* ``sync``: generate B groups with the weights of now, learn from them, repeat.
* ``off-policy``: generate k · B groups, learn from them in k steps, repeat (PPO-off-policy-k of
  arXiv:2510.13786, section 2).
* ``pipeline``: the engine generates without pause in a process of its own; weights are swapped in
  flight after every step, and no rollout is older than k steps (PipelineRL, arXiv:2509.19128).

All three fill up with further groups when ``curriculum.refill`` asks for B groups with a gradient
(dynamic sampling, arXiv:2503.14476).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from trainer.curriculum import Curriculum, live
from trainer.engine.base import Engine
from trainer.errors import EngineError
from trainer.ledger import Ledger
from trainer.rollout import RolloutWorker
from trainer.settings import Config
from trainer.staleness import Admission
from trainer.types import Group

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Pipelined", "Source", "Synchronous"]


class Source(Protocol):
    """Hands out groups and takes weights."""

    def take(self, version: int) -> list[list[Group]]:
        """Return the groups of each of the next steps (k in mode off-policy, else one)."""
        ...

    def update(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Give the engine the weights of `version`."""
        ...


class Synchronous:
    """Generation and learning take turns: modes ``sync`` and ``off-policy``."""

    def __init__(
        self,
        worker: RolloutWorker,
        engine: Engine,
        curriculum: Curriculum,
        ledger: Ledger,
        config: Config,
    ) -> None:
        self.worker, self.engine, self.curriculum = worker, engine, curriculum
        self.ledger, self.config = ledger, config
        self.rounds = max(1, config.pipeline.k)
        self.again = curriculum.take_back()  # drawn when a run ended, and not yet generated

    def take(self, version: int) -> list[list[Group]]:
        """Generate for the next `rounds` steps and deal the groups out evenly."""
        wanted = self.config.sample.prompts * self.rounds
        with self.ledger.phase("generate"):
            groups = self._generate(wanted)
            if self.config.curriculum.refill:
                groups = self._refill(groups, wanted)
            self.engine.sleep()  # where it shares the learner's GPU; weights or requests wake it
        return [groups[i :: self.rounds] for i in range(self.rounds)]

    def update(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Copy the weights over; nothing is running."""
        self.engine.pause()
        self.engine.update(version, weights)
        self.engine.resume()

    def _refill(self, groups: list[Group], wanted: int) -> list[Group]:
        """Draw until `wanted` groups have a gradient or the rounds are used up."""
        c = self.config.curriculum
        alive, dead = _sort(groups, c.tolerance)
        for _ in range(c.refill_rounds - 1):
            if len(alive) >= wanted:
                break
            more_alive, more_dead = _sort(self._generate(wanted), c.tolerance)
            alive, dead = alive + more_alive, dead + more_dead
        return alive + dead

    def _generate(self, n: int) -> list[Group]:
        again, self.again = self.again[:n], self.again[n:]
        self.worker.start([*again, *self.curriculum.draw(n - len(again))])
        groups: list[Group] = []
        since = time.monotonic()
        while len(groups) < n:
            arrived = self.worker.poll(1.0)
            groups += arrived
            since = time.monotonic() if arrived else _check_wait(since, self.config)
        return sorted(groups, key=lambda g: g.id)


class Pipelined:
    """Generation and learning overlap: mode ``pipeline``."""

    def __init__(
        self,
        worker: RolloutWorker,
        engine: Engine,
        curriculum: Curriculum,
        ledger: Ledger,
        config: Config,
        version: int,
    ) -> None:
        self.worker, self.engine, self.curriculum = worker, engine, curriculum
        self.ledger, self.config = ledger, config
        B, k = config.sample.prompts, config.pipeline.k
        self.admission = Admission(B, k, accepted=version * B)
        self.ready: dict[int, Group] = {}
        self.dead: list[Group] = []
        again = curriculum.take_back()
        self.admission.start([number for number, _ in again], version)
        worker.start(again)

    def take(self, version: int) -> list[list[Group]]:
        """Wait for the groups of one step, keeping the engine busy meanwhile."""
        since = time.monotonic()
        self._admit(version)
        with self.ledger.phase("wait"):
            while (chosen := self.admission.batch(version)) is None:
                arrived = self.worker.poll(1.0)
                since = time.monotonic() if arrived else _check_wait(since, self.config)
                self._sort_in(arrived)
                self._admit(version)
        dead, self.dead = self.dead, []
        return [[self.ready.pop(number) for number in chosen] + dead]

    def update(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Swap the weights in flight; running rollouts go on under the new ones."""
        self.engine.pause(keep_cache=self.config.pipeline.keep_cache)
        self.engine.update(version, weights)
        self.engine.resume()
        self._sort_in(self.worker.poll(0.0))
        self._admit(version)

    def _sort_in(self, groups: list[Group]) -> None:
        """Note what came back; with refill, a group without a gradient gives its place away."""
        c = self.config.curriculum
        for group in groups:
            if c.refill and not live(group, c.tolerance):
                self.admission.discard(group.id)
                self.dead.append(group)
            else:
                self.admission.finish(group.id)
                self.ready[group.id] = group

    def _admit(self, version: int) -> None:
        visits = self.curriculum.draw(self.admission.room(version))
        self.admission.start([number for number, _ in visits], version)
        if visits:
            self.worker.start(visits)


def _sort(groups: list[Group], tolerance: float) -> tuple[list[Group], list[Group]]:
    alive = [g for g in groups if live(g, tolerance)]
    return alive, [g for g in groups if not live(g, tolerance)]


def _check_wait(since: float, config: Config) -> float:
    """Return `since`, unless nothing has come for so long that something must be wrong."""
    limit = min(3 * config.pipeline.deadline_s, config.watch.hang_s)  # the engine's own come first
    if time.monotonic() - since > limit:
        raise EngineError(
            f"generation: no group finished for {limit:g} s; raise pipeline.deadline_s if rollouts "
            "are that slow"
        )
    return since
