"""Doubts: what weakens a fit, in words, each with a stable code, its number and a remedy.

`CHECKS` lists the doubts, the weightiest first: about the run (`run_doubts`) and about what the fit
leaves open (`fit_doubts`). None is a significance test; docs/doubts.md says where each threshold
comes from. The grade of the asymptote rests on the width of A's interval, not on how many midpoints
were seen: before the midpoint a fit does not know where the midpoint is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from curvefit import fit_doubts, run_doubts
from curvefit.digits import significant
from curvefit.fit_doubts import far_extrapolation
from curvefit.results import Doubt, Verdict

if TYPE_CHECKING:
    from curvefit.fitted import Fit

__all__ = ["CHECKS", "doubts", "far_extrapolation", "verdict"]

NARROW_A = 0.04

CHECKS: tuple[Callable[[Fit], Doubt | None], ...] = (
    run_doubts.no_rise,
    run_doubts.fall_after_peak,
    fit_doubts.asymptote,
    fit_doubts.before_midpoint,
    run_doubts.few_points,
    run_doubts.last_points_below,
    run_doubts.misfit,
    fit_doubts.laws_disagree,
    run_doubts.outside_0_1,
    run_doubts.smoothed,
    fit_doubts.grid_edge,
    fit_doubts.r0_a_tradeoff,
    fit_doubts.no_step_0,
    fit_doubts.r0_fixed,
    run_doubts.correlated_noise,
)


def doubts(fit: Fit) -> tuple[Doubt, ...]:
    """All doubts about a fit, the weightiest first."""
    found = (check(fit) for check in CHECKS)
    return tuple(doubt for doubt in found if doubt is not None)


def verdict(fit: Fit) -> Verdict:
    """Grade the asymptote: identified, weak or not identified."""
    if not run_doubts.rises(fit):
        return Verdict("not identified", "the run does not rise, so there is no asymptote to see")
    if fit.sigmoid is None:
        return Verdict(
            "not identified",
            f"method {fit.method} gives no interval, so how far A can be trusted is not known; "
            "use --method posterior",
        )
    low, high = fit.interval("A", 0.9)
    width, reached = (high - low) / fit_doubts.span(fit), fit_doubts.midpoints_seen(fit)
    A = significant(fit.params["A"].value, 3)
    found = (
        f"A = {A}, 90 % interval [{significant(low, 3)}, {significant(high, 3)}]; the data end at "
        f"{significant(reached, 2)} × C_mid"
    )
    if fit_doubts.too_wide(fit):
        return Verdict("not identified", f"the asymptote is not identified: {found}")
    if width > NARROW_A or reached < fit_doubts.PAST_MIDPOINT:
        return Verdict("weak", f"the asymptote is weakly identified: {found}")
    return Verdict("identified", f"the asymptote is identified: {found}")
