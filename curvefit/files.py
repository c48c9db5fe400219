"""Writing files so that a reader never meets half of one.

The content goes to a temporary name in the same folder, is flushed to the disk, and takes the name
asked for only when it is complete. What is no regular file (``/dev/stdout``, a pipe) is written to
directly.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable

from curvefit.errors import InputError
from curvefit.wording import printable

__all__ = ["refuse_inputs", "write"]


def write(path: str, content: bytes) -> None:
    """Write a file, all of it or nothing.

    Raises
    ------
    InputError
        If it cannot be written; a file of that name is then as it was.
    """
    target = os.path.realpath(path)  # a link stays a link
    temporary = f"{target}.{os.getpid()}.tmp"
    try:
        if os.path.lexists(target) and not os.path.isfile(target):
            _write_device(target, content)
            return
        try:
            _write_new(temporary, content)
            if os.path.lexists(target):
                os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{printable(path)} cannot be written: {reason}") from None


def _write_device(target: str, content: bytes) -> None:
    with open(target, "wb") as stream:
        stream.write(content)


def _write_new(temporary: str, content: bytes) -> None:
    with open(temporary, "xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _is_one_file(path: str, other: str) -> bool:
    """Whether two paths lead to one file, there already or not."""
    if os.path.isfile(path) and os.path.exists(other):
        return os.path.samefile(path, other)
    return not os.path.lexists(path) and os.path.realpath(path) == os.path.realpath(other)


def refuse_inputs(outputs: Iterable[str], inputs: Iterable[str]) -> None:
    """Refuse to write over an input, to ``-``, or twice to one file.

    Raises
    ------
    InputError
    """
    outputs = list(outputs)
    for path in outputs:
        if path == "-":
            raise InputError(
                "an output file cannot be -: --json alone writes to standard output; name a file"
            )
        for other in inputs:
            if _is_one_file(path, other):
                raise InputError(f"{printable(path)} is an input and would be overwritten")
    if len({os.path.realpath(path) for path in outputs}) < len(outputs):
        raise InputError(f"{printable(outputs[-1])} is named for two outputs; name two files")
