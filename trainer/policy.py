"""Log-probabilities of completions under a model, each prompt computed once for all its samples.

Where layers are sharded or recomputed a cache does not serve, for it would be filled twice; there
prompts and completions run as the rows of ``branches.py`` or ``packing.py``.

The G samples of a group share their prompt. A plain batch runs the prompt G times; here the prompts
run once, their keys and values are repeated for the samples, and the completions follow. Gradients
flow through the cache, so the result is that of the plain batch with fewer multiplications: for
prompts and completions of equal length, half.

Shapes: P prompts, N samples, Lp prompt width, T completion width, D hidden, V vocabulary.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from trainer import branches, packing
from trainer.head import logprob_entropy
from trainer.types import Batch

__all__ = ["Scorer", "score"]

Way = Literal["shared", "branched", "padded", "packed", "one-row"]


class Scorer(nn.Module):
    """``score`` as a module, so that sharding gathers the head's weight with everything else.

    Parameters
    ----------
    model : transformers causal language model
    way : {"shared", "branched", "padded", "packed", "one-row"}
        Prompts once for all their samples, with a cache or in one row; or prompt and completion as
        rows, see ``packing.py``.
    """

    def __init__(self, model: Any, way: Way = "shared") -> None:
        super().__init__()
        self.model, self.way = model, way

    def forward(self, batch: Batch, temperature: float) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy of every counted completion token, [N, T] each."""
        return score(self.model, batch, temperature, self.way)


def score(
    model: Any, batch: Batch, temperature: float, way: Way = "shared"
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of every counted completion token, [N, T] each, 0 elsewhere.

    `model` is a transformers causal language model whose head has no bias.
    """
    valid = batch.mask > 0
    if way == "shared":
        hidden = _hidden(model, batch)
        drawn = hidden.flatten(0, 1).index_select(0, valid.flatten().nonzero()[:, 0])
    else:
        drawn = packing.hidden(model.base_model, _rows(batch, way))
    weight = model.get_output_embeddings().weight
    logp, entropy = logprob_entropy(drawn, weight, batch.ids[valid], temperature)
    zeros = torch.zeros(batch.mask.shape, dtype=torch.float32, device=drawn.device)
    return zeros.masked_scatter(valid, logp), zeros.masked_scatter(valid, entropy)


def _rows(batch: Batch, way: Way) -> packing.Rows:
    if way == "branched" and int(packing.lengths(batch).max()) <= branches.LIMIT:
        return branches.lay_out(batch)
    packed = way in ("packed", "one-row")
    return packing.lay_out(batch, packed=packed, one_row=way == "one-row")


def _hidden(model: Any, batch: Batch) -> Tensor:
    """Hidden state that predicts each completion token, [N, T, D]."""
    from transformers import DynamicCache

    body, cache = model.base_model, DynamicCache(config=model.config)
    last = _prompt_pass(body, batch.prompt_ids, batch.prompt_mask, cache)
    first = last.index_select(0, batch.prompt_of)[:, None]
    if batch.ids.shape[1] == 1:
        return first
    for layer in cache.layers:  # index_select, for its backward pass adds rows in one sweep
        layer.keys = layer.keys.index_select(0, batch.prompt_of)
        layer.values = layer.values.index_select(0, batch.prompt_of)
    ids = batch.ids[:, :-1]
    seen = batch.prompt_mask[batch.prompt_of]
    position = seen.sum(1, keepdim=True) + torch.arange(ids.shape[1], device=ids.device)
    rest = body(
        input_ids=ids,
        attention_mask=torch.cat([seen, torch.ones_like(ids, dtype=torch.bool)], 1).long(),
        position_ids=position,
        use_cache=True,
        **{_cache_name(type(body)): cache},
    ).last_hidden_state
    return torch.cat([first, rest], 1)


def _prompt_pass(body: Any, ids: Tensor, mask: Tensor, cache: Any) -> Tensor:
    """Fill the cache with the prompts; return the hidden state of their last token, [P, D]."""
    position = (mask.long().cumsum(1) - 1).clamp(min=0)
    out = body(
        input_ids=ids,
        attention_mask=mask.long(),
        position_ids=position,
        use_cache=True,
        **{_cache_name(type(body)): cache},
    )
    return out.last_hidden_state[:, -1]


@lru_cache
def _cache_name(body: type) -> str:
    """Return this transformers' name of the cache argument: renamed during version 5."""
    names = inspect.signature(body.forward).parameters
    return "cache" if "cache" in names else "past_key_values"
