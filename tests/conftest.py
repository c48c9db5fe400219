"""What all tests share: how Hypothesis judges a test on a machine that has other work, too."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

# a shell ignores SIGINT in background jobs, and commands that the tests interrupt would inherit it
signal.signal(signal.SIGINT, signal.default_int_handler)
