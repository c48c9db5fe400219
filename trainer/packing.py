"""Prompts and completions as rows of one forward pass, without a cache: padded or packed.

Padded: a sample a row, zeros on the right. Nothing is masked but the future, so that attention
kernels for causal rows serve, and what stands in the padding is read by nobody.

Packed: several samples a row, position ids restarting at each. transformers sees the restarts and
keeps attention within each sample: a block-diagonal mask for ``sdpa`` and ``eager``, kernels for
variable lengths for ``flash_attention_2``, which take one row alone. The result is that of each
sample on its own; only the order in which numbers are added differs.

Shapes: N samples, R rows, L row width, M tokens that are scored, D hidden.

Leaves out: sharing a prompt among its samples, which ``policy.py`` does with a cache and
``branches.py`` without.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainer.types import Batch

__all__ = ["Rows", "fit", "hidden", "lay_out", "lengths", "probe"]


@dataclass(frozen=True, slots=True)
class Rows:
    """What the body of the model reads.

    Parameters
    ----------
    ids, positions : Tensor [R, L] int64
    picks : Tensor [M] int64
        Flat index of the hidden state that predicts each scored token, in the order of
        ``batch.ids[batch.mask > 0]``.
    mask : Tensor [R, 1, L, L] bool, optional
        Which tokens (last axis) each token sees; causal within each sample when left out.
    """

    ids: Tensor
    positions: Tensor
    picks: Tensor
    mask: Tensor | None = None


def lengths(batch: Batch) -> Tensor:
    """Tokens of each sample that are read: the prompt and all of the completion but its last, [N].

    Nothing is predicted from the last one.
    """
    prompt = batch.prompt_mask.sum(1)[batch.prompt_of]
    return prompt + ((batch.versions >= 0).sum(1) - 1).clamp(min=0)


def fit(sizes: list[int], capacity: int) -> list[list[int]]:
    """Put things into as few bins as best-fit decreasing finds; a thing too big has its own bin.

    >>> fit([3, 5, 2, 4], 7)
    [[1, 2], [3, 0]]
    """
    bins: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (what is left, number of the bin), sorted
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        at = bisect_left(room, (sizes[i], -1))
        if at < len(room):
            left, number = room.pop(at)
            bins[number].append(i)
        else:
            left, number = max(capacity, sizes[i]), len(bins)
            bins.append([i])
        insort(room, (left - sizes[i], number))
    return bins


def lay_out(batch: Batch, *, packed: bool, one_row: bool = False) -> Rows:
    """Place every sample of the batch.

    Parameters
    ----------
    batch : Batch
    packed : bool
        Several samples a row as wide as the longest sample; else a sample a row.
    one_row : bool
        Pack everything into one row.
    """
    size = lengths(batch)
    width = int(size.sum() if packed and one_row else size.max())
    base = _places(size, width) if packed else torch.arange(len(batch), device=size.device) * width
    n_rows = int(base.max()) // width + 1
    sample = torch.arange(len(batch), device=size.device).repeat_interleave(size)
    within = torch.arange(len(sample), device=size.device) - (size.cumsum(0) - size)[sample]
    place = base[sample] + within
    ids = place.new_zeros(n_rows * width)
    ids[place] = _tokens(batch, sample, within)
    positions = torch.arange(width, device=size.device).repeat(n_rows)
    if packed:  # padding is a sequence of its own, so that no sample attends to it or it to one
        positions -= torch.bincount(place // width, minlength=n_rows).repeat_interleave(width)
        positions[place] = within
    row, t = (batch.mask > 0).nonzero(as_tuple=True)
    prompt = batch.prompt_mask.sum(1)[batch.prompt_of]
    return Rows(
        ids.view(n_rows, width), positions.view(n_rows, width), base[row] + prompt[row] - 1 + t
    )


def hidden(body: Any, rows: Rows) -> Tensor:
    """Hidden states that predict the scored tokens, [M, D]."""
    out = body(
        input_ids=rows.ids,
        position_ids=rows.positions,
        attention_mask=rows.mask,
        use_cache=False,
    )
    return out.last_hidden_state.flatten(0, 1).index_select(0, rows.picks)


def probe(vocabulary: int) -> Batch:
    """Four samples of two prompts, all lengths different: what packing must not mix up."""
    g = torch.Generator().manual_seed(0)
    places = torch.arange(9) < torch.tensor([[9], [4], [7], [2]])
    ones = places.float()
    return Batch(
        prompt_ids=torch.randint(vocabulary, (2, 5), generator=g),
        prompt_mask=torch.arange(5) >= torch.tensor([[0], [2]]),
        ids=torch.randint(vocabulary, (4, 9), generator=g),
        mask=ones,
        counted=ones,
        logprobs=torch.zeros(4, 9),
        versions=places.long() - 1,
        prompt_of=torch.tensor([0, 1, 1, 0]),
        advantages=torch.zeros(4),
    )


def _places(size: Tensor, width: int) -> Tensor:
    """Flat index of the first token of each sample when rows are packed, [N]."""
    sizes = size.tolist()
    base = [0] * len(sizes)
    for row, members in enumerate(fit(sizes, width)):
        at = row * width
        for i in members:
            base[i] = at
            at += sizes[i]
    return torch.tensor(base, device=size.device)


def _tokens(batch: Batch, sample: Tensor, within: Tensor) -> Tensor:
    """Token `within` of prompt and completion of each sample."""
    prompt_of = batch.prompt_of[sample]
    start = batch.prompt_ids.shape[1] - batch.prompt_mask.sum(1)[prompt_of]
    of_prompt = start + within
    is_prompt = of_prompt < batch.prompt_ids.shape[1]
    of_prompt = of_prompt.clamp(max=batch.prompt_ids.shape[1] - 1)
    of_completion = (within - batch.prompt_mask.sum(1)[prompt_of]).clamp(min=0)
    return torch.where(
        is_prompt, batch.prompt_ids[prompt_of, of_prompt], batch.ids[sample, of_completion]
    )
