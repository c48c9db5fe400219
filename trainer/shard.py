"""A model spread over ranks with torch's FSDP2, and put together again for the engine.

Each decoder layer is a unit of its own; embedding, norm and head belong to the unit around them,
whose forward pass is the whole of ``score``: that is how the chunked head sees its weight
gathered. Gradients are added over ranks, never averaged, for the denominators are global. Weights
and optimiser stay in the dtype of the model; with ``learner.compute`` = bfloat16 the passes run
on copies in bfloat16, and gradients are added in float32.

Leaves out: tensor and pipeline parallelism, and loading without a whole copy on each host.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils.checkpoint import checkpoint

from trainer.policy import Scorer
from trainer.settings import Config

__all__ = ["layers", "like", "parts", "recompute", "reshard", "shard", "whole"]


def layers(model: nn.Module) -> list[nn.Module]:
    """Return the decoder layers, in order."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]


def recompute(model: nn.Module) -> None:
    """Keep the input of each layer only and compute the layer again in the backward pass.

    The layer's ``forward`` is wrapped, not the layer: names stay what they are, and the hooks of
    FSDP2 run outside what is computed again.
    """
    for layer in layers(model):
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


def shard(scorer: Scorer, config: Config) -> None:
    """Spread the scorer's model over all ranks of the default process group, in place."""
    mesh = init_device_mesh(config.model.device, (dist.get_world_size(),))
    mixed = config.learner.compute == "bfloat16"
    policy = (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if mixed
        else MixedPrecisionPolicy()
    )
    for layer in layers(scorer.model):
        fully_shard(
            layer, mesh=mesh, mp_policy=policy, reshard_after_forward=config.learner.reshard
        )
    fully_shard(scorer, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    for unit in _units(scorer):
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)  # gloo has no other reduction


def reshard(scorer: Scorer) -> None:
    """Free what a forward pass without a backward pass has left gathered."""
    for unit in _units(scorer):
        unit.reshard()


def _units(scorer: Scorer) -> list[FSDPModule]:
    return [m for m in scorer.modules() if isinstance(m, FSDPModule)]


def parts(scorer: Scorer) -> Iterator[dict[str, Tensor]]:
    """Yield the model's whole weights by name, a unit at a time; a tied head with its embedding.

    In the dtype of the passes, and gone when the next part is asked for. Every rank has to go
    through all parts: each is one collective, in one order, with nothing between.
    """
    yield {n: x for n, x in scorer.model.state_dict().items() if not isinstance(x, DTensor)}
    for name, unit in scorer.named_modules():
        if isinstance(unit, FSDPModule):
            unit.unshard()
            yield {
                ".".join(filter(None, (name, n))).removeprefix("model."): p
                for n, p in unit.named_parameters(remove_duplicate=False)
                if not isinstance(p, DTensor)  # of a unit within this one
            }
            unit.reshard()


def whole(x: Tensor) -> Tensor:
    """Return the whole of a tensor that may be spread over ranks; a collective if it is."""
    return x.full_tensor() if isinstance(x, DTensor) else x


def like(value: Any, target: Tensor) -> Any:
    """Spread a whole tensor as `target` is; every rank holds all of `value`, nothing is sent."""
    if not isinstance(target, DTensor) or isinstance(value, DTensor) or value.dim() == 0:
        return value
    value = value.to(target.device)
    return distribute_tensor(value, target.device_mesh, target.placements, src_data_rank=None)
