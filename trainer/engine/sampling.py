"""Drawing tokens: noise that belongs to a request, and the exact log-probability of the draw.

The noise of a token is a function of the request's seed and of the token's place alone, so that a
completion does not depend on what else is in the batch, on the order of arrival or on the engine's
number of rows.

Shapes: n rows, V vocabulary.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["draw", "uniform"]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniform(seed: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Uniform numbers in [0, 1), one for each pair (seed, place): SplitMix64, 53 bits.

    Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014: `place`
    is the number of the draw in the stream of `seed`.

    Parameters
    ----------
    seed : array of uint64
    place : array of int64

    Returns
    -------
    array of float64
        Of the two shapes broadcast.
    """
    z = seed + (place.astype(np.uint64) + np.uint64(1)) * GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)) * 2.0**-53


def draw(
    logits: Tensor,
    temperature: np.ndarray | None,
    noise: np.ndarray,
    top_p: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """One token a row by inverting the cumulative distribution.

    Parameters
    ----------
    logits : Tensor [n, V] float32
    temperature : array [n] float32, or None when all are 1
        0 takes the most likely token and reports its log-probability at temperature 1.
    noise : array [n] float64
        Uniform in [0, 1).
    top_p : array [n] float32, or None when all are 1
        Probability of the nucleus that is drawn from.

    Returns
    -------
    token : array [n] int64
    logprob : array [n] float32
        log softmax(logits / temperature) at the token, within the nucleus. NaN where the logits
        give no distribution.
    """
    if temperature is not None:
        scale = torch.from_numpy(np.where(temperature == 0, np.float32(1), temperature))
        logits = logits / scale.to(logits.device)[:, None]
    logp = torch.log_softmax(logits, dim=-1)
    if top_p is not None:
        logp = _nucleus(logp, torch.from_numpy(top_p).to(logp.device)[:, None])
    mass = logp.exp().cumsum(dim=-1, dtype=torch.float64)
    level = torch.from_numpy(noise).to(logits.device)[:, None] * mass[:, -1:]
    token = torch.searchsorted(mass, level, right=True).clamp_(max=logits.shape[1] - 1)
    if temperature is not None and (temperature == 0).any():
        greedy = torch.from_numpy(temperature == 0).to(logits.device)[:, None]
        token = torch.where(greedy, logits.argmax(dim=-1, keepdim=True), token)
    logprob = logp.gather(1, token)
    return token.squeeze(1).cpu().numpy(), logprob.squeeze(1).cpu().numpy()


def _nucleus(logp: Tensor, top_p: Tensor) -> Tensor:
    """Renormalise over the likeliest tokens: those before which less than top_p has gone.

    Holtzman et al., "The curious case of neural text degeneration", arXiv:1904.09751, section 3.1.
    """
    p, order = logp.exp().sort(dim=-1, descending=True, stable=True)
    outside = torch.empty_like(p, dtype=torch.bool)
    outside.scatter_(1, order, p.cumsum(dim=-1, dtype=torch.float64) - p >= top_p)
    return torch.log_softmax(logp.masked_fill(outside, -torch.inf), dim=-1)
