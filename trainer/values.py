"""Values of settings and of task options against the types of their fields."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["fitted"]

KINDS: dict[str, tuple[type, str]] = {
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "bool": (bool, "true or false"),
    "str": (str, "text"),
    "dict": (dict, "a table"),
    "list": (list, "a list"),
}


def fitted(kind: str, value: Any) -> tuple[Any, str]:
    """A value as its field takes it, and what is wrong with it, if anything.

    Parameters
    ----------
    kind : str
        The field's annotation; one that names none of `KINDS` takes everything.
    value : Any
        As TOML gives it: whole numbers serve as numbers, and numbers as text.

    Examples
    --------
    >>> fitted("float", 3), fitted("str", 0.5), fitted("list[str]", ["a"])
    ((3.0, ''), ('0.5', ''), (['a'], ''))
    >>> fitted("int", True)[1], fitted("dict[str, Any]", [])[1], fitted("float", math.inf)[1]
    ('must be a whole number', 'must be a table', 'must be finite')
    """
    accepted, words = KINDS.get(kind.split("[")[0], (object, ""))
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and accepted in (str, float):
        value = accepted(value)
    wrong_bool = isinstance(value, bool) and accepted not in (bool, object)
    if wrong_bool or not isinstance(value, accepted):
        return value, f"must be {words}"
    if accepted is float and not math.isfinite(value):
        return value, "must be finite"
    return value, ""
