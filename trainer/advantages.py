"""Advantages: how much better a rollout was than the others of its prompt.

Symbols: r reward [N], p number of the prompt's group of each sample [N]. All functions are pure,
on float tensors, and expect the zero-variance filter to have run before: the batch's standard
deviation counts the groups it is given and no others.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["DELTA", "advantages", "group_mean", "group_std", "whiten_tokens"]

DELTA = 1e-6


def group_mean(r: Tensor, p: Tensor) -> Tensor:
    """Return the mean reward of each sample's group, [N]."""
    n_p = torch.zeros(int(p.max()) + 1, dtype=r.dtype, device=r.device)
    total, count = n_p.index_add(0, p, r), n_p.index_add(0, p, torch.ones_like(r))
    return (total / count)[p]


def group_std(r: Tensor, p: Tensor) -> Tensor:
    """Return the population standard deviation of each sample's group, [N]."""
    return group_mean((r - group_mean(r, p)) ** 2, p).sqrt()


def advantages(r: Tensor, p: Tensor, scale: str) -> Tensor:
    """Center rewards within the group and scale them.

    Parameters
    ----------
    r : Tensor [N]
        Rewards.
    p : Tensor [N] int64
        Group of each sample; groups may come in any order.
    scale : {"prompt", "batch", "none", "loo", "token"}
        * prompt: (r - mean_p) / (std_p + δ), GRPO (arXiv:2402.03300, section 4.1.2); 0 where
          std_p is 0.
        * batch: (r - mean_p) / std of all centered rewards of the batch, ScaleRL
          (arXiv:2510.13786). Not the std of the raw rewards.
        * none: r - mean_p, Dr. GRPO (arXiv:2503.20783).
        * loo: r - mean of the other G - 1, RLOO (arXiv:2402.14740).
        * token: r - mean_p, to be whitened over tokens by ``whiten_tokens``.

    Returns
    -------
    Tensor [N]
    """
    centered = r - group_mean(r, p)
    if scale == "prompt":
        std = group_std(r, p)
        return torch.where(std > 0, centered / (std + DELTA), torch.zeros_like(centered))
    if scale == "batch":
        std = centered.square().mean().sqrt()  # the mean is 0 by construction
        return centered / std if std > 0 else centered
    if scale == "loo":
        size = torch.bincount(p)[p].to(r.dtype)
        return torch.where(size > 1, centered * size / (size - 1).clamp(min=1), centered)
    assert scale in ("none", "token"), scale
    return centered


def whiten_tokens(A: Tensor, tokens: Tensor) -> Tensor:
    """Subtract the mean and divide by the std over all valid tokens (REINFORCE++-baseline).

    Parameters
    ----------
    A : Tensor [N]
        Centered rewards.
    tokens : Tensor [N]
        Valid tokens of each sample, its weight in both moments.
    """
    n = tokens.sum()
    mean = (A * tokens).sum() / n
    variance = ((A - mean).square() * tokens).sum() / n
    return (A - mean) / variance.clamp(min=1e-8).sqrt()
