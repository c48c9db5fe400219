"""Any mapping of columns: a dict, a pandas or polars DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from curvefit.errors import InputError
from curvefit.readers.table import Table
from curvefit.wording import printable

__all__ = ["read"]


def read(data: Any) -> list[Table]:
    """Take columns as they are.

    Parameters
    ----------
    data : mapping of str to array-like, or an object with ``columns`` and ``data[name]``

    Raises
    ------
    InputError
        When a column is not one-dimensional or the lengths differ.
    """
    names = list(data.keys() if isinstance(data, Mapping) else data.columns)
    columns = {str(name): _column(name, data[name]) for name in names}
    by_length = {len(column): name for name, column in columns.items()}
    if len(by_length) > 1:
        shown = ", ".join(f"{printable(name)} has {length:,}" for length, name in by_length.items())
        raise InputError(f"the columns differ in the number of rows: {shown}")
    rows = next(iter(by_length), 0)
    if not rows:
        raise InputError("the data have no rows")
    return [Table("", "run", dict(columns), np.arange(1, rows + 1), "row", run_from="all rows")]


def _column(name: object, values: Any) -> np.ndarray[Any, Any]:
    try:
        column = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"column {printable(str(name))} is not a list of numbers: {error}"
        ) from None
    if column.ndim != 1:
        raise InputError(f"column {printable(str(name))} has {column.ndim} dimensions, not one")
    return column
