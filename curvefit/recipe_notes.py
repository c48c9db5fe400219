"""What to know before believing what is said of several recipes, each a sentence."""

from __future__ import annotations

from collections.abc import Iterable

from curvefit.comparable import Grouped
from curvefit.digits import significant
from curvefit.results import Estimate
from curvefit.wording import listed, printable

__all__ = ["column_notes", "lost_notes", "seed_note"]


def seed_note(what: str, spread: Estimate, several: bool, word: str = "recipe") -> str:
    """Say how far `what` scatters from seed to seed, and whether that was seen or assumed."""
    value, low, high = (significant(v, 2) for v in spread)
    if several:
        return (
            f"{what} scatters from seed to seed by {value} (sd, between {low} and {high}), "
            f"estimated from the {word}s with several seeds and taken to hold for all"
        )
    return (
        f"one seed a {word}: that {what} scatters from seed to seed by about {value} (sd) is an "
        "assumption, ScaleRL's margin of ±0.02 (arXiv 2510.13786, A.5); run a second seed"
    )


def lost_notes(found: Grouped) -> Iterable[str]:
    """Name the recipes some of whose runs were left out."""
    for name, fits in found.recipes.items():
        lost = [e.run for e in found.excluded if e.recipe == name]
        if lost:
            yield (
                f"{printable(name)}: {len(lost)} of {len(lost) + len(fits)} runs left out "
                f"({listed(lost, 3)}): the comparison speaks of the runs that remain"
            )


def column_notes(found: Grouped) -> Iterable[str]:
    """Ask whether scores from columns of different names, in different files, are one metric."""
    columns = dict.fromkeys(f.run.y.column for fits in found.recipes.values() for f in fits)
    files = {f.run.file for fits in found.recipes.values() for f in fits}
    if len(columns) > 1 and len(files) > 1:
        yield (
            f"scores come from columns of different names ({listed(columns, 3)}): the comparison "
            "holds only if they are the same evaluation"
        )
