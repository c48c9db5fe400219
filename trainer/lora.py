"""LoRA through peft: small matrices are trained, the model's own weights stay as they are.

A linear layer of weight W computes W x + (α/r) B A x (arXiv:2106.09685, equation 3) with A [r, in]
random and B [out, r] zero at the start. The engine gets W + (α/r) B A under the name of W. The
reference policy of the KL term is the model with the adapters' scale at 0, which costs no copy;
after a reset it is the model with the adapters of that time, which are put in their place to score.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from trainer.errors import ConfigError
from trainer.settings import Config

__all__ = ["adapters_of", "add_adapters", "base_alone", "merged", "with_adapters"]

ADAPTER = "default"


def add_adapters(model: Any, config: Config) -> None:
    """Put adapters on the linear layers and freeze everything else, in place.

    Raises
    ------
    ConfigError
        peft is not installed, or ``learner.lora_targets`` names no module of the model.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as e:
        raise ConfigError(
            "learner.lora_rank needs peft: pip install 'rl-curvefit[lora]', or set it to 0"
        ) from e
    settings = config.learner
    _check_targets(model, settings.lora_targets)
    with torch.random.fork_rng(devices=[]):  # A is the same on every rank and in every start
        torch.manual_seed(config.run.seed)
        inject_adapter_in_model(
            LoraConfig(
                r=settings.lora_rank,
                lora_alpha=settings.lora_alpha,
                target_modules=settings.lora_targets or "all-linear",
            ),
            model,
            ADAPTER,
        )


def _check_targets(model: Any, targets: list[str]) -> None:
    head = model.get_output_embeddings()  # read by `trainer.head` alone, which knows no adapter
    linear = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    }
    for target in targets:
        if target not in linear:
            raise ConfigError(
                f"learner.lora_targets: there is no linear layer {target} that can have adapters; "
                f"there are {', '.join(sorted(linear))}"
            )


@contextmanager
def base_alone(model: nn.Module) -> Iterator[None]:
    """Within, the model computes what it did before any adapter was trained."""
    adapted = list(_adapted(model).values())
    for layer in adapted:
        layer.set_scale(ADAPTER, 0.0)
    try:
        yield
    finally:
        for layer in adapted:
            layer.set_scale(ADAPTER, 1.0)


def adapters_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the adapters by name; of a sharded model, of this rank's share."""
    state = model.state_dict()
    return {n: state[n].clone() for n, p in model.named_parameters() if p.requires_grad}


@contextmanager
def with_adapters(model: nn.Module, adapters: dict[str, Tensor]) -> Iterator[None]:
    """Within, the model computes with these adapters; after, with its own, bit for bit."""
    own = adapters_of(model)
    model.load_state_dict(adapters, strict=False)
    try:
        yield
    finally:
        model.load_state_dict(own, strict=False)


def merged(model: nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights under the names of the model without adapters: W + (α/r) B A for adapted layers.

    `weights` are whole tensors of `model` by name, some or all; an adapter comes with its layer.
    Neither they nor the model are changed.
    """
    scales = {n: layer.scaling[ADAPTER] for n, layer in _adapted(model).items()}
    out = {}
    for name, W in weights.items():
        layer, base, kind = name.rpartition(".base_layer.")
        if base and kind == "weight":
            B, A = (weights[f"{layer}.lora_{x}.{ADAPTER}.weight"].float() for x in "BA")
            W = (W.float() + scales[layer] * (B @ A)).to(W.dtype)
        if ".lora_" not in name:
            out[name.replace(".base_layer.", ".")] = W
    return out


def _adapted(model: nn.Module) -> dict[str, Any]:
    from peft.tuners.lora import LoraLayer

    return {n: m for n, m in model.named_modules() if isinstance(m, LoraLayer)}
