"""CSV, TSV and their relatives: a header line, then one row a line.

The separator is the one of comma, tab, semicolon and ``|`` that splits the first two lines into
equally many cells, and the most of them. What is let pass, and reported: comment lines before the
header, the header standing twice, a last line that was only half written. Any other row of another
width is refused, because nothing says which of its cells belongs to which column.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain

import numpy as np

from curvefit.cells import BadCell, Numbers, numbers
from curvefit.errors import InputError
from curvefit.readers.source import Source
from curvefit.readers.table import MAX_CELLS, Table
from curvefit.runs import Dropped, Note
from curvefit.wording import places, quoted

__all__ = ["read", "recognises"]

SEPARATORS = ",\t;|"
PROBE = 1_000  # rows within which a table of measurements must have brought a number

Row = list[str]
Lines = Iterator[str]


def recognises(head: str) -> bool:
    """Whether a text may be a table: the reader of last resort takes what nobody else does."""
    return True


def read(source: Source) -> list[Table]:
    """Read a table.

    Raises
    ------
    InputError
        When the text has no header, a single column, rows of different width, or no numbers.
    """
    skipped, comments, lines = _after_comments(source.lines())
    separator, lines = _separator(source, lines)
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    try:
        numbered = ((skipped + reader.line_num, row) for row in reader if any(row))
        names, rows = _header(source, numbered, comments, separator)
        table = _body(source, names, rows)
    except csv.Error as error:
        line = skipped + reader.line_num
        raise InputError(f"{source.label}, line {line}: the table breaks off: {error}") from None
    table.commas_group = separator != ";"
    return [table]


def _after_comments(lines: Lines) -> tuple[int, list[str], Lines]:
    """Skip blank lines and comments: how many, which, and the lines from the first other one on."""
    comments: list[str] = []
    skipped = 0
    for line in lines:
        if line.strip() and line[0] != "#":
            return skipped, comments, chain([line], lines)
        skipped += 1
        comments += [line] if line.strip() else []
    return skipped - 1, [], iter(comments[-1:])


def _separator(source: Source, lines: Lines) -> tuple[str, Lines]:
    first, second = next(lines), next(lines, "")
    lines = chain([first, second], lines)

    widths = {s: (_width(first, s), _width(second, s)) for s in SEPARATORS}
    best = max(SEPARATORS, key=lambda s: (widths[s][0] == widths[s][1] > 1, widths[s]))
    if widths[best][0] < 2:
        raise InputError(
            f"{source.label} is neither a table nor JSON: its first line, {quoted(first.strip())}, "
            "is one column, not divided by comma, tab, semicolon or |; a table needs two, compute "
            "(or step) and score, with a header line"
        )
    return best, lines


def _width(line: str, separator: str) -> int:
    try:
        return len(next(csv.reader([line], delimiter=separator), []))
    except csv.Error:  # a cell too long to be one: the wrong separator
        return 0


def _header(
    source: Source, rows: Iterator[tuple[int, Row]], comments: list[str], separator: str
) -> tuple[Row, Iterator[tuple[int, Row]]]:
    """Return the column names and the rows below them.

    ``numpy.savetxt`` writes the header as a comment: it counts where the first row is numbers.
    """
    line, row = next(rows, (0, []))
    if not row:
        raise InputError(f"{source.label} holds nothing but separators: a table is needed")
    if not all(_is_number(cell) for cell in row):
        return _names(source, line, row), rows
    if comments:
        commented = next(csv.reader([comments[-1].lstrip("# ")], delimiter=separator))
        if len(commented) == len(row):
            return _names(source, line - 1, commented), chain([(line, row)], rows)
    raise InputError(
        f"{source.label}, line {line}: numbers stand where the column names should be: "
        "put a header line above them, such as gpu_hours,pass_rate"
    )


def _names(source: Source, line: int, row: Row) -> Row:
    names = [cell.strip() or f"(column {i})" for i, cell in enumerate(row, 1)]
    if len(set(names)) < len(names):
        seen: dict[str, int] = {}
        for position, name in enumerate(names, 1):
            if name in seen:
                raise InputError(
                    f"{source.label}, line {line}: columns {seen[name]} and {position} are both "
                    f"called {quoted(name)}: rename or delete one"
                )
            seen[name] = position
    return names


def _body(source: Source, names: Row, rows: Iterator[tuple[int, Row]]) -> Table:
    body: list[Row] = []
    lines: list[int] = []
    headers: list[int] = []
    torn: tuple[int, Row] | None = None
    for line, row in rows:
        if torn is not None:
            raise _ragged(source, torn, len(names))
        if len(row) != len(names) and not _cut(row, len(names)):
            torn = (line, row)
        elif row[0].strip() == names[0] and [cell.strip() for cell in row] == names:
            headers.append(line)
            if len(headers) > len(body) + PROBE:
                raise _no_numbers(source, names, len(headers))
        else:
            body.append(row)
            lines.append(line)
            if len(body) == PROBE:
                _demand_numbers(source, names, body)
            if len(body) * (len(names) + 2) > MAX_CELLS:  # a row costs as much as two cells
                raise _too_large(source)
    if body and any("\n" in cell for cell in body[-1]):
        raise _ragged(source, (lines[-1], body[-1]), len(names))
    if torn is not None and (not body or len(torn[1]) > len(names) or "\n" in torn[1][-1]):
        raise _ragged(source, torn, len(names))
    if not body:
        raise InputError(f"{source.label} has a header line but no rows below it")
    if len(body) < PROBE:
        _demand_numbers(source, names, body)
    columns = dict(zip(names, zip(*body, strict=True), strict=True))
    table = Table(
        source.file, source.run, dict(columns), np.asarray(lines), notes=list(source.notes)
    )
    _report(table, headers, torn)
    return table


def _cut(row: Row, width: int) -> bool:
    """Cut blank cells beyond the header off a row; False if that does not make it fit."""
    if len(row) > width and not any(cell.strip() for cell in row[width:]):
        del row[width:]
    return len(row) == width


def _report(table: Table, headers: list[int], torn: tuple[int, Row] | None) -> None:
    if headers:
        why = f"the header stands again in {places(headers)} and was skipped there"
        table.notes.append(Note("repeated-header", why))
        table.dropped += [Dropped(line, "the header again") for line in headers]
    if torn:
        why = f"the last line ({torn[0]}) is only half written and was left out"
        table.notes.append(Note("half-written-line", why))
        table.dropped.append(Dropped(torn[0], "only half written"))


def _demand_numbers(source: Source, names: Row, body: list[Row]) -> None:
    if not any(_is_number(cell) for row in body for cell in row):
        raise _no_numbers(source, names, len(body))


def _no_numbers(source: Source, names: Row, rows: int) -> InputError:
    return InputError(
        f"{source.label} is not a table of measurements: no number in the first {rows:,} rows "
        f"below the line {quoted(','.join(names))}"
    )


def _is_number(cell: str) -> bool:
    try:
        found = numbers([cell])
    except BadCell:
        return False
    return isinstance(found, Numbers) and not np.isnan(found.values[0])


def _ragged(source: Source, torn: tuple[int, Row], width: int) -> InputError:
    line, row = torn
    unclosed = [cell for cell in row if "\n" in cell]
    if unclosed:
        return InputError(
            f"{source.label}: a quotation mark is not closed before line {line}; the cell begins "
            f"{quoted(unclosed[0], 40)}"
        )
    return InputError(
        f"{source.label}, line {line}: {len(row)} cells where the header has {width}, in "
        f"{quoted(','.join(row))}: give each row one cell a column, and quote cells that hold "
        "the separator"
    )


def _too_large(source: Source) -> InputError:
    return InputError(
        f"{source.label} has more than {MAX_CELLS // 1_000_000} million cells: keep only the "
        "columns of compute, score and run"
    )
