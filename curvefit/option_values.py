"""The values of options: text from the command line to a number, a list, a name, or one sentence.

Like `cli`, this file imports argparse alone.
"""

from __future__ import annotations

import argparse

__all__ = [
    "PICTURES",
    "amount",
    "compute",
    "compute_list",
    "level",
    "number",
    "origins",
    "picture",
    "positive",
    "r0",
    "score_list",
    "size",
    "skip",
    "until",
]

PICTURES = (".png", ".svg", ".pdf")


def number(text: str) -> float:
    """Read a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not -float("inf") < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number; write it as 100000 or 1e5")
    return value


def positive(text: str) -> float:
    """Read a number above 0."""
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def compute(text: str) -> float:
    """Read a compute: a number that is not negative."""
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative, compute is not")
    return value


def compute_list(text: str) -> tuple[float, ...]:
    """Read computes separated by commas."""
    return tuple(compute(part.strip()) for part in text.split(","))


def score_list(text: str) -> tuple[float, ...]:
    """Read scores separated by commas."""
    return tuple(number(part.strip()) for part in text.split(","))


def level(text: str) -> float:
    """Read a probability between 0 and 1."""
    value = number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1; 0.9 means 90 %")
    return value


def skip(text: str) -> float | str:
    """Read a compute, or ``auto``."""
    try:
        return text if text == "auto" else compute(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; or write auto") from None


def until(text: str) -> str:
    """Read a compute, or a percentage such as 50%."""
    share = text.removesuffix("%").strip()
    value = positive(share)
    if text.endswith("%") and value > 100:
        raise argparse.ArgumentTypeError(f"{text} is over 100 percent")
    return f"{share}%" if text.endswith("%") else share


def size(text: str) -> int | str:
    """Read an evaluation size, or else the name of its column."""
    try:
        value = float(text)
    except ValueError:
        return text
    if not (1 <= value <= 1e12 and value == int(value)):
        raise argparse.ArgumentTypeError(f"{text} is no whole number of 1 or more")
    return int(value)


def r0(text: str) -> float | str:
    """Read ``fit``, ``first`` or a score."""
    return text if text in ("fit", "first") else number(text)


def origins(text: str) -> tuple[float, ...]:
    """Read percentages of a run separated by commas, as shares: 10%,25% or 10,25."""
    shares = []
    for part in text.split(","):
        try:
            percent = float(part.strip().removesuffix("%"))
        except ValueError:
            percent = float("nan")
        if not 0 < percent < 90:
            raise argparse.ArgumentTypeError(
                f"{part.strip()!r} is no percentage above 0 and below 90; write --backtest=10%,25% "
                "or put a bare --backtest after the files"
            )
        shares.append(percent / 100.0)
    return tuple(shares)


def amount(text: str) -> float:
    """Read a number of 0 or more."""
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def picture(text: str) -> str:
    """Read a file name whose ending says how to draw."""
    if not text.lower().endswith(PICTURES):
        raise argparse.ArgumentTypeError(f"{text!r} does not end in {', '.join(PICTURES)}")
    return text
