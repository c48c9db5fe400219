"""Sums and counts: the only form in which a signal leaves the place where it is measured.

A mean of means is wrong as soon as parts differ in size; so micro-batches, ranks and engines add
sums and counts, and one division at the end makes the mean. Extremes are reduced as extremes.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.losses import LOG_RATIO_BOUND, kl
from trainer.settings import Config
from trainer.types import Batch, Group

__all__ = ["Tally"]


class Tally:
    """Named (sum, count) pairs and named maxima."""

    def __init__(self) -> None:
        self.sums: dict[str, list[float]] = {}
        self.peaks: dict[str, float] = {}

    def add(self, name: str, total: float, n: float) -> None:
        """Add `total` from `n` things."""
        pair = self.sums.setdefault(name, [0.0, 0.0])
        pair[0] += total
        pair[1] += n

    def peak(self, name: str, value: float) -> None:
        """Keep the greatest value."""
        self.peaks[name] = max(value, self.peaks.get(name, -math.inf))

    def merge(self, other: Tally) -> None:
        """Add another tally to this one."""
        for name, (total, n) in other.sums.items():
            self.add(name, total, n)
        for name, value in other.peaks.items():
            self.peak(name, value)

    def reduce(self) -> None:
        """Add over the ranks, once; every rank must hold the same names."""
        if not dist.is_initialized():
            return
        sums = torch.tensor([self.sums[k] for k in sorted(self.sums)], dtype=torch.float64)
        peaks = torch.tensor([self.peaks[k] for k in sorted(self.peaks)], dtype=torch.float64)
        dist.all_reduce(sums)
        dist.all_reduce(peaks, op=dist.ReduceOp.MAX)
        self.sums = dict(zip(sorted(self.sums), sums.tolist(), strict=True))
        self.peaks = dict(zip(sorted(self.peaks), peaks.tolist(), strict=True))

    def mean(self, name: str) -> float | None:
        """Sum over count; None when nothing was counted."""
        total, n = self.sums.get(name, (0.0, 0.0))
        return total / n if n else None

    def signals(self) -> dict[str, float | None]:
        """All means and maxima by name, with ``ess`` made from its sums."""
        out: dict[str, float | None] = {name: self.mean(name) for name in self.sums}
        w, w2 = out.pop("_w", None), out.pop("_w2", None)
        if w is not None and w2:
            out["ess"] = w * w / w2
        return {**out, **self.peaks}

    # Signals of tokens: 3 to 8

    def add_tokens(
        self, part: Batch, pi: Tensor, o: Tensor, entropy: Tensor, o_version: int, config: Config
    ) -> None:
        """Count what one micro-batch shows of the distributions of learner and sampler.

        Parameters
        ----------
        part : Batch
        pi, o, entropy : Tensor [N, T]
            Under the current weights, under the weights of version `o_version`, of the former.
        o_version : int
            Only tokens of rollouts drawn wholly by this version say how far the two sides differ;
            later tokens of a rollout may rest on keys and values of earlier weights.
        config : Config
        """
        m = part.mask > 0
        self._mismatch(part, m, o, o_version)
        anchor = part.logprobs if config.loss.anchor == "sampler" else o
        log_rho = (pi - anchor)[m]
        rho = log_rho.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).double().exp()
        n = rho.numel()
        self.add("_w", float(rho.sum()), n)
        self.add("_w2", float(rho.square().sum()), n)
        self.peak("is_ratio_max", float(rho.max()) if n else 0.0)
        self.add("log_ratio_bounded", float((log_rho.abs() > LOG_RATIO_BOUND).sum()), n)
        self._capped(rho, part, m, config)
        self.add("entropy", float(entropy[m].double().sum()), n)

    def _mismatch(self, part: Batch, m: Tensor, o: Tensor, o_version: int) -> None:
        fresh = ((part.versions == o_version) | (part.versions < 0)).all(1)
        same = m & fresh[:, None]
        gap = (o - part.logprobs)[same].double()
        n = gap.numel()
        self.add("logp_gap", float(gap.abs().sum()), n)
        self.peak("logp_gap_max", float(gap.abs().max()) if n else 0.0)
        bounded = gap.abs().clamp(max=LOG_RATIO_BOUND)
        self.add("token_mult_prob_error", float(bounded.exp().sum()), n)
        k3 = kl(part.logprobs[same].double(), o[same].double(), "k3")
        self.add("mismatch_kl", float(k3.sum()), n)

    def _capped(self, rho: Tensor, part: Batch, m: Tensor, config: Config) -> None:
        lo = config.loss
        beyond = rho > lo.is_cap if lo.name == "cispo" else _outside(rho, lo)
        A = part.advantages[:, None].expand_as(m)[m]
        self.add("capped_fraction", float(beyond.sum()), rho.numel())
        for name, sign in (("capped_positive", A > 0), ("capped_negative", A < 0)):
            self.add(name, float((beyond & sign).sum()), float(sign.sum()))

    # Signals of rollouts: 1, 2, 10, 11, 12, all before filtering

    def add_groups(self, groups: list[Group], version: int, tolerance: float) -> None:
        """Count rollouts of all groups that arrived for a step, filtered or not."""
        for group in groups:
            for r in group.rollouts:
                failed = r.finish_reason == "error" or r.reward_error is not None
                self.add("error_rate", float(failed), 1)
                if r.finish_reason == "error":
                    continue
                self.add("truncation_rate", float(r.finish_reason == "length"), 1)
                self.add("interruption_rate", float(r.interrupted), 1)
                self.add("length", len(r.ids), 1)
                self.add("staleness", version - r.oldest, 1)
                self.peak("staleness_max", version - r.oldest)
            self._add_rewards(group.rewards, tolerance)

    def _add_rewards(self, rewards: list[float], tolerance: float) -> None:
        if not rewards:
            return
        self.add("reward", sum(rewards), len(rewards))
        flat = max(rewards) - min(rewards) <= tolerance
        solved = flat and rewards[0] > 0.5
        self.add("zero_variance_fraction", float(flat), 1)
        self.add("all_pass_fraction", float(solved), 1)
        self.add("all_fail_fraction", float(flat and not solved), 1)


def _outside(rho: Tensor, loss: Any) -> Tensor:
    return (rho < 1 - loss.clip_low) | (rho > 1 + loss.clip_high)
