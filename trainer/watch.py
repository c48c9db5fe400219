"""The twelve stability signals: how each is counted, and when it raises an alarm.

Signals are sums and counts (``Tally``), added over micro-batches and ranks and divided once at the
end; extremes are kept as extremes. An alarm is raised when its condition begins to hold, not at
every step while it does. Thresholds marked "ours" are proposals, the others stand in a source.

=====  ======================  ===================================================================
no.    name                    alarm
=====  ======================  ===================================================================
1      truncation_rate         EWMA ≥ 5 % warn, ≥ 10 % critical (ScaleRL: 10-15 % destabilises)
2      interruption_rate       rises over 5 evaluations while the pass rate does not (ours)
3      logp_gap                mean > 0.02 warn (NeMo RL); > 5 × median of first 50 steps critical
4      token_mult_prob_error   > 1.05 (NeMo RL)
5      mismatch_kl             > 1e-3 warn (NeMo RL), > 1e-2 critical
6      ess                     < 0.5 (ours)
7      capped_fraction         > 10 % (ours)
8      entropy                 EWMA < 20 % of the start within 200 steps (arXiv:2505.22617), or
                               EWMA > 1.5 × its running minimum and 0.1 nat above it (ours)
9      grad_norm               not finite critical; EWMA ≥ 4 × median of the last 100 steps warn
10     zero_variance_fraction  EWMA of the all-pass share ≥ 50 %: the curriculum is starved
11     staleness               max > k critical (must be impossible); dropped > 5 % warn
12     error_rate              ≥ 5 % (prime-rl)
=====  ======================  ===================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from trainer.settings import Config
from trainer.tally import Tally

__all__ = ["EWMA", "SIGNALS", "Alarm", "Tally", "Watcher"]

EWMA = 0.3
_SMOOTHED = (
    "truncation_rate",
    "interruption_rate",
    "entropy",
    "grad_norm",
    "all_pass_fraction",
)

SIGNALS = (
    "truncation_rate",
    "interruption_rate",
    "logp_gap",
    "token_mult_prob_error",
    "mismatch_kl",
    "ess",
    "capped_fraction",
    "entropy",
    "grad_norm",
    "zero_variance_fraction",
    "staleness",
    "error_rate",
)


@dataclass(frozen=True)
class Alarm:
    """One condition that began to hold.

    Parameters
    ----------
    step : int
    signal : str
    value, threshold : float
    action : {"warn", "checkpoint", "abort", "reset"}
    message : str
    """

    step: int
    signal: str
    value: float | None
    threshold: float
    action: str
    message: str


@dataclass(frozen=True)
class _Rule:
    """Alarm while ``value``, a signal's name or a function, is beyond ``threshold``."""

    signal: str
    level: str
    value: str | Callable[[Watcher, dict[str, float | None]], float | None]
    threshold: float | Callable[[Watcher], float]
    message: str
    below: bool = False


class Watcher:
    """Keeps what the rules need from earlier steps; part of the checkpoint.

    Parameters
    ----------
    config : Config
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.ewma: dict[str, float] = {}
        self.first: dict[str, list[float]] = {}
        self.recent_norms: list[float] = []
        self.lowest_entropy = math.inf
        self.active: list[str] = []
        self.evals: list[list[float]] = []
        self.step = 0

    def observe(self, step: int, signals: dict[str, float | None]) -> list[Alarm]:
        """Take one step's signals; return the alarms that begin with it."""
        self.step = step
        for name in _SMOOTHED:
            self._smooth(name, signals.get(name))
        gap = signals.get("logp_gap")
        if gap is not None and len(self.first.setdefault("logp_gap", [])) < 50:
            self.first["logp_gap"].append(gap)
        if "entropy" in self.ewma:
            self.first.setdefault("entropy", [self.ewma["entropy"]])
            self.lowest_entropy = min(self.lowest_entropy, self.ewma["entropy"])
        alarms = [a for i, r in enumerate(_RULES) if (a := self._judge(f"{i}", r, signals))]
        norm = signals.get("grad_norm")
        if norm is not None and math.isfinite(norm):
            self.recent_norms = [*self.recent_norms, norm][-100:]
        return alarms

    def observe_eval(self, step: int, pass_rate: float) -> list[Alarm]:
        """Signal 2: the interruption rate rises from evaluation to evaluation, in vain."""
        self.evals = [*self.evals, [self.ewma.get("interruption_rate", 0.0), pass_rate]][-5:]
        rates = [rate for rate, _ in self.evals]
        rises = len(rates) == 5 and all(a < b for a, b in pairwise(rates))
        in_vain = self.evals[-1][1] <= self.evals[0][1]
        if not self._begins("interruption", rises and in_vain):
            return []
        message = "more thinking is cut off at each evaluation and the pass rate does not rise"
        return [Alarm(step, "interruption_rate", rates[-1], rates[0], "warn", message)]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the configuration."""
        return {k: v for k, v in vars(self).items() if k != "config"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where ``state_dict`` was called."""
        vars(self).update(state)

    def _smooth(self, name: str, value: float | None) -> None:
        if value is not None and math.isfinite(value):
            before = self.ewma.get(name, value)
            self.ewma[name] = before + EWMA * (value - before)

    def _judge(self, key: str, rule: _Rule, signals: dict[str, float | None]) -> Alarm | None:
        value, threshold = rule.value, rule.threshold
        value = signals.get(value) if isinstance(value, str) else value(self, signals)
        threshold = threshold if isinstance(threshold, float) else threshold(self)
        beyond = value is not None and (value < threshold if rule.below else value > threshold)
        if not self._begins(key, beyond):
            return None
        action = self.config.watch.on_critical if rule.level == "critical" else "warn"
        return Alarm(self.step, rule.signal, value, threshold, action, rule.message)

    def _begins(self, key: str, holds: bool) -> bool:
        begins = holds and key not in self.active
        self.active = [k for k in self.active if k != key] + ([key] if holds else [])
        return begins


