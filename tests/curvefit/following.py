"""What the tests of ``--follow`` share: the real command on a growing file, a trainer's log."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0  # seconds until a line that should come counts as missing; never waited in full


class Following:
    """A running ``fit-curve --follow`` and the lines that it prints."""

    def __init__(self, *args):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "curvefit", *map(str, args), "--follow", "--every", "0.05"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        )
        self.out, self.err = _lines(self.process.stdout), _lines(self.process.stderr)

    def said(self, *words, on=None):
        """Return the lines up to the first that has all words (of standard output)."""
        found = []
        while True:
            line = (on or self.out).get(timeout=PATIENCE)
            assert line is not None, f"ended without {words}: {found}"
            found.append(line)
            if all(word in line for word in words):
                return found

    def noted(self, *words):
        """Return the lines of standard error up to the first that has all words."""
        return self.said(*words, on=self.err)

    def started(self):
        """Wait until the first look is over."""
        return self.noted("following")

    def quiet(self, seconds=0.4):
        """Whether nothing is printed for some looks."""
        try:
            line = self.out.get(timeout=seconds)
        except queue.Empty:
            return True
        raise AssertionError(line)

    def end(self, signal=None):
        """Send a signal, if any; return the exit code, and the rest of both outputs."""
        if signal is not None:
            self.process.send_signal(signal)
        rest = [list(iter(lambda q=q: q.get(timeout=PATIENCE), None)) for q in (self.out, self.err)]
        return self.process.wait(timeout=PATIENCE), *rest


def _lines(stream):
    lines = queue.Queue()

    def pump():
        with stream:
            for line in stream:
                lines.put(line.rstrip("\n"))
        lines.put(None)

    threading.Thread(target=pump, daemon=True).start()
    return lines


@contextmanager
def following(*args):
    """Follow files for the length of a ``with`` block."""
    command = Following(*args)
    try:
        yield command
    finally:
        command.process.kill()
        command.process.wait()


def trainer_log(points, name="tiny"):
    """Return the lines of a log of `train-rl`: a step before each evaluation, no end."""
    head = {"event": "run", "schema": "trainer-log/1", "run": name, "gpus": {"kind": "h100"}}
    events = [head]
    for step, (hours, score) in enumerate(points):
        size = {"n_prompts": 100, "n_samples": 4, "split": "held-out"}
        events.append({"event": "step", "step": step, "gpu_hours": hours, "reward": 0.5})
        events.append(
            {"event": "eval", "step": step, "gpu_hours": hours, "pass_rate": score} | size
        )
    return [json.dumps(event) + "\n" for event in events]


END = json.dumps({"event": "end", "step": 9, "gpu_hours": 9.9, "reason": "done"}) + "\n"
