"""Words for messages: names made printable, lists kept short, places counted.

Column and run names come from files of unknown origin. `printable` is what stands between them and
a terminal: control characters, bidirectional marks and lone surrogates are written as escapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["count", "listed", "nearest", "places", "printable", "quoted"]


def printable(text: str, limit: int = 200) -> str:
    """Return `text` with unprintable characters escaped and at most `limit` characters."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def quoted(value: object, limit: int = 60) -> str:
    """Return a value as it stands in the file, in quotes, printable and short."""
    return f"'{printable(str(value), limit)}'"


def listed(items: Iterable[str], limit: int = 12) -> str:
    """Return ``a, b, c and 7 more``, each item printable and short."""
    items = list(items)
    shown = ", ".join(printable(item, 80) for item in items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit:,} more"


def count(number: int, noun: str, plural: str = "") -> str:
    """Return ``1 row`` or ``2,000 rows``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def places(rows: Sequence[int] | NDArray[np.int64], place: str = "line", limit: int = 5) -> str:
    """Return ``line 3`` or ``lines 3, 5, 8 and 4 more``."""
    shown = ", ".join(str(int(row)) for row in rows[:limit])
    more = f" and {len(rows) - limit:,} more" if len(rows) > limit else ""
    return f"{place if len(rows) == 1 else place + 's'} {shown}{more}"


def nearest(name: str, names: Sequence[str]) -> str:
    """Return the sentence that helps after an unknown name: the closest ones, or all there are."""
    from difflib import get_close_matches

    by_key = {candidate.casefold(): candidate for candidate in names[:20_000]}
    close = get_close_matches(name.casefold(), list(by_key), n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(quoted(by_key[key], 100) for key in close)}?"
    return f"there are {listed(names)}" if names else "there are none"
