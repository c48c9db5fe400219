"""trackio: the database of a project, with all its runs in one table.

A row of ``metrics`` is one call of ``trackio.log``: run, step, and the metrics as JSON. Runs that
have the same name are told apart by their ids. The ``timestamp`` is left alone: it says when a
batch of rows was written, so that rows logged minutes apart may have the same one. Where the
metrics bring a step of their own (transformers and TRL log ``train/global_step``), trackio's, which
then counts the calls, is called ``_step``.

The database is opened read-only, and may be written to meanwhile.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, NoReturn

from curvefit.errors import InputError
from curvefit.names import compute_meaning
from curvefit.readers.records import Record, flat, table_of_records
from curvefit.readers.source import Source
from curvefit.readers.table import MAX_CELLS, Table
from curvefit.wording import listed, printable, quoted

if TYPE_CHECKING:
    import sqlite3

__all__ = ["read", "recognises"]

MAGIC = b"SQLite format 3\0"
WANTED = ("id", "run_name", "step", "metrics")
MAX_ROW = 1 << 24  # bytes of the metrics of one row
WAIT = 5.0  # seconds for a writer to finish


def recognises(first: bytes) -> bool:
    """Whether a file is an SQLite database."""
    return first.startswith(MAGIC)


def read(source: Source) -> list[Table]:
    """Read the metrics of all runs.

    Raises
    ------
    InputError
        When the database cannot be opened, is not of trackio, or is damaged.
    """
    import sqlite3

    if source.path is None or source.zipped:
        raise InputError(
            f"{source.label} is an SQLite database: it can only be read from its own file, "
            "unpacked and named by its path"
        )
    try:
        connection = _opened(source.path, source.first)
        try:
            columns = _columns(connection)
            missing = [name for name in WANTED if name not in columns]
            if missing:
                _refuse(source, connection, missing, bool(columns))
            return [_table(source, connection, "run_id" in columns)]
        finally:
            connection.close()
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise InputError(
            f"{source.label} cannot be read as an SQLite database: {printable(str(error))}"
        ) from None


def _opened(path: str, first: bytes) -> sqlite3.Connection:
    """Open a database read-only; one that nobody has open without leaving files beside it.

    In WAL mode (bytes 18 and 19 are 2) every other connection keeps a file ``-wal``. Without one
    the database is at rest, and can be read from where nothing can be written.
    """
    import sqlite3
    from pathlib import Path

    at_rest = first[18:20] == b"\2\2" and not os.path.exists(f"{path}-wal")
    uri = Path(path).absolute().as_uri() + "?mode=ro" + "&immutable=1" * at_rest
    connection = sqlite3.connect(uri, uri=True, timeout=WAIT)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ROW)
    return connection


def _columns(connection: sqlite3.Connection) -> list[str]:
    """Return the columns of the table of metrics; none if there is no such table."""
    kinds = connection.execute("SELECT type FROM sqlite_master WHERE name = 'metrics'").fetchall()
    if kinds != [("table",)]:
        return []
    return [row[1] for row in connection.execute("PRAGMA table_info(metrics)")]


def _refuse(
    source: Source, connection: sqlite3.Connection, missing: list[str], is_there: bool
) -> NoReturn:
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    tables = [name for (name,) in connection.execute(names).fetchmany(1000)]
    what = f"no {listed(missing)} in its table metrics" if is_there else "no table metrics"
    raise InputError(
        f"{source.label} is an SQLite database, but none of trackio: {what} (tables: "
        f"{listed(tables, 5) or 'none'}); export the table of metrics as CSV"
    )


def _table(source: Source, connection: sqlite3.Connection, ids: bool) -> Table:
    ident = "run_id" if ids else "run_name"
    query = f"SELECT id, {ident}, run_name, step, metrics FROM metrics ORDER BY id"
    rows: list[int] = []
    own: list[tuple[str, object]] = []  # run and step
    logged: list[Record] = []
    names: dict[str, dict[str, str]] = {}  # what the runs of a name are called, by id
    cells = 0
    for row, run_id, run_name, step, metrics in connection.execute(query):
        name = str(run_name)
        alike = names.setdefault(name, {})
        run = alike.setdefault(str(run_id), f"{name} [{len(alike) + 1}]" if alike else name)
        record = _metrics(source, row, metrics)
        rows.append(row)
        own.append((run, step))
        logged.append(record)
        cells += len(record) + 2
        if cells > MAX_CELLS:
            raise InputError(
                f"{source.label} has more than {MAX_CELLS // 1_000_000} million values: export "
                "the metrics used as CSV"
            )
    if not rows:
        raise InputError(f"{source.label} holds no metrics yet: wait for the first call of log")
    counter = "_step" if _brings_steps(logged) else "step"
    records = [
        {**record, "run": run, counter: step}
        for (run, step), record in zip(own, logged, strict=True)
    ]
    return table_of_records(source, records, rows, "row")


def _metrics(source: Source, row: int, text: object) -> Record:
    """Return the metrics of a row by their flat names; pictures and tables are left out."""
    import json

    try:
        found = json.loads(text) if isinstance(text, (str, bytes)) else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError(
            f"{source.label}, row {row}: its metrics are no JSON object: {quoted(text)}; was it "
            "written by trackio?"
        )
    kept = {k: v for k, v in found.items() if not (isinstance(v, dict) and "_type" in v)}
    return dict(flat(kept))


def _brings_steps(logged: list[Record]) -> bool:
    """Whether the metrics hold a training step, on half of the rows at least."""
    counts = Counter(key for record in logged for key in record)
    return any(
        (meaning := compute_meaning(key)) is not None
        and meaning.unit == "step"
        and 2 * number >= len(logged)
        for key, number in counts.items()
    )
