"""What the files of the command line hold: the picture of ``--plot``, the table of ``--csv``.

A question asked beyond the fits takes them over: both show the comparison with ``--compare``, the
allocation with ``--allocate``, the windows with ``--scan``. ``--html`` holds everything.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from curvefit.errors import FitError, InputError
from curvefit.wording import printable

if TYPE_CHECKING:
    from curvefit.answers import Answers
    from curvefit.fit import Fit

__all__ = ["check", "drawing", "table"]

Answer = TypeVar("Answer")

LATEX = ".tex"
QUESTIONS = ("compare", "allocate", "scan")


def check(args: argparse.Namespace) -> None:
    """Refuse what no file can hold, and an option that says nothing without another.

    Raises
    ------
    InputError
        If two questions would take over one file, LaTeX is asked for anything but a comparison, or
        ``--every`` stands without ``--follow``.
    """
    if args.every is not None and not args.follow:
        raise InputError("--every says how often --follow looks: add --follow")
    asked = [f"--{name}" for name in QUESTIONS if getattr(args, name)]
    for option in ("plot", "csv"):
        if getattr(args, option) is not None and len(asked) > 1:
            raise InputError(
                f"--{option} holds the answer to one of {' and '.join(asked)}: ask one at a time, "
                "or write a page with all of them (--html)"
            )
    if args.csv is not None and args.csv.lower().endswith(LATEX) and not args.compare:
        raise InputError(f"--csv {args.csv}: LaTeX is written for --compare; name a .csv file")


def drawing(fits: Sequence[Fit], answers: Answers, args: argparse.Namespace) -> bytes:
    """Return the picture: the comparison, the allocation, the scans, or the fits.

    Raises
    ------
    CurvefitError
        If what was asked for is not there, or does not fit into a picture.
    """
    from curvefit.picture import picture, saved

    kind = args.plot.lower().rpartition(".")[2]
    if args.compare:
        from curvefit.compare_plot import plot_comparison

        found = _there(answers.comparison, "comparison", args.plot)
        return saved(lambda: plot_comparison(found), kind)
    if args.allocate:
        from curvefit.allocation_plot import allocation_picture

        return allocation_picture(_there(answers.allocation, "allocation", args.plot), kind)
    if args.scan:
        from curvefit.scan_plot import scan_figure

        return saved(lambda: scan_figure(list(answers.scans.values())).axes[0], kind)
    return picture(fits, kind, at=args.at)


def table(fits: Sequence[Fit], answers: Answers, args: argparse.Namespace) -> str:
    """Return the table: recipes (LaTeX for a ``.tex`` file), budgets, windows, or parameters.

    Raises
    ------
    FitError
        If what was asked for is not there.
    """
    if args.compare:
        found = _there(answers.comparison, "comparison", args.csv)
        return found.to_latex() if args.csv.lower().endswith(LATEX) else found.to_csv()
    if args.allocate:
        return _there(answers.allocation, "allocation", args.csv).to_csv()
    if args.scan:
        from curvefit.scan_report import csv_table

        return csv_table(list(answers.scans.values()))
    from curvefit.parameter_csv import parameter_csv

    return parameter_csv(fits)


def _there(answer: Answer | None, what: str, path: str) -> Answer:
    if answer is None:
        raise FitError(f"{printable(path)} is not written: there is no {what}")
    return answer
