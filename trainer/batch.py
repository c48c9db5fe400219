"""From groups to the tensors of one optimiser step.

Shapes as in ``types.Batch``. Two masks leave here: ``mask`` says which tokens carry gradient,
``counted`` which tokens the denominators count. A token whose sampler log-probability is not finite
is in neither. A truncated sample under ``loss.mask_truncated`` is in neither when
``loss.renormalise`` is set, and in ``counted`` alone when it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from itertools import chain, repeat

import torch
from torch import Tensor

from trainer import losses
from trainer.advantages import advantages, whiten_tokens
from trainer.settings import Config, Kl
from trainer.types import Batch, Group, Rollout

__all__ = ["make_batch", "minus_kl", "rows", "shaped_rewards", "to_device"]


def shaped_rewards(groups: list[Group], config: Config) -> list[list[float]]:
    """Rewards of each group's scored rollouts with DAPO's overlong punishment added."""
    L_max, L_cache = config.reward.overlong_max, config.reward.overlong_cache
    if L_max == 0:
        return [g.rewards for g in groups]
    return [
        [float(r.reward or 0.0) + _overlong(len(r.ids), L_max, L_cache) for r in _scored(g)]
        for g in groups
    ]


def _overlong(length: int, L_max: int, L_cache: int) -> float:
    return float(losses.overlong_penalty(torch.tensor(float(length)), L_max, L_cache))


def minus_kl(rewards: list[list[float]], batch: Batch, ref: Tensor, kl: Kl) -> list[list[float]]:
    """Take β Σ_t KL_t off the rewards; the sampler's μ stands for π, for it drew the tokens."""
    cost = losses.kl(batch.logprobs, ref, kl.estimator)
    paid = (kl.coef * torch.where(batch.mask > 0, cost, torch.zeros_like(cost)).sum(1)).tolist()
    left = iter(paid)
    return [[r - next(left) for r in group] for group in rewards]


def make_batch(groups: list[Group], rewards: list[list[float]], config: Config) -> Batch:
    """Pad the scored rollouts of the groups and compute their advantages.

    Parameters
    ----------
    groups : list of Group
        Already filtered; each has a scored rollout at least.
    rewards : list of list of float
        As ``shaped_rewards`` returns them, in the order of the scored rollouts.
    """
    samples = [(p, r) for p, g in enumerate(groups) for r in _scored(g)]
    rollouts = [r for _, r in samples]
    prompt_of = torch.tensor([p for p, _ in samples])
    there = _places([len(r.ids) for r in rollouts])
    logprobs = _fill(there, (r.logprobs for r in rollouts), 0.0)
    mask, counted, dropped = _masks(rollouts, there, logprobs, config)
    r = torch.tensor([x for xs in rewards for x in xs], dtype=torch.float64)
    A = advantages(r, prompt_of, config.loss.advantage).float()
    if config.loss.advantage == "token":
        A = whiten_tokens(A, counted.sum(1))
    prompt_mask = _places([len(g.prompt.ids) for g in groups]).flip(1)
    return Batch(
        prompt_ids=_fill(prompt_mask, (g.prompt.ids for g in groups), 0),
        prompt_mask=prompt_mask,
        ids=_fill(there, (r.ids for r in rollouts), 0),
        mask=mask,
        counted=counted,
        logprobs=torch.where(mask > 0, logprobs, torch.zeros_like(logprobs)),
        versions=_fill(there, (_token_versions(r) for r in rollouts), -1),
        prompt_of=prompt_of,
        advantages=A,
        dropped_tokens=dropped,
    )


def _scored(group: Group) -> list[Rollout]:
    return [r for r in group.rollouts if r.scored]


def _masks(
    rollouts: list[Rollout], there: Tensor, logprobs: Tensor, config: Config
) -> tuple[Tensor, Tensor, int]:
    drawn = _fill(there, (r.mask for r in rollouts), 0).float()
    mask = drawn * logprobs.isfinite()
    dropped = int((drawn - mask).sum())
    if not config.loss.mask_truncated:
        return mask, mask, dropped
    whole = torch.tensor([[float(r.finish_reason != "length")] for r in rollouts])
    kept = mask * whole
    return kept, kept if config.loss.renormalise else mask, dropped


def _token_versions(r: Rollout) -> Iterator[int]:
    return chain.from_iterable(repeat(v, end - start) for v, start, end in r.versions)


def _places(lengths: list[int]) -> Tensor:
    """Return where right-padded rows of these lengths have their values, bool [N, max length]."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def _fill(places: Tensor, values: Iterable[Iterable[float]], padding: float) -> Tensor:
    """Put the rows' values into their places; float32 or int64 as `padding` is."""
    dtype = torch.float32 if isinstance(padding, float) else torch.int64
    flat = torch.tensor(list(chain.from_iterable(values)), dtype=dtype)
    return torch.full(places.shape, padding, dtype=dtype).masked_scatter_(places, flat)


def rows(batch: Batch, index: Tensor) -> Batch:
    """Take the samples `index` alone, with the prompts they need, cut to their own width.

    ``prompt_of`` is renumbered; the global numbers stay with the whole batch.
    """
    part = batch.select(index)
    wanted, prompt_of = part.prompt_of.unique(return_inverse=True)
    width = max(1, int((part.versions >= 0).sum(1).max()))
    lead = int(batch.prompt_mask[wanted].any(0).float().argmax())
    per_token = ("ids", "mask", "counted", "logprobs", "versions")
    return replace(
        part,
        prompt_ids=batch.prompt_ids[wanted, lead:],
        prompt_mask=batch.prompt_mask[wanted, lead:],
        prompt_of=prompt_of,
        **{name: getattr(part, name)[:, :width] for name in per_token},
    )


def to_device(batch: Batch, device: torch.device | str) -> Batch:
    """Put every tensor of the batch on `device`."""
    values = {f.name: getattr(batch, f.name) for f in fields(batch)}
    return Batch(**{k: v.to(device) if isinstance(v, Tensor) else v for k, v in values.items()})
