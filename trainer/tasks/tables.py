"""The tables in which a mixture names its tasks: read, checked, and each task made."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from trainer.errors import TaskError, TrainerError
from trainer.tasks.base import Task
from trainer.tasks.registry import make_task, nearest

__all__ = ["Entry", "read_tables"]

KEYS = ("name", "share", "label", "args")
MIXTURES = ("mixture", "trainer.tasks.mixture:Mixture")
LABEL = re.compile(r"[^/\s]+")  # pass_rate_of/LABEL is a column for fit-curve
LONGEST = 200_000  # places of a block


class Entry(NamedTuple):
    """One task, its label, and its items in a block."""

    label: str
    share: int
    task: Task


def read_tables(tables: Any, seed: int) -> list[Entry]:
    """Make the tasks that `tables` name.

    Raises
    ------
    TrainerError
        No list of tables; a key, label or share that cannot be used; what a task itself refuses,
        with the label before it.
    """
    if not isinstance(tables, list) or not tables:
        raise TaskError(
            'mixture: no tasks; set task.args.tasks = [{name = "math", args = {...}}, ...]'
        )
    entries = [_entry(f"mixture: task {n}", table, seed) for n, table in enumerate(tables, 1)]
    labels = [entry.label for entry in entries]
    for label in labels:
        if labels.count(label) > 1:
            raise TaskError(
                f"mixture: {labels.count(label)} tasks are called {label}; give each its own label"
            )
    if sum(entry.share for entry in entries) > LONGEST:
        raise TaskError(f"mixture: shares add up to more than {LONGEST:,}; write smaller ones")
    return entries


def _entry(where: str, table: Any, seed: int) -> Entry:
    if not isinstance(table, dict):
        raise TaskError(f"{where} is {table!r}; write a table with a name and, if need be, args")
    for key in table:
        if key not in KEYS:
            raise TaskError(
                f"{where} has no key {key!r}{nearest(key, KEYS)}; it has {', '.join(KEYS)}, "
                "and what is a setting of the task stands in args"
            )
    name, share, args = table.get("name"), table.get("share", 1), table.get("args", {})
    label = table.get("label", name)
    for wrong, message in [
        (not isinstance(name, str) or not name, "has no name; name a registered task"),
        (name in MIXTURES, "is a mixture itself; list its tasks here"),
        (
            type(share) is not int or share < 1,
            f"has share = {share!r}, which must be a whole number above 0",
        ),
        (
            not isinstance(label, str) or not LABEL.fullmatch(label),
            f"has label = {label!r}, which must be one word without a /",
        ),
        (not isinstance(args, dict), f"has args = {args!r}, which must be a table"),
    ]:
        if wrong:
            raise TaskError(f"{where} {message}")
    return Entry(label, share, _made(label, name, args, seed))


def _made(label: str, name: str, args: dict[str, Any], seed: int) -> Task:
    try:
        return make_task(name, args, seed=seed)
    except TrainerError as e:
        raise type(e)(f"mixture: {label}: {e}") from e
