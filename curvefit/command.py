"""What ``fit-curve`` does once its options are read: read, fit, write, print.

One run that cannot be fitted, or one file of several that cannot be read, is reported on standard
error and the others go on.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from curvefit import outputs, report
from curvefit.answers import Answers, answer
from curvefit.cli import PROG
from curvefit.errors import CurvefitError, InputError
from curvefit.files import refuse_inputs, write
from curvefit.fit import Fit, fit
from curvefit.layout import separated
from curvefit.readers import load
from curvefit.readers.event_folder import expanded
from curvefit.record import doubts_of
from curvefit.window import TRANSIENT
from curvefit.wording import count, listed, printable

if TYPE_CHECKING:
    from curvefit.runs import Note, Run, Runs

__all__ = ["fitted", "output_files", "printed", "run", "say", "tell", "write_files"]

MAX_NOTES = 12
SHOW_PROGRESS = 20  # runs; fewer are done before anyone could read it


def run(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Do what the options ask for and return the exit code.

    Parameters
    ----------
    args : Namespace
        As `cli.parser` gives it.
    command : sequence of str
        The command as typed, for the record.

    Raises
    ------
    OSError
        If standard output cannot be written.
    """
    codes: list[int] = []
    try:
        outputs.check(args)
        refuse_inputs(output_files(args), args.files)
        args.files = expanded(args.files)
        runs = _load(args, codes)
    except InputError as error:
        say("error", error)
        return error.exit_code
    tell(runs)
    fits, unfitted = _fits(runs, args)
    if not fits:
        return max(codes + unfitted)
    tell([replace(found.run, notes=_of_window(found.run)) for found in fits])

    def refused(error: CurvefitError) -> None:
        codes.append(error.exit_code)
        say("error", error)

    answers = answer(runs, fits, args, refused)
    write_files(fits, args, command, answers, refused)
    _show(fits, args, command, answers)
    doubtful = args.strict and any(doubts_of(found, args.at) for found in fits)
    return max([*codes, int(doubtful)])


def say(kind: str, message: object) -> None:
    """Say one line on standard error."""
    text = str(message).encode("utf-8", "backslashreplace").decode("utf-8")
    print(f"{PROG}: {kind}: {text}", file=sys.stderr)


# ---------------------------------------------------------------- reading


def _load(args: argparse.Namespace, codes: list[int]) -> Runs:
    """Read all files; if one of several cannot be read, say so and read the others."""
    try:
        return _read(args, args.files)
    except InputError:
        if len(args.files) == 1 or "-" in args.files:
            raise
    readable = []
    for file in args.files:
        try:
            _read(args, [file])
            readable.append(file)
        except InputError as error:
            refused = error
            codes.append(error.exit_code)
            say("error", error)
    if not readable:
        raise InputError(f"none of the {len(args.files)} files can be read") from refused
    return _read(args, readable)


def _read(args: argparse.Namespace, files: list[str]) -> Runs:
    return load(
        files,
        x=args.x,
        y=args.y,
        run=args.run,
        n=args.n,
        gpus=args.gpus,
        gpu_hours_per_step=args.gpu_hours_per_step,
    )


def _of_window(run: Run) -> tuple[Note, ...]:
    """What choosing the points to fit has decided; reading was spoken of before."""
    return tuple(note for note in run.notes if note.code == TRANSIENT)


def tell(runs: Sequence[Run]) -> None:
    """Say what reading decided: once for each sentence, with the runs that it holds for."""
    told: dict[str, list[Run]] = {}
    for found in runs:
        for message in dict.fromkeys(note.message for note in found.notes):
            told.setdefault(message, []).append(found)
    for message, holders in list(told.items())[:MAX_NOTES]:
        everywhere = len(holders) == len(runs)
        files = dict.fromkeys(found.file for found in holders)
        alone = len(holders) == 1 or len(files) > 1
        where = listed((found.name for found in holders) if alone else files, 3)
        say("note", message if everywhere else f"{where}: {message}")
    if len(told) > MAX_NOTES:
        say("note", f"and {len(told) - MAX_NOTES} more; read fewer files at once to see them")


# ---------------------------------------------------------------- fitting


def _fits(runs: Runs, args: argparse.Namespace) -> tuple[list[Fit], list[int]]:
    """Fit every run; return the fits and the exit codes of the runs that were refused."""
    fits: list[Fit] = []
    refused: list[int] = []
    progress = len(runs) >= SHOW_PROGRESS and sys.stderr.isatty()
    for done, found in enumerate(runs):
        if progress:
            print(f"\r{PROG}: {done} of {len(runs)} runs", end="", file=sys.stderr, flush=True)
        try:
            fits.append(fitted(found, args, partial(say, "note")))
        except CurvefitError as error:
            refused.append(error.exit_code)
            say("error", error)
    if progress:
        print(f"\r{PROG}: {count(len(fits), 'run')} fitted      ", file=sys.stderr)
    return fits, refused


def fitted(found: Run, args: argparse.Namespace, note: Callable[[str], None]) -> Fit:
    """Fit a run; what is warned about on the way is handed to `note`, a line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fit(
            found,
            law=args.law,
            method=args.method,
            level=args.level,
            r0=args.r0,
            skip=args.skip,
            until=args.until,
        )
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        note(f"{printable(found.name)}: {message}")
    return result


# ---------------------------------------------------------------- writing


def output_files(args: argparse.Namespace) -> list[str]:
    """Return the files that the options name for output."""
    return [path for path in (args.csv, args.plot, args.html) if path is not None]


def write_files(
    fits: Sequence[Fit],
    args: argparse.Namespace,
    command: Sequence[str],
    answers: Answers,
    refused: Callable[[CurvefitError], None],
) -> None:
    """Write the files asked for; what cannot be written is handed to `refused`, the rest go on."""

    def attempt(path: str | None, content: Callable[[], bytes]) -> None:
        if path is None:
            return
        try:
            write(path, content())
        except CurvefitError as error:
            refused(error)

    attempt(args.csv, lambda: outputs.table(fits, answers, args).encode("utf-8"))
    attempt(args.plot, lambda: outputs.drawing(fits, answers, args))

    def page() -> bytes:
        more = [one._repr_html_() for one in answers.all()]
        text = report.page(fits, command=command, at=args.at, reach=args.reach, answers=more)
        return text.encode("utf-8", "replace")

    attempt(args.html, page)


def _show(
    fits: Sequence[Fit], args: argparse.Namespace, command: Sequence[str], answers: Answers
) -> None:
    asked = {"at": args.at, "reach": args.reach}
    if args.json:
        print(report.dumps(report.document(fits, command=command, answers=answers, **asked)))
    else:
        printed(separated(report.texts(fits, **asked), *map(str, answers.all())))
    sys.stdout.flush()


def printed(text: str) -> None:
    """Print a text; what the terminal's encoding lacks is written as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))
