"""One optimiser step: one global denominator, any number of micro-batches and ranks.

The denominators are counted over the whole batch and added over the ranks before the first
backward pass; every micro-batch then contributes its plain sum, and gradients are added over ranks,
never averaged. So the gradient does not depend on how samples are cut, packed or spread.

Where a process group exists the model is sharded over it (``shard.py``) and every method here is
called on all ranks; ``team.py`` sees to that.

A step whose loss or gradient norm is not finite is skipped: the weights and the optimiser's state
stay bit for bit what they were.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainer import branches, checkpoint, lora, losses
from trainer import shard as sharding
from trainer.batch import rows, to_device
from trainer.errors import ConfigError
from trainer.micro import empty_part, micro_batches
from trainer.packing import probe
from trainer.policy import Scorer, Way
from trainer.settings import Config, passes
from trainer.state import blank_moments, load_weights, trained_weights
from trainer.tally import Tally
from trainer.types import Batch

__all__ = ["Learner", "StepResult"]

ROWS_LIMIT = {"float32": 1e-3, "bfloat16": 0.5}  # log-probability; mixed-up samples differ by 1


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
        Changed in place when it is sharded, its layers are recomputed or adapters are added.
    config : Config

    Raises
    ------
    ConfigError
        The model cannot be packed, or adapters cannot be added.
    """

    def __init__(self, model: Any, config: Config) -> None:
        self.model, self.config = model, config
        self.step_count = 0
        self.sharded = dist.is_initialized()
        if config.learner.lora_rank > 0:
            lora.add_adapters(model, config)
        self.reference = self._reference()
        self.anchor: dict[str, Tensor] | None = None  # the adapters that the reference has
        self.scorer = self._prepare(model)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.device = self.parameters[0].device
        o = config.optim
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=o.lr,
            betas=(o.beta1, o.beta2),
            eps=o.eps,
            weight_decay=o.weight_decay,
            fused=True,
        )
        self._check_rows()

    def _reference(self) -> Scorer | None:
        """Return the model as it is now, never to be trained; with adapters no copy is needed."""
        if self.config.kl.coef == 0 or self.config.learner.lora_rank > 0:
            return None
        return self._prepare(copy.deepcopy(self.model).requires_grad_(False))

    def _prepare(self, model: Any) -> Scorer:
        """Recompute and shard the model as the settings say."""
        settings = self.config.learner
        scorer = Scorer(model, self._way())
        if settings.checkpointing:
            sharding.recompute(model)
        if self.sharded:
            sharding.shard(scorer, self.config)
        return scorer

    def _way(self) -> Way:
        if self.config.learner.packing:
            return "one-row" if self.config.model.attention == "flash_attention_2" else "packed"
        if self.sharded or self.config.learner.checkpointing:
            return "branched" if branches.serves(self.model) else "padded"
        return "shared"

    def _check_rows(self) -> None:
        """Refuse or leave rows of several samples when the model does not keep them apart."""
        way = self.scorer.way
        if way in ("shared", "padded"):
            return
        batch, logps = to_device(probe(self.model.config.vocab_size), self.device), []
        for self.scorer.way in (way, "padded"):
            with torch.no_grad():
                logps.append(self._score(self.scorer, batch, 1.0)[0])
        gap = float((logps[0] - logps[1]).abs().max())
        if gap <= ROWS_LIMIT[passes(self.config)]:
            self.scorer.way = way
        elif self.config.learner.packing:
            raise ConfigError(
                f"learner.packing: samples of a row change each other by {gap:.2g} in this model's "
                "log-probabilities: set learner.packing to false"
            )
        if self.reference is not None:  # where the policy is read, and its KL is 0
            self.reference.way = self.scorer.way

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
        for part_of, index in self._passes(batch):
            policy, kl, seen = self._losses(part_of, index, total, old)
            tally.add_tokens(*seen, version, self.config)
            (policy + kl).backward()
            sums += torch.stack([policy.detach(), kl.detach()]).double()
        self._add_over_ranks(sums)
        if self.sharded:
            tally.reduce()
        return self._apply(sums, tally)

    @torch.no_grad()
    def logprobs(
        self, batch: Batch, *, reference: bool = False, temperature: float | None = None
    ) -> Tensor:
        """Log-probabilities of the batch under the current weights or the reference's, [N, T]."""
        temperature = temperature or self.config.sample.temperature
        batch = to_device(batch, self.device)
        out = torch.zeros(batch.mask.shape, device=self.device)
        for part_of, index in self._passes(batch):
            part = rows(part_of, index)
            logp = (
                self._reference_logprobs(part, temperature)
                if reference
                else self._score(self.scorer, part, temperature)[0]
            )
            if part_of is batch:
                out[index, : logp.shape[1]] = logp
        return out

    def _score(self, scorer: Scorer, part: Batch, temperature: float) -> tuple[Tensor, Tensor]:
        """Score without a backward pass to come: a sharded model is left as it was."""
        scored = scorer(part, temperature)
        if self.sharded:
            sharding.reshard(scorer)
        return scored

    def _reference_logprobs(self, part: Batch, temperature: float) -> Tensor:
        scorer, as_it_was = self.reference, nullcontext()
        if self.config.learner.lora_rank > 0:
            scorer, as_it_was = self.scorer, self._reference_adapters()
        assert scorer is not None, "kl.coef is 0"
        with torch.no_grad(), as_it_was:
            return self._score(scorer, part, temperature)[0]

    def _reference_adapters(self) -> AbstractContextManager[None]:
        if self.anchor is None:
            return lora.base_alone(self.model)
        return lora.with_adapters(self.model, self.anchor)

    @torch.no_grad()
    def reset(self, *, optimizer: bool) -> None:
        """Make the policy of now the reference and, with `optimizer`, forget AdamW's moments.

        Moments and count of 0 are what AdamW starts from. The learning rate stays where its
        schedule is: constant after warm-up, as in ProRL.
        """
        if self.reference is not None:
            load_weights(self.reference.model, self.model.state_dict())
        elif self.config.kl.coef > 0:
            self.anchor = lora.adapters_of(self.model)
        if optimizer:
            for moments in self.optimizer.state.values():
                for x in moments.values():
                    x.zero_()

    # What leaves and what comes back

    @torch.no_grad()
    def weights(self) -> dict[str, Tensor]:
        """Whole weights by name, the tied head included, on rank 0; nothing on other ranks.

        In the dtype of the passes. A collective when the model is sharded.
        """
        adapted = self.config.learner.lora_rank > 0
        if not self.sharded:
            state = self.model.state_dict()
            return lora.merged(self.model, state) if adapted else state
        out: dict[str, Tensor] = {}
        for part in sharding.parts(self.scorer):
            if dist.get_rank() == 0:  # a tied head is the embedding: one copy of both
                part = lora.merged(self.model, part) if adapted else part
                copies = {id(w): w.clone() for w in part.values()}
                out |= {name: copies[id(w)] for name, w in part.items()}
        return out

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed learner needs; of a model with adapters the adapters alone."""
        return {
            "model": trained_weights(self.model),
            "optimizer": self.optimizer.state_dict(),
            "reference": self.reference.model.state_dict() if self.reference else self.anchor,
            "step_count": self.step_count,
        }

    def save(self, folder: Path) -> None:
        """Write this rank's share of the state below `folder`; a collective."""
        checkpoint.write_shards(folder, self.state_dict())

    def load(self, path: Path) -> None:
        """Load a checkpoint written by any number of ranks; a collective when sharded."""
        self.load_state_dict(checkpoint.read_learner(path, self.blank_state))

    def blank_state(self, stored: set[str]) -> dict[str, Any]:
        """Return what ``state_dict`` returned when this was stored, to be filled in place.

        Before the first step AdamW has no moments; without a KL term, and with adapters until the
        first reset, no weights of a reference are stored.
        """
        state = self.state_dict()
        state["optimizer"]["state"] = {
            i: blank_moments(p)
            for i, p in enumerate(self.parameters)
            if f"optimizer.state.{i}.step" in stored
        }
        if "reference" in stored:
            state["reference"] = None
        elif self.reference is None:
            state["reference"] = lora.adapters_of(self.model)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where ``state_dict`` was called, on any number of ranks."""
        load_weights(self.model, state["model"])
        optimizer = state["optimizer"]
        spread = {
            i: {k: sharding.like(v, self.parameters[i]) for k, v in of.items()}
            for i, of in optimizer["state"].items()
        }
        self.optimizer.load_state_dict({**optimizer, "state": spread})
        self._load_reference(state["reference"])
        self.step_count = state["step_count"]

    def _load_reference(self, weights: dict[str, Tensor] | None) -> None:
        """Take up the reference; None: that of the start, which is there already."""
        self.anchor = None
        if weights is None or self.config.kl.coef == 0:
            return
        if self.reference is not None:
            load_weights(self.reference.model, weights)
        else:
            own = lora.adapters_of(self.model)
            self.anchor = {n: sharding.like(x, own[n]) for n, x in weights.items()}

    # What the denominators count, over all ranks

    def _count(self, batch: Batch) -> losses.Totals:
        counts = losses.count(batch.counted, batch.prompt_of, len(batch.prompt_ids))
        for table in counts:
            self._add_over_ranks(table)
        return losses.totals(*counts)

    def _passes(self, batch: Batch) -> Iterator[tuple[Batch, Tensor]]:
        """Yield batch and index of each pass; as many on every rank, the last ones empty."""
        cuts = list(micro_batches(batch, self.config))
        most = torch.tensor(len(cuts))
        if self.sharded:
            dist.all_reduce(most, op=dist.ReduceOp.MAX)
        yield from ((batch, index) for index in cuts)
        empty = empty_part(batch)
        yield from ((empty, cuts[0].new_zeros(1)) for _ in range(int(most) - len(cuts)))

    # The objective of one micro-batch

    def _losses(
        self, whole: Batch, index: Tensor, total: losses.Totals, old: Tensor | None
    ) -> tuple[Tensor, Tensor, tuple[Batch, Tensor, Tensor, Tensor]]:
        c, part = self.config, rows(whole, index)
        ref = self._reference_logprobs(part, c.sample.temperature) if self._pulled() else None
        pi, entropy = self.scorer(part, c.sample.temperature)
        o = pi.detach() if old is None else old[index, : pi.shape[1]]
        length_constant = c.loss.length_constant or c.sample.max_tokens
        w = losses.sample_weights(
            part.counted, whole.prompt_of[index], c.loss.aggregation, total, length_constant
        )
        token_loss = self._policy_loss(pi, o, part)
        policy, _ = losses.masked(token_loss, part.mask * w[:, None])
        seen = (part, pi.detach(), o, entropy.detach())
        return policy, self._kl_loss(pi, ref, part, w), seen

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

    def _pulled(self) -> bool:
        return self.config.kl.coef > 0 and self.config.kl.place == "loss"

    def _kl_loss(self, pi: Tensor, ref: Tensor | None, part: Batch, w: Tensor) -> Tensor:
        if ref is None:
            return pi.new_zeros(())
        kl = self.config.kl
        value, _ = losses.masked(losses.kl(pi, ref, kl.estimator), part.mask * w[:, None])
        return kl.coef * value

    # The step itself

    def _apply(self, sums: Tensor, tally: Tally) -> StepResult:
        parameters = [p for p in self.parameters if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in parameters])
        size = float(sharding.whole(norm))
        policy, kl = sums.tolist()
        result = StepResult(policy + kl, policy, kl, size, tally=tally)
        finite = bool(torch.isfinite(sums).all()) and math.isfinite(size)
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

    def _add_over_ranks(self, x: Tensor) -> None:
        if self.sharded:
            dist.all_reduce(x)
