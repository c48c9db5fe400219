"""Losses per token, and the weights that turn them into one number.

Symbols: π log-probability under the current weights, μ under the sampler, o under the weights of
the start of the batch, all [N, T]; A advantage [N]; m mask [N, T]; ρ = exp(π - anchor), where the
anchor is μ or o and every caller says which; sg(·) is ``detach``.

Every loss is Σ_i w_i Σ_t m_it ℓ_it, with weights w_i that depend on token counts alone. The counts
are global, over all micro-batches and all ranks, so how samples are packed cannot change the
gradient. Pure functions on tensors; nothing here knows a model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = [
    "LOG_RATIO_BOUND",
    "Totals",
    "cispo",
    "clipped",
    "count",
    "ess",
    "gspo",
    "kl",
    "masked",
    "overlong_penalty",
    "ratio",
    "sample_weights",
    "totals",
    "truncated_weight",
]

LOG_RATIO_BOUND = 20.0  # e^20 = 4.9e8: finite in float32 with room for sums


def masked(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """Return (Σ x m, Σ m); the one way in which a mask is applied.

    Values under a zero mask do not matter, not even when they are not finite.
    """
    return torch.where(m > 0, x * m, torch.zeros_like(x)).sum(), m.sum()


def ratio(logp: Tensor, anchor: Tensor) -> Tensor:
    """Return ρ = exp(logp - anchor), the exponent bounded so that ρ and its gradient are finite."""
    return (logp - anchor).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()


def clipped(
    pi: Tensor, anchor: Tensor, A: Tensor, low: float, high: float, dual: float = 0.0
) -> Tensor:
    """ℓ = -min(ρA, clip(ρ, 1-low, 1+high) A), [N, T].

    PPO (arXiv:1707.06347, equation 7) with the decoupled bounds of DAPO (arXiv:2503.14476,
    equation 8). With `dual` = c > 0, ℓ ≤ -cA where A < 0 (arXiv:1912.09729, equation 5).
    """
    rho = ratio(pi, anchor)
    return _clip(rho, A[:, None], low, high, dual)


def gspo(pi: Tensor, o: Tensor, A: Tensor, m: Tensor, low: float, high: float) -> Tensor:
    """ℓ = -min(sA, clip(s, 1-low, 1+high) A) with the sequence's s_i = exp(mean_t(π - o)), [N, T].

    arXiv:2507.18071, equations 5 and 7. Each token of a sample carries the sample's loss, so the
    sample aggregation yields exactly the paper's objective.
    """
    length = m.sum(1, keepdim=True).clamp(min=1)
    s = ratio((pi * m).sum(1, keepdim=True) / length, (o * m).sum(1, keepdim=True) / length)
    return _clip(s, A[:, None], low, high, 0.0).expand_as(pi)


def _clip(rho: Tensor, A: Tensor, low: float, high: float, dual: float) -> Tensor:
    loss = -torch.minimum(rho * A, rho.clamp(1 - low, 1 + high) * A)
    if dual > 0:
        loss = torch.where(A < 0, torch.minimum(loss, -dual * A), loss)
    return loss


def cispo(pi: Tensor, anchor: Tensor, A: Tensor, cap: float) -> Tensor:
    """ℓ = -sg(min(ρ, cap)) A π, [N, T]; `cap` is absolute and there is no lower bound.

    MiniMax-M1 (arXiv:2506.13585, equation 4) with ScaleRL's cap (arXiv:2510.13786). The gradient
    never vanishes; the cap bounds the weight alone.
    """
    return -ratio(pi, anchor).clamp(max=cap).detach() * A[:, None] * pi


def truncated_weight(o: Tensor, mu: Tensor, cap: float) -> Tensor:
    """sg(min(exp(o - μ), cap)): truncated importance sampling for the engine's mismatch, [N, T]."""
    return ratio(o, mu).clamp(max=cap).detach()


def kl(pi: Tensor, ref: Tensor, estimator: str) -> Tensor:
    """Estimate KL(π‖ref) per token at tokens drawn from π, [N, T].

    With x = ref - π: k1 = -x, k2 = x²/2, k3 = e^x - 1 - x (Schulman, "Approximating KL
    divergence", 2020). As a loss
    differentiated through π, k1 has expected gradient 0, k2 that of KL(π‖ref), and k3 that of
    KL(ref‖π): see arXiv:2506.09477.
    """
    x = (ref - pi).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    if estimator == "k1":
        return -x
    if estimator == "k2":
        return x.square() / 2
    assert estimator == "k3", estimator
    return torch.expm1(x) - x


@dataclass(frozen=True)
class Totals:
    """What denominators count, over all micro-batches and ranks.

    Parameters
    ----------
    tokens, samples, prompts : Tensor scalar
    prompt_tokens : Tensor [P]
    """

    tokens: Tensor
    samples: Tensor
    prompts: Tensor
    prompt_tokens: Tensor


def count(counted: Tensor, prompt_of: Tensor, n_prompts: int) -> tuple[Tensor, Tensor]:
    """Return per-prompt (tokens [P], samples [P]) of these samples; ranks add theirs up."""
    n = counted.sum(1)
    zeros = torch.zeros(n_prompts, dtype=n.dtype, device=n.device)
    return zeros.index_add(0, prompt_of, n), zeros.index_add(0, prompt_of, (n > 0).to(n.dtype))


def totals(prompt_tokens: Tensor, prompt_samples: Tensor) -> Totals:
    """Sum the per-prompt counts of ``count`` (already added over ranks)."""
    return Totals(
        tokens=prompt_tokens.sum(),
        samples=prompt_samples.sum(),
        prompts=(prompt_tokens > 0).sum(),
        prompt_tokens=prompt_tokens,
    )


def sample_weights(
    counted: Tensor, prompt_of: Tensor, how: str, total: Totals, length_constant: int
) -> Tensor:
    """Return w_i, so that the loss is Σ_i w_i Σ_t m_it ℓ_it, [N].

    * token: 1 / Σ m (DAPO).
    * sample: 1 / (N T_i) (GRPO).
    * prompt: 1 / (P Σ_{i∈p} T_i) (ScaleRL).
    * constant: 1 / (N L_max) (Dr. GRPO).
    """
    n = counted.sum(1)
    one = torch.ones_like(n)
    if how == "token":
        w = one / total.tokens
    elif how == "sample":
        w = one / (total.samples * n)
    elif how == "prompt":
        w = one / (total.prompts * total.prompt_tokens[prompt_of])
    else:
        assert how == "constant", how
        w = one / (total.samples * length_constant)
    return torch.where(n > 0, w, torch.zeros_like(w))


def overlong_penalty(length: Tensor, L_max: int, L_cache: int) -> Tensor:
    """DAPO's soft overlong punishment (arXiv:2503.14476, equation 13), added to the reward, [N].

    -clip(length - (L_max - L_cache), 0, L_cache) / L_cache: 0 up to L_max - L_cache tokens, then
    down to -1 at L_max.
    """
    return -(length - (L_max - L_cache)).clamp(0, L_cache) / L_cache


def ess(w: Tensor) -> Tensor:
    """Effective sample size of importance weights as a share, (Σw)² / (N Σw²)."""
    return w.sum().square() / (w.numel() * w.square().sum())
