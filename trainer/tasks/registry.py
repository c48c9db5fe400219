"""The tasks by name, and their options checked.

``module:Class`` names a task of your own: a dataclass with the methods of `trainer.tasks.base.Task`
and the fields `seed` and `name`, importable from where the command is run.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Sequence
from typing import Any

from trainer.errors import TaskError
from trainer.tasks.base import Task
from trainer.values import fitted

__all__ = ["TASKS", "make_task", "nearest"]

# name: module, class, defaults that differ from the class's own
TASKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "chain": ("trainer.tasks.chain", "Chain", {}),
    "code": ("trainer.tasks.code", "Code", {}),
    "math": ("trainer.tasks.math", "Math", {}),
    "mixed": ("trainer.tasks.chain", "Chain", {"min_terms": 3, "max_terms": 6}),
    "mixture": ("trainer.tasks.mixture", "Mixture", {}),
    "reasoning-gym": ("trainer.tasks.gym", "ReasoningGym", {}),
}


def make_task(name: str, options: dict[str, Any] | None = None, *, seed: int = 0) -> Task:
    """Build a task; the module of a task is imported only when it is asked for.

    Raises
    ------
    TaskError
        Unknown task or option, with the nearest name; an option the task refuses.
    """
    cls, defaults = _find(name)
    known = [f.name for f in dataclasses.fields(cls) if f.name not in ("name", "seed")]
    options = {**defaults, **(options or {})}
    for option in options:
        if option not in known:
            raise TaskError(
                f"task {name} has no option {option!r}{nearest(option, known)}; it has "
                f"{', '.join(known)}"
            )
    for f in dataclasses.fields(cls):
        if f.name in options:
            kind = f.type if isinstance(f.type, str) else getattr(f.type, "__name__", "")
            options[f.name], wrong = fitted(kind, options[f.name])
            if wrong:
                raise TaskError(f"task {name}: {f.name} = {options[f.name]!r} {wrong}")
    return cls(**options, seed=seed, name=name)


def _find(name: str) -> tuple[type[Any], dict[str, Any]]:
    if ":" in name:
        module, _, cls_name = name.partition(":")
        defaults: dict[str, Any] = {}
    elif name in TASKS:
        module, cls_name, defaults = TASKS[name]
    else:
        raise TaskError(
            f"unknown task {name!r}{nearest(name, list(TASKS))}; there are {', '.join(TASKS)}, "
            "or module:Class for your own"
        )
    try:
        cls = getattr(importlib.import_module(module), cls_name)
    except (ModuleNotFoundError, AttributeError) as e:
        raise TaskError(f"task {name}: {e}") from e
    if not dataclasses.is_dataclass(cls):
        raise TaskError(
            f"task {name}: {cls_name} is not a dataclass, so it has no options to check"
        )
    return cls, defaults


def nearest(name: str, names: Sequence[str]) -> str:
    """A question in brackets that names what may have been meant; empty when nothing is near."""
    close = difflib.get_close_matches(name, names, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
