"""Tasks whose verifiers do what no verifier should."""

from __future__ import annotations

import os
from dataclasses import dataclass, make_dataclass

from trainer.tasks.base import Item


@dataclass(frozen=True)
class Trap:
    """The verifier does what the completion says."""

    seed: int = 0
    name: str = "trap"
    listed = False

    def size(self, split):
        return 3

    def item(self, split, index):
        return Item(f"{split}{index}", "?", None, "right")

    def gold(self, item):
        return "right"

    def score(self, text, question, answer):
        if text == "hang":
            while True:
                pass
        if text == "die":
            os._exit(3)
        if text == "raise":
            raise KeyError("no such symbol")
        if text == "nan":
            return float("nan")
        if text == "leak":
            return float(len(bytearray(1 << 40)))
        return float(text == answer)


@dataclass(frozen=True)
class Deaf(Trap):
    """Pays nothing."""

    def score(self, text, question, answer):
        return 0.0


@dataclass(frozen=True)
class Generous(Trap):
    """Pays for the empty answer: it is a substring of everything."""

    def score(self, text, question, answer):
        return float(text in answer)


@dataclass(frozen=True)
class Hanging(Trap):
    """Its gold answers never end."""

    def gold(self, item):
        return "hang"


# its fields have types for annotations, and not their names
Typed = make_dataclass("Typed", [("size", int, 1), ("seed", int, 0), ("name", str, "typed")])
