"""Records as the plain values that JSON has."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """Return named tuples as objects, tuples as lists, numbers that are not finite as None.

    >>> from curvefit.results import Estimate
    >>> plain((Estimate(0.5, 0.4, float("nan")), "A"))
    [{'value': 0.5, 'low': 0.4, 'high': None}, 'A']
    """
    if hasattr(value, "_asdict"):
        return {key: plain(item) for key, item in value._asdict().items()}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
