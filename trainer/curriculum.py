"""Which prompts are drawn, and which groups are learned from.

``Curriculum`` hands out prompts in a fixed shuffled order and takes rewards back; ``live`` is the
zero-variance filter. Both see rewards as the verifier gave them, before any shaping.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from trainer.errors import RunStopped
from trainer.settings import Config
from trainer.types import Group, Prompt

__all__ = ["Curriculum", "live"]


def live(group: Group, tolerance: float) -> bool:
    """Whether the rewards differ by more than `tolerance`: only then is there a gradient."""
    rewards = group.rewards
    return len(rewards) > 1 and max(rewards) - min(rewards) > tolerance


class Curriculum:
    """Prompts in order, each epoch shuffled anew, retired ones passed over.

    No-Positive-Resampling (arXiv:2510.13786, section 3.2): a prompt whose pass rate at its last
    visit reached ``curriculum.retire_above`` is not drawn again. The order is a function of the
    seed alone, so a resumed run draws what the run it continues would have drawn.

    Parameters
    ----------
    prompt_at : callable
        Index to Prompt.
    size : int or None
        Number of prompts; None for a task that never ends, whose indices are drawn once each.
    config : Config
    """

    def __init__(
        self, prompt_at: Callable[[int], Prompt], size: int | None, config: Config
    ) -> None:
        self.prompt_at, self.config = prompt_at, config
        pool = config.curriculum.pool
        self.size = min(pool, size or pool) if pool else size
        self.position = 0
        self.next_group = 0
        self.retired: set[str] = set()
        self.retired_indices: set[int] = set()
        self.waiting: dict[int, int] = {}
        self._epoch, self._order = -1, list[int]()

    def draw(self, n: int) -> list[tuple[int, Prompt]]:
        """Return `n` prompts, each visit with a number of its own.

        Raises
        ------
        RunStopped
            Fewer than ``curriculum.floor`` of the pool are left, or none.
        """
        visits: list[tuple[int, Prompt]] = []
        while len(visits) < n:
            index = self._index(self.position)
            self.position += 1
            if index not in self.retired_indices:
                prompt = self.prompt_at(index)
                if prompt.id in self.retired:  # it stands in the order more than once
                    self.retired_indices.add(index)
            if index in self.retired_indices:
                self._check_floor()
                continue
            visits.append((self.next_group, prompt))
            self.waiting[self.next_group] = index
            self.next_group += 1
        return visits

    def observe(self, group: Group) -> None:
        """Take a group's rewards back; one whose rollouts all failed is not a visit."""
        index = self.waiting.pop(group.id)
        threshold, rewards = self.config.curriculum.retire_above, group.rewards
        if threshold and rewards and sum(rewards) / len(rewards) >= threshold - 1e-12:
            self.retired.add(group.prompt.id)
            self.retired_indices.add(index)

    @property
    def left(self) -> float:
        """Share of the pool not retired; 1 for a task that never ends."""
        return 1.0 if self.size is None else 1.0 - len(self.retired_indices) / self.size

    def take_back(self) -> list[tuple[int, Prompt]]:
        """Return visits drawn and not observed when the state was saved, to be generated again."""
        return [(g, self.prompt_at(index)) for g, index in sorted(self.waiting.items())]

    def state_dict(self) -> dict[str, Any]:
        """Position, numbers, exclusions and what was under way."""
        return {
            "position": self.position,
            "next_group": self.next_group,
            "retired": sorted(self.retired),
            "retired_indices": sorted(self.retired_indices),
            "waiting": dict(self.waiting),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where ``state_dict`` was called."""
        self.position, self.next_group = state["position"], state["next_group"]
        self.retired = set(state["retired"])
        self.retired_indices = set(state["retired_indices"])
        self.waiting = dict(state["waiting"])

    def _index(self, position: int) -> int:
        if self.size is None:
            return position
        epoch, place = divmod(position, self.size)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, list(range(self.size))
            random.Random(f"{self.config.run.seed}:{epoch}").shuffle(self._order)
        return self._order[place]

    def _check_floor(self) -> None:
        floor = self.config.curriculum.floor
        if self.left < floor or self.left == 0:
            raise RunStopped(
                f"{self.left:.0%} of {self.size} prompts are left with curriculum.floor = "
                f"{floor:g}: the rest is solved; add prompts or raise curriculum.retire_above"
            )
