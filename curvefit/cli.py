"""``fit-curve``: the command line, and how every end of the program looks from outside.

This file parses and nothing more: it imports argparse alone, so that ``--help`` and a mistyped
option answer at once. `curvefit.command` does the work.

Exit codes: 0 fitted; 1 nothing could be fitted, or ``--strict`` and a doubt; 2 usage, unreadable
input or unwritable output; 130 interrupted; 141 nobody reads standard output any more.
"""

from __future__ import annotations

import argparse
import os
import sys

from curvefit import option_values as value
from curvefit._version import __version__

TYPE_CHECKING = False  # as in typing, whose import costs more than all of this
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

__all__ = ["LAW_NAMES", "METHOD_NAMES", "main", "parser"]

PROG = "fit-curve"
LAW_NAMES = ("average", "sigmoid", "power", "exponential", "weibull", "gompertz")
METHOD_NAMES = ("posterior", "least-squares", "scalerl-grid")

DESCRIPTION = """\
Fit the curve of score against compute of RL training runs, forecast it, and say what is in doubt.

Example, on the data that ship with the project: fit the first half, score the rest, look ahead.
  fit-curve data/scalerl_fig1a.csv --until 50% --at 100000
"""

EPILOG = """\
Numbers are plain: 100000, 1e5, 0.25. Lists are separated by commas. X is always in the unit of the
x column; Y is a score as it stands in the fit, pass rates as fractions.

Results go to standard output, everything else to standard error. Exit code: 0 fitted; 1 nothing
could be fitted, or --strict and a doubt; 2 usage, unreadable input or unwritable output; 130
interrupted (Ctrl-C).
"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print one line on standard error and leave with exit code 2."""
        if message.endswith("expected one argument"):
            message += " (a negative value is written with an equals sign: --r0=-0.5)"
        self.exit(2, f"{PROG}: error: {message}; {PROG} --help lists all options\n")


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help at most 100 columns wide, without asking for more than the terminal's width."""

    def __init__(self, prog: str) -> None:
        try:
            width = os.get_terminal_size(sys.stdout.fileno()).columns
        except (OSError, ValueError, AttributeError):
            width = 100
        super().__init__(prog, max_help_position=31, width=max(60, min(width, 100)))


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``fit-curve``."""
    p = Parser(
        prog=PROG,
        usage=f"{PROG} FILE... [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=Formatter,
        allow_abbrev=False,
        add_help=False,
    )
    _add_input(p.add_argument_group("input"))
    _add_fit(p.add_argument_group("fit"))
    _add_questions(p.add_argument_group("questions"))
    _add_decisions(p.add_argument_group("decisions"))
    _add_growing(p.add_argument_group("growing logs"))
    _add_output(p.add_argument_group("output"))
    return p


def _add_input(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "files",
        metavar="FILE",
        nargs="+",
        help="CSV, TSV, JSON or JSONL, gzipped or not; TensorBoard's event file, or a directory "
        "with such files; a trackio database; - reads standard input; several files and several "
        "runs in a file are fine",
    )
    add("--x", metavar="COL", help="compute column (default: found among known names)")
    add("--y", metavar="COL", help="score column (default: found among known names)")
    add("--run", metavar="COL", help="column that tells runs apart (default: found, or one run)")
    add(
        "--n",
        metavar="N|COL",
        type=value.size,
        help="evaluation size, prompts x samples: a number, or its column (default: unknown)",
    )
    add(
        "--gpus",
        metavar="N",
        type=value.positive,
        help="accelerators held: turns a time column into GPU-hours, N x hours",
    )
    add(
        "--gpu-hours-per-step",
        metavar="HOURS",
        type=value.positive,
        help="price of a step: turns a step column into GPU-hours",
    )


def _add_fit(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--skip",
        metavar="X|auto",
        type=value.skip,
        default=0.0,
        help="leave out compute below X, but never step 0; auto: the early transient of each run, "
        "if one is found, at most 0.25 C_mid (default: nothing)",
    )
    add(
        "--until",
        metavar="X|P%",
        type=value.until,
        help="fit only up to X, or the first P percent of each run's compute range; later points "
        "are held out and scored (default: fit all)",
    )
    add(
        "--law",
        choices=LAW_NAMES,
        default="average",
        metavar="LAW",
        help=f"what forecasts: {', '.join(LAW_NAMES)} (default: average, weighted by the data)",
    )
    add(
        "--method",
        choices=METHOD_NAMES,
        default="posterior",
        metavar="METHOD",
        help="posterior; least-squares and scalerl-grid (the paper's own procedure) give values "
        "without intervals (default: posterior)",
    )
    add(
        "--r0",
        metavar="R0",
        type=value.r0,
        default="fit",
        help="score at zero compute: fit, first (the first score), or a number (default: fit)",
    )
    add(
        "--level",
        metavar="P",
        type=value.level,
        default=0.9,
        help="probability of the intervals, between 0 and 1 (default: 0.9)",
    )


def _add_questions(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--at",
        metavar="X[,X...]",
        type=value.compute_list,
        default=(),
        help="forecast the score at compute X (default: 2 and 10 times the last fitted compute)",
    )
    add(
        "--reach",
        metavar="Y[,Y...]",
        type=value.score_list,
        default=(),
        help="compute needed to reach score Y",
    )


def _add_decisions(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--compare",
        action="store_true",
        help="recipes side by side: differences with their probability, a ranking, crossings; runs "
        "whose names differ in a seed's number alone are seeds of one recipe",
    )
    add(
        "--allocate",
        action="store_true",
        help="which setting (model size, length, batch) is best at each budget, how probably, and "
        "where one overtakes another; --at X: budgets up to X; --at X,X...: these budgets",
    )
    add(
        "--backtest",
        metavar="P%[,P%...]",
        nargs="?",
        type=value.origins,
        const=(0.1, 0.25, 0.5),
        help="what it would have said at P percent of each run, and what the run reached (default: "
        "10%%,25%%,50%%)",
    )
    add(
        "--scan",
        action="store_true",
        help="how A and the forecast at --at move with the window: a fit for each of several "
        "starts and ends",
    )
    add(
        "--decide",
        action="store_true",
        help="go on or stop: gain of further compute, risk of stopping, how much more settles A",
    )
    add(
        "--price",
        metavar="MONEY",
        type=value.amount,
        help="of a unit of compute, for --decide and --allocate",
    )
    add(
        "--loss",
        metavar="Y",
        type=value.positive,
        help="what --decide may lose by stopping now (default: 0.01 of a pass rate)",
    )
    add(
        "--width",
        metavar="Y",
        type=value.positive,
        help="of A's interval that is narrow enough for --decide (default: 0.02 of a pass rate)",
    )


def _add_growing(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--follow",
        action="store_true",
        help="refit as the log grows: after the report a line for each new evaluation, with how "
        "the forecast moved (--json: a document a line); files asked for are written anew each "
        "time; ends when a log of train-rl says that its run has ended, or with Ctrl-C",
    )
    add(
        "--every",
        metavar="SECONDS",
        type=value.positive,
        help="how often --follow looks at the files (default: 2; less often where reading is slow)",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--json", action="store_true", help="one JSON document on standard output, not the table")
    add(
        "--csv",
        metavar="FILE",
        help="write the parameter table, one row a run; with --compare the table of recipes (as "
        "LaTeX if FILE ends in .tex), with --allocate that of budgets, with --scan that of windows",
    )
    add(
        "--plot",
        metavar="FILE",
        type=value.picture,
        help="draw the runs, or what --compare, --allocate or --scan says: .png, .svg or .pdf",
    )
    add("--html", metavar="FILE", help="write a self-contained page: table, doubts, plot")
    add("--strict", action="store_true", help="exit with 1 if any run has a doubt")
    add("--version", action="version", version=f"{PROG} {__version__}", help="print the version")
    add("-h", "--help", action="help", help="print this help")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse, files and options in any order; an unknown option is answered with the nearest one."""
    p = parser()
    args, unknown = p.parse_known_intermixed_args(argv)
    if unknown:
        from difflib import get_close_matches

        options = [s for action in p._actions for s in action.option_strings]
        close = get_close_matches(unknown[0].partition("=")[0], options, n=1)
        hint = f", did you mean {close[0]}?" if close else ""
        p.error(f"unknown option {unknown[0]!r}{hint}")
    return args


def _silence_stdout() -> None:
    """Let the interpreter flush into nothing at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_thread() -> None:
    """Keep the matrix library to one thread unless the environment says otherwise.

    The matrices are small: a second thread only waits, at the cost of a core (4 times the CPU time
    of one on a busy machine with two). It must be said before numpy is imported.
    """
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fit-curve`` and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments without the program's name; those of the process when left out.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        args = _parse(argv)
        _one_thread()
        if args.follow:
            from curvefit.follow_command import run
        else:
            from curvefit.command import run
        return run(args, [PROG, *argv])
    except BrokenPipeError:
        _silence_stdout()
        return 141
    except KeyboardInterrupt:
        print(f"{PROG}: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        _silence_stdout()
        print(f"{PROG}: error: standard output: {error.strerror}", file=sys.stderr)
        return 2
    except MemoryError:
        print(f"{PROG}: error: not enough memory; keep only the columns used", file=sys.stderr)
        return 2
