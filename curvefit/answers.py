"""The questions of the command line beyond a fit: comparison, allocation, backtest, decision.

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

__all__ = ["Answers", "answer"]


class Answers(NamedTuple):
    """What was asked beyond the fits, None or empty for what was not."""

    comparison: Comparison | None = None
    backtest: Backtest | None = None
    decisions: Mapping[str, Decision] = {}
    allocation: Allocation | None = None

    def all(self) -> list[Comparison | Allocation | Backtest | Decision]:
        """Return the answers in the order of the report."""
        found = [self.comparison, self.allocation, self.backtest, *self.decisions.values()]
        return [one for one in found if one is not None]


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

    decisions = {}
    for done, fit in enumerate(fits if args.decide else (), 1):
        decisions[fit.run.name] = attempt(True, partial(_decided, fit, args))
        if sys.stderr.isatty():
            end = "\n" if done == len(fits) else ""
            print(f"\r{PROG}: decided {done} of {len(fits)}", end=end, file=sys.stderr, flush=True)
    return Answers(
        attempt(args.compare, lambda: _compared(runs, fits, args)),
        attempt(args.backtest is not None, lambda: _tested(runs, args)),
        {name: decision for name, decision in decisions.items() if decision is not None},
        attempt(args.allocate, lambda: _allocated(runs, fits, args)),
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
