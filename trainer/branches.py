"""A prompt and its completions as one row: read once, without a cache.

The row holds the prompt and then all completions of its samples; every completion sees the prompt
and itself, and counts positions on from the prompt's end. That is the sharing of ``policy.py`` in
one pass through each layer, as sharded and recomputed layers need it. The price is a mask of
row width × row width, so it is for rows of up to ``LIMIT`` tokens: a group is cut into several
rows beyond, and longer samples than that go as plain rows.

Shapes: P prompts, Lp prompt width, N samples, T completion width, R rows, L row width.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainer.packing import Rows, fit
from trainer.types import Batch

__all__ = ["LIMIT", "lay_out", "serves"]

LIMIT = 1024


class Segment(NamedTuple):
    """Consecutive tokens: a prompt (branch -1) or a completion, and where they stand."""

    start: int  # place in the rows, flat
    length: int
    source: int  # place in prompt_ids and ids, flat, one after the other
    position: int
    unit: int
    branch: int


def serves(model: Any) -> bool:
    """Whether the model's attention takes a mask of ours and has no window of its own."""
    settings = model.config.to_dict()
    plain = {"full_attention"}.issuperset(settings.get("layer_types") or ())
    takes = model.config._attn_implementation == "sdpa"
    return takes and plain and settings.get("sliding_window") is None


def lay_out(batch: Batch, limit: int = LIMIT) -> Rows:
    """Place prompts and completions, at most `limit` tokens a row where samples are that short."""
    prompt = batch.prompt_mask.sum(1).tolist()
    read = ((batch.versions >= 0).sum(1) - 1).clamp(min=0).tolist()
    prompt_of = batch.prompt_of.tolist()
    units = _units(prompt_of, prompt, read, limit)
    sizes = [prompt[prompt_of[unit[0]]] + sum(read[i] for i in unit) for unit in units]
    width = max(sizes)
    bins = fit(sizes, width)
    segments, ends, starts = [], [0] * len(batch), [0] * len(batch)
    for row, members in enumerate(bins):
        at = row * width
        for u in members:
            p = prompt_of[units[u][0]]
            n = prompt[p]
            last = (p + 1) * batch.prompt_ids.shape[1]
            segments.append(Segment(at, n, last - n, 0, u, -1))
            end, at = at + n - 1, at + n
            for i in units[u]:
                source = batch.prompt_ids.numel() + i * batch.ids.shape[1]
                segments.append(Segment(at, read[i], source, n, u, i))
                ends[i], starts[i] = end, at
                at += read[i]
    return _fill(batch, segments, ends, starts, len(bins), width)


def _units(prompt_of: list[int], prompt: list[int], read: list[int], limit: int) -> list[list[int]]:
    """Samples that share a copy of their prompt, in order."""
    units: list[list[int]] = []
    open_unit: dict[int, tuple[int, int]] = {}  # prompt to number of its last unit, and its size
    for i, p in enumerate(prompt_of):
        unit, size = open_unit.get(p, (-1, limit))
        if unit < 0 or size + read[i] > limit:
            unit, size = len(units), prompt[p]
            units.append([])
        units[unit].append(i)
        open_unit[p] = (unit, size + read[i])
    return units


def _fill(
    batch: Batch,
    segments: list[Segment],
    ends: list[int],
    starts: list[int],
    n_rows: int,
    width: int,
) -> Rows:
    device = batch.ids.device
    start, length, source, position, unit, branch = torch.tensor(segments, device=device).T
    segment = torch.arange(len(segments), device=device).repeat_interleave(length)
    within = torch.arange(len(segment), device=device) - (length.cumsum(0) - length)[segment]
    place = start[segment] + within
    tokens = torch.cat([batch.prompt_ids.flatten(), batch.ids.flatten()])
    ids, positions, units, branches = (place.new_full((n_rows * width,), x) for x in (0, 0, -1, -1))
    ids[place] = tokens[source[segment] + within]
    positions[place] = position[segment] + within
    units[place], branches[place] = unit[segment], branch[segment]
    i, t = (batch.mask > 0).nonzero(as_tuple=True)
    end, first = torch.tensor([ends, starts], device=device)
    shape = (n_rows, width)
    return Rows(
        ids.view(shape),
        positions.view(shape),
        torch.where(t == 0, end[i], first[i] + t - 1),
        _mask(units.view(shape), branches.view(shape)),
    )


def _mask(unit: Tensor, branch: Tensor) -> Tensor:
    """Whether a token (row) sees another (column): the past of its prompt and branch, [R, 1, L, L].

    Padding sees padding, for a token that sees nothing has no softmax.
    """
    same = unit[:, :, None] == unit[:, None, :]
    along = (branch[:, None, :] < 0) | (branch[:, :, None] == branch[:, None, :])
    return (same & along).tril()[:, None]
