"""The head in float32, chunk by chunk: log-probabilities without the tokens × vocabulary buffer.

Logits, log-softmax and entropy are float32 on both sides, the learner's and the sampler's, which is
what lifted ScaleRL's asymptote from 0.52 to 0.61 (arXiv:2510.13786, section 3.2). Hidden states
[M, D] and the head's weight [V, D] may be bfloat16: products of two of those are exact in float32,
and a GPU's tensor cores multiply them and sum in float32, at fifteen times the speed of float32
factors. vLLM's ``head_dtype`` does the same. The gradient of the logits is no bfloat16; it is cut
into a high and a low part that are, which keeps 16 of its 24 bits and costs two products.

The forward pass keeps one number a token; the backward pass computes the logits again. Gradients
come back in the dtype of what they belong to, the weight's after being summed in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["CHUNK_ELEMENTS", "logprob_entropy"]

CHUNK_ELEMENTS = 1 << 24  # 64 MiB of float32 logits at a time


def logprob_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probability of the targets and entropy of the distribution, both differentiable.

    Parameters
    ----------
    hidden : Tensor [M, D]
    weight : Tensor [V, D]
    targets : Tensor [M] int64
    temperature : float
        Logits are divided by it, as the sampler's were.
    chunk : int, optional
        Rows at a time; the default bounds the buffer by ``CHUNK_ELEMENTS``.

    Returns
    -------
    tuple of Tensor [M] float32
        log softmax(hidden·weightᵀ / T)[target] and -Σ p log p, in nats.
    """
    rows = chunk or max(1, CHUNK_ELEMENTS // weight.shape[0])
    logp, entropy = _Head.apply(hidden, weight, targets, 1.0 / temperature, rows)
    return logp, entropy


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, scale: float, rows: int
    ) -> tuple[Tensor, Tensor]:
        factor = _factor(hidden, weight)
        W = weight.to(factor)
        logZ, logp, entropy = (hidden.new_empty(len(hidden), dtype=torch.float32) for _ in range(3))
        for i in range(0, len(hidden), rows):
            part = slice(i, i + rows)
            z = _product(hidden[part].to(factor), W.T).mul_(scale)
            logZ[part] = z.logsumexp(1)
            log_p = z.sub_(logZ[part, None])
            logp[part] = log_p.gather(1, targets[part, None])[:, 0]
            entropy[part] = -(log_p.exp() * log_p).sum(1)
        ctx.save_for_backward(hidden, weight, targets, logZ, entropy)
        ctx.scale, ctx.rows = scale, rows
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        g_logp, g_entropy = grads
        hidden, weight, targets, logZ, entropy = ctx.saved_tensors
        factor = _factor(hidden, weight)
        W = weight.to(factor)
        g_hidden, g_W = torch.empty_like(hidden), torch.zeros_like(W, dtype=torch.float32)
        for i in range(0, len(hidden), ctx.rows):
            part = slice(i, i + ctx.rows)
            h = hidden[part].to(factor)
            log_p = _product(h, W.T).mul_(ctx.scale).sub_(logZ[part, None])
            g_z = _logit_gradient(
                log_p, targets[part], g_logp[part], g_entropy[part], entropy[part]
            )
            pieces = _pieces(g_z.mul_(ctx.scale), hidden, weight)
            g_hidden[part] = sum(_product(g, W) for g in pieces).to(hidden.dtype)
            for g in pieces:
                _add_product(g_W, g.T, h)
        return g_hidden, g_W.to(weight.dtype), None, None, None


def _factor(hidden: Tensor, weight: Tensor) -> torch.dtype:
    """Dtype of the factors: bfloat16 where both are and the device sums in float32."""
    return torch.bfloat16 if _both_short(hidden, weight) and hidden.is_cuda else torch.float32


def _both_short(hidden: Tensor, weight: Tensor) -> bool:
    return hidden.dtype == weight.dtype == torch.bfloat16


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a·b in float32."""
    return torch.mm(a, b, out_dtype=torch.float32) if a.dtype == torch.bfloat16 else a @ b


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a·b to a float32 total, in place."""
    if a.dtype == torch.bfloat16:
        total += _product(a, b)
    else:
        total.addmm_(a, b)


def _pieces(g: Tensor, hidden: Tensor, weight: Tensor) -> list[Tensor]:
    """The gradient as factors: whole, or a high and a low part of 8 bits each (error 2⁻¹⁸)."""
    if not _both_short(hidden, weight):
        return [g]
    high = g.bfloat16()
    factor = _factor(hidden, weight)
    return [high.to(factor), g.sub_(high).bfloat16().to(factor)]


def _logit_gradient(
    log_p: Tensor, targets: Tensor, g_logp: Tensor, g_entropy: Tensor, entropy: Tensor
) -> Tensor:
    """∂/∂z of g·log p_target + g'·H: g (1_target - p) - g' p (log p + H), [M, V]."""
    p = log_p.exp()
    g = p * -(g_logp[:, None] + g_entropy[:, None] * (log_p + entropy[:, None]))
    return g.scatter_add_(1, targets[:, None], g_logp[:, None])
