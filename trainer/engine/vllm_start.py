"""Starting vLLM in the learner's process, and leaving that process as it was.

vLLM is written to have its process for itself. Here it does not: it must not print on stdout, where
``train-rl`` prints the path of its log; it must not seed the learner's generators, nor take
``torch.set_num_threads`` away; and it has to run in this process, where weights are handed over by
reference and the loop decides when a token is drawn.
"""

from __future__ import annotations

import logging
import os
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from trainer.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["one_line", "start"]

LONGEST = 300  # characters of vLLM's own message in ours


def start(arguments: Mapping[str, Any], device: str) -> Any:
    """A ``vllm.v1.engine.llm_engine.LLMEngine`` in this process.

    Parameters
    ----------
    arguments : mapping
        As `trainer.engine.vllm_options.engine_arguments` gives them.
    device : {"cpu", "cuda"}

    Raises
    ------
    ConfigError
        The learner has several ranks, or the CPU kernels do not have the model's head size.
    EngineError
        vLLM would not start, in its own words.
    """
    if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        raise ConfigError(
            f"engine.kind = vllm in one of {torch.distributed.get_world_size()} learner ranks: "
            "vLLM in a process takes its process group for itself; use servers "
            "(engine.placement = split or remote), or one rank"
        )
    _set_environment()
    with _undisturbed():
        try:
            return _start(arguments, device)
        except ConfigError:
            raise
        except Exception as e:
            raise EngineError(
                f"start: vLLM cannot serve {arguments['model']}: {one_line(e)}"
            ) from e


def one_line(error: BaseException) -> str:
    """The first characters of an error's message, without line breaks."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= LONGEST else f"{words[:LONGEST]}..."


def _set_environment() -> None:
    """What vLLM reads from the environment; a user's own settings of its logging stay."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"])  # until vLLM does it


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Put back the learner's random state and thread setting; keep vLLM's deprecations quiet."""
    set_num_threads = torch.set_num_threads
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            torch.set_num_threads = set_num_threads


def _start(arguments: Mapping[str, Any], device: str) -> Any:
    from vllm.platforms import current_platform

    if device == "cpu":
        # The ranks of log-probabilities, which nobody reads, would be counted by code that
        # inductor compiles: 15 s and a C++ compiler.
        type(current_platform).simple_compile_backend = "eager"
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    args = EngineArgs(
        **arguments,
        distributed_executor_backend="uni",
        disable_log_stats=True,
        use_tqdm_on_load=False,
    )
    if device == "cpu":
        _check_head_size(args)
    return LLMEngine.from_engine_args(args)


def _check_head_size(args: Any) -> None:
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    size = args.create_model_config().get_head_size()
    sizes = CPUAttentionBackend.get_supported_head_sizes()
    if size not in sizes:
        raise ConfigError(
            f"vLLM has no CPU kernel for heads of {size} (it has {', '.join(map(str, sizes))}): "
            "set engine.kind to local, or use a GPU"
        )
