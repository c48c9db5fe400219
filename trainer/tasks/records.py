"""Rows of the user's: JSONL or parquet, each with the place it came from, in two splits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trainer.errors import TaskError
from trainer.tasks.base import split_of

__all__ = ["field_of", "records", "splits"]

Record = dict[str, Any]


def splits(
    task: str, path: str, held_out: str, row: Callable[[Record, str], tuple[Any, ...]]
) -> dict[str, list[Any]]:
    """Rows by split; what comes first in a row is its question.

    Parameters
    ----------
    task : str
        Its name, for messages.
    path, held_out : str
        Files. Without the second a tenth is held out by the hash of the question; a question in
        both files is left out of training.
    row : callable
        Makes a row of a record and its place.

    Raises
    ------
    TaskError
        No such file, or a split without a question.
    """
    if not path:
        raise TaskError(f"{task}: no file; set task.args.path to a JSONL or parquet file")
    rows = [row(record, where) for where, record in records(task, Path(path))]
    made: dict[str, list[Any]] = {"train": [], "held-out": []}
    if held_out:
        made["held-out"] = [row(record, w) for w, record in records(task, Path(held_out))]
        known = {held[0] for held in made["held-out"]}
        made["train"] = [given for given in rows if given[0] not in known]
    else:
        for given in rows:
            made[split_of(given[0])].append(given)
    for split, there in made.items():
        if not there:
            raise TaskError(f"{task}: {path} leaves no {split} questions; give more of them")
    return made


def records(task: str, path: Path) -> Iterator[tuple[str, Record]]:
    """Place and content of every row of a file."""
    if not path.is_file():
        raise TaskError(f"{task}: no file {path}")
    return _parquet(path) if path.suffix == ".parquet" else _jsonl(path)


def field_of(record: Record, name: str, names: tuple[str, ...], where: str) -> Any:
    """The field called `name` or, when that is empty, the first of `names` that is there."""
    found = [name] if name else [known for known in names if known in record]
    value = record.get(found[0]) if found else None
    if value is None or not str(value).strip():
        raise TaskError(f"{where}: no {name or names[0]}; every line needs one")
    return value


def _jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{path}, line {number}"
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as e:
                raise TaskError(f"{where}: not JSON ({e.msg}); one object a line") from e
            if not isinstance(record, dict):
                raise TaskError(f"{where}: a {type(record).__name__}, not an object")
            yield where, record


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        import pyarrow.parquet
    except ImportError as e:
        raise TaskError(f"{path}: reading parquet needs pyarrow: pip install pyarrow") from e
    for number, record in enumerate(pyarrow.parquet.read_table(path).to_pylist(), start=1):
        yield f"{path}, row {number}", record
