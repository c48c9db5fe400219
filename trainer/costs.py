"""Memory and time of learning, generating and sending weights: one formula a function.

Symbols as in `trainer.modelsize`, and: N parameters, n learner ranks, p bytes a stored parameter,
c bytes a number in the passes. All sizes are bytes, all times seconds. What is left out: the
communication of tensor parallelism, fragmentation, verification (it runs on other cores).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.hardware import Hardware
from trainer.modelsize import Shape

__all__ = [
    "Precision",
    "Work",
    "activation_bytes",
    "decode_seconds",
    "engine_bytes",
    "generate_seconds",
    "learn_seconds",
    "learner_bytes",
    "slots_that_fit",
    "sync_seconds",
]

CHUNK_BYTES = 4 << 24  # head.CHUNK_ELEMENTS float32 logits at a time
CHUNKS = 3  # of them alive in the head's backward pass


@dataclass(frozen=True)
class Precision:
    """Bytes of a stored parameter (p) and of a number in the passes and in the engine (c)."""

    p: int
    c: int


@dataclass(frozen=True)
class Work:
    """What a step has to do.

    Parameters
    ----------
    prompts, group : int
        B and G.
    prompt, length, longest : float
        Tokens of a prompt, of the mean completion, and of the longest.
    live : float
        Share of samples that are learned from; the rest has no variance in its group.
    repeated : bool
        Prompts run once for each sample in the learner, else once for the group.
    micro : float
        Tokens that one backward pass holds, of one rank; 0: all.
    """

    prompts: int
    group: int
    prompt: float
    length: float
    longest: float
    live: float = 1.0
    repeated: bool = False
    micro: float = 0.0

    @property
    def samples(self) -> int:
        """B·G."""
        return self.prompts * self.group

    @property
    def learned(self) -> float:
        """Completion tokens that the loss sees."""
        return self.samples * self.live * self.length

    @property
    def read(self) -> float:
        """Prompt tokens that the learner's body sees."""
        return self.prompts * self.live * self.prompt * (self.group if self.repeated else 1)


# Memory


def learner_bytes(
    s: Shape,
    by: Precision,
    n: int,
    tokens: float,
    *,
    checkpointing: bool,
    reshard: bool = True,
    reference: bool = False,
) -> dict[str, float]:
    """Memory of one of n learner ranks whose backward pass holds `tokens` tokens.

    Weights, gradients and AdamW's two moments are p·N/n bytes each, sharded (FSDP2, as ZeRO-3,
    arXiv:1910.02054). Where ranks or dtypes differ the passes work on gathered copies: the unit of
    embedding and head, and two layers, the one at work and the next; without resharding all N. The
    head keeps its gradient and, with bfloat16 factors, what a chunk adds to it.

    Qwen3-0.6B, N = 596,049,920, p = 4, n = 1: 2.384 GB of weights, 4.768 GB of moments.
    """
    share = by.p * s.parameters / n
    gathered = 0.0
    if n > 1 or by.p != by.c:
        outside = s.head * (1 if s.tied else 2)
        layers = s.L if not reshard else min(2, s.L)
        gathered = by.c * float(outside + layers * s.layer(s.experts))
    head = 4.0 * s.head * (2 if by.c == 2 else 1) + CHUNKS * CHUNK_BYTES
    parts = {
        "weights": share * (2 if reference else 1),
        "gradients": share,
        "moments": 2 * share,
        "gathered": gathered,
        "head": head,
        "activations": tokens * activation_bytes(s, by, checkpointing=checkpointing),
    }
    return {**parts, "total": sum(parts.values())}


def activation_bytes(s: Shape, by: Precision, *, checkpointing: bool) -> float:
    """Bytes a token that the layers keep for the backward pass.

    Read off transformers' layers with fused attention: c numbers each of 4f (gate, up, their
    activation and product), a·h(H + K) with a = 2 (rotated queries and keys, values, output; 5 with
    normalised queries and keys), and 24 or, in bfloat16, 16 bytes for each of the d numbers around
    the two norms. With checkpointing: each layer's input, and one layer in full. Compare
    arXiv:2205.05198, equation 2, for the layer of GPT.

    Llama 3 8B in bfloat16: 2·(4·14,336 + 2·128·40) + 16·4,096 = 200,704 bytes a layer.
    """
    a = 2 if not s.qk_norm else (5 if by.c == 2 else 4)
    layer = by.c * (4 * s.f * s.active + a * s.h * (s.H + s.K)) + (24 if by.c == 4 else 16) * s.d
    return float(s.L * by.c * s.d + layer) if checkpointing else float(s.L * layer)


def engine_bytes(
    s: Shape, c: int, hw: Hardware, tp: int, requests: float, context: float
) -> dict[str, float]:
    """Memory of one of tp devices that serve `requests` requests of `context` tokens.

    Llama 3 8B in bfloat16 keeps 131,072 bytes a token; 64 requests of 4,096 tokens: 34.4 GB.
    """
    parts = {
        "weights": c * s.parameters / tp,
        "cache": s.kv_bytes(c) * requests * context / tp,
        "runtime": hw.context,
    }
    return {**parts, "total": sum(parts.values())}


