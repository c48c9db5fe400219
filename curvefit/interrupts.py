"""Ctrl-C and SIGTERM as a wish to end: a wait ends at once, work under way is finished first."""

from __future__ import annotations

import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupts", "caught"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Woken(BaseException):
    """A signal has come while nothing was done but waiting."""


class Interrupts:
    """Which signal has come, if any.

    Attributes
    ----------
    number : int
        0, or the number of the signal.
    """

    def __init__(self) -> None:
        self.number = 0
        self._waiting = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Take note of a signal; a second one does not wait for work under way."""
        again, self.number = self.number, number
        if self._waiting:
            raise _Woken
        if again:
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> None:
        """Wait, until a signal comes at the longest.

        Raises
        ------
        BrokenPipeError
            When nobody reads standard output any more.
        """
        try:
            self._waiting = True
            if not self.number:
                _sleep(seconds)
        except _Woken:
            pass
        finally:
            self._waiting = False


def _sleep(seconds: float) -> None:
    """Sleep; on systems that can tell, wake when standard output is closed at its other end."""
    if sys.platform == "win32":
        time.sleep(seconds)
        return
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    if output.poll(1000.0 * seconds):
        raise BrokenPipeError


@contextmanager
def caught() -> Iterator[Interrupts]:
    """Catch signals for the length of a ``with`` block, but for those that are ignored."""
    interrupts = Interrupts()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, interrupts)
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
