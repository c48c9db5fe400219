"""Waiting for what a process does, and no longer than the process lives."""

import time

import pytest


def wait_until(holds, process, what, seconds=120):
    """Return when ``holds()`` is true; fail when the process ended or time is up."""
    until = time.monotonic() + seconds
    while not holds():
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            pytest.fail(f"{what}: not seen before the end of the run: {process.communicate()[1]}")
        time.sleep(0.01)
