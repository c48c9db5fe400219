"""The admission rule that bounds how old a rollout can be when it is learned from.

A new group may start while

    (accepted + running) < (version + k + 1) · B

with `accepted` the groups that have left the generator (learned from, filtered or waiting),
`running` those being generated, `version` the optimiser steps done, and B the groups a step takes.
By construction a group admitted at version v is learned from at version v + k at the latest
(AReaL's capacity rule, arXiv:2505.24298, section 5.1).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Admission"]


@dataclass
class Admission:
    """Counts groups on their way.

    Parameters
    ----------
    B : int
        Groups a step takes.
    k : int
        Greatest staleness, in optimiser steps.
    """

    B: int
    k: int
    accepted: int = 0
    running: int = 0

    def room(self, version: int) -> int:
        """How many groups may start now."""
        return max(0, (version + self.k + 1) * self.B - self.accepted - self.running)

    def start(self, n: int) -> None:
        """`n` groups were handed to the generator."""
        self.running += n

    def finish(self, n: int) -> None:
        """`n` groups came back."""
        self.running -= n
        self.accepted += n

    def discard(self, n: int) -> None:
        """`n` groups that came back give their place to others (errors, dynamic sampling)."""
        self.accepted -= n

    def resume(self, version: int) -> None:
        """After a restart nothing is on its way and every step so far took B groups."""
        self.accepted, self.running = version * self.B, 0
