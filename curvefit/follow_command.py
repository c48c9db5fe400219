"""``fit-curve --follow``: the report once, then a line for each refit, until the run ends.

With ``--json`` each refit is one document on one line: all runs as they stand, so that the last
line alone says everything. Files asked for are written anew at each refit, each of them whole.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from signal import SIGINT

from curvefit import outputs, report
from curvefit.answers import Answers, answer
from curvefit.cli import PROG
from curvefit.command import fitted, output_files, printed, say, tell, write_files
from curvefit.errors import CurvefitError, InputError
from curvefit.files import refuse_inputs
from curvefit.follow_report import Lines, cells, news
from curvefit.interrupts import Interrupts, caught
from curvefit.layout import separated
from curvefit.readers import request_of
from curvefit.readers.event_folder import EventFolder, expanded
from curvefit.record import doubts_of
from curvefit.runs import Run
from curvefit.watch import EVERY, Change, Look, Watch, gist
from curvefit.wording import count, printable

__all__ = ["run"]

ONCE = ("allocate", "backtest", "decide", "scan")  # questions that are asked of a log as it stands


def run(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Follow the files and return the exit code.

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
    try:
        args.files = expanded(args.files)
        _check(args)
    except InputError as error:
        say("error", error)
        return error.exit_code
    session = Session(args, command)
    with caught() as interrupts:
        return session.follow(interrupts)


def _check(args: argparse.Namespace) -> None:
    """Refuse what cannot be followed, and what cannot be asked while following."""
    asked = [f"--{name}" for name in ONCE if getattr(args, name)]
    if asked:
        raise InputError(f"{asked[0]} does not go with --follow: ask it of the log as it stands")
    for file in args.files:
        if file == "-":
            raise InputError("standard input cannot be followed: name the file that grows")
        if isinstance(file, EventFolder):
            continue
        if os.path.isdir(file):
            example = printable(os.path.join(file, "log.jsonl"))
            raise InputError(f"{printable(file)} is a directory: name a file in it, as {example}")
        if os.path.exists(file) and not os.path.isfile(file):
            raise InputError(f"{printable(file)} is no regular file: --follow reads a file anew")
    outputs.check(args)
    refuse_inputs(output_files(args), args.files)


class Session:
    """What was said so far, so that nothing is said twice."""

    def __init__(self, args: argparse.Namespace, command: Sequence[str]) -> None:
        self.args, self.command = args, command
        self.watch = Watch(
            args.files,
            request_of(args.x, args.y, args.run, args.n, args.gpus, args.gpu_hours_per_step),
            lambda found: fitted(found, args, partial(self._once, "note")),
        )
        self._lines = Lines()
        self._doubts: dict[str, set[str]] = {}  # of each run: the doubts stated in full
        self._told: set[str] = set()  # notes, and errors of what was asked
        self._rankings: tuple[str, ...] = ()
        self._failed: list[int] = []  # exit codes of the last refit's files and questions
        self._answers = Answers()
        self._reported = False  # whether nothing was printed since the report of all runs

    def follow(self, interrupts: Interrupts) -> int:
        """Look, say what is new and wait, until the run ends or a signal comes."""
        found = self.watch.look()
        self._say(found)
        hopeless = [trouble.error.exit_code for trouble in found.troubles if not trouble.mends]
        if hopeless and not self.watch.fits and len(hopeless) == len(found.troubles):
            return max(hopeless)
        self._announce()
        while not (self.watch.ended or interrupts.number):
            interrupts.wait(self.watch.pause(self.args.every or EVERY))
            if not interrupts.number:
                self._say(self.watch.look())
        if self.watch.ended:
            one = len(self.args.files) == 1
            who = "the log says that the run has" if one else "the logs say that all runs have"
            say("note", f"{who} ended")
        self._say(self.watch.look(whole=True))
        self._close()
        return self._exit_code(interrupts)

    def _announce(self) -> None:
        for file in self.watch.unfinished:
            say("note", f"{printable(file)}: the last line is read when it ends with a line break")
        if not self.watch.ended:
            files = count(len(self.args.files), "file")
            every = f"{self.args.every or EVERY:g} s"
            say("note", f"following {files}, with a look every {every}; Ctrl-C ends it")

    # ------------------------------------------------------------ what is new

    def _say(self, found: Look) -> None:
        """Say what a look found, on standard error and on standard output."""
        for file in found.mended:
            say("note", f"{printable(file)} can be read again")
        for trouble in found.troubles:
            stands = "; its last forecast stands" if trouble.kept else ""
            waiting = trouble.mends and not trouble.kept
            say("waiting" if waiting else "error", f"{trouble.error}{stands}")
        if not found.changes:
            return
        self._notes([change.fit.run for change in found.changes])
        self._failed = []
        fits = list(self.watch.fits.values())
        self._answers = answer(self.watch.runs, fits, self.args, self._refused)
        write_files(fits, self.args, self.command, self._answers, self._refused)
        if self.args.json:
            self._document()
        else:
            self._text(found.changes)
        sys.stdout.flush()

    def _notes(self, runs: Sequence[Run]) -> None:
        """Say what reading decided, each kind of decision once."""
        known = frozenset(self._told)
        new = [
            replace(found, notes=tuple(n for n in found.notes if gist(n.message) not in known))
            for found in runs
        ]
        self._told |= {gist(note.message) for found in new for note in found.notes}
        tell(new)

    def _refused(self, error: CurvefitError) -> None:
        self._failed.append(error.exit_code)
        self._once("error", str(error))

    def _once(self, kind: str, message: str) -> None:
        if gist(message) not in self._told:
            self._told.add(gist(message))
            say(kind, message)

    # ------------------------------------------------------------ standard output

    def _document(self) -> None:
        asked = {"at": self.args.at, "reach": self.args.reach}
        fits = list(self.watch.fits.values())
        found = report.document(fits, command=self.command, answers=self._answers, **asked)
        print(report.dumps(found, one_line=True))

    def _text(self, changes: Sequence[Change]) -> None:
        """Print the report of runs fitted for the first time, and a line for each of the others."""
        at, reach = self.args.at, self.args.reach
        first = [change for change in changes if change.before is None]
        again = [change for change in changes if change.before is not None and change.points]
        if first:
            printed(report.texts([change.fit for change in first], at=at, reach=reach) + "\n")
        if first or again:
            self._reported = len(first) == len(self.watch.fits) and not self.args.compare
        for change in (*first, *again):
            name, *row = cells(change, at, reach)
            told = self._doubts.setdefault(change.fit.run.name, set())
            said = news(change, told, at)
            if change in again:
                self._line([name, *row])
                for sentence in said:
                    self._line([name, sentence])
        self._ranking()

    def _line(self, row: Sequence[str]) -> None:
        clock = time.strftime("%H:%M:%S")
        printed(self._lines.line([clock, *row]))

    def _ranking(self) -> None:
        """Say how recipes rank, if that has changed."""
        comparison = self._answers.comparison
        found = () if comparison is None else comparison.rankings
        sentences = tuple(ranking.sentence.partition("; ")[0] for ranking in found)
        for sentence in sentences:
            if sentence not in self._rankings:
                self._line(["comparison", sentence])
        self._rankings = sentences

    # ------------------------------------------------------------ the end

    def _close(self) -> None:
        """Print the report of the final state, unless it stands there already."""
        fits = list(self.watch.fits.values())
        if self.args.json or self._reported or not fits:
            return
        text = report.texts(fits, at=self.args.at, reach=self.args.reach)
        printed("\n" + separated(text, *map(str, self._answers.all())))
        sys.stdout.flush()

    def _exit_code(self, interrupts: Interrupts) -> int:
        """Return what a plain run on the final files would, unless a signal ended this one."""
        if interrupts.number:
            how = "interrupted" if interrupts.number == SIGINT else "terminated"
            print(f"{PROG}: {how}", file=sys.stderr)
            return 128 + interrupts.number
        codes = [error.exit_code for error in self.watch.unreadable]
        fits = list(self.watch.fits.values())
        if not fits:
            errors = (*self.watch.unreadable, *self.watch.unfittable)
            for error in errors:
                say("error", error)
            return max(error.exit_code for error in errors)
        doubtful = self.args.strict and any(doubts_of(fit, self.args.at) for fit in fits)
        return max([*codes, *self._failed, int(doubtful)])
