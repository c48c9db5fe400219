"""ProRL's reset as a rule: when the policy of now becomes the reference, and Adam begins again.

ProRL (arXiv:2505.24864) does both when validation stalls or falls, judged by hand: the paper prints
no rule. This is one. It looks at s_0 … s_m, the held-out pass rates since the last reset; s_0 is
the one at which that reset was made, or the first of the run. It asks for a reset when

* drop: s falls short of the best since by more than z σ, in two evaluations running. σ² =
  (b(1 − b) + s(1 − s)) / n with b the best and n rollouts each;
* stall: the best of the last W is not above the best before them by more than δ;
* kl: the mean KL term of the steps since the last evaluation is above κ;
* every: N evaluations have passed, as ProRLv2 does it every 200 to 500 steps.

On noise. Evaluations draw from the same prompts, so the binomial σ is an upper bound of what luck
makes of one evaluation. The best of many is a lucky one: 3 errors of a single evaluation below it,
two running, is where half of all policies that stand still arrive within 40 evaluations; 3 errors
of the difference, as here, 3 to 5 %. A policy that gains much less than an error an evaluation
cannot be told from one that stands still: with W = 5 and δ = 0 a gain of half an error is not
called a stall, one of a fifth after 14 evaluations, none after 8 (medians,
``benchmarks/reset_rule.py``). So let evaluations be as far apart, on as many rollouts, as makes a
gain worth having half an error; a δ above 0 calls a stall sooner, rightly or not.

Leaves out: ProRL's changes of data, context and group size from run to run, which are settings of a
resumed run here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainer.watch import Alarm

if TYPE_CHECKING:
    from trainer.settings import Config

__all__ = ["Resets"]

RUNNING = 2  # evaluations that must lie below the best, one after the other
ROUNDING = 1e-9  # pass rates are quotients: 0.51 - 0.5 is not quite 0.01


class Resets:
    """Decides after each evaluation whether a reset is due; part of the checkpoint.

    Parameters
    ----------
    config : Config
        ``reset``, and ``kl.coef`` to turn the KL term of the loss into the KL.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.scores: list[list[float]] = []  # pass rate and rollouts, since the last reset
        self.below = 0
        self.kl = [0.0, 0.0]  # sum and count over the steps since the last evaluation
        self.count = 0

    def observe(self, kl_loss: float) -> None:
        """Take the KL term of a step that was taken, β times the mean KL."""
        if self.config.kl.coef > 0 and math.isfinite(kl_loss):
            self.kl = [self.kl[0] + kl_loss / self.config.kl.coef, self.kl[1] + 1]

    def observe_eval(self, step: int, pass_rate: float, n: int) -> Alarm | None:
        """Take an evaluation of `n` rollouts; return why a reset is due, None when none is."""
        best = max(self.scores, default=None)
        self.scores.append([pass_rate, n])
        found = self._kl() or self._drop(best) or self._stall() or self._every()
        self.kl = [0.0, 0.0]
        if found is None:
            return None
        self.scores, self.below, self.count = self.scores[-1:], 0, self.count + 1
        value, threshold, why = found
        return Alarm(step, "reset", value, threshold, "reset", f"{why}; {self._what()} start anew")

    def state_dict(self) -> dict[str, Any]:
        """Everything but the configuration."""
        return {k: v for k, v in vars(self).items() if k != "config"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where ``state_dict`` was called."""
        vars(self).update(state)

    # The four reasons: value, threshold and the words for them

    def _kl(self) -> tuple[float, float, str] | None:
        limit, (total, steps) = self.config.reset.kl_above, self.kl
        if limit == 0 or steps == 0 or total / steps <= limit:
            return None
        return total / steps, limit, "mean KL since the last evaluation"

    def _drop(self, best: list[float] | None) -> tuple[float, float, str] | None:
        z, (rate, n) = self.config.reset.drop_se, self.scores[-1]
        if z == 0 or best is None:
            return None
        limit = z * math.sqrt(best[0] * (1 - best[0]) / best[1] + rate * (1 - rate) / n)
        self.below = self.below + 1 if best[0] - rate > limit + ROUNDING else 0
        if self.below < RUNNING:
            return None
        return (
            best[0] - rate,
            limit,
            f"below the best pass rate of {best[0]:.3f} in {RUNNING} evaluations running",
        )

    def _stall(self) -> tuple[float, float, str] | None:
        W, delta = self.config.reset.stall_evals, self.config.reset.min_gain
        if W == 0 or len(self.scores) <= W:
            return None
        rates = [rate for rate, _ in self.scores]
        gain = max(rates[-W:]) - max(rates[:-W])
        if gain > delta + ROUNDING:
            return None
        return gain, delta, f"rise of the best pass rate in {W} evaluations"

    def _every(self) -> tuple[float, float, str] | None:
        N, passed = self.config.reset.every_evals, len(self.scores) - 1
        return (passed, N, "evaluations since the last reset") if 0 < N <= passed else None

    def _what(self) -> str:
        reference = ["reference"] if self.config.kl.coef > 0 else []
        return " and ".join(reference + (["optimiser"] if self.config.reset.optimizer else []))
