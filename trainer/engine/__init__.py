"""Engines: one protocol (`base`), and everything that generates behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer.errors import EngineError

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.engine.base import Engine

__all__ = ["open_engine"]


def open_engine(
    kind: str, directory: str | Path, *, deadline_s: float = 300.0, **options: Any
) -> Engine:
    """An engine for a model directory.

    Parameters
    ----------
    kind : {"local", "process", "vllm", "served"}
        The sampler in this process, or in one of its own beside it; vLLM in this process; servers.
    deadline_s : float
        Of each phase, where there is another process to wait for.
    options
        device, dtype, slots, version, max_length; fp32_head of the sampler (see
        `trainer.engine.local`); memory, eager and sleep of vLLM (see `trainer.engine.vllm`);
        addresses, transfer and folder of servers (see `trainer.engine.served`).
    """
    if kind == "local":
        from trainer.engine.local import LocalEngine

        return LocalEngine.from_directory(directory, **options)
    if kind == "process":
        from trainer.engine.process import ProcessEngine

        return ProcessEngine(directory, deadline_s=deadline_s, **options)
    if kind == "vllm":
        from trainer.engine.vllm import VllmEngine

        return VllmEngine(directory, **options)
    if kind == "served":
        from trainer.engine.served import ServedEngine

        return ServedEngine(directory, deadline_s=deadline_s, **options)
    raise EngineError(f"unknown engine {kind!r}; choose local, process, vllm or served")
