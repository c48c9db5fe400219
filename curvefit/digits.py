"""Numbers as people read them: the digits follow the uncertainty.

A score is shown to two significant digits of the half-width of its interval: 0.612 for ± 0.017.
An amount (compute, steepness) spans factors rather than differences, so its digits follow the
nearer end of its interval, and at least two and at most four significant digits are shown.
"""

from __future__ import annotations

import math

__all__ = [
    "amount",
    "amounts",
    "compute",
    "counted",
    "interval",
    "percent",
    "probability",
    "rounded",
    "scores",
]

UNKNOWN = "-"
LARGE = 1e7  # from here on 12,300,000 is written 1.23e7


def magnitude(value: float) -> int:
    """Return the power of ten of a number, 0 for 0."""
    return math.floor(math.log10(abs(value))) if value else 0


def rounded(value: float, decimals: int) -> str:
    """Write a number to so many decimal places; negative ones round to tens or hundreds.

    >>> rounded(12345.678, 2), rounded(12345.678, -2), rounded(1.234e9, -7)
    ('12,345.68', '12,300', '1.23e9')
    """
    if not math.isfinite(value):
        return UNKNOWN
    if abs(value) >= LARGE or 0 < abs(value) < 1e-5:
        places = max(0, min(magnitude(value) + decimals, 15))
        mantissa, power = f"{value:.{places}e}".split("e")
        return f"{mantissa}e{int(power)}"
    shown = f"{round(value, decimals):,.{max(decimals, 0)}f}"
    return shown.removeprefix("-") if not float(shown.replace(",", "")) else shown


def significant(value: float, digits: int) -> str:
    """Write a number to so many significant digits."""
    return rounded(value, digits - 1 - magnitude(value)) if math.isfinite(value) else UNKNOWN


def scores(value: float, low: float, high: float) -> tuple[str, str, str]:
    """Write a score and the ends of its interval.

    >>> scores(0.6123, 0.5951, 0.6298), scores(0.6123, float("nan"), float("nan"))
    (('0.612', '0.595', '0.630'), ('0.6123', '-', '-'))
    """
    half = (high - low) / 2
    decimals = 4 if not half > 0 else max(0, min(1 - magnitude(half), 6))
    if not half > 0 and math.isfinite(value) and abs(value) >= 10:
        decimals = max(0, 3 - magnitude(value))
    return rounded(value, decimals), rounded(low, decimals), rounded(high, decimals)


def amounts(value: float, low: float, high: float) -> tuple[str, str, str]:
    """Write an amount and the ends of its interval.

    An end more than ten times as far from the value as the other has digits of its own.

    >>> amounts(10118.8, 9364.2, 11379.3), amounts(10118.8, 9102.4, 3.2e8)
    (('10,120', '9,360', '11,380'), ('10,100', '9,100', '3.2e8'))
    """
    sides = [side for side in (value - low, high - value) if 0 < side < math.inf]
    nearer = min(sides, default=0.0)

    def shown(number: float) -> str:
        if not math.isfinite(number):
            return UNKNOWN
        side = abs(number - value)
        decimals = 1 - magnitude(side if side > 10 * nearer else nearer) if nearer else 99
        power = magnitude(number)
        return rounded(number, max(1 - power, min(decimals, 3 - power)))

    return shown(value), shown(low), shown(high)


def amount(value: float) -> str:
    """Write an amount of which no interval is known, to three significant digits."""
    return significant(value, 3)


def compute(value: float) -> str:
    """Write a compute that was asked for or logged: as it is, to at most seven digits.

    >>> compute(79708.0), compute(0.25), compute(3e9), compute(1234567.25)
    ('79,708', '0.25', '3e9', '1,234,567')
    """
    if not math.isfinite(value):
        return UNKNOWN
    if abs(value) >= LARGE or 0 < abs(value) < 1e-5:
        mantissa, power = f"{value:.6e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"
    decimals = max(0, 6 - magnitude(value)) if value % 1 else 0
    shown = f"{value:,.{decimals}f}"
    return shown.rstrip("0").rstrip(".") if decimals else shown


def percent(share: float) -> str:
    """Write a share in percent; what is nearly nothing or nearly all keeps its digits.

    >>> percent(0.5), percent(0.004), percent(0.9996), percent(1.0), percent(0.975)
    ('50 %', '0.4 %', '99.96 %', '100 %', '97.5 %')
    """
    if not math.isfinite(share):
        return UNKNOWN
    value = 100.0 * share
    nearest_end = min(abs(value), abs(100.0 - value))
    return f"{round(value, 1 - magnitude(nearest_end)):g} %"


def probability(share: float) -> str:
    """Write a probability in whole percent, and what is below 1 or above 99 more closely.

    >>> probability(0.94821), probability(0.0021)
    ('95 %', '0.21 %')
    """
    return percent(round(share, 2) if 0.01 <= share <= 0.99 else share)


def counted(share: float) -> str:
    """Write a probability counted over pairs of atoms: its ends are not known beyond a thousandth.

    >>> counted(0.948), counted(0.99987), counted(0.0)
    ('95 %', '> 99.9 %', '< 0.1 %')
    """
    if share > 0.999:
        return "> 99.9 %"
    return probability(share) if share >= 0.001 else "< 0.1 %"


def interval(low: str, high: str) -> str:
    """Write the ends of an interval; nothing when neither is known."""
    return "" if low == high == UNKNOWN else f"[{low}, {high}]"
