"""LoRA through peft: small matrices are trained, the model's own weights stay as they are.

A linear layer of weight W computes W x + (α/r) B A x (arXiv:2106.09685, equation 3) with A [r, in]
random and B [out, r] zero at the start. The engine gets W + (α/r) B A under the name of W. The
reference policy of the KL term is the model with the adapters' scale at 0: it costs no copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from trainer.errors import ConfigError
from trainer.settings import Config
from trainer.shard import gather, whole

__all__ = ["add_adapters", "base_alone", "merged"]

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


def merged(model: nn.Module, keep: Callable[[str, Tensor], Tensor | None]) -> dict[str, Tensor]:
    """Whole weights under the names of the model without adapters, W + (α/r) B A for adapted ones.

    The model is left as it is. A collective when the model is sharded: see ``shard.gather``.
    """
    deltas = {
        f"{name}.base_layer.weight": (
            layer.scaling[ADAPTER],
            layer.lora_B[ADAPTER].weight,
            layer.lora_A[ADAPTER].weight,
        )
        for name, layer in _adapted(model).items()
    }

    def add(name: str, weight: Tensor) -> Tensor | None:
        if name not in deltas:
            return None if ".lora_" in name else keep(name, weight)
        scale, B, A = deltas[name]
        W = weight.float() + scale * (whole(B.detach()).float() @ whole(A.detach()).float())
        return keep(name, W.to(weight.dtype))

    return {n.replace(".base_layer.", "."): w for n, w in gather(model, add).items()}


def _adapted(model: nn.Module) -> dict[str, Any]:
    from peft.tuners.lora import LoraLayer

    return {n: m for n, m in model.named_modules() if isinstance(m, LoraLayer)}
