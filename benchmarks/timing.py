"""Timing for the benchmarks: one thread, medians of interleaved repeats, ratios in one table.

Import this module before numpy: it sets the number of threads of the linear algebra libraries.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

THREADS = 1
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = str(THREADS)

__all__ = ["THREADS", "Row", "measure", "table"]

Timed = tuple[Callable[[], object], int]


class Row(NamedTuple):
    """One line of a table: a workload, who ran it, milliseconds, and the ratio asked for."""

    workload: str
    who: str
    ms: float
    ours: float
    wanted: float | None = None


def measure(contestants: Mapping[str, Timed], rounds: int = 7) -> dict[str, float]:
    """Median milliseconds of processor time of each contestant.

    Contestants take turns, so that a busy machine slows all alike. Each is a function and the
    number of units of work that one call does; the result is per unit.
    """
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, (call, units) in contestants.items():
            start = time.process_time()
            call()
            times[name].append((time.process_time() - start) / units * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def table(rows: list[Row]) -> str:
    """Rows as aligned text: the ratio says how many times faster ours is."""
    lines = [
        f"{'workload':<34} {'peer':<34} {'peer ms':>10} {'ours ms':>9} {'ratio':>8} {'asked':>7}"
    ]
    for row in rows:
        asked = "" if row.wanted is None else f"{row.wanted:g}"
        lines.append(
            f"{row.workload:<34} {row.who:<34} {row.ms:>10.4g} {row.ours:>9.3g} "
            f"{row.ms / row.ours:>8.4g} {asked:>7}"
        )
    return "\n".join(lines)
