"""One file that grows, or a folder of event files: read when it has changed.

It is kept as it was when it cannot be read.

A file may be caught between two writes, or while another takes its name: what fails once is not
complained about, what fails in two looks one after the other is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from curvefit.errors import AmbiguousColumn, CurvefitError, InputError
from curvefit.readers import runs_in, runs_in_folder
from curvefit.readers.event_folder import EventFolder, expanded
from curvefit.readers.source import open_source
from curvefit.runs import Run

if TYPE_CHECKING:
    from curvefit.columns import Request

__all__ = ["GrowingFile", "Trouble"]

PATIENCE = 2  # looks in a row that must fail before a file that could be read is complained about

Stamp = tuple[int, int, int, int] | None


class Trouble(NamedTuple):
    """What cannot be read or fitted now, and whether more data may mend it.

    `of` is the path of the file or the name of the run; `kept` says that the last forecasts of the
    file stand.
    """

    of: str
    error: CurvefitError
    mends: bool
    kept: bool


@dataclass(slots=True)
class GrowingFile:
    """What a file held when it was last read well, and what is wrong with it now.

    Attributes
    ----------
    path : str
        An `EventFolder` for a folder.
    runs : list of Run
        As last read, under the names that the file gives them.
    error : InputError or None
        Why it cannot be read now; `runs` stay.
    ended : bool
        Whether its log says that the run has ended.
    unfinished : bool
        Whether its last line was left for later.
    """

    path: str
    runs: list[Run] = field(default_factory=list)
    error: InputError | None = None
    ended: bool = False
    unfinished: bool = False
    stamp: tuple[Stamp, ...] | None = None
    looked: bool = False
    failures: int = 0  # looks in a row
    complained: bool = False  # since it was last read well

    def unfolded(self) -> list[GrowingFile]:
        """Return the folders of runs that have come to be where a file was waited for, or this."""
        if isinstance(self.path, EventFolder) or not os.path.isdir(self.path):
            return [self]
        folders = [found for found in expanded([self.path]) if isinstance(found, EventFolder)]
        return [GrowingFile(folder) for folder in folders] or [self]

    def look(self, request: Request, whole: bool) -> bool:
        """Read the file if it has changed; return whether its runs may have."""
        stamp = self._stamp()
        if self.looked and stamp == self.stamp and not (whole and (self.unfinished or self.error)):
            self.failures += self.error is not None
            return False
        self.stamp, self.looked = stamp, True
        try:
            self._read(request, growing=not whole)
        except InputError as error:
            self.error, self.failures = error, self.failures + 1
            return False
        self.error, self.failures = None, 0
        return True

    def _stamp(self) -> tuple[Stamp, ...]:
        if isinstance(self.path, EventFolder):
            return (_stamp(self.path), *map(_stamp, self.path.files()))
        return _stamp(self.path), _stamp(f"{self.path}-wal")  # where SQLite writes at first

    def _read(self, request: Request, growing: bool) -> None:
        if isinstance(self.path, EventFolder):
            self.runs = runs_in_folder(self.path, request, growing)
            return
        with open_source(self.path, growing=growing) as source:
            try:
                self.runs = runs_in(source, request)
            finally:
                self.unfinished, self.ended = source.unfinished, source.ended

    def trouble(self, at_once: bool) -> Trouble | None:
        """Return what is wrong, unless a later look may still find it mended."""
        if self.error is None or (self.runs and self.failures < PATIENCE and not at_once):
            return None
        kept = self.complained = bool(self.runs)
        return Trouble(self.path, self.error, not isinstance(self.error, AmbiguousColumn), kept)

    def mended(self) -> bool:
        """Whether a complaint is over; True once."""
        over = self.complained and self.error is None
        self.complained = self.complained and not over
        return over


def _stamp(path: str) -> Stamp:
    """Return what changes when a file is written to or replaced; None where there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # reading says what is wrong
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
