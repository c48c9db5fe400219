"""Devices and what they can do at most: ``hardware.toml``, data sheets with their sources."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path

from trainer.errors import ConfigError

__all__ = ["Hardware", "hardware", "names"]

FILE = Path(__file__).parent / "hardware.toml"


@dataclass(frozen=True)
class Hardware:
    """One device; see ``hardware.toml`` for what each number means and where it is from.

    Parameters
    ----------
    peak, peak_fp32 : float
        FLOP/s of matrix products.
    bandwidth, link, network : float
        byte/s of its memory, to devices of the same machine, to other machines.
    memory : float
        byte
    mfu, mfu_fp32, mbu : float
        Share of `peak`, `peak_fp32` and `bandwidth` that is reached.
    overhead : float
        Seconds of a decoding step beyond arithmetic and memory.
    context : float
        Bytes that the runtime of an engine takes beside weights and cache.
    """

    name: str
    peak: float
    peak_fp32: float
    bandwidth: float
    memory: float
    link: float
    network: float
    mfu: float
    mfu_fp32: float
    mbu: float
    overhead: float
    context: float
    source: str


def hardware(name: str, overrides: dict[str, float] | None = None) -> Hardware:
    """The device called `name`, with numbers of the user's own in place of the data sheet's.

    Raises
    ------
    ConfigError
        No such device or number, or a number that is not above 0.
    """
    table = tomllib.loads(FILE.read_text(encoding="utf-8"))
    if name not in table:
        near = difflib.get_close_matches(name, table, n=1, cutoff=0.4)
        guess = f" (did you mean {near[0]}?)" if near else ""
        raise ConfigError(
            f"unknown hardware {name!r}{guess}; there are {', '.join(table)}, and every number of "
            "one can be set: --hardware.peak 4e14"
        )
    device = Hardware(**table[name])
    known = [f.name for f in fields(Hardware) if f.name not in ("name", "source")]
    for key, value in (overrides or {}).items():
        if key not in known:
            raise ConfigError(f"unknown number hardware.{key}; there are {', '.join(known)}")
        if not value > 0:
            raise ConfigError(f"hardware.{key} = {value:g} must be above 0")
    return replace(device, **(overrides or {}))


def names() -> list[str]:
    """The devices there are figures for."""
    return list(tomllib.loads(FILE.read_text(encoding="utf-8")))
