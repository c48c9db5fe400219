"""From rows as logged to the points of a run; everything that is done is reported.

In order: runs that were appended to one file are told apart; the steps that a restart rewound are
left out; rows without a score are skipped; values that were only carried forward are kept once;
several evaluations at the same compute become one; the points are sorted. A log that is already
clean passes through untouched.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from curvefit.runs import Dropped, Note
from curvefit.wording import count, places

__all__ = ["Journal", "Rows", "appended_runs", "merged", "rewound", "sorted_rows", "without_fill"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

MIN_BLOCKS = 4  # blocks of equal values that show that values were carried forward


@dataclass(slots=True)
class Journal:
    """What was decided about one run, in the terms of its file."""

    place: str = "line"
    notes: list[Note] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)

    def note(self, code: str, message: str) -> None:
        """Keep a decision."""
        self.notes.append(Note(code, message))

    def drop(self, rows: IntArray, why: str) -> None:
        """Keep the rows that were left out."""
        self.dropped += [Dropped(row, why) for row in rows.tolist()]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one run in file order; every array has shape (n,).

    Attributes
    ----------
    x, y : ndarray
        Compute and score, NaN where blank.
    row : ndarray of int
        Where each stands in the file.
    order : ndarray or None
        What should grow from row to row: the training step, or compute itself.
    n : ndarray or None
        Evaluation size.
    live : ndarray of bool or None
        False where a restart rewound the row; None if none was.
    """

    x: FloatArray
    y: FloatArray
    row: IntArray
    order: FloatArray | None = None
    n: FloatArray | None = None
    live: BoolArray | None = None

    def take(self, keep: BoolArray | IntArray | slice) -> Rows:
        """Return the rows selected by a mask, positions or a slice."""

        def part(array: FloatArray | None) -> FloatArray | None:
            return None if array is None else array[keep]

        live = None if self.live is None else self.live[keep]
        row = self.row[keep]
        return Rows(self.x[keep], self.y[keep], row, part(self.order), part(self.n), live)


# ---------------------------------------------------------------- restarts


def appended_runs(rows: Rows, journal: Journal) -> list[Rows]:
    """Split a file to which several runs were appended, and mark what restarts rewound.

    Where the step falls back and values of it come again, the run was restarted. If it falls to
    where the run began, another run starts. If it falls less far, training resumed from a
    checkpoint: the earlier rows from that step on belong to no history of the final policy, and
    are marked in `Rows.live`. A block of rows that only repeats earlier ones is left out. Where no
    step comes twice, or the step falls all the time, the rows are merely unsorted.
    """
    if rows.order is None or not len(rows.row):
        return [rows]
    order = _filled(rows.order)
    falls = np.flatnonzero(order[1:] < order[:-1]) + 1
    if not len(falls) or len(falls) + 1 > max(2, len(order) / 3):
        return [rows]
    bounds = [0, *falls.tolist(), len(order)]
    live = np.ones(len(order), dtype=bool)
    keep = np.ones(len(order), dtype=bool)
    starts = [0]
    for first, last in pairwise(bounds[1:]):
        here, before = slice(first, last), slice(starts[-1], first)
        if _repeats(order, rows.y, here, before):
            keep[here] = False
        elif np.isin(order[here], order[before][keep[before]]).any():
            if order[first] <= order[starts[-1]]:
                starts.append(first)
            else:
                live[before] &= order[before] < order[first]
    _report_repeats(rows, keep, journal)
    if not live.all():
        rows = replace(rows, live=live)
    ends = [*starts[1:], len(order)]
    picks = [np.arange(a, b)[keep[a:b]] for a, b in zip(starts, ends, strict=True)]
    return [rows.take(pick) for pick in picks] if len(picks) > 1 or not keep.all() else [rows]


def rewound(rows: Rows, journal: Journal) -> Rows:
    """Leave out the rows that a restart rewound."""
    if rows.live is None or rows.live.all():
        return rows
    lost = rows.row[~rows.live & np.isfinite(rows.y)]
    if len(lost):
        what = f"{count(len(lost), 'row')} before a restart ({places(lost, journal.place)})"
        journal.note("restart", f"the step falls back: {what} left out, the later rows kept")
        journal.drop(lost, "its step was trained again after a restart")
    return rows.take(rows.live)


def _filled(order: FloatArray) -> FloatArray:
    """Carry the last known value over blanks."""
    known = np.isfinite(order)
    if known.all():
        return order
    last = np.maximum.accumulate(np.where(known, np.arange(len(order)), 0))
    filled = order[last]
    filled[~np.isfinite(filled)] = -np.inf
    return filled


