"""The run's books: GPU-hours through restarts, and the JSON lines that ``fit-curve`` reads.

GPU-hours are accelerators held × wall time: learner and generators alike, idle time too, summed
over every start of the run (on a CPU: devices of kind "cpu"). The log is appended and flushed line
by line, so that a killed run keeps every line it wrote; what a later start repeats appears again
after a ``resume`` line, and numbers that are not finite are written as null with the reason beside.

Schema ``trainer-log/1``: events run, eval, step, alarm, resume, end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from curvefit.run_log import SCHEMA, drop_half_line, finite
from trainer.errors import RunStopped, TrainerError

__all__ = ["SCHEMA", "Ledger", "last_gpu_seconds", "read"]


class Ledger:
    """Counts device time and writes the log.

    Parameters
    ----------
    path : Path
        The log; created or appended to.
    devices : int
        Accelerators held, learner and generators together.
    clock : callable
        Seconds that only rise.

    Raises
    ------
    TrainerError
        The log cannot be written.
    """

    def __init__(
        self, path: Path, devices: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path, self.devices, self._clock = path, devices, clock
        self._device_seconds, self._wall = last_gpu_seconds(path)
        self.phases: dict[str, float] = {}
        self._started = clock()
        try:
            if path.is_file():
                drop_half_line(path)
            self._file = path.open("ab", buffering=0)
        except OSError as e:
            raise TrainerError(f"cannot write the log {path}: {e.strerror}") from e

    @property
    def wall_s(self) -> float:
        """Seconds of all starts of the run."""
        return self._wall + self._clock() - self._started

    @property
    def gpu_hours(self) -> float:
        """Device-hours of all starts of the run."""
        held = self.devices * (self._clock() - self._started)
        return (self._device_seconds + held) / 3600.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the time inside to `name`: generate, verify, train, sync, eval, idle."""
        start = self._clock()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + self._clock() - start

    def take_phases(self) -> dict[str, float]:
        """Seconds by phase since the last call."""
        phases, self.phases = self.phases, {}
        return {f"{name}_s": round(s, 6) for name, s in phases.items()}

    def write(self, event: str, **values: Any) -> None:
        """Append one line; gpu_hours and wall_s are added to every event but ``run``.

        An ``eval`` states as gpu_hours what had been spent when the weights it evaluates were
        there, 0 at step 0, and as gpu_hours_after what its own time makes of it.
        """
        row: dict[str, Any] = {"event": event}
        if event != "run":
            row |= {"gpu_hours": self.gpu_hours, "wall_s": round(self.wall_s, 6)}
        row |= values
        try:
            line = json.dumps(finite(row), ensure_ascii=False, allow_nan=False)
            self._file.write(f"{line}\n".encode())
        except OSError as e:
            raise RunStopped(
                f"cannot write the log {self.path}: {e.strerror}; make room, then resume the run"
            ) from e

    def close(self) -> None:
        """Close the log."""
        self._file.close()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the log's rows; a last line cut short by a kill is left out."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("}\n"):
                yield json.loads(line)


def last_gpu_seconds(path: Path) -> tuple[float, float]:
    """Device-seconds and wall seconds that earlier starts wrote down: the latest line's."""
    hours, wall = 0.0, 0.0
    for row in read(path):
        hours = row.get("gpu_hours_after") or row.get("gpu_hours") or hours
        wall = row.get("wall_s") or wall
    return hours * 3600.0, wall
