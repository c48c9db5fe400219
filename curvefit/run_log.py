"""A run's log in schema ``trainer-log/1``: GPU-hours through restarts, one JSON object a line.

GPU-hours are devices held × wall time, idle time and evaluations included, summed over every start
of the run. What earlier starts spent is read from the log itself: it also knows the time that was
trained beyond the last checkpoint and lost. Each line is appended by an opening of its own, so that
nothing is left to flush when a process is killed, and a full disk costs lines but never the run.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from curvefit.errors import CurvefitWarning, InputError

__all__ = ["SCHEMA", "RunLog", "drop_half_line", "finite", "plain"]

SCHEMA = "trainer-log/1"


class RunLog:
    """Counts device time and writes the log.

    Parameters
    ----------
    path : str or Path
        The log; its folder is made when the run begins.
    clock : callable
        Seconds that only rise.
    """

    def __init__(self, path: str | Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self._clock = Path(path), clock
        self.begun = False
        self._devices = 0
        self._since: float | None = None
        self._device_s = self._earlier_s = 0.0
        self._written = clock()
        self._torn = False

    @property
    def name(self) -> str:
        """The run's name where none is given: its folder's, or the file's if it is no log.jsonl."""
        path = self.path.resolve()
        return path.parent.name if path.name == "log.jsonl" else path.stem

    @property
    def wall_s(self) -> float:
        """Seconds of all starts of the run."""
        return self._earlier_s + self._running_s()

    @property
    def gpu_hours(self) -> float:
        """Device-hours of all starts of the run."""
        return (self._device_s + self._devices * self._running_s()) / 3600.0

    @property
    def silent_s(self) -> float:
        """Seconds since the last line."""
        return self._clock() - self._written

    def begin(
        self,
        header: Mapping[str, Any],
        step: int,
        *,
        resume: bool = False,
        spent: float | None = None,
    ) -> float:
        """Start the clock and write ``run``, or ``resume`` where the log goes on.

        Parameters
        ----------
        header : mapping
            What the ``run`` event holds beyond its schema; `gpus` says what is held.
        step : int
            Optimiser steps that the weights have behind them.
        resume : bool
            Go on with an existing log although `step` is 0.
        spent : float, optional
            GPU-hours before this log began.

        Returns
        -------
        float
            GPU-hours when the weights of now were there.

        Raises
        ------
        InputError
            The log exists and training starts anew, or the other way round; it is no log of this
            schema; it cannot be written.
        """
        there = self.path.is_file() and self.path.stat().st_size > 0
        again = bool(step or resume or self._since is not None)
        self._refuse(there, again, step, spent)
        rows = self._rows() if there else []
        self._prepare()
        before = max(map(_hours, rows)) if there else spent or 0.0
        self._device_s = 3600.0 * before
        self._earlier_s = max((row.get("wall_s") or 0.0 for row in rows), default=0.0)
        self._devices = header["gpus"]["train"] + header["gpus"]["generate"]
        self._since, self.begun = self._clock(), True
        if there:
            reason = f"checkpoint at step {step}" if step else "no checkpoint"
            self.write("resume", step=step, reason=reason, gpus=header["gpus"])
        else:
            self.write("run", schema=SCHEMA, **header)
        return _hours_at(step, rows, before)

    def end(self, step: int, reason: str) -> None:
        """Stop the clock and write ``end``."""
        self.write("end", step=step, reason=reason)
        self._device_s, self._earlier_s = 3600.0 * self.gpu_hours, self.wall_s
        self._since = None

    def write(self, event: str, **values: Any) -> None:
        """Append one line; gpu_hours and wall_s are added to every event but ``run``.

        A line that cannot be written is warned about and left out: a log is no reason to end a
        run, and the hours of later lines hold the time of the lost one.
        """
        row: dict[str, Any] = {"event": event}
        if event != "run":
            row |= {"gpu_hours": self.gpu_hours, "wall_s": round(self.wall_s, 6)}
        line = json.dumps(finite(row | values), ensure_ascii=False, allow_nan=False)
        lead = "\n" if self._torn else ""
        try:
            with self.path.open("ab", buffering=0) as file:
                data = f"{lead}{line}\n".encode()
                if file.write(data) != len(data):
                    raise OSError(0, "no room for the whole line")
            self._torn, self._written = False, self._clock()
        except OSError as e:
            self._torn = True
            warnings.warn(
                f"cannot write a line of {self.path}: {e.strerror}; the run goes on without it",
                CurvefitWarning,
                stacklevel=2,
            )

    def _refuse(self, there: bool, again: bool, step: int, spent: float | None) -> None:
        """Refuse to mix two runs in a log, and to begin one in the middle with unknown hours."""
        if there and not again:
            raise InputError(
                f"{self.path} exists and training starts at step 0: resume from a checkpoint, name "
                "another log, or count its hours in with resume=True"
            )
        if step and not there and spent is None:
            raise InputError(
                f"training resumes at step {step}, but there is no {self.path}: name the log of "
                "the earlier start, or say with spent= how many GPU-hours it took"
            )

    def _running_s(self) -> float:
        return 0.0 if self._since is None else self._clock() - self._since

    def _prepare(self) -> None:
        """Make the folder and see whether the log can be written."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.open("ab").close()
            drop_half_line(self.path)
        except OSError as e:
            raise InputError(f"cannot write the log {self.path}: {e.strerror}") from e

    def _rows(self) -> list[dict[str, Any]]:
        """Return the whole lines of the log; what a full disk tore is left out."""
        rows = []
        with self.path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    row = json.loads(line) if line.endswith("\n") else None
                except ValueError:
                    row = None
                if isinstance(row, dict):
                    rows.append(row)
        if not rows or rows[0].get("schema") != SCHEMA:
            raise InputError(f"{self.path} is no log of schema {SCHEMA}: name another file")
        return rows


def plain(value: Any) -> Any:
    """Return a value as JSON has it: what is no number, text, list or mapping as its text.

    >>> plain({"lr": 1e-6, 3: (True, float("inf")), "path": Path("runs")})
    {'lr': 1e-06, '3': [True, 'inf'], 'path': 'runs'}
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    return str(value)


def _hours(row: Mapping[str, Any]) -> float:
    return max(row.get("gpu_hours") or 0.0, row.get("gpu_hours_after") or 0.0)


def _hours_at(step: int, rows: list[dict[str, Any]], total: float) -> float:
    """GPU-hours when the weights of `step` were there: as logged, or else all until now."""
    if step == 0:
        return 0.0
    logged = [r for r in rows if r.get("event") in ("step", "eval") and r.get("step") == step]
    return float(logged[-1]["gpu_hours"]) if logged else total


def drop_half_line(path: Path) -> None:
    """Drop the half line that a kill may have left, so that the next line is whole."""
    with path.open("rb+") as file:
        content = file.read()
        if content and not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
            os.fsync(file.fileno())


def finite(row: dict[str, Any]) -> dict[str, Any]:
    """Replace numbers that JSON does not have by null, and say which they were.

    >>> finite({"loss": float("nan"), "lr": 0.1})
    {'loss': None, 'lr': 0.1, 'not_finite': {'loss': 'nan'}}
    """
    bad = {k: str(v) for k, v in row.items() if isinstance(v, Real) and not math.isfinite(v)}
    return {**row, **dict.fromkeys(bad), **({"not_finite": bad} if bad else {})}
