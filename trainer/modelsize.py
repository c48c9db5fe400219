"""A language model by its numbers: parameters, bytes and arithmetic, read from its config.json.

Symbols: d hidden, L layers, H heads, K heads of keys and values, h size of a head, f width of the
MLP, V vocabulary. Dense decoders of the Llama family (Llama, Mistral, Qwen2, Qwen3, SmolLM) and
Qwen3's mixtures of experts; anything else is refused rather than guessed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.errors import ConfigError

__all__ = ["Shape", "read_shape", "shape_of"]

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe")


@dataclass(frozen=True)
class Shape:
    """Dimensions of a decoder.

    Parameters
    ----------
    d, L, H, K, h, f, V : int
        See the module.
    tied : bool
        The head's weight is the embedding's.
    experts, active : int
        Experts of a layer and those that a token visits; 1 and 1 for a dense model.
    extra : int
        Further parameters of a layer: norms, biases, router.
    qk_norm : bool
        Queries and keys are normalised, which the backward pass keeps copies for.
    """

    d: int
    L: int
    H: int
    K: int
    h: int
    f: int
    V: int
    tied: bool
    experts: int = 1
    active: int = 1
    extra: int = 0
    qk_norm: bool = False
    name: str = ""

    @property
    def head(self) -> int:
        """Parameters of the head, V·d."""
        return self.V * self.d

    def layer(self, experts: int) -> int:
        """Parameters of a layer: d·h·(2H + 2K) of attention, 3·d·f of each expert, and the rest."""
        attention = self.d * self.h * (2 * self.H + 2 * self.K)
        return attention + 3 * self.d * self.f * experts + self.extra

    @property
    def parameters(self) -> int:
        """All parameters, a tied head counted once."""
        return self.L * self.layer(self.experts) + self.head * (1 if self.tied else 2) + self.d

    @property
    def body(self) -> int:
        """Parameters that a token is multiplied with, head apart: those of its layers."""
        return self.L * self.layer(self.active)

    def kv_bytes(self, size: int) -> int:
        """Bytes of keys and values of one token: 2·L·K·h numbers of `size` bytes."""
        return 2 * self.L * self.K * self.h * size

    def attention_flop(self, length: float) -> float:
        """FLOP of one token's attention over `length` earlier ones, forward: 4·L·H·h·length.

        2 for the scores and 2 for the weighted sum, a multiply and an add each
        (arXiv:2204.02311, appendix B, before its factor 3 for training).
        """
        return 4.0 * self.L * self.H * self.h * length


def read_shape(directory: str | Path) -> Shape:
    """The shape of a model directory.

    Raises
    ------
    ConfigError
        No readable config.json, or a family whose arithmetic is not known here.
    """
    path = Path(directory) / "config.json"
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise ConfigError(
            f"cannot read {path}: give a model directory as --model.path, or the size with "
            "--params 8e9"
        ) from e
    try:
        return _shape(table, str(directory))
    except KeyError as e:
        raise ConfigError(f"{path} has no {e.args[0]}: give the size with --params 8e9") from e


def _shape(table: dict[str, Any], name: str) -> Shape:
    kind = table.get("model_type")
    if kind not in FAMILIES:
        raise ConfigError(
            f"{name}: model_type {kind!r} is not one of {', '.join(FAMILIES)}: give the size with "
            "--params 8e9, which stands for a model of Llama's proportions"
        )
    d, heads = table["hidden_size"], table["num_attention_heads"]
    h = table.get("head_dim") or d // heads
    kv = table.get("num_key_value_heads") or heads
    experts, active, width = 1, 1, table["intermediate_size"]
    extra = 2 * d
    if kind == "qwen3_moe":
        experts = table["num_experts"] if "num_experts" in table else table["num_local_experts"]
        active = table["num_experts_per_tok"]
        width = table["moe_intermediate_size"]
        extra += d * experts  # the router
    if kind.startswith("qwen3"):
        extra += 2 * h  # norms of queries and keys
    if kind == "qwen2":
        extra += h * (heads + 2 * kv)  # biases
    tied = bool(table.get("tie_word_embeddings", False))
    return Shape(
        d=d,
        L=table["num_hidden_layers"],
        H=heads,
        K=kv,
        h=h,
        f=width,
        V=table["vocab_size"],
        tied=tied,
        experts=experts,
        active=active,
        extra=extra,
        qk_norm=kind.startswith("qwen3"),
        name=name,
    )


def shape_of(parameters: float) -> Shape:
    """A model of about `parameters` parameters in the proportions of Llama 3.

    d = 128·L (Llama 3 8B: 4096 and 32), heads of 128, a quarter of them for keys and values,
    f = 3.5·d, V = 128,256, untied above 2 billion; L is the one that comes nearest.
    """
    if not 1e6 <= parameters <= 1e13:
        raise ConfigError(f"--params {parameters:g} must be within 1e6 and 1e13")
    tied = parameters < 2e9
    shapes = [
        Shape(128 * n, n, n, max(1, n // 4), 128, 448 * n, 128_256, tied, extra=256 * n)
        for n in range(1, 400)
    ]
    best = min(shapes, key=lambda s: abs(s.parameters - parameters))
    return Shape(**{**best.__dict__, "name": f"{parameters:.3g} parameters, Llama's proportions"})
