"""The forward pass of Llama-like models for generation: one token for every running row.

Covers Llama, Mistral without window, Qwen2 and Qwen3 (dense): pre-norm blocks, rotary positions,
grouped-query attention, optional q/k norms and biases, SwiGLU. The learner keeps the transformers
module; this one exists because generation by it spends most of its time in Python and in copies of
its cache. Leaves out paging, sliding windows, mixtures of experts: those are for the vLLM engine.

Three departures from the transformers module, none of which changes the result beyond rounding:
q, k and v are one matrix product, and so are gate and up; the halves that a rotation mixes are
stored side by side, so that the rotation is one complex multiplication; the logits are computed
from float32 hidden states and weights when `fp32_head` is set (ScaleRL, arXiv:2510.13786).

Shapes: n rows, E hidden size, H query heads, K key/value heads, D head size, T cache width,
L <= T widest row in use, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trainer.engine.weights import check_weights
from trainer.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Decoder", "load_config"]

SUPPORTED = ("llama", "mistral", "qwen2", "qwen3")


class Decoder:
    """Weights laid out for generation, and the two passes that use them.

    Parameters
    ----------
    config : transformers.PretrainedConfig
        Of one of the supported kinds.
    weights : mapping of str to Tensor
        Named as in ``model.state_dict()``.
    dtype, device
        Of the weights and of the cache.
    fp32_head : bool
        Compute logits in float32 whatever `dtype` is.

    Raises
    ------
    EngineError
        For a kind of model that is not covered, or weights that do not fit it.
    """

    def __init__(
        self,
        config: Any,
        weights: Mapping[str, Tensor],
        *,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        fp32_head: bool = True,
    ) -> None:
        _check_supported(config)
        self.config = config
        self.dtype, self.device = dtype, torch.device(device)
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads
        self.head_size = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.parts = [self.heads, 2 * self.kv_heads]
        self.layers = config.num_hidden_layers
        self.vocabulary = config.vocab_size
        self.eps = config.rms_norm_eps
        self.direct = self.device.type == "cpu" and dtype == torch.float32
        self.root_eps = torch.tensor(config.hidden_size * self.eps, device=device).sqrt()
        self.limits = torch.tensor([0.0, float("-inf")], dtype=dtype, device=device).unbind()
        self.places = torch.arange(config.max_position_embeddings, device=device)
        self.tied = bool(config.tie_word_embeddings)
        self.head_dtype = torch.float32 if fp32_head else dtype
        self.rotations = torch.empty(0, self.head_size // 2, dtype=torch.complex64)
        self.shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        self.load(weights)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Copy a full set of weights in; nothing changes unless all of them fit."""
        check_weights(weights, self.shapes, tied=self.tied)

        def take(name: str, dtype: torch.dtype = self.dtype) -> Tensor:
            return weights[name].detach().to(self.device, dtype, copy=True)

        self.embedding = take("model.embed_tokens.weight")
        self.blocks = [self._block(weights, f"model.layers.{i}.", take) for i in range(self.layers)]
        self.norm = self._norm_weight(take("model.norm.weight"))
        self.head = take("lm_head.weight", self.head_dtype)

    def _block(self, weights: Mapping[str, Tensor], prefix: str, take: Any) -> dict[str, Any]:
        """Fuse one layer's matrices; rows of q and k are reordered for the complex rotation."""
        attention, mlp = prefix + "self_attn.", prefix + "mlp."

        def fused(kind: str) -> Tensor:
            q, k, v = (take(f"{attention}{x}_proj.{kind}") for x in "qkv")
            return torch.cat([self._interleave(q), self._interleave(k), v])

        norms = None
        if f"{attention}q_norm.weight" in weights:
            q, k = (self._interleave(take(f"{attention}{x}_norm.weight")) for x in "qk")
            norms = torch.cat([q.expand(self.heads, -1), k.expand(self.kv_heads, -1)])
        output_bias = f"{attention}o_proj.bias"
        return {
            "norm1": self._norm_weight(take(prefix + "input_layernorm.weight")),
            "qkv": fused("weight"),
            "qkv_bias": fused("bias") if f"{attention}q_proj.bias" in weights else None,
            "qk_norm": norms,
            "output": take(attention + "o_proj.weight").t(),
            "output_bias": take(output_bias) if output_bias in weights else None,
            "norm2": self._norm_weight(take(prefix + "post_attention_layernorm.weight")),
            "gate_up": torch.cat([take(mlp + "gate_proj.weight"), take(mlp + "up_proj.weight")]),
            "down": take(mlp + "down_proj.weight").t(),
        }

    def _interleave(self, rows: Tensor) -> Tensor:
        """Put entry i of a head beside entry i + D/2, the pair that a rotation mixes."""
        half = self.head_size // 2
        pairs = rows.reshape(-1, 2, half, *rows.shape[1:])
        return pairs.transpose(1, 2).reshape(rows.shape)

    def new_cache(self, slots: int, width: int) -> Tensor:
        """An empty cache [layers, 2, slots, K, T, D]: keys at 0, values at 1."""
        shape = (self.layers, 2, slots, self.kv_heads, width, self.head_size)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def _rotations(self, length: int) -> Tensor:
        """exp(i·position·frequency) for positions below `length`, complex64 [length, D/2]."""
        if self.rotations.shape[0] < length:
            frequencies, scale = _frequencies(self.config, self.head_size)
            angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies
            self.rotations = torch.polar(torch.full_like(angles, scale), angles).to(self.device)
        return self.rotations

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Root-mean-square norm of the last dimension.

        torch composes it of eight operations on a CPU, where for small batches every operation
        counts. Four do: x / sqrt(mean(x²) + ε) is x·√E over the hypotenuse of |x| and √(E·ε);
        `_norm_weight` has put √E into the weight.
        """
        if not self.direct:
            return torch.rms_norm(x, x.shape[-1:], weight, self.eps)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x.div(length.hypot_(self.root_eps)).mul_(weight)

    def _norm_weight(self, weight: Tensor) -> Tensor:
        return weight * weight.shape[0] ** 0.5 if self.direct else weight

    def _project(self, block: dict[str, Any], x: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
        """Queries [rows, H, D] and keys with values [rows, 2K, D] of x [rows, E]."""
        heads = F.linear(self._norm(x, block["norm1"]), block["qkv"], block["qkv_bias"])
        heads = heads.view(x.shape[0], -1, self.head_size)
        turned = self.heads + self.kv_heads
        if block["qk_norm"] is not None:
            qk = torch.rms_norm(heads[:, :turned], (self.head_size,), None, self.eps)
            heads[:, :turned] = qk * block["qk_norm"]
        heads = heads.float()  # the rotation happens in place, in float32
        pairs = torch.view_as_complex(heads.view(x.shape[0], -1, self.head_size // 2, 2))
        pairs.narrow(1, 0, turned).mul_(turn)
        q, kv = heads.to(self.dtype).split_with_sizes(self.parts, dim=1)
        return q, kv

    def _finish(self, block: dict[str, Any], x: Tensor, attended: Tensor) -> Tensor:
        """Close a block: output projection and MLP, both onto the residual x [rows, E]."""
        if block["output_bias"] is not None:
            x = x + block["output_bias"]
        x = torch.addmm(x, attended, block["output"])
        gate, up = F.linear(self._norm(x, block["norm2"]), block["gate_up"]).chunk(2, dim=-1)
        return torch.addmm(x, F.silu(gate).mul_(up), block["down"])

    def step(self, tokens: Tensor, positions: Tensor, cache: Tensor, length: int) -> Tensor:
        """One token for each of the first n rows of the cache; to be called in inference mode.

        Parameters
        ----------
        tokens, positions : Tensor [n] int64
            Token to be fed and its place in the row; its keys and values are written there.
        cache : Tensor [layers, 2, slots, K, T, D]
        length : int
            Places that any row uses, this token's included.

        Returns
        -------
        Tensor [n, V] float32
            Logits of the next token.
        """
        n, K, D = tokens.shape[0], self.kv_heads, self.head_size
        rows = torch.arange(n, device=self.device)
        turn = self._rotations(cache.shape[4])[positions].unsqueeze(1)
        bias = self._bias(positions, length)
        seen = cache[:, :, :n, :, :length].flatten(2, 3)  # a view [layers, 2, n·K, L, D]
        x = F.embedding(tokens, self.embedding)
        for block, held, (keys, values) in zip(
            self.blocks, cache.unbind(), map(torch.unbind, seen.unbind()), strict=True
        ):
            q, kv = self._project(block, x, turn)
            held[:, rows, :, positions] = kv.view(n, 2, K, D)
            x = self._finish(block, x, self._attend(q, keys, values, bias))
        return F.linear(self._norm(x, self.norm).to(self.head_dtype), self.head).float()

    def _bias(self, positions: Tensor, length: int) -> Tensor:
        """0 where a row may look and -inf behind its position, [n·K, 1, L]."""
        last = positions.unsqueeze(1).expand(-1, self.kv_heads).reshape(-1, 1, 1)
        seen, behind = self.limits
        return torch.where(self.places[:length] > last, behind, seen)

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        """Attention of one query a row: q [n, H, D] over keys, values [n·K, L, D] to [n, H·D]."""
        n = q.shape[0]
        q = q.reshape(keys.shape[0], -1, self.head_size)  # the H/K queries that share a key
        if self.device.type == "cpu":  # a batch of tiny products: faster than the fused kernel
            scores = torch.baddbmm(bias, q, keys.mT, alpha=self.head_size**-0.5)
            return torch.bmm(scores.softmax(-1), values).view(n, -1)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=bias).reshape(n, -1)

    @torch.inference_mode()
    def fill(self, tokens: Tensor, cache: Tensor, rows: Tensor) -> None:
        """Compute keys and values of whole sequences into rows of the cache.

        Parameters
        ----------
        tokens : Tensor [m, L] int64
            Right-padded; what is written in the padding is overwritten before it is ever seen.
        cache : Tensor [layers, 2, slots, K, T, D]
        rows : Tensor [m] int64
        """
        m, length = tokens.shape
        turn = self._rotations(cache.shape[4])[:length].repeat(m, 1).unsqueeze(1)
        x = F.embedding(tokens.flatten(), self.embedding)
        for i, (block, held) in enumerate(zip(self.blocks, cache.unbind(), strict=True)):
            q, kv = self._project(block, x, turn)
            kv = kv.view(m, length, 2, self.kv_heads, self.head_size).permute(2, 0, 3, 1, 4)
            held[:, rows, :, :length] = kv
            if i + 1 == self.layers:
                return  # nobody reads what the last block makes of the prompt
            q = q.unflatten(0, (m, length)).transpose(1, 2)
            attended = F.scaled_dot_product_attention(
                q, *kv.unbind(), is_causal=True, enable_gqa=True
            )
            x = self._finish(block, x, attended.transpose(1, 2).reshape(m * length, -1))


def _check_supported(config: Any) -> None:
    if config.model_type not in SUPPORTED:
        raise EngineError(
            f"the local engine covers {', '.join(SUPPORTED)}, not {config.model_type!r}; "
            "use the vLLM engine"
        )
    window = getattr(config, "sliding_window", None)
    if window and getattr(config, "use_sliding_window", True):
        raise EngineError(f"sliding window of {window}: use the vLLM engine")
    if config.hidden_act != "silu":
        raise EngineError(f"activation {config.hidden_act!r}: use the vLLM engine")


def _frequencies(config: Any, head_size: int) -> tuple[Tensor, float]:
    """Rotary frequencies [D/2] and the scale of cos and sin."""
    rope = config.rope_parameters
    kind = rope.get("rope_type", "default")
    if kind == "default":
        steps = torch.arange(0, head_size, 2, dtype=torch.int64).float() / head_size
        return 1.0 / (rope["rope_theta"] ** steps), 1.0
    if kind not in ("linear", "llama3", "yarn"):
        raise EngineError(f"rotary positions of kind {kind!r}: use the vLLM engine")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    return ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))


def load_config(directory: str | Path) -> Any:
    """The configuration of a model directory, as transformers reads it."""
    from transformers import AutoConfig

    if not (Path(directory) / "config.json").is_file():
        raise EngineError(f"{directory}: no config.json; give a model directory")
    return AutoConfig.from_pretrained(directory, local_files_only=True)