def slots_that_fit(s: Shape, c: int, hw: Hardware, tp: int, memory: float, context: float) -> float:
    """Requests of `context` tokens that fit into `memory` bytes of each of tp devices."""
    free = memory - hw.context - c * s.parameters / tp
    return max(0.0, free) / (s.kv_bytes(c) * context / tp)


# Time


def decode_seconds(s: Shape, c: int, hw: Hardware, tp: int, batch: float, context: float) -> float:
    """One token for each of `batch` requests with `context` tokens behind them.

    The slower of memory, c·(layers + head) + batch·context·kv bytes, and arithmetic, 2 FLOP for
    each weight and 4·L·H·h·context of attention for each request; and the overhead of a step
    (the roofline of arXiv:2211.05102, section 2). Of a mixture's experts those are read that some
    request visits.

    Llama 3 8B, bfloat16, H100, 64 requests of 2,048: (15.01 + 17.18) GB / (3.35 TB/s · 0.6) =
    16.0 ms, 18.0 with the overhead.
    """
    missed = (1 - s.active / s.experts) ** batch
    weights = s.L * s.layer(1) + 3 * s.d * s.f * s.L * (s.experts * (1 - missed) - 1)
    if s.experts == 1:
        weights = float(s.body)
    moved = c * (weights + s.head) + batch * context * s.kv_bytes(c)
    flop = batch * (2 * (s.body + s.head) + s.attention_flop(context))
    speed = _speed(hw, c)
    return max(moved / (tp * hw.bandwidth * hw.mbu), flop / (tp * speed)) + hw.overhead


def generate_seconds(
    s: Shape,
    c: int,
    hw: Hardware,
    work: Work,
    *,
    replicas: float,
    tp: int,
    batch: float,
    waits_for_longest: bool,
) -> float:
    """A step's completions on `replicas` engines of tp devices that run `batch` requests each.

    Steps of decoding: tokens / batch, but at least the longest completion when the batch must be
    complete before learning; the requests that run shrink accordingly. Prompts are read once a
    group at the learner's share of peak.
    """
    tokens = work.samples * work.length / replicas
    steps = max(tokens / batch, work.longest if waits_for_longest else 0.0)
    context = work.prompt + work.length / 2
    prefill = 2.0 * s.body * work.prompts * work.prompt / replicas / (tp * _speed(hw, c))
    return steps * decode_seconds(s, c, hw, tp, tokens / steps, context) + prefill


def learn_seconds(
    s: Shape,
    by: Precision,
    hw: Hardware,
    work: Work,
    n: int,
    *,
    checkpointing: bool,
    link: float,
    reshard: bool = True,
) -> dict[str, float]:
    """A step of n ranks: passes, head, optimiser, and what is sent between ranks.

    Passes: 6 FLOP a body weight and token, 3 times the attention of a causal sequence (half its
    length on average; arXiv:2204.02311, appendix B), a third more of both with checkpointing. Head:
    8 FLOP a weight and completion token (logits twice, two gradients) at the float32 peak, or, with
    bfloat16 factors, 12 at theirs (gradients in two parts, ``head.py``). AdamW: read
    weight, gradient and moments, write three of them, 7·p·N/n bytes. Ranks: two all-gathers (one
    without resharding) and a float32 reduce-scatter for every backward pass, hidden behind the
    passes as far as these last.

    Llama 3 8B, 2^20 tokens, no attention, 16 H100: 6 · 6.98e9 · 2^20 / (16 · 989.4e12 · 0.4) =
    6.94 s of passes.
    """
    more = 4 / 3 if checkpointing else 1.0
    prompt = work.read * (6.0 * s.body + 3 * s.attention_flop(work.prompt / 2))
    reach = work.prompt + work.length / 2
    answer = work.learned * (6.0 * s.body + 3 * s.attention_flop(reach))
    passes = more * (prompt + answer) / (n * _speed(hw, by.c))
    flop, speed = (12.0, _speed(hw, 2)) if by.c == 2 else (8.0, _speed(hw, 4))
    head = flop * s.head * work.learned / (n * speed)
    optimiser = 7.0 * by.p * s.parameters / n / (hw.bandwidth * hw.mbu)
    tokens = (work.read + work.learned) / n
    backwards = max(1.0, tokens / work.micro) if work.micro else 1.0
    gathers = 2 if reshard else 1
    sent = backwards * (gathers * by.c + 4) * s.parameters * (n - 1) / n / link
    total = max(passes + head, sent) + optimiser
    return {"passes": passes, "head": head, "optimiser": optimiser, "ranks": sent, "total": total}


def sync_seconds(s: Shape, c: int, n: int, path: float, link: float) -> float:
    """Gather c·N bytes from n ranks over `link`, then send them over `path` (byte/s) once.

    NCCL's broadcast sends every byte once over each link, however many servers listen.
    Llama 3 8B in bfloat16 over 50 GB/s from one rank: 16.06 GB, 0.32 s.
    """
    size = c * float(s.parameters)
    return size * (n - 1) / n / link + size / path


def _speed(hw: Hardware, c: int) -> float:
    """FLOP/s that products in c-byte numbers reach."""
    return hw.peak * hw.mfu if c == 2 else hw.peak_fp32 * hw.mfu_fp32
