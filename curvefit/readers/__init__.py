"""Read training logs: one file a format, found by what a file holds rather than by its name.

A reader is a module with two functions: `recognises(head) -> bool` looks at the first block of
text, `read(source) -> list[Table]` takes the file. To add one, write the module and put it into
`READERS`, before those that would take its files as well; a reader of a binary format, whose
`recognises` looks at the first block of bytes, goes into `BINARY_READERS`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from curvefit.columns import Request
from curvefit.errors import InputError
from curvefit.readers import (
    console,
    delimited,
    json_document,
    json_lines,
    mapping,
    tensorboard,
    trackio,
    trainer_log,
)
from curvefit.readers.assemble import runs_of
from curvefit.readers.event_folder import EventFolder, expanded
from curvefit.readers.source import Source, open_source
from curvefit.readers.table import Table
from curvefit.runs import Run, Runs
from curvefit.wording import printable

__all__ = ["load", "named", "request_of", "runs_in", "runs_in_folder"]

BINARY_READERS = (tensorboard, trackio)
READERS = (trainer_log, json_lines, json_document, console, delimited)


def load(
    source: Any,
    *,
    x: str | None = None,
    y: str | None = None,
    run: str | None = None,
    n: int | str | None = None,
    gpus: float | None = None,
    gpu_hours_per_step: float | None = None,
) -> Runs:
    """Read runs from files or columns.

    Parameters
    ----------
    source : path, list of paths, ``"-"``, open file, or mapping of columns
        CSV, TSV, JSON or JSONL, compressed with gzip or not; event files of TensorBoard, or a
        directory with such files at any depth; a database of trackio. ``"-"`` is standard input.
        A dict of columns or a DataFrame serves as well.
    x, y : str, optional
        Columns of compute and score; found among known names when left out.
    run : str, optional
        Column that tells runs apart, or several separated by commas.
    n : int or str, optional
        Evaluation size (prompts × samples), or the column that holds it.
    gpus : float, optional
        With a time column: compute is GPU-hours, ``gpus × hours``.
    gpu_hours_per_step : float, optional
        With a step column: compute is GPU-hours.

    Returns
    -------
    Runs
        In the order of the files. Each run says in `Run.notes` which columns were used and what
        was done to its rows, and in `Run.dropped` which rows it does not hold.

    Raises
    ------
    AmbiguousColumn
        When several columns could serve; the message lists them.
    InputError
        When the input cannot be read; the message says what, where, and what to do.

    Examples
    --------
    >>> runs = load({"step": [0, 10, 20], "accuracy": ["12%", "30%", "41%"]})
    >>> runs[0].score.tolist(), runs[0].notes[0].message
    ([0.12, 0.3, 0.41], 'x = step, y = accuracy, run = (all rows)')
    """
    request = request_of(x, y, run, n, gpus, gpu_hours_per_step)
    return named(found for table in _tables(source) for found in runs_of(table, request))


def request_of(
    x: str | None,
    y: str | None,
    run: str | None,
    n: int | str | None,
    gpus: float | None,
    gpu_hours_per_step: float | None,
) -> Request:
    """Return what is asked of a file, as `load` takes it.

    Raises
    ------
    InputError
        If the size of an evaluation is no whole number of 1 or more.
    """
    return Request(x, y, run, _checked_size(n), gpus, gpu_hours_per_step)


def runs_in(source: Source, request: Request) -> list[Run]:
    """Return the runs of one opened file, under the names that the file gives them.

    Raises
    ------
    InputError
        As `load` does.
    """
    return [found for table in _read(source) for found in runs_of(table, request)]


def runs_in_folder(folder: EventFolder, request: Request, growing: bool) -> list[Run]:
    """Return the runs of a folder of event files, to which somebody still writes if `growing`.

    Raises
    ------
    InputError
        As `load` does.
    """
    tables = tensorboard.read_folder(folder, growing)
    return [found for table in tables for found in runs_of(table, request)]


def named(runs: Iterable[Run]) -> Runs:
    """Return the runs of all files, each under a name of its own."""
    return Runs(_with_own_names(list(runs)))


def _read(source: Source) -> list[Table]:
    for binary in BINARY_READERS:
        if binary.recognises(source.first):
            return binary.read(source)
    reader = next(reader for reader in READERS if reader.recognises(source.head))
    return reader.read(source)


def _tables(source: Any) -> Iterable[Table]:
    if isinstance(source, (str, os.PathLike)):
        for path in expanded([source]):
            if isinstance(path, EventFolder):
                yield from tensorboard.read_folder(path)
            else:
                with open_source(path) as opened:
                    yield from _read(opened)
    elif hasattr(source, "read"):
        with open_source(source) as opened:
            yield from _read(opened)
    elif isinstance(source, Mapping) or hasattr(source, "columns"):
        yield from mapping.read(source)
    elif isinstance(source, Iterable):
        files = list(source)
        if not files:
            raise InputError("no file was given")
        for file in files:
            yield from _tables(file)
    else:
        raise InputError(
            f"cannot read {type(source).__name__}: give a path, a list of paths, an open file or "
            "a mapping of columns"
        )


def _checked_size(n: int | str | None) -> int | str | None:
    if n is None or isinstance(n, str):
        return n
    if isinstance(n, bool) or n != int(n) or not 1 <= n <= 1e12:
        raise InputError(f"the size of an evaluation (--n) is {n}: a whole number of 1 or more")
    return int(n)


def _with_own_names(runs: list[Run]) -> list[Run]:
    """Tell apart runs that have the same name: by file, and at last by number."""
    seen: Counter[str] = Counter()
    files: dict[str, set[str]] = {}
    for found in runs:
        files.setdefault(found.name, set()).add(found.file)
    unique = []
    for found in runs:
        name = found.name
        if len(files[name]) > 1:
            name = f"{name} ({_short(found.file, files[name])})"
        seen[name] += 1
        name = name if seen[name] == 1 else f"{name} [{seen[name]}]"
        unique.append(found if name == found.name else replace(found, name=name))
    return unique


def _short(file: str, among: set[str]) -> str:
    last = PurePath(file).name
    alike = sum(PurePath(other).name == last for other in among) > 1
    return printable(file if alike or not last else last)
