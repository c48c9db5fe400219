"""How a batch is cut into backward passes: few tokens of padding, and no more than memory holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from trainer import packing
from trainer.settings import Config
from trainer.types import Batch

__all__ = ["empty_part", "micro_batches"]

WORTH_A_PASS = 512  # tokens of padding below which a further pass costs more than it saves
PADDING_SHARE = 0.05


def micro_batches(batch: Batch, config: Config) -> Iterator[Tensor]:
    """Cut the batch: at most ``optim.micro_batch`` samples each, and little padding."""
    size = config.optim.micro_batch
    if config.learner.packing and config.learner.micro_tokens > 0:
        sizes = packing.lengths(batch).tolist()
        bins = packing.fit(sizes, config.learner.micro_tokens)
        yield from (torch.tensor(members, device=batch.ids.device) for members in bins)
    elif 0 < size < len(batch):
        yield from _by_group(batch).split(size)
    elif config.learner.packing:
        yield torch.arange(len(batch), device=batch.ids.device)
    else:
        yield from _by_length((batch.versions >= 0).sum(1))


def empty_part(batch: Batch) -> Batch:
    """Return one sample with nothing in it that counts, for a rank that has no samples left.

    Every rank must run as many passes as the others, for sharded layers are gathered by all.
    """
    part = batch.select(torch.zeros(1, dtype=torch.int64, device=batch.ids.device))
    nothing = torch.zeros_like(part.mask)
    return replace(part, mask=nothing, counted=nothing, logprobs=nothing)


def _by_group(batch: Batch) -> Tensor:
    """Order samples so that groups stay together and lengths are alike."""
    lengths = (batch.versions >= 0).sum(1)
    longest = lengths.new_zeros(len(batch.prompt_ids))
    longest.scatter_reduce_(0, batch.prompt_of, lengths, "amax")
    by_group = longest[batch.prompt_of] * (len(batch.prompt_ids) + 1) + batch.prompt_of
    return by_group.argsort(stable=True)


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
