"""Tests on one side, the program under test on the other: calls go over, plain data comes back.

The tests know what they expect, so they and the program never share a process. What the tests see
of the program is a `Remote`: calling it, or reading an attribute, an item or a length, asks the
program's process, and the answer is plain data or another `Remote`. Comparing happens here, with
Python's own operators: a Remote has no ``__eq__``, ``__lt__``, ``__bool__`` or ``__contains__``
that the program could lend it, and an exception of the program comes over as one of Python's own.
"""

from __future__ import annotations

import builtins

from trainer.inside.plain import decode, encode

TYPE_CHECKING = False  # typing is slow to import, and nothing runs before this is imported
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

__all__ = ["Remote", "Wire", "serve"]

LONGEST = 1 << 24  # bytes of an answer
LOCAL = (StopIteration, StopAsyncIteration)  # would end a loop of the tests without an answer


class Wire:
    """The tests' end.

    Parameters
    ----------
    source, sink : binary files
    """

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink

    def ask(self, verb: str, *content: Any) -> Any:
        """What the program answers.

        Raises
        ------
        Exception
            What the program raised, as the built-in exception of that name, or as RuntimeError.
        EOFError
            The program is gone.
        """
        line = encode([verb, *content], lambda value: object.__getattribute__(value, "_number"))
        self._sink.write(line.encode() + b"\n")
        self._sink.flush()
        answer = self._source.readline(LONGEST)
        if not answer.endswith(b"\n"):
            raise EOFError("the program is gone, or its answer is too long")
        good, value = decode(answer, lambda number: Remote(self, number))
        if good is True:
            return value
        name, words = map(str, value)
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, LOCAL):
            raise kind(words)
        raise RuntimeError(f"{name}: {words}")


class Remote:
    """An object of the program's process."""

    def __init__(self, wire: Wire, number: int) -> None:
        object.__setattr__(self, "_wire", wire)
        object.__setattr__(self, "_number", number)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it over there."""
        return _ask(self, "call", args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _ask(self, "get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "set", name, value)

    def __getitem__(self, key: Any) -> Any:
        return _ask(self, "item", key)

    def __len__(self) -> int:
        return _ask(self, "len")

    def __str__(self) -> str:
        return _ask(self, "str")

    __repr__ = __str__

    def __iter__(self) -> Iterator[Any]:
        there = _ask(self, "iter")
        while more := _ask(there, "next"):
            yield more[0]

    def __next__(self) -> Any:
        more = _ask(self, "next")
        if not more:
            raise StopIteration
        return more[0]


def _ask(remote: Remote, verb: str, *content: Any) -> Any:
    return object.__getattribute__(remote, "_wire").ask(verb, remote, *content)


def serve(source: BinaryIO, sink: BinaryIO, namespace: dict[str, Any]) -> None:
    """The program's end: answer until the tests are over."""
    objects: list[Any] = []

    def refer(value: Any) -> int:
        objects.append(value)
        return len(objects) - 1

    for line in source:
        try:
            verb, *content = decode(line, objects.__getitem__)
            answer = namespace[content[0]] if verb == "name" else _VERBS[verb](*content)
            reply = encode([True, answer], refer)
        except Exception as e:  # an answer, too
            reply = encode([False, [type(e).__name__, str(e)[:500]]])
        sink.write(reply.encode() + b"\n")
        sink.flush()


_VERBS = {
    "call": lambda target, args, kwargs: target(*args, **kwargs),
    "get": getattr,
    "set": setattr,
    "item": lambda target, key: target[key],
    "len": len,
    "str": str,
    "iter": iter,
    "next": lambda target: [value] if (value := next(target, _VERBS)) is not _VERBS else [],
}
