"""The rule that bounds how old a rollout can be when it is learned from.

A new group may start while

    (accepted + running) < (version + k + 1) · B

with `accepted` the groups that the generator has returned, `running` those being generated,
`version` the optimiser steps done, and B the groups a step takes (AReaL, arXiv:2505.24298, section
5.1). So a group admitted at version v is one of the first (v + k + 1)·B, and some step of version
v + k or less has room for it. That it gets there is the other half of the rule: a step takes the
oldest groups first, and waits when the groups left behind could not all be learned from in time.
Nothing is dropped for its age, which would be a bias against long rollouts.
"""

from __future__ import annotations

__all__ = ["Admission"]


class Admission:
    """Groups on their way, each with the version at which it was admitted.

    Parameters
    ----------
    B : int
        Groups a step takes.
    k : int
        Greatest staleness, in optimiser steps.
    accepted : int
        Groups that earlier steps took: B times the version that a resumed run starts with.
    """

    def __init__(self, B: int, k: int, accepted: int = 0) -> None:
        self.B, self.k, self.accepted = B, k, accepted
        self.running: dict[int, int] = {}
        self.ready: dict[int, int] = {}

    def room(self, version: int) -> int:
        """How many groups may start now."""
        return max(0, (version + self.k + 1) * self.B - self.accepted - len(self.running))

    def start(self, groups: list[int], version: int) -> None:
        """Note that groups were handed to the generator."""
        self.running.update(dict.fromkeys(groups, version))

    def finish(self, group: int) -> None:
        """Note that a group came back and may be learned from."""
        self.ready[group] = self.running.pop(group)
        self.accepted += 1

    def discard(self, group: int) -> None:
        """Note that a group came back without a gradient and gives its place to another."""
        del self.running[group]

    def batch(self, version: int) -> list[int] | None:
        """Return the B groups of the next step and forget them; None while it has to wait."""
        oldest = sorted(self.ready, key=lambda g: (self.ready[g], g))[: self.B]
        left = [v for g, v in self.ready.items() if g not in oldest] + list(self.running.values())
        if len(oldest) < self.B or not self._in_time(sorted(left), version):
            return None
        for group in oldest:
            del self.ready[group]
        return oldest

    def _in_time(self, admitted: list[int], version: int) -> bool:
        """Whether later steps, B groups each, reach all of these within k steps of admission."""
        return all(i < (v + self.k - version) * self.B for i, v in enumerate(admitted))
