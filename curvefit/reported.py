"""What every result can do: show itself as text, in a notebook, and as plain values.

A result holds numbers; how they read stands in a module of its own (``decide_report`` and the like)
with the three functions `text`, `html` and `record`, loaded when a result is first shown.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

__all__ = ["Reported"]


class Reported:
    """A result whose text, HTML and record come from the module that `_report` names."""

    _report: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """The result as it stands in the JSON document: finite numbers or None."""
        record: dict[str, Any] = import_module(self._report).record(self)
        return record

    def __str__(self) -> str:
        return str(import_module(self._report).text(self))

    def _repr_html_(self) -> str:
        return str(import_module(self._report).html(self))
