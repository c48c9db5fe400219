"""What a person sees while a run lasts: one line on stderr, and a note for what matters.

On a terminal the line is rewritten in place; elsewhere a line is printed at every evaluation.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from trainer.run import Run
    from trainer.watch import Alarm

__all__ = ["Progress"]


class Progress:
    """Writes to a stream, stderr by default."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self._start: tuple[float, int, float] | None = None

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self._erase()
        print(text, file=self.stream, flush=True)

    def step(self, run: Run) -> None:
        """Rewrite the line of the present step."""
        if self._start is None:
            self._start = (time.monotonic(), run.step - 1, run.counters["tokens"])
        if self.live:
            self._erase()
            self.stream.write(self._line(run))
            self.stream.flush()

    def evaluation(self, run: Run) -> None:
        """Print the pass rate of an evaluation."""
        if not self.live or run.step == 0:
            self.note(self._line(run))

    def alarm(self, alarm: Alarm) -> None:
        """Print an alarm."""
        value = "-" if alarm.value is None else f"{alarm.value:.3g}"
        self.note(f"step {alarm.step}: {alarm.signal} = {value}: {alarm.message} ({alarm.action})")

    def end(self, run: Run, reason: str) -> None:
        """Print where the log is and the command that fits it, or one of several tasks."""
        fit, label = fit_command(run.ledger.path), run.held_out[0].label
        self.note(
            f"{reason} at step {run.step}: pass rate {run.pass_rate:.3f} after "
            f"{run.ledger.gpu_hours:.4g} {run.unit}\nlog:  {run.ledger.path}\n"
            f"fit:  {fit}" + (f"\none:  {fit} --y pass_rate_of/{label}" if label else "")
        )

    def _line(self, run: Run) -> str:
        total = run.config.run.steps
        text = f"step {run.step}/{total}  pass rate {run.pass_rate:.3f}"
        if reward := run.signals.get("reward"):
            text += f"  reward {reward:.3f}"
        text += f"  {run.ledger.gpu_hours:.4f} {run.unit}"
        if self._start and run.step > self._start[1]:
            elapsed, done = time.monotonic() - self._start[0], run.step - self._start[1]
            left = elapsed / done * (total - run.step)
            speed = (run.counters["tokens"] - self._start[2]) / elapsed
            text += f"  {speed:,.0f} tokens/s  {left // 60:.0f}:{left % 60:02.0f} left"
        return text

    def _erase(self) -> None:
        if self.live:
            self.stream.write("\r\x1b[2K")


def fit_command(log: Path) -> str:
    """Return the command that fits the first half of a log and forecasts the rest."""
    return f"fit-curve {log} --until 50%"
