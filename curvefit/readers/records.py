"""Records (JSON objects) to a table: one level of nesting is flattened, missing keys are blank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from curvefit.errors import InputError
from curvefit.readers.source import Source
from curvefit.readers.table import MAX_CELLS, Table

__all__ = ["flat", "table_of_records"]

WRAPPERS = {"data", "metrics", "logs", "scalars", "values"}  # names that add nothing to a key
DEPTH = 3

Record = Mapping[str, object]


def flat(record: Record, prefix: str = "", depth: int = DEPTH) -> Iterator[tuple[str, object]]:
    """Yield the scalars of a record with their keys.

    >>> dict(flat({"step": 3, "data": {"val/acc": 0.4}, "pass_at_k": {"1": 0.4}}))
    {'step': 3, 'val/acc': 0.4, 'pass_at_k/1': 0.4}
    """
    for key, value in record.items():
        if isinstance(value, Mapping):
            if depth:
                inner = prefix if key in WRAPPERS else f"{prefix}{key}/"
                yield from flat(value, inner, depth - 1)
        elif not isinstance(value, (list, tuple)):
            yield prefix + key, value


def table_of_records(
    source: Source, records: Sequence[Record], rows: Sequence[int], place: str, run: str = ""
) -> Table:
    """Lay records out in columns, in the order in which their keys first appear.

    Parameters
    ----------
    records : sequence of mappings
    rows : sequence of int
        Where each record stands in the file.
    place : str
        What `rows` counts.
    run : str
        What the run is called, where the file says it.

    Raises
    ------
    InputError
        When there are more keys times records than a table can hold.
    """
    columns: dict[str, list[object]] = {}
    for index, record in enumerate(records):
        for key, value in flat(record):
            column = columns.get(key)
            if column is None:
                column = columns[key] = [None] * len(records)
                if len(columns) * len(records) > MAX_CELLS:
                    raise InputError(
                        f"{source.label} has more than {MAX_CELLS // 1_000_000} million cells "
                        f"({len(records):,} records of ever new keys): keep only the keys used"
                    )
            column[index] = value
    return Table(
        source.file,
        run or source.run,
        dict(columns),
        np.asarray(rows, dtype=np.int64),
        place,
        notes=list(source.notes),
    )
