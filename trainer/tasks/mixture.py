"""Several tasks in one run, as ProRL mixes them (arXiv:2505.24864).

    [task]
    name = "mixture"

    [[task.args.tasks]]
    name = "math"
    share = 2
    args = {path = "problems.jsonl"}

    [[task.args.tasks]]
    name = "code"
    label = "code-easy"
    args = {path = "programs.jsonl"}

Of three prompts in a row two are of math. The curriculum shuffles them, so a step has the shares on
average; ProRL has them from the sizes of its data sets, which may be written as shares. In training
a task whose items run out begins again. Held-out questions are never repeated, for an evaluation
of the same question twice is not one of two; a task that has no more leaves its places to the
others. What one task holds out no other trains on.

Leaves out: shares that change within a run, or follow what is learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from trainer.errors import TaskError
from trainer.tasks.base import Item, Split, Task
from trainer.tasks.order import Order
from trainer.tasks.tables import Entry, read_tables

__all__ = ["Mixture", "Part", "parts_of"]


@dataclass(frozen=True)
class Part:
    """One task of a mixture as a task of its own, whose items say where they belong.

    Parameters
    ----------
    number : int
        Place in the list of tasks, which questions carry.
    name : str
        The label, which ids carry.
    task : Task
    train : sequence of int
        The task's training items that no other task holds out; index len(train) is the first again.
    """

    number: int
    name: str
    task: Task
    train: Sequence[int]

    @property
    def listed(self) -> bool:
        """Whether the task is."""
        return self.task.listed

    def size(self, split: Split) -> int:
        """Different items of a split."""
        return len(self.train) if split == "train" else self.task.size(split)

    def item(self, split: Split, index: int) -> Item:
        """The task's item at `index`, with the label."""
        index = self.train[index % len(self.train)] if split == "train" else index
        item = self.task.item(split, index)
        mine = {"id": f"{self.name}/{item.id}", "question": [self.number, item.question]}
        return replace(item, **mine, label=self.name)

    def score(self, text: str, question: Any, answer: Any) -> float:
        """The task's reward."""
        return self.task.score(text, question[1], answer)

    def gold(self, item: Item) -> str:
        """The task's gold answer."""
        theirs = {"id": item.id.removeprefix(f"{self.name}/"), "question": item.question[1]}
        return self.task.gold(replace(item, **theirs, label=""))


@dataclass(frozen=True)
class Mixture:
    """Items of several tasks in turn.

    Parameters
    ----------
    tasks : list of dict
        A table each: ``name`` of the task, ``share`` (items in a block; 1), ``label`` (the name;
        needed where a task is there twice), ``args`` (the task's own settings).
    """

    tasks: list[dict[str, Any]] = field(default_factory=list)
    seed: int = 0
    name: str = "mixture"

    def __post_init__(self) -> None:
        """Read the tables and make each task."""
        _ = self._entries

    @property
    def listed(self) -> bool:
        """Whether one of the tasks is."""
        return any(entry.task.listed for entry in self._entries)

    @cached_property
    def parts(self) -> dict[str, Part]:
        """The tasks by label."""
        held = self._held_out()
        return {
            label: Part(number, label, task, _kept(label, task, held))
            for number, (label, _, task) in enumerate(self._entries)
        }

    def size(self, split: Split) -> int:
        """Items: in training whole blocks, enough to show all of each listed task.

        With generated tasks alone, as many blocks as the smallest of them fills.
        """
        return len(self._orders[split])

    def item(self, split: Split, index: int) -> Item:
        """The item at `index`, of the task whose turn it is."""
        if not 0 <= index < self.size(split):
            raise TaskError(f"{self.name}: no {split} item {index}; there are {self.size(split)}")
        number, rank = self._orders[split][index]
        return self._parts[number].item(split, rank)

    def score(self, text: str, question: Any, answer: Any) -> float:
        """The reward of the task that asked."""
        number, asked = question
        return self._entries[number].task.score(text, asked, answer)

    def gold(self, item: Item) -> str:
        """The gold answer of the task that asked."""
        return self._parts[item.question[0]].gold(item)

    @cached_property
    def _entries(self) -> list[Entry]:
        return read_tables(self.tasks, self.seed)

    @cached_property
    def _parts(self) -> list[Part]:
        return list(self.parts.values())

    @cached_property
    def _orders(self) -> dict[Split, Order]:
        shares = [entry.share for entry in self._entries]
        blocks = self._blocks()
        return {
            "train": Order(shares, [blocks * share for share in shares]),
            "held-out": Order(shares, [part.size("held-out") for part in self._parts]),
        }

    def _blocks(self) -> int:
        """Blocks of the training split."""
        pairs = [(p, e.share) for p, e in zip(self._parts, self._entries, strict=True)]
        needed = [-(-part.size("train") // share) for part, share in pairs if part.listed]
        filled = [part.size("train") // share for part, share in pairs]
        return max(needed) if needed else max(1, min(filled))

    def _held_out(self) -> set[str]:
        """Texts that listed tasks hold out, where there are several of them."""
        listed = [entry.task for entry in self._entries if entry.task.listed]
        if len(listed) < 2:
            return set()
        return {t.item("held-out", i).text for t in listed for i in range(t.size("held-out"))}


def parts_of(task: Task) -> Mapping[str, Task]:
    """The tasks of a mixture by label; any other task under no label."""
    return task.parts if isinstance(task, Mixture) else {"": task}


def _kept(label: str, task: Task, held: set[str]) -> Sequence[int]:
    """Training items of a task but those that another task holds out."""
    every = range(task.size("train"))
    if not task.listed or not held:
        return every
    kept = [index for index in every if task.item("train", index).text not in held]
    if not kept:
        raise TaskError(f"mixture: all training questions of {label} are held out by another task")
    return kept
