"""A run: pass rates at growing compute, each point with its origin.

`Run` is what readers produce and the fit consumes. It is immutable; methods return new runs. What
cleaning did to the rows of the file is kept with the run (`dropped`, `notes`), so that every report
can repeat it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from curvefit.errors import InputError

__all__ = ["Axis", "Dropped", "Note", "Run", "Runs"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Axis(NamedTuple):
    """A column and the unit of what the run holds of it."""

    column: str
    unit: str


COMPUTE, PASS_RATE = Axis("compute", ""), Axis("score", "pass_rate")


class Dropped(NamedTuple):
    """A row of the file that the run does not hold, and why."""

    row: int
    why: str


class Note(NamedTuple):
    """Something that reading or cleaning decided: a stable code and one sentence."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Scores of one training run against compute.

    Attributes
    ----------
    name : str
        What the run is called in tables, plots and JSON.
    compute : ndarray, shape (n,)
        Compute of each evaluation in `x.unit`, not decreasing, 0 for the step-0 evaluation.
    score : ndarray, shape (n,)
        Pass rate as a fraction, or a reward on its own scale.
    n_eval : ndarray or None, shape (n,)
        Evaluation size of each point (prompts × samples); None when unknown.
    row : ndarray of int, shape (n,)
        Where each point stands in the file: line of a text file (header is line 1), record
        number (from 1) in JSON; from 1 for arrays.
    file : str
        Path as given, ``"-"`` for standard input, ``""`` for arrays.
    x, y : Axis
        The columns used. `x.unit` is ``gpu_hours``, ``step``, ``tokens``, ``samples``, ``flops``,
        ``hours`` or ``""``; `y.unit` is ``pass_rate`` (bounded by 0 and 1) or ``reward``.
    dropped : tuple of Dropped
    notes : tuple of Note
    """

    name: str
    compute: FloatArray
    score: FloatArray
    n_eval: FloatArray | None
    row: IntArray
    file: str = ""
    x: Axis = COMPUTE
    y: Axis = PASS_RATE
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        for array in (self.compute, self.score, self.n_eval, self.row):
            if array is not None:
                assert array.shape == self.compute.shape
                array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.compute)

    @property
    def bounded(self) -> bool:
        """Whether scores are pass rates, so that 0 ≤ R0 ≤ A ≤ 1 holds."""
        return self.y.unit == "pass_rate"

    def take(self, keep: NDArray[np.bool_] | slice) -> Run:
        """Return the run restricted to the points selected by a mask or a slice."""
        return replace(
            self,
            compute=self.compute[keep].copy(),
            score=self.score[keep].copy(),
            n_eval=None if self.n_eval is None else self.n_eval[keep].copy(),
            row=self.row[keep].copy(),
        )


class Runs(Sequence[Run]):
    """Several runs, in the order of the files; indexed by position or by name."""

    __slots__ = ("_runs",)

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = tuple(runs)

    @overload
    def __getitem__(self, key: int | str) -> Run: ...
    @overload
    def __getitem__(self, key: slice) -> Runs: ...
    def __getitem__(self, key: int | str | slice) -> Run | Runs:
        if isinstance(key, str):
            for run in self._runs:
                if run.name == key:
                    return run
            raise InputError(f"no run is called {key!r}; the runs are {', '.join(self.names)}")
        return Runs(self._runs[key]) if isinstance(key, slice) else self._runs[key]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the runs, in order."""
        return tuple(run.name for run in self._runs)

    def __repr__(self) -> str:
        return f"Runs({', '.join(f'{r.name!r}: {len(r)} points' for r in self._runs)})"
