"""JSONL: one object a line, flat or nested (verl writes ``{"step": 3, "data": {...}}``).

The last line may be half written while a run goes on; a crash leaves such a line in the middle of
a file that a restart appends to. Both are left out and reported; more than a few are refused.
"""

from __future__ import annotations

from curvefit.errors import InputError
from curvefit.readers.records import Record, table_of_records
from curvefit.readers.source import Source
from curvefit.readers.table import MAX_CELLS, Table
from curvefit.runs import Dropped, Note
from curvefit.wording import count, places, quoted

__all__ = ["parse", "read", "recognises"]

PROBE = 1_000
TOLERATED = 0.02  # share of lines that may be torn


def recognises(head: str) -> bool:
    """Whether the first line is a JSON object and another line follows."""
    first, _, rest = head.lstrip().partition("\n")
    return first.startswith("{") and bool(rest.strip()) and _record(first) is not None


def read(source: Source) -> list[Table]:
    """Read the objects of a file as one table; see `parse` for what is raised."""
    records, rows, notes, dropped = parse(source)
    table = table_of_records(source, records, rows, "line")
    table.notes += notes
    table.dropped += dropped
    return [table]


def parse(source: Source) -> tuple[list[Record], list[int], list[Note], list[Dropped]]:
    """Return the objects of a file, their lines, and what was left out.

    Raises
    ------
    InputError
        When too many lines are not JSON objects, or none of the first thousand holds a number.
    """
    records: list[Record] = []
    rows: list[int] = []
    torn: list[int] = []
    last, cells = 0, 0
    for last, line in enumerate(source.lines(), 1):
        if not line.strip():
            continue
        record = _record(line)
        if record is None:
            torn.append(last)
            if len(torn) > 3 and len(torn) > TOLERATED * last:
                raise _refusal(source, torn, line)
            continue
        records.append(record)
        rows.append(last)
        cells += len(record)
        if cells > MAX_CELLS:
            raise InputError(
                f"{source.label} has more than {MAX_CELLS // 1_000_000} million values: "
                "keep only the keys of compute, score and run"
            )
        if len(records) == PROBE:
            _demand_numbers(source, records)
    _demand_numbers(source, records)
    return records, rows, _notes(torn, last), [Dropped(row, "not valid JSON") for row in torn]


def _record(line: str) -> Record | None:
    import json

    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _notes(torn: list[int], last: int) -> list[Note]:
    if not torn:
        return []
    if torn == [last]:
        return [Note("half-written-line", f"the last line ({last}) is only half written: left out")]
    what = f"{count(len(torn), 'line')} not valid JSON ({places(torn)}): left out"
    return [Note("half-written-line", what)]


def _refusal(source: Source, torn: list[int], line: str) -> InputError:
    return InputError(
        f"{source.label} starts as JSONL but {places(torn)} are not JSON objects, such as "
        f"{quoted(line.strip(), 40)}: keep only the lines of metrics"
    )


def _demand_numbers(source: Source, records: list[Record]) -> None:
    if not any(isinstance(v, (int, float, dict)) for record in records for v in record.values()):
        raise InputError(
            f"{source.label} is not a log of measurements: no number in its first "
            f"{count(len(records), 'record')}"
        )
