"""What of a model and of AdamW is stored, and how it comes back on any number of ranks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer import shard

__all__ = ["blank_moments", "load_weights", "trained_weights"]


def trained_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights that training moves: all of them, or the adapters alone."""
    state = model.state_dict()
    adapters = {n: state[n] for n, p in model.named_parameters() if p.requires_grad}
    return adapters if any(not p.requires_grad for p in model.parameters()) else state


def load_weights(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Load what ``trained_weights`` or ``state_dict`` returned, on any number of ranks."""
    own = model.state_dict()
    spread = {name: shard.like(value, own[name]) for name, value in state.items()}
    assert spread.keys() in (own.keys(), trained_weights(model).keys()), "of another model"
    model.load_state_dict(spread, strict=False)


def blank_moments(p: Tensor) -> dict[str, Tensor]:
    """Return AdamW's state of a parameter, to be filled in place; spread as the parameter is."""
    return {
        "step": torch.zeros(()),
        "exp_avg": torch.zeros_like(p),
        "exp_avg_sq": torch.zeros_like(p),
    }
