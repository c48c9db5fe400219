"""A command that ends with whoever started it: ``python -m trainer.lifeline COMMAND ...``.

Standard input is the lifeline: nobody writes to it, and it closes when the starter ends, however it
ends. Then the command and all it started get SIGTERM and, `GRACE_S` later, SIGKILL. Start this in a
session of its own; the exit code is the command's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

__all__ = ["GRACE_S", "main"]

GRACE_S = 5.0


def main(command: list[str]) -> int:
    """Run the command until it ends or the lifeline breaks."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # from here on we send it to our own group
    threading.Thread(target=_watch, daemon=True).start()
    return process.wait()


def _watch() -> None:
    os.read(0, 1)
    os.killpg(os.getpgrp(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
