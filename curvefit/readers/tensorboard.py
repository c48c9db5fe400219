"""TensorBoard: an event file, or a folder of them, as one table of scalars.

A row is a step, a column a tag. Beside the tags stand ``step`` and ``elapsed_s``: seconds since the
run's first event, when the last value of the step was logged. Files that follow one another in time
are one run that was started again: its clock stands still between the last event of one and the
first of the next, and what the later file logs anew replaces what stood there. Files that overlap
in time were written side by side, and are merged. All scalars are read, none is sampled.

This is a reader of its own because TensorBoard's is 128 MB of packages for the four fields that a
curve needs (`events`), and keeps 10,000 points a tag unless told otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from curvefit.errors import InputError
from curvefit.readers.event_folder import EventFolder, run_of_folder
from curvefit.readers.event_rows import EventRows
from curvefit.readers.events import Scalars, is_event_file, read_scalars
from curvefit.readers.source import Source, open_source
from curvefit.readers.table import Table
from curvefit.readers.tfrecord import first_record
from curvefit.runs import Note
from curvefit.wording import count, printable

__all__ = ["read", "read_folder", "recognises"]


def recognises(first: bytes) -> bool:
    """Whether a file begins with a TFRecord whose checksum agrees."""
    return first_record(first) is not None


def read(source: Source) -> list[Table]:
    """Read one event file.

    Raises
    ------
    InputError
        When it is damaged, holds other records than events, or no scalar.
    """
    run = source.run if source.path is None else run_of_folder(os.path.dirname(source.path))
    return [_table(source.file, run, [_scalars(source)], source.growing)]


def read_folder(folder: EventFolder, growing: bool = False) -> list[Table]:
    """Read the event files of a folder as one run.

    Raises
    ------
    InputError
        As `read` does.
    """
    found = []
    for file in folder.files():
        with open_source(file) as source:
            found.append(_scalars(source))
    return [_table(str(folder), printable(folder.run), found, growing)]


def _scalars(source: Source) -> Scalars:
    if not is_event_file(source.first):
        raise InputError(
            f"{source.label} is no event file of TensorBoard: its first record has no version "
            "(brain.Event:2); it may be a TFRecord file of training data"
        )
    return read_scalars(source.blocks(), source.label)


def _table(file: str, run: str, found: list[Scalars], growing: bool) -> Table:
    label = printable(file)
    if not any(scalars.value for scalars in found):
        raise InputError(
            f"{label} holds no scalar yet: wait for the first, or name the folder of another run"
        )
    rows = EventRows()
    for session in _sessions(found):
        rows.add(session)
    columns, steps = rows.columns(label)
    notes = [*rows.notes, *([] if growing else _cut(found))]
    return Table(
        file, run, dict(columns), steps, "step", run_from="folder", notes=notes, dropped=rows.purged
    )


def _cut(found: list[Scalars]) -> list[Note]:
    """Say where files end in the middle of a record: a crash, or a write that goes on."""
    cuts = [scalars.cut for scalars in found if scalars.cut is not None]
    said = f"the last record is only half written (byte {cuts[0]:,})" if cuts else ""
    more = f", and that of {count(len(cuts) - 1, 'file')} more" if len(cuts) > 1 else ""
    return [Note("half-written-line", f"{said}{more}: left out")] if cuts else []


def _sessions(found: Sequence[Scalars]) -> list[list[Scalars]]:
    """Group files that were written side by side; the groups follow one another in time."""
    sessions: list[list[Scalars]] = []
    last = -np.inf
    for scalars in sorted((s for s in found if s.first == s.first), key=lambda s: s.first):
        if sessions and scalars.first < last:
            sessions[-1].append(scalars)
        else:
            sessions.append([scalars])
        last = max(last, scalars.last)
    return sessions
