"""What the sandbox costs a program: milliseconds beside a bare subprocess for each test.

    python benchmarks/sandbox.py [--tests 1 10 50] [--repeats 21]

The program reads a number and prints its double. Bare is one Python process a test, without
isolation (``python -I -S``, the flags of the sandbox), one after the other. Ours is one sandbox
with a forked process a test, as the task `code` runs it: for standard input, and for assert
scripts, which take two a test. They run in turn; medians of wall and of all processes' CPU time.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

from trainer.sandbox import Limits, open_sandbox

PROGRAM = "print(2 * int(input()))"
FUNCTION = "def f(n): return 2 * n"
PYTHON = os.path.realpath(sys._base_executable)


def bare(tests):
    for _ in range(tests):
        done = subprocess.run(
            [PYTHON, "-I", "-S", "-c", PROGRAM], input=b"3\n", capture_output=True, check=True
        )
        assert done.stdout == b"6\n"


def contestants(sandbox):
    def stdin(tests):
        results = sandbox.run(PROGRAM, "stdin", [b"3\n"] * tests)
        assert all(result == ("ok", b"6\n") for result in results)

    def scripts(tests):
        results = sandbox.run(FUNCTION, "assert", [("assert f(3) == 6", ["f"])] * tests)
        assert all(result.outcome == "ok" for result in results)

    return {"bare": bare, "sandbox, stdin": stdin, "sandbox, assert": scripts}


def spent():
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def measure(run, tests):
    wall, processor = time.perf_counter(), spent()
    run(tests)
    return (time.perf_counter() - wall) * 1e3, (spent() - processor) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", type=int, nargs="+", default=[1, 10, 50])
    parser.add_argument("--repeats", type=int, default=21)
    arguments = parser.parse_args()
    start = time.perf_counter()
    sandbox = open_sandbox(Limits(total_s=60.0))
    print(f"probe, once a process: {(time.perf_counter() - start) * 1e3:.0f} ms")
    print(f"{'tests':>5}  {'':<16} {'wall ms':>8} {'more':>7} {'CPU ms':>8} {'more':>7}")
    for tests in arguments.tests:
        runs = contestants(sandbox)
        times = {name: [] for name in runs}
        for _ in range(arguments.repeats):
            for name, run in runs.items():
                times[name].append(measure(run, tests))
        wall0, cpu0 = (statistics.median(column) for column in zip(*times["bare"], strict=True))
        for name, rows in times.items():
            wall, cpu = (statistics.median(column) for column in zip(*rows, strict=True))
            print(
                f"{tests:>5}  {name:<16} {wall:>8.1f} {wall - wall0:>+7.1f} {cpu:>8.1f} "
                f"{cpu - cpu0:>+7.1f}"
            )


if __name__ == "__main__":
    main()
