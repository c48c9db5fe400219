"""One optimiser step: one global denominator, any number of micro-batches and ranks.

The denominators are counted over the whole batch and added over the ranks before the first
backward pass; every micro-batch then contributes its plain sum, and gradients are added over ranks,
never averaged. So the gradient does not depend on how samples are cut, packed or spread.

A step whose loss or gradient norm is not finite is skipped: the weights and the optimiser's state
stay bit for bit what they were.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainer import losses
from trainer.batch import rows, to_device
from trainer.policy import score
from trainer.settings import Config
from trainer.tally import Tally
from trainer.types import Batch

__all__ = ["Learner", "StepResult"]

WORTH_A_PASS = 512  # tokens of padding below which a further pass costs more than it saves
PADDING_SHARE = 0.05


@dataclass
class StepResult:
    """What a step did.

    Parameters
    ----------
    loss, policy_loss, kl_loss : float
        The objective, and its two parts apart; near 0 on policy while the gradient is not.
    grad_norm : float
        Before clipping.
    skipped : str
        Why no step was taken, empty when one was.
    tally : Tally
        Sums and counts of the learner's signals.
    """

    loss: float
    policy_loss: float
    kl_loss: float
    grad_norm: float
    skipped: str = ""
    tally: Tally = field(default_factory=Tally)


class Learner:
    """A model, its optimiser and its reference.

    Parameters
    ----------
    model : transformers causal language model
    config : Config
    """

    def __init__(self, model: Any, config: Config) -> None:
        self.model, self.config = model, config
        self.step_count = 0
        self.parameters = list(model.parameters())
        self.device = self.parameters[0].device
        self.reference = _frozen(model) if config.kl.coef > 0 else None
        o = config.optim
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=o.lr,
            betas=(o.beta1, o.beta2),
            eps=o.eps,
            weight_decay=o.weight_decay,
            fused=True,
        )

    def step(self, batch: Batch, version: int = 0, old: Tensor | None = None) -> StepResult:
        """Differentiate the batch (this rank's part of it) and move the weights once.

        Parameters
        ----------
        batch : Batch
        version : int
            Of the weights that `old` belongs to; without `old`, of the weights of now.
        old : Tensor [N, T], optional
            o, the learner's log-probabilities from before the first step on these rollouts. When
            left out this step is the first: o = sg(π).
        """
        batch = to_device(batch, self.device)
        total = self._count(batch)
        self.optimizer.zero_grad(set_to_none=True)
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        tally = Tally()
        for index in self._micro_batches(batch):
            policy, kl, seen = self._losses(batch, index, total, old)
            tally.add_tokens(*seen, version, self.config)
            (policy + kl).backward()
            sums += torch.stack([policy.detach(), kl.detach()]).double()
        self._add_over_ranks(sums)
        return self._apply(sums, tally)

    @torch.no_grad()
    def logprobs(
        self, batch: Batch, model: nn.Module | None = None, temperature: float | None = None
    ) -> Tensor:
        """Log-probabilities of the batch under the current weights (or `model`), [N, T]."""
        temperature = temperature or self.config.sample.temperature
        batch = to_device(batch, self.device)
        out = torch.zeros(batch.mask.shape, device=self.device)
        for index in self._micro_batches(batch):
            part = rows(batch, index)
            logp, _ = score(model or self.model, part, temperature)
            out[index, : logp.shape[1]] = logp
        return out

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed learner needs."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "reference": self.reference.state_dict() if self.reference is not None else None,
            "step_count": self.step_count,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where ``state_dict`` was called."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.reference is not None:
            self.reference.load_state_dict(state["reference"])
        self.step_count = state["step_count"]

    # What the denominators count, over all ranks

    def _count(self, batch: Batch) -> losses.Totals:
        counts = losses.count(batch.counted, batch.prompt_of, len(batch.prompt_ids))
        for table in counts:
            self._add_over_ranks(table)
        return losses.totals(*counts)

    def _micro_batches(self, batch: Batch) -> Iterator[Tensor]:
        """Cut the batch: at most ``optim.micro_batch`` samples each, and little padding."""
        lengths = (batch.versions >= 0).sum(1)
        longest = lengths.new_zeros(len(batch.prompt_ids))
        longest.scatter_reduce_(0, batch.prompt_of, lengths, "amax")
        by_group = longest[batch.prompt_of] * (len(batch.prompt_ids) + 1) + batch.prompt_of
        size = self.config.optim.micro_batch
        if 0 < size < len(batch):
            yield from by_group.argsort(stable=True).split(size)
        else:
            yield from _by_length(lengths)

    # The objective of one micro-batch

    def _losses(
        self, whole: Batch, index: Tensor, total: losses.Totals, old: Tensor | None
    ) -> tuple[Tensor, Tensor, tuple[Batch, Tensor, Tensor, Tensor]]:
        c, part = self.config, rows(whole, index)
        pi, entropy = score(self.model, part, c.sample.temperature)
        o = pi.detach() if old is None else old[index, : pi.shape[1]]
        length_constant = c.loss.length_constant or c.sample.max_tokens
        w = losses.sample_weights(
            part.counted, whole.prompt_of[index], c.loss.aggregation, total, length_constant
        )
        token_loss = self._policy_loss(pi, o, part)
        policy, _ = losses.masked(token_loss, part.mask * w[:, None])
        seen = (part, pi.detach(), o, entropy.detach())
        return policy, self._kl_loss(pi, part, w), seen

    def _policy_loss(self, pi: Tensor, o: Tensor, part: Batch) -> Tensor:
        lo = self.config.loss
        anchor = part.logprobs if lo.anchor == "sampler" else o
        if lo.name == "cispo":
            loss = losses.cispo(pi, anchor, part.advantages, lo.is_cap)
        elif lo.name == "gspo":
            loss = losses.gspo(pi, anchor, part.advantages, part.mask, lo.clip_low, lo.clip_high)
        else:
            A = part.advantages
            loss = losses.clipped(pi, anchor, A, lo.clip_low, lo.clip_high, lo.dual_clip)
        if lo.tis_cap > 0:
            loss = loss * losses.truncated_weight(o, part.logprobs, lo.tis_cap)
        return loss

    def _kl_loss(self, pi: Tensor, part: Batch, w: Tensor) -> Tensor:
        kl = self.config.kl
        if self.reference is None or kl.place != "loss":
            return pi.new_zeros(())
        with torch.no_grad():
            ref, _ = score(self.reference, part, self.config.sample.temperature)
        value, _ = losses.masked(losses.kl(pi, ref, kl.estimator), part.mask * w[:, None])
        return kl.coef * value

    # The step itself

    def _apply(self, sums: Tensor, tally: Tally) -> StepResult:
        parameters = [p for p in self.parameters if p.grad is not None]
        self._add_gradients(parameters)
        norm = nn.utils.get_total_norm([p.grad for p in parameters])
        policy, kl = sums.tolist()
        result = StepResult(policy + kl, policy, kl, float(norm), tally=tally)
        finite = bool(torch.isfinite(sums).all()) and bool(torch.isfinite(norm))
        if not finite:
            result.skipped = "loss or gradient not finite"
            return result
        if self.config.optim.clip > 0:
            nn.utils.clip_grads_with_norm_(parameters, self.config.optim.clip, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        self.optimizer.step()
        self.step_count += 1
        return result

    def learning_rate(self) -> float:
        """Linear warm-up to a constant, for the step about to be taken."""
        o = self.config.optim
        return o.lr * min(1.0, (self.step_count + 1) / max(1, o.warmup))

    def _add_gradients(self, parameters: list[nn.Parameter]) -> None:
        if not dist.is_initialized():
            return
        flat = torch.cat([p.grad.flatten() for p in parameters])
        dist.all_reduce(flat)
        for p, g in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            p.grad.copy_(g.view_as(p))

    def _add_over_ranks(self, x: Tensor) -> None:
        if dist.is_initialized():
            dist.all_reduce(x)


def _by_length(lengths: Tensor) -> list[Tensor]:
    """Cut samples in two where that saves a good part of the padding, and the longer part again."""
    order = lengths.argsort(stable=True)
    n = lengths[order]
    short = torch.arange(1, len(n) + 1, device=n.device)
    padded = short * n + (len(n) - short) * n[-1]  # tokens when the first `short` go apart
    cut = int(padded.argmin()) + 1
    saved = int(len(n) * n[-1] - padded[cut - 1])
    if saved < max(WORTH_A_PASS, PADDING_SHARE * len(n) * int(n[-1])):
        return [order.sort()[0]]
    rest = order[cut:]
    return [order[:cut].sort()[0], *(rest[i] for i in _by_length(lengths[rest]))]


def _frozen(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).requires_grad_(False)
