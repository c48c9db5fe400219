"""The questions of the command line beyond a fit: comparison, allocation, backtest, scan, decision.

Each is answered on its own; one that cannot be is reported and the others go on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from curvefit.cli import PROG
from curvefit.errors import CurvefitError

if TYPE_CHECKING:
    from curvefit.allocation import Allocation
    from curvefit.backtest import Backtest
    from curvefit.comparison import Comparison
    from curvefit.decide import Decision
    from curvefit.fit import Fit
    from curvefit.runs import Run, Runs
    from curvefit.scan import WindowScan

__all__ = ["Answers", "answer"]


class Answers(NamedTuple):
    """What was asked beyond the fits, None or empty for what was not."""

    comparison: Comparison | None = None
    backtest: Backtest | None = None
    decisions: Mapping[str, Decision] = {}
    allocation: Allocation | None = None
    scans: Mapping[str, WindowScan] = {}

    def all(self) -> list[Comparison | Allocation | Backtest | WindowScan | Decision]:
        """Return the answers in the order of the report."""
        single = [self.comparison, self.allocation, self.backtest]
        found = [one for one in single if one is not None]
        return [*found, *self.scans.values(), *self.decisions.values()]


def answer(
    runs: Runs,
    fits: Sequence[Fit],
    args: argparse.Namespace,
    refused: Callable[[CurvefitError], None],
) -> Answers:
    """Answer what the options ask.

    Parameters
    ----------
    runs : Runs
        All runs read, those that could not be fitted too: comparison and allocation name them.
    fits : sequence of Fit
    args : Namespace
        As `cli.parser` gives it.
    refused : callable
        What to do with the error of a question that cannot be answered.
    """

    def attempt(asked: bool, reply: Callable[[], Any]) -> Any:
        if not asked:
            return None
        try:
            return reply()
        except CurvefitError as error:
            refused(error)
            return None

    def of_each(asked: bool, done: str, reply: Callable[[Fit], Any]) -> dict[str, Any]:
        found = {}
        for number, fit in enumerate(fits if asked else (), 1):
            found[fit.run.name] = attempt(True, partial(reply, fit))
            if sys.stderr.isatty():
                end = "\n" if number == len(fits) else ""
                said = f"\r{PROG}: {done} {number} of {len(fits)}"
                print(said, end=end, file=sys.stderr, flush=True)
        return {name: one for name, one in found.items() if one is not None}

    return Answers(
        attempt(args.compare, lambda: _compared(runs, fits, args)),
        attempt(args.backtest is not None, lambda: _tested(runs, args)),
        of_each(args.decide, "decided", lambda fit: _decided(fit, args)),
        attempt(args.allocate, lambda: _allocated(runs, fits, args)),
        of_each(args.scan, "scanned", lambda fit: _scanned(runs[fit.run.name], args)),
    )


def _compared(runs: Runs, fits: Sequence[Fit], args: argparse.Namespace) -> Comparison:
    from curvefit.compare import compare

    at = max(args.at, default=None)
    return compare(_fitted(runs, fits), at=at, reach=args.reach, **_options(args))


def _allocated(runs: Runs, fits: Sequence[Fit], args: argparse.Namespace) -> Allocation:
    from curvefit.allocate import allocate

    several = len(args.at) > 1
    return allocate(
        _fitted(runs, fits),
        budgets=args.at if several else None,
        at=None if several else max(args.at, default=None),
        price=args.price,
        **_options(args),
    )


def _fitted(runs: Runs, fits: Sequence[Fit]) -> list[Run | Fit]:
    """Return each run's fit, and the runs that could not be fitted as they are."""
    found = {fit.run.name: fit for fit in fits}
    return [found.get(run.name, run) for run in runs]


def _options(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in ("level", "law", "r0", "skip", "until")}


def _tested(runs: Runs, args: argparse.Namespace) -> Backtest:
    from curvefit.backtest import backtest

    options = {name: getattr(args, name) for name in ("level", "law", "method", "r0", "skip")}
    return backtest(runs, args.backtest, **options)


def _decided(fit: Fit, args: argparse.Namespace) -> Decision:
    from curvefit.decide import decide

    target = max(args.at, default=None)
    last = float(fit.run.compute[-1])
    beyond = target if target is not None and target > last else None
    return decide(fit, loss=args.loss, width=args.width, target=beyond, price=args.price)


def _scanned(run: Run, args: argparse.Namespace) -> WindowScan:
    """Scan a run as it was read, up to ``--until``; the starts take the place of ``--skip``."""
    from curvefit.scan import scan
    from curvefit.window import window

    options = {name: getattr(args, name) for name in ("level", "law", "r0")}
    used, _ = window(run, until=args.until)
    return scan(used, at=max(args.at, default=None), **options)
