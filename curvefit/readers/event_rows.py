"""From the scalars of event files to rows: one a step, one column a tag, and a clock.

A step that comes again opens a new part of the run, whose rows stand below those of the part
before: there `clean` finds what a restart rewound. The clock runs from the first event of a file to
its last, and stands still until the next file; where that file starts the run over, so does the
clock.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from curvefit.errors import InputError
from curvefit.readers.events import MAX_TAGS, MAX_VALUES, Scalars
from curvefit.runs import Dropped, Note
from curvefit.wording import count, listed

__all__ = ["EventRows"]

MAX_CELLS = 50_000_000  # numbers of 8 bytes
STEP, ELAPSED = "step", "elapsed_s"

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class EventRows:
    """The rows of one run, filled session by session.

    Attributes
    ----------
    step, part, elapsed : array, one entry a row
        Global step; which part of the run; seconds of the clock at the last value of the row.
    notes, purged : list
        What is to be said, and the rows that a later file declared void.
    """

    def __init__(self) -> None:
        self.step, self.part, self.elapsed = array("q"), array("q"), array("d")
        self.notes: list[Note] = []
        self.purged: list[Dropped] = []
        self._row, self._tag, self._value = array("q"), array("q"), array("d")  # of each cell
        self._tags: dict[str, int] = {}
        self._parts = 0
        self._row_of: dict[int, int] = {}  # by step, in the present part
        self._filled: set[tuple[int, int]] = set()  # row and tag, in the present part
        self._clock = 0.0  # where the sessions so far end
        self._void = np.zeros(0, dtype=bool)  # rows so far that a restart declared void

    def add(self, session: Sequence[Scalars]) -> None:
        """Take the scalars of files that were written side by side."""
        first = min(scalars.first for scalars in session)
        last = max(scalars.last for scalars in session)
        scalars = session[0] if len(session) == 1 else _merged(session)
        starts = [one.start for one in session if one.start is not None]
        if starts and self.step:
            self._purge(min(starts))
        if scalars.step and self.step and min(scalars.step) <= min(self.step):
            self._clock = 0.0
        self._new_part()
        self._fill(scalars, self._clock - first, rewinds=len(session) == 1)
        self._clock += last - first

    def _new_part(self) -> None:
        self._parts += 1
        self._row_of, self._filled = {}, set()

    def _fill(self, scalars: Scalars, shift: float, rewinds: bool) -> None:
        """Lay scalars out in rows.

        A tag that goes back to a step that it had opens a new part if `rewinds`; otherwise, and
        where it has several values at one step, each of them has a row.
        """
        tags = [self._tags.setdefault(name, len(self._tags)) for name in scalars.tags]
        latest = dict.fromkeys(tags, 0)
        cells = zip(scalars.wall, scalars.step, scalars.tag, scalars.value, strict=True)
        for wall, step, index, value in cells:
            tag, now = tags[index], wall + shift
            row = self._row_of.get(step)
            if row is not None and (row, tag) in self._filled:
                if rewinds and step < latest[tag]:
                    self._new_part()
                row = None
            if row is None:
                row = self._row_of[step] = len(self.step)
                self.step.append(step)
                self.part.append(self._parts)
                self.elapsed.append(now)
            elif now > self.elapsed[row]:
                self.elapsed[row] = now
            self._filled.add((row, tag))
            latest[tag] = step
            self._row.append(row)
            self._tag.append(tag)
            self._value.append(value)

    def _purge(self, start: int) -> None:
        """Void all rows from a step on: a later file says that training went on from there."""
        step = np.asarray(self.step)
        before = np.append(self._void, np.zeros(len(step) - len(self._void), dtype=bool))
        self._void = before | (step >= start)
        lost = step[self._void & ~before]
        if len(lost):
            said = f"the run was started again at step {start}: {count(len(lost), 'row')} left out"
            self.notes.append(Note("restart", said))
            why = "its step was trained again after a restart"
            self.purged += [Dropped(row, why) for row in lost.tolist()]

    def columns(self, label: str) -> tuple[dict[str, FloatArray], IntArray]:
        """Return the columns, and the step of each row, sorted within each part.

        Raises
        ------
        InputError
            When there are more cells than can be kept.
        """
        step, part = np.asarray(self.step), np.asarray(self.part)
        live = np.ones(len(step), dtype=bool)
        live[: len(self._void)] = ~self._void
        order = np.lexsort((step, part))
        order = order[live[order]]
        if len(order) * len(self._tags) > MAX_CELLS or len(self._tags) > MAX_TAGS:
            raise InputError(
                f"{label} has {len(self._tags):,} tags at {len(order):,} steps, over "
                f"{MAX_CELLS // 1_000_000} million cells ({listed(self._tags, 3)}): export the "
                "tags used as CSV"
            )
        own = {STEP: step[order].astype(np.float64), ELAPSED: np.asarray(self.elapsed)[order]}
        columns = {_own_name(name, self._tags): column for name, column in own.items()}
        return columns | self._tag_columns(order, len(step)), step[order]

    def _tag_columns(self, order: IntArray, rows: int) -> dict[str, FloatArray]:
        tag, row = np.asarray(self._tag), np.asarray(self._row)
        value = np.asarray(self._value)
        by = np.argsort(tag, kind="stable")
        ends = np.searchsorted(tag[by], np.arange(1, len(self._tags)))
        columns = {}
        for name, cells in zip(self._tags, np.split(by, ends), strict=True):
            column = np.full(rows, np.nan)
            column[row[cells]] = value[cells]
            columns[name] = column[order]
        return columns


def _own_name(name: str, tags: dict[str, int]) -> str:
    """Return the name of a column of ours, other than that of any tag."""
    while name in tags:
        name = f"_{name}"
    return name


def _merged(session: Sequence[Scalars]) -> Scalars:
    """Return the scalars of several files in the order of time."""
    if sum(len(scalars.value) for scalars in session) > MAX_VALUES:
        raise InputError(
            f"the event files of one folder hold more than {MAX_VALUES // 1_000_000} million "
            "scalars: export the tags used as CSV"
        )
    merged = Scalars()
    merged.tags = list(dict.fromkeys(name for s in session for name in s.tags))
    at = {name: i for i, name in enumerate(merged.tags)}
    index = [at[s.tags[tag]] for s in session for tag in s.tag]
    by = np.argsort(np.concatenate([s.wall for s in session]), kind="stable")
    merged.tag = array("i", np.asarray(index)[by].tolist())
    merged.step = array("q", np.concatenate([s.step for s in session])[by].tolist())
    merged.wall = array("d", np.concatenate([s.wall for s in session])[by].tolist())
    merged.value = array("d", np.concatenate([s.value for s in session])[by].tolist())
    return merged
