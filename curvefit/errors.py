"""Everything that can go wrong, in one tree.

::

    ValueError
      CurvefitError            one sentence: what is wrong, where, what to do
        InputError             the input or the request cannot be used (exit code 2)
          AmbiguousColumn      several columns could serve; the message lists them
        FitError               the input is fine, nothing is left to fit (exit code 1)
    UserWarning
      CurvefitWarning          something was decided on the user's behalf

A message is one line. It names the file, the line, the column or the run, the offending value, and
the remedy, so that it can stand alone on a terminal.
"""

from __future__ import annotations

__all__ = ["AmbiguousColumn", "CurvefitError", "CurvefitWarning", "FitError", "InputError"]


class CurvefitError(ValueError):
    """The root of all errors that this package raises on purpose."""

    exit_code = 1


class InputError(CurvefitError):
    """The input, or what was asked of it, cannot be used."""

    exit_code = 2


class AmbiguousColumn(InputError):
    """Several columns could serve and none is the obvious one."""


class FitError(CurvefitError):
    """The input was read, but nothing that remains of it can be fitted."""


class CurvefitWarning(UserWarning):
    """Something was decided on the user's behalf."""
