"""`follow`: the fits of logs that grow, as they change."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import partial

from curvefit.errors import CurvefitWarning, InputError
from curvefit.fit import Fit, check_choices, fit
from curvefit.readers import request_of
from curvefit.watch import EVERY, Watch, checked_pause
from curvefit.window import checked_level

__all__ = ["follow"]


def follow(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    every: float = EVERY,
    x: str | None = None,
    y: str | None = None,
    run: str | None = None,
    n: int | str | None = None,
    gpus: float | None = None,
    gpu_hours_per_step: float | None = None,
    law: str = "average",
    method: str = "posterior",
    level: float = 0.9,
    r0: str | float = "fit",
    skip: float | str = 0.0,
    until: float | str | None = None,
) -> Iterator[Fit]:
    """Fit runs while they are trained: yield each fit when its run has new points.

    First come the fits of what is there already, one a run; then each run's next fit whenever its
    points change. Files that do not exist yet, or hold too few evaluations, are waited for. A last
    line that is still being written is left for later; a file that was truncated or replaced is
    read anew. The iterator ends when every file is a log of `train-rl` that says that its run has
    ended, and otherwise when you leave the loop.

    Parameters
    ----------
    source : path or list of paths
        As `curvefit.load` reads them. A directory of event files stands for the folders of
        runs in it when it is first seen.
    every : float
        Seconds between two looks at the files; more where reading them takes long.
    x, y, run, n, gpus, gpu_hours_per_step
        As in `curvefit.load`.
    law, method, level, r0, skip, until
        As in `curvefit.fit`.

    Yields
    ------
    Fit

    Raises
    ------
    InputError
        If an option cannot be used, or more data would not help: several columns could be the
        score, say.

    Warns
    -----
    CurvefitWarning
        Once for each thing that is waited for, or that can no longer be read.

    Examples
    --------
    The log of a run that has ended:

    >>> import curvefit
    >>> for fit in curvefit.follow("data/train-rl/scalerl-seed0.jsonl"):
    ...     print(fit.run.name, len(fit.run), fit.verdict.asymptote)
    scalerl-seed0 17 identified

    One that grows, in a notebook, until the interval of A is narrow enough::

        for fit in curvefit.follow("runs/tiny-0/log.jsonl"):
            low, high = fit.interval("A")
            if high - low < 0.02:
                break
    """
    every = checked_pause(every)
    check_choices(law, method)
    level = checked_level(level)
    several = [source] if isinstance(source, (str, os.PathLike)) else source
    files = [os.fspath(file) for file in several]
    if not files or "-" in files:
        raise InputError("there is nothing to follow: name a file, not standard input")
    request = request_of(x, y, run, n, gpus, gpu_hours_per_step)
    fitter = partial(fit, law=law, method=method, level=level, r0=r0, skip=skip, until=until)
    return _fits(Watch(files, request, fitter), every)


def _fits(watch: Watch, every: float) -> Iterator[Fit]:
    while True:
        found = watch.look()
        for trouble in found.troubles:
            if not (trouble.mends or watch.fits):
                raise trouble.error
            warnings.warn(str(trouble.error), CurvefitWarning, stacklevel=2)
        yield from (change.fit for change in found.changes)
        if watch.ended:
            yield from (change.fit for change in watch.look(whole=True).changes)
            return
        time.sleep(watch.pause(every))
