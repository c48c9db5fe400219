"""From a table and its chosen columns to runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from curvefit.clean import Journal, Rows, appended_runs, merged, rewound, sorted_rows, without_fill
from curvefit.columns import Choice, Request, choose
from curvefit.errors import InputError
from curvefit.readers.groups import ask_if_mixed, groups, members
from curvefit.readers.table import Table
from curvefit.runs import Axis, Note, Run
from curvefit.scores import as_fraction, unit_of
from curvefit.wording import count, listed, places, printable

__all__ = ["runs_of"]

MIN_POINTS = 4  # a run that was started again after fewer points is an aborted start
MAX_SIZE = 1e12

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def runs_of(table: Table, request: Request) -> list[Run]:
    """Return the runs of a table, cleaned.

    Raises
    ------
    InputError
        When columns cannot be chosen, a cell is not what it should be, or no row has both compute
        and score.
    """
    choice = choose(table, request)
    labels, group = groups(table, choice)
    parts = members(group, len(labels))
    shared = _shared(table, choice)
    runs: list[Run] = []
    for series in choice.series:
        y, notes = as_fraction(series.column, table.numbers(series.column), table.label)
        rows = replace(shared, y=y)
        if series is choice.series[0]:
            ask_if_mixed(table, choice, rows, group)
        notes = [*_choice_notes(table, choice), *table.notes, *notes]
        for label, here in zip(labels, parts, strict=True):
            name = ", ".join(part for part in (label, series.run) if part) or table.run
            runs += _cleaned(table, choice, printable(name), rows.take(here), notes)
    return _with_points(table, choice, runs)


def _shared(table: Table, choice: Choice) -> Rows:
    """Return the rows with all but their scores."""
    x = table.numbers(choice.x).values
    order = x if choice.scale.shows in ("amount", "elapsed", "date") else None
    if choice.step is not None:
        order = table.numbers(choice.step).values
    n = None
    if isinstance(choice.n, str):
        n = table.numbers(choice.n).values
    elif choice.n is not None:
        n = np.full(len(x), float(choice.n))
    return Rows(x, x, table.rows, order, n)


def _choice_notes(table: Table, choice: Choice) -> list[Note]:
    notes = [Note("columns", choice.sentence(table.run_from))]
    if choice.others:
        said = f"other columns that could be the score: {listed(choice.others, 6)} (--y COL)"
        notes.append(Note("other-scores", said))
    if table.numbers(choice.x).grouped:
        said = f"commas in {printable(choice.x)} were read as thousands separators"
        notes.append(Note("thousands", said))
    return notes


# ---------------------------------------------------------------- one run


def _cleaned(table: Table, choice: Choice, name: str, rows: Rows, notes: list[Note]) -> list[Run]:
    """Clean the rows under one name; several runs where a file holds several, one after another."""
    journal = Journal(table.place, list(notes))
    parts = appended_runs(rows, journal)
    if len(parts) == 1:
        return [_run(table, choice, name, parts[0], journal)]
    runs = [
        _run(table, choice, f"{name} #{i}", part, Journal(table.place, list(journal.notes)))
        for i, part in enumerate(parts, 1)
    ]
    starts = [int(part.row[0]) for part in parts[1:]]
    said = f"the step starts over at {places(starts, table.place)}: {len(parts)} runs in one file"
    full = [run for run in runs if len(run) >= MIN_POINTS] or runs
    short = [run for run in runs if len(run) < MIN_POINTS] if full is not runs else []
    if short:
        listing = listed(run.name.rpartition(" ")[2] for run in short)
        said += f", of which {listing} with fewer than {MIN_POINTS} points left out"
    for run in short:
        journal.drop(run.row, "an aborted start, before the run started over")
    note = Note("appended-runs", said)
    full = [replace(run, notes=(*run.notes, note)) for run in full]
    full[0] = replace(full[0], dropped=(*journal.dropped, *full[0].dropped))
    return [replace(full[0], name=name)] if len(full) == 1 else full


def _run(table: Table, choice: Choice, name: str, rows: Rows, journal: Journal) -> Run:
    x, assumed = choice.scale(rows.x, rows.order if choice.step else None)
    journal.notes += assumed
    _refuse_bad_compute(table, choice, replace(rows, x=x))
    rows = _complete(rewound(replace(rows, x=x), journal), journal, choice)
    if isinstance(choice.n, str):
        _refuse_bad_size(table, choice.n, rows)
    rows = without_fill(rows, journal)
    rows = merged(sorted_rows(rows, journal, printable(choice.x)), journal, printable(choice.x))
    unit, outside = unit_of(rows.y, rows.row, table.place)
    return Run(
        name=name,
        compute=np.array(rows.x),
        score=np.array(rows.y),
        n_eval=None if rows.n is None else np.array(rows.n),
        row=np.array(rows.row),
        file=table.file,
        x=Axis(choice.scale.column, choice.scale.unit),
        y=Axis(printable(choice.y), unit),
        dropped=tuple(journal.dropped),
        notes=(*journal.notes, *outside),
    )


def _complete(rows: Rows, journal: Journal, choice: Choice) -> Rows:
    """Keep the rows that have both compute and score."""
    scored, placed = np.isfinite(rows.y), np.isfinite(rows.x)
    both = scored & placed
    if both.all():
        return rows
    if not scored.all():
        without = f"{np.sum(~scored):,} of {count(len(scored), 'row')} without {choice.y}"
        journal.note("no-score", f"{printable(without, 300)}: no evaluation there")
    lost = rows.row[scored & ~placed]
    if len(lost):
        what = f"{count(len(lost), 'score')} without {printable(choice.x)}"
        journal.note("no-compute", f"{what} ({places(lost, journal.place)}): left out")
        journal.drop(lost, f"no {printable(choice.x)}")
    return rows.take(both)


def _refuse_bad_compute(table: Table, choice: Choice, rows: Rows) -> None:
    bad = (rows.x < 0) | np.isinf(rows.x)
    if bad.any():
        row, value = rows.row[bad][0], rows.x[bad][0]
        why = "compute cannot be negative" if value < 0 else "too large to be compute"
        raise InputError(
            f"{table.label}, {table.place} {row}: {printable(choice.x)} gives {value:g}: {why}; "
            "correct the row, or choose another column with --x COL"
        )


def _refuse_bad_size(table: Table, column: str, rows: Rows) -> None:
    assert rows.n is not None
    bad = ~((rows.n >= 1) & (rows.n <= MAX_SIZE))
    if bad.any():
        row, value = rows.row[bad][0], rows.n[bad][0]
        shown = "blank" if np.isnan(value) else f"{value:g}"
        raise InputError(
            f"{table.label}, {table.place} {row}: {printable(column)} is {shown}: the size of an "
            "evaluation (--n) must be 1 or more wherever there is a score"
        )


def _with_points(table: Table, choice: Choice, runs: list[Run]) -> list[Run]:
    """Leave out runs without a point; hand what happened to the file to its first run."""
    full = [run for run in runs if len(run)]
    if not full:
        raise InputError(
            f"{table.label}: no row has both {printable(choice.x)} and {printable(choice.y)}: "
            "choose other columns with --x COL and --y COL"
        )
    empty = [run.name for run in runs if not len(run)]
    notes = full[0].notes
    if empty:
        said = f"{count(len(empty), 'run')} without any score left out: {listed(empty, 5)}"
        notes = (*notes, Note("empty-runs", said))
    full[0] = replace(full[0], dropped=(*table.dropped, *full[0].dropped), notes=notes)
    return full