def _repeats(order: FloatArray, y: FloatArray, here: slice, before: slice) -> bool:
    """Whether a block only repeats rows that stand above it."""
    known = np.isfinite(y[here])
    if known.sum() < 2:
        return False
    above = set(zip(order[before].tolist(), y[before].tolist(), strict=True))
    block = zip(order[here][known].tolist(), y[here][known].tolist(), strict=True)
    return all(pair in above for pair in block)


def _report_repeats(rows: Rows, keep: BoolArray, journal: Journal) -> None:
    twice = rows.row[~keep]
    if len(twice):
        where = places(twice, journal.place, 3)
        journal.note(
            "repeated-rows",
            f"{count(len(twice), 'row')} the same as an earlier one ({where}): left out",
        )
        journal.drop(twice, "stands above already")


# ---------------------------------------------------------------- values carried forward


def without_fill(rows: Rows, journal: Journal) -> Rows:
    """Keep the first row of each block of values that were carried forward.

    Some loggers write the last evaluation again at every step. The blocks are then of one length k
    (or a multiple, where two evaluations agree), which evaluations themselves do not show.
    """
    y = rows.y
    if len(y) < 2 * MIN_BLOCKS or np.mean(y[1:] == y[:-1]) < 0.4:
        return rows
    starts = np.flatnonzero(np.concatenate(([True], y[1:] != y[:-1])))
    lengths = np.diff(starts, append=len(y))
    inner = lengths[1:-1]
    if len(inner) < MIN_BLOCKS - 2:
        return rows
    k = int(inner.min())
    regular = k >= 2 and not (inner % k).any() and np.mean(inner == k) >= 0.5
    if not regular or (k == 2 and len(inner) < 2 * MIN_BLOCKS):
        return rows
    phase = starts[1] % k
    first = (np.arange(len(y)) % k == phase) | (np.arange(len(y)) == 0)
    said = f"each value stands {k} times in a row: {np.sum(first):,} of {len(y):,} rows kept"
    journal.note("forward-filled", f"{said}, the first of each block")
    journal.drop(rows.row[~first], "the value above carried forward")
    return rows.take(first)


# ---------------------------------------------------------------- order and repeats


def sorted_rows(rows: Rows, journal: Journal, column: str) -> Rows:
    """Sort by compute, keeping file order among equals."""
    if not (rows.x[1:] < rows.x[:-1]).any():
        return rows
    journal.note("sorted", f"the rows were not in the order of {column}, and were sorted")
    return rows.take(np.argsort(rows.x, kind="stable"))


def merged(rows: Rows, journal: Journal, column: str) -> Rows:
    """Make one point of several evaluations at the same compute.

    Identical rows count once. Different ones are averaged, weighted by evaluation size where it is
    known, ``ȳ = Σ n_i y_i / Σ n_i``, and the sizes add up.
    """
    if not (rows.x[1:] == rows.x[:-1]).any():
        return rows
    rows = _without_twins(rows, journal)
    first = np.concatenate(([True], rows.x[1:] != rows.x[:-1]))
    if first.all():
        return rows
    group = np.cumsum(first) - 1
    weight = np.ones(len(first)) if rows.n is None else rows.n
    total = np.bincount(group, weight).astype(np.float64)
    y = np.bincount(group, rows.y * (weight / total[group])).astype(np.float64)
    size = np.bincount(group)
    how = "a plain mean" if rows.n is None else "weighted by evaluation size"
    where = places(rows.row[first][size > 1], journal.place, 3)
    said = f"{count(int(np.sum(size > 1)), 'value')} of {column} with several scores ({where})"
    journal.note("repeated-steps", f"{said}: averaged, {how}")
    for row, into in zip(rows.row[~first].tolist(), rows.row[first][group[~first]], strict=True):
        journal.dropped.append(Dropped(row, f"averaged into {journal.place} {into}"))
    return replace(rows.take(first), y=y, n=None if rows.n is None else total)


def _without_twins(rows: Rows, journal: Journal) -> Rows:
    """Leave out rows whose compute, score and size stand above already."""
    n = np.zeros(len(rows.x)) if rows.n is None else rows.n
    by = np.lexsort((n, rows.y, rows.x))  # stable: the first of equals stays first
    x, y, n = rows.x[by], rows.y[by], n[by]
    again = np.zeros(len(by), dtype=bool)
    again[by[1:]] = (x[1:] == x[:-1]) & (y[1:] == y[:-1]) & (n[1:] == n[:-1])
    if not again.any():
        return rows
    twice = rows.row[again]
    where = places(twice, journal.place, 3)
    journal.note(
        "repeated-rows",
        f"{count(len(twice), 'row')} the same as an earlier one ({where}): left out",
    )
    journal.drop(twice, "stands above already")
    return rows.take(~again)
