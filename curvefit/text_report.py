"""The report of fits as plain text: no colour, so nothing to switch off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from curvefit import compact, tables
from curvefit.layout import grid_lines, joined, separated, wrapped
from curvefit.record import doubts_of

if TYPE_CHECKING:
    from curvefit.fit import Fit
    from curvefit.results import Doubt

__all__ = ["text", "texts"]

DETAILED = 3  # up to so many runs are shown in full


def text(fit: Fit, *, at: ArrayLike = (), reach: ArrayLike = ()) -> str:
    """Return the report of one run, without a final line break."""
    file = f" ({fit.run.file})" if fit.run.file not in ("", fit.run.name) else ""
    return joined(
        wrapped(f"{fit.run.name}{file}") + wrapped(tables.points_sentence(fit)),
        wrapped(tables.verdict_sentence(fit)),
        grid_lines(tables.parameter_grid(fit)),
        grid_lines(tables.forecast_grid(fit, at)),
        grid_lines(tables.reach_grid(fit, reach)) if np.size(reach) else [],
        [line for label, fact in tables.facts(fit) for line in wrapped(fact, f"{label}: ")],
        _doubts(doubts_of(fit, at)),
    )


def texts(fits: Sequence[Fit], *, at: ArrayLike = (), reach: ArrayLike = ()) -> str:
    """Return the report of several runs: in full up to three, one line a run beyond."""
    if len(fits) <= DETAILED:
        return separated(*(text(fit, at=at, reach=reach) for fit in fits))
    doubts = compact.legend(fits, at)
    return joined(
        grid_lines(compact.overview(fits, doubts, at)),
        grid_lines(compact.forecasts(fits, at)) if np.size(at) else [],
        grid_lines(compact.reaches(fits, reach)) if np.size(reach) else [],
        _legend(doubts),
    )


def _doubts(doubts: Sequence[Doubt]) -> list[str]:
    if not doubts:
        return ["Doubts: none"]
    lines = ["Doubts"]
    for doubt in doubts:
        lines += wrapped(f"{doubt.code}: {doubt.message}", indent=2)
        lines += wrapped(doubt.remedy, "hint: ", indent=4)
    return lines


def _legend(doubts: Sequence[compact.Legend]) -> list[str]:
    if not doubts:
        return ["Doubts: none"]
    lines = ["Doubts"]
    for doubt in doubts:
        lines += wrapped(f"{doubt.number}  {doubt.code} ({doubt.holders})", indent=2)
        lines += wrapped(doubt.remedy, "hint: ", indent=5)
    return lines
