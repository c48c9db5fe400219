"""Python's plain values as one line of JSON and back: data crosses, objects do not.

Scalars are themselves, containers are tagged lists; anything else is a reference to an object that
stays where it is, or refused. Nothing that was decoded can carry code: no pickle, no class.

>>> decode(encode({"a": (1, 2.5), "b": {3}}))
{'a': (1, 2.5), 'b': {3}}
"""

from __future__ import annotations

import json

TYPE_CHECKING = False  # typing is slow to import, and nothing runs before this is imported
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["decode", "encode"]

WIDE = 1 << 62  # JSON's decimal digits are slow and limited beyond that


def encode(value: Any, refer: Callable[[Any], int] | None = None) -> str:
    """One line; `refer` gives the number of an object that stays here.

    Raises
    ------
    TypeError
        When an object is neither plain nor can be referred to.
    """
    return json.dumps(_packed(value, refer))


def decode(line: str | bytes, resolve: Callable[[int], Any] | None = None) -> Any:
    """The value of a line; `resolve` gives the object of a number.

    Raises
    ------
    ValueError, TypeError, RecursionError
        Whatever is not such a line. It may come from a hostile program.
    """
    return _unpacked(json.loads(line), resolve)


def _packed(value: Any, refer: Callable[[Any], int] | None) -> Any:
    if value is None or isinstance(value, (bool, str, float)):
        return value
    if isinstance(value, int):
        return int(value) if -WIDE < value < WIDE else ["int", hex(value)]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, complex):
        return ["complex", [value.real, value.imag]]
    for kind, cls in (("list", list), ("tuple", tuple), ("set", set), ("frozenset", frozenset)):
        if isinstance(value, cls):
            return [kind, [_packed(part, refer) for part in value]]
    if isinstance(value, dict):
        return ["dict", [[_packed(k, refer), _packed(v, refer)] for k, v in value.items()]]
    if refer is None:
        raise TypeError(f"a {type(value).__name__} is not plain data")
    return ["object", refer(value)]


def _unpacked(value: Any, resolve: Callable[[int], Any] | None) -> Any:
    if not isinstance(value, list):
        if isinstance(value, dict):
            raise ValueError("a bare object")
        return value
    kind, content = value
    if kind == "object" and resolve is not None and type(content) is int:
        return resolve(content)
    return _KINDS[kind](content, resolve)


def _many(cls: type) -> Callable[[Any, Any], Any]:
    return lambda content, resolve: cls(_unpacked(part, resolve) for part in content)


_KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "list": _many(list),
    "tuple": _many(tuple),
    "set": _many(set),
    "frozenset": _many(frozenset),
    "dict": lambda content, resolve: {
        _unpacked(k, resolve): _unpacked(v, resolve) for k, v in content
    },
    "int": lambda content, _: int(content, 16),
    "bytes": lambda content, _: bytes.fromhex(content),
    "complex": lambda content, _: complex(*content),
}
