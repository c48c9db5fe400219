"""The command line, cold (F6), and many runs in one file: processor time and peak memory.

    python benchmarks/cli_speed.py [--runs 1000]

Every measurement is a fresh process with one thread. `fit-curve data/scalerl_fig1a.csv --json` is
asked to take at most twice `import numpy, pandas`, `fit-curve --help` at most 1.5 times
`import argparse`. A file of N runs of 100 points each is asked to take time in proportion to N, and
under 2 GB. Peak memory is the system's count for the process.
"""

from __future__ import annotations

import timing  # isort: skip  (sets the number of threads before numpy loads)

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from curvefit.laws import curve

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "data" / "scalerl_fig1a.csv"
PYTHON = [sys.executable, "-c"]
FIT_CURVE = [sys.executable, "-m", "curvefit"]


class Cost(NamedTuple):
    """Processor seconds and peak megabytes of a process."""

    seconds: float
    megabytes: float


def run(command: list[str]) -> Cost:
    """Run a command, its output thrown away."""
    null = os.open(os.devnull, os.O_RDWR)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    files = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (1, 2)]
    pid = os.posix_spawn(command[0], command, environment, file_actions=files)
    _, status, usage = os.wait4(pid, 0)
    os.close(null)
    if os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    scale = 1e6 if sys.platform == "darwin" else 1e3
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / scale)


def median(commands: dict[str, list[str]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each command, taking turns, after one warm-up."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            seconds = run(command).seconds
            if turn > 0:
                times[name].append(1e3 * seconds)
    return {name: statistics.median(values) for name, values in times.items()}


def cold_start(rounds: int) -> str:
    ms = median(
        {
            "numpy, pandas": [*PYTHON, "import numpy, pandas"],
            "fit": [*FIT_CURVE, str(FIGURE), "--json"],
            "argparse": [*PYTHON, "import argparse"],
            "help": [*FIT_CURVE, "--help"],
        },
        rounds,
    )
    lines = ["command                        ms   compared with            ms   times   at most"]
    for name, ours, peer, most in (
        ("fit-curve fig1a --json", ms["fit"], "numpy, pandas", 2.0),
        ("fit-curve --help", ms["help"], "argparse", 1.5),
    ):
        lines.append(
            f"{name:<24} {ours:>8.0f}   {'import ' + peer:<20} {ms[peer]:>6.0f} "
            f"{ours / ms[peer]:>7.2f} {most:>9}"
        )
    return "\n".join(lines)


def write_runs(path: Path, count: int) -> None:
    """A long table of `count` runs of 100 points."""
    rng = np.random.default_rng(0)
    C = np.linspace(0.0, 8000.0, 100)
    with path.open("w", encoding="utf-8") as file:
        file.write("run,gpu_hours,pass_rate\n")
        for i in range(count):
            y = curve(C, rng.uniform(0.5, 0.7), 1.8, rng.uniform(1000, 4000), 0.3)
            y = y + rng.normal(0.0, 0.004, 100)
            rows = zip(C.tolist(), y.tolist(), strict=True)
            file.writelines(f"run-{i},{c:.1f},{v:.6f}\n" for c, v in rows)


def many_runs(count: int) -> str:
    lines = ["runs of 100 points   seconds   ms a run   peak MB"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        for runs in (max(count // 10, 1), max(count // 3, 1), count):
            write_runs(path, runs)
            cost = run([*FIT_CURVE, str(path), "--json"])
            each = 1e3 * cost.seconds / runs
            lines.append(f"{runs:>18} {cost.seconds:>9.2f} {each:>10.1f} {cost.megabytes:>9.0f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000, help="runs in the largest file")
    parser.add_argument("--rounds", type=int, default=9, help="repeats of each command")
    options = parser.parse_args()
    print(cold_start(options.rounds))
    print()
    print(many_runs(options.runs))
    print(f"{timing.THREADS} thread, processor time, fresh processes")


if __name__ == "__main__":
    main()
