"""Directories of event files: which folders of them are runs, and what these are called.

A run is a folder with files that have ``tfevents`` in their names, as TensorBoard has it; several
such files are one run that was continued. Hidden folders are not searched. Folders that hold no
curve (settings that a trainer logs into a folder of their own) are left out where others do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from curvefit.errors import InputError
from curvefit.readers.events import is_event_file, read_scalars
from curvefit.readers.source import open_source, run_name

__all__ = ["EventFolder", "expanded", "run_of_folder"]


class EventFolder(str):
    """The path of a folder with event files, and what its run is called.

    >>> folder = EventFolder("runs/grpo/seed0", "grpo/seed0")
    >>> folder, folder.run
    ('runs/grpo/seed0', 'grpo/seed0')
    """

    __slots__ = ("run",)
    run: str

    def __new__(cls, path: str, run: str) -> EventFolder:
        """Return the path with the name."""
        folder = super().__new__(cls, path)
        folder.run = run
        return folder

    def files(self) -> list[str]:
        """Return the paths of the event files that are not empty, by name; none if it is gone."""
        if not os.path.isdir(self):
            return []
        with os.scandir(self) as entries:
            named = [entry for entry in entries if _is_named(entry.name)]
        return sorted(entry.path for entry in named if entry.stat().st_size)


def expanded(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Replace each directory that has event files, at any depth, by its `EventFolder` objects."""
    return [found for path in map(_plain, paths) for found in _folders(path) or [path]]


def run_of_folder(path: str) -> str:
    """Name a run by its folder, or by the one above where a folder's name says nothing.

    >>> run_of_folder("checkpoints/grpo/logs")
    'grpo'
    """
    return run_name(os.path.join(os.path.abspath(path), "log"))


def _plain(path: str | os.PathLike[str]) -> str:
    return path if isinstance(path, str) else os.fspath(path)


def _folders(path: str) -> Sequence[str]:
    if isinstance(path, EventFolder):
        return [path]
    found = []
    for folder, inner, files in os.walk(path) if os.path.isdir(path) else ():
        inner[:] = sorted(name for name in inner if name[0] != ".")
        if any(map(_is_named, files)):
            below = os.path.relpath(folder, path)
            run = run_of_folder(path) if below == "." else below.replace(os.sep, "/")
            found.append(EventFolder(folder, run))
    curves = [folder for folder in found if _has_curve(folder)] if len(found) > 1 else []
    return curves or found


def _is_named(name: str) -> bool:
    return "tfevents" in name


def _has_curve(folder: EventFolder) -> bool:
    """Whether anything was logged at two steps; what cannot be read is complained about later."""
    steps: set[int] = set()
    try:
        for file in folder.files():
            with open_source(file) as source:
                if is_event_file(source.first):
                    scalars = read_scalars(source.blocks(), source.label, two_steps=True)
                    steps.update(scalars.step)
            if len(steps) > 1:
                return True
    except InputError:
        return True
    return False
