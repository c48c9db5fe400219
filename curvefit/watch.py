"""Logs that grow: which of them changed, what they hold now, and the fits that this calls for.

::

    stat of each file ─► those that changed are read ─► runs whose points changed are fitted

A look costs one ``stat`` a file as long as nothing happens. A file that changed is read from its
start, because what a new line means may hang on all earlier ones (a restart rewinds, a column
appears, runs are told apart); what that costs is bounded by looking less often when reading takes
long (`Watch.pause`). What was read stays until something better can be read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from curvefit.errors import CurvefitError, FitError, InputError
from curvefit.fit import Fit
from curvefit.growing import GrowingFile, Trouble
from curvefit.readers import named
from curvefit.runs import Run, Runs

if TYPE_CHECKING:
    from curvefit.columns import Request

__all__ = ["EVERY", "Change", "Look", "Watch", "checked_pause", "gist"]

EVERY = 2.0  # seconds between two looks
SHARE = 4.0  # pauses last at least so many times as long as the last look: a fifth of a core


class Change(NamedTuple):
    """A run fitted anew, and its fit before (None at first).

    `points` says whether its points are others than before, or only what is known of its file;
    `lost` how many of the earlier points are gone.
    """

    fit: Fit
    before: Fit | None
    points: bool
    lost: int


class Look(NamedTuple):
    """What a look found: runs fitted anew, new troubles, and files that can be read again."""

    changes: tuple[Change, ...]
    troubles: tuple[Trouble, ...]
    mended: tuple[str, ...]


def checked_pause(every: float) -> float:
    """Return the seconds between two looks if they are above 0 and finite.

    Raises
    ------
    InputError
        If they are not.
    """
    if not 0.0 < every < float("inf"):
        raise InputError(f"every is {every:g}: give a number of seconds above 0")
    return float(every)


def gist(message: str) -> str:
    """Return a message without its numbers and plurals: what makes it news.

    >>> gist("a.csv has 1 training step") == gist("a.csv has 12 training steps")
    True
    """
    return re.sub(r"[\d.,]+|s\b", "", message)


class Watch:
    """Files that grow and the fits of their runs.

    Parameters
    ----------
    files : sequence of str
        A directory with event files stands for the folders of runs in it when it is first seen.
    request : Request
        How to read them, as `readers.request_of` gives it.
    fit : callable
        From a run to its fit.

    Attributes
    ----------
    runs : Runs
        What was last read of all files.
    fits : dict from str to Fit
        By the name of the run, in the order of `runs`; runs that cannot be fitted are missing.
    """

    def __init__(self, files: Sequence[str], request: Request, fit: Callable[[Run], Fit]) -> None:
        self.runs = Runs([])
        self.fits: dict[str, Fit] = {}
        self._files = [GrowingFile(file) for file in files]
        self._request, self._fit = request, fit
        self._tried: dict[str, Run] = {}
        self._refused: dict[str, CurvefitError] = {}
        self._told: dict[str, set[str]] = {}  # of a file or a run: what was said
        self._cost = 0.0

    @property
    def ended(self) -> bool:
        """Whether all files are logs that say that their runs have ended."""
        return all(file.ended for file in self._files)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The files whose last line is not read yet because it is not finished."""
        return tuple(file.path for file in self._files if file.unfinished)

    @property
    def unreadable(self) -> tuple[InputError, ...]:
        """Why files cannot be read now."""
        return tuple(file.error for file in self._files if file.error is not None)

    @property
    def unfittable(self) -> tuple[CurvefitError, ...]:
        """Why runs cannot be fitted now."""
        return tuple(self._refused.values())

    def pause(self, every: float) -> float:
        """Return how long to wait for the next look, in seconds: at least `every`."""
        return max(every, SHARE * self._cost)

    def look(self, *, whole: bool = False) -> Look:
        """Read what has changed and fit the runs whose points are others than before.

        Parameters
        ----------
        whole : bool
            Take a last line that is not finished as it is: nobody will write more.
        """
        start = time.monotonic()
        self._files = [found for file in self._files for found in file.unfolded()]
        read = [file.look(self._request, whole) for file in self._files]
        changes = self._refit() if any(read) else []
        troubles = [t for file in self._files if (t := file.trouble(whole)) is not None]
        troubles += [
            Trouble(name, error, isinstance(error, FitError) or _is_short(self._tried[name]), False)
            for name, error in self._refused.items()
        ]
        mended = tuple(file.path for file in self._files if file.mended())
        for over in (*mended, *(change.fit.run.name for change in changes)):
            self._told.pop(over, None)
        if any(read):
            self._cost = time.monotonic() - start
        return Look(tuple(changes), tuple(filter(self._is_news, troubles)), mended)

    def _is_news(self, trouble: Trouble) -> bool:
        told, said = self._told.setdefault(trouble.of, set()), gist(str(trouble.error))
        news = said not in told
        told.add(said)
        return news

    def _refit(self) -> list[Change]:
        """Fit the runs whose points changed; forget those that are no longer there."""
        self.runs = named(run for file in self._files for run in file.runs)
        tried, before = self._tried, self.fits
        self._tried = {run.name: run for run in self.runs}
        self.fits, refused, self._refused = {}, self._refused, {}
        changes = []
        for name, run in self._tried.items():
            old = tried.get(name)
            if old is not None and _same(old, run):
                self.fits |= {name: before[name]} if name in before else {}
                self._refused |= {name: refused[name]} if name in refused else {}
                continue
            try:
                self.fits[name] = self._fit(run)
            except CurvefitError as error:
                self._refused[name] = error
                continue
            other = old is None or not _same_points(old, run)
            lost = 0 if old is None else _lost(old, run)
            changes.append(Change(self.fits[name], before.get(name), other, lost))
        return changes


def _same(a: Run, b: Run) -> bool:
    """Whether two readings of a run give the same fit and the same record."""
    described = (a.file, a.x, a.y, a.dropped) == (b.file, b.x, b.y, b.dropped)
    return described and _same_points(a, b) and np.array_equal(a.row, b.row)


def _same_points(a: Run, b: Run) -> bool:
    pairs = ((a.compute, b.compute), (a.score, b.score), (a.n_eval, b.n_eval))
    return all(_equal(left, right) for left, right in pairs)


def _equal(a: NDArray[Any] | None, b: NDArray[Any] | None) -> bool:
    return a is b if a is None or b is None else np.array_equal(a, b)


def _lost(old: Run, new: Run) -> int:
    """How many points of a run are gone: rewound by a restart, or no longer in the file."""
    points = [set(zip(r.compute.tolist(), r.score.tolist(), strict=True)) for r in (old, new)]
    return len(points[0] - points[1])


def _is_short(run: Run) -> bool:
    """Whether more points may be all that is needed."""
    return len(run) < 3 or run.compute[0] == run.compute[-1]
