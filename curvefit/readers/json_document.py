"""JSON in one piece: a list of records, columns, or several runs under their names.

What is understood: ``[{...}, ...]``; ``{"log_history": [{...}, ...], ...}`` (the trainer state of
transformers and TRL) and any other object with one list of records; ``{"step": [...], "acc":
[...]}``; ``{"A": {"merged": [{...}, ...]}, "B": ...}``, where the keys name runs; what
``pandas.DataFrame.to_json`` writes (``{"step": {"0": 1, ...}, ...}``); a single flat record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from curvefit.errors import InputError
from curvefit.readers.records import Record, table_of_records
from curvefit.readers.source import Source
from curvefit.readers.table import Table
from curvefit.wording import listed, printable

__all__ = ["read", "recognises"]

MAX_DOCUMENT = 1 << 27  # characters: a trainer state of 100,000 entries has 80 million


def recognises(head: str) -> bool:
    """Whether a text starts like a JSON object, or like a list of objects or lists."""
    start = head.lstrip()[:200]
    return start.startswith("{") or (start[:1] == "[" and start[1:].lstrip()[:1] in ("{", "[", "]"))


def read(source: Source) -> list[Table]:
    """Read a document; the names of several runs become a column ``run``.

    Raises
    ------
    InputError
        When it is not JSON (with line and column), or holds no records.
    """
    document = _parsed(source, source.text(MAX_DOCUMENT))
    runs = [(name, records) for name, records in _runs(document) if records]
    if not runs:
        what = f"its keys are {listed(document)}" if isinstance(document, dict) else "it is a list"
        raise InputError(
            f"{source.label} is JSON without records of measurements ({what}): write "
            '[{"step": 1, "accuracy": 0.2}, ...]'
        )
    rows = [row for _, records in runs for row in range(1, len(records) + 1)]
    if len(runs) == 1:
        return [table_of_records(source, runs[0][1], rows, "record", printable(runs[0][0]))]
    named = [{"run": name, **record} for name, records in runs for record in records]
    return [table_of_records(source, named, rows, "record")]


def _parsed(source: Source, text: str) -> object:
    import json

    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{source.label} is not valid JSON: line {error.lineno}, column {error.colno}: "
            f"{error.msg}; is the file complete?"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source.label} is not JSON that can be read: {error}") from None


def _runs(value: object) -> Iterator[tuple[str, list[Record]]]:
    """Yield the records of each run in a document, with its name where it has one."""
    if isinstance(value, list):
        yield "", _objects(value)
    elif isinstance(value, dict):
        named = {name: records for name in value if (records := _listed(value[name]))}
        if len(named) > 1:
            yield from named.items()
        else:
            yield "", _records(value) or next(iter(named.values()), [])


def _listed(value: object) -> list[Record]:
    """Return the records under a key: a list of them, or an object with one list or columns."""
    if isinstance(value, list):
        return _objects(value)
    if isinstance(value, dict) and any(isinstance(inner, list) for inner in value.values()):
        return _records(value) or []
    return []


def _records(value: Record) -> list[Record] | None:
    """Return the records of an object that stands for one run; None if it has none or several."""
    lists = [inner for inner in value.values() if isinstance(inner, list) and _objects(inner)]
    if len(lists) == 1:
        return _objects(lists[0])
    if lists:
        return None
    columns = {key: inner for key, inner in value.items() if isinstance(inner, list) and inner}
    if columns:
        length = max(map(len, columns.values()))
        whole = {key: column for key, column in columns.items() if len(column) == length}
        return [dict(zip(whole, cells, strict=True)) for cells in zip(*whole.values(), strict=True)]
    return _indexed(value) or _single(value)


def _indexed(value: Record) -> list[Record] | None:
    """Return the records of ``{"step": {"0": 1, "1": 2}, "acc": {"0": 0.1, "1": 0.2}}``."""
    columns = {key: inner for key, inner in value.items() if isinstance(inner, Mapping)}
    first = next(iter(columns.values()), {})
    if len(columns) < len(value) or not first or not all(str(k).isdecimal() for k in first):
        return None
    return [{key: column.get(index) for key, column in columns.items()} for index in first]


def _single(value: Record) -> list[Record] | None:
    nested = any(isinstance(inner, (dict, list)) for inner in value.values())
    return None if nested or not value else [value]


def _objects(value: list[object]) -> list[Record]:
    return [item for item in value if isinstance(item, dict)]