_Value = Callable[[Watcher, dict[str, float | None]], float | None]


def _smoothed(name: str) -> _Value:
    return lambda watcher, _: watcher.ewma.get(name)


def _from(x: float) -> float:
    return math.nextafter(x, -math.inf)  # the table says "at least", the rules compare with ">"


def _early_gap(w: Watcher) -> float:
    first = w.first.get("logp_gap", [])
    return 5 * median(first) + 1e-6 if len(first) >= 50 else math.inf


def _entropy_floor(w: Watcher) -> float:
    start = w.first.get("entropy")
    return 0.2 * start[0] if start and w.step <= 200 else -math.inf


def _entropy_ceiling(w: Watcher) -> float:
    return max(1.5 * w.lowest_entropy, w.lowest_entropy + 0.1)


def _not_finite(_: Watcher, signals: dict[str, float | None]) -> float | None:
    norm = signals.get("grad_norm")
    return None if norm is None else float(not math.isfinite(norm))


def _norm_limit(w: Watcher) -> float:
    return _from(4 * median(w.recent_norms)) if len(w.recent_norms) >= 20 else math.inf


def _k(w: Watcher) -> float:
    return float(w.config.pipeline.k)


_cut, _entropy, _norm, _solved = map(
    _smoothed, ("truncation_rate", "entropy", "grad_norm", "all_pass_fraction")
)

_RULES = tuple(
    _Rule(*row)
    for row in (
        ("truncation_rate", "warn", _cut, _from(0.05), "5 % of rollouts hit the budget"),
        ("truncation_rate", "critical", _cut, _from(0.10), "10 % of rollouts hit the budget"),
        ("logp_gap", "warn", "logp_gap", 0.02, "sampler and learner disagree: dtype, head, T?"),
        ("logp_gap", "critical", "logp_gap", _early_gap, "five times the gap of the start"),
        ("token_mult_prob_error", "warn", "token_mult_prob_error", 1.05, "probabilities differ"),
        ("mismatch_kl", "warn", "mismatch_kl", 1e-3, "sampler and learner drift apart"),
        ("mismatch_kl", "critical", "mismatch_kl", 1e-2, "sampler and learner are two policies"),
        ("ess", "warn", "ess", 0.5, "few tokens carry the batch: lower pipeline.k or lr", True),
        ("capped_fraction", "warn", "capped_fraction", 0.10, "many ratios are beyond the bound"),
        ("entropy", "warn", _entropy, _entropy_floor, "four fifths of the entropy is spent", True),
        ("entropy", "warn", _entropy, _entropy_ceiling, "entropy climbs: the policy comes apart"),
        ("grad_norm", "critical", _not_finite, 0.5, "gradient not finite: the step was left out"),
        ("grad_norm", "warn", _norm, _norm_limit, "four times the median: lower optim.lr"),
        ("zero_variance_fraction", "warn", _solved, _from(0.5), "half is solved"),
        ("staleness", "critical", "staleness_max", _k, "older than pipeline.k: admission broken"),
        ("staleness", "warn", "staleness_dropped", 0.05, "5 % of groups were dropped as too old"),
        ("error_rate", "warn", "error_rate", _from(0.05), "5 % of rollouts or rewards failed"),
    )
)
