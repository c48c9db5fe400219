"""Engines: one protocol (`base`), an in-process sampler (`local`), the same in its own process."""

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
    kind : {"local", "process"}
        In this process, or in one of its own beside it.
    deadline_s : float
        Of each phase, where there is another process to wait for.
    options
        device, dtype, slots, fp32_head, version, max_length; see `trainer.engine.local`.
    """
    if kind == "local":
        from trainer.engine.local import LocalEngine

        return LocalEngine.from_directory(directory, **options)
    if kind == "process":
        from trainer.engine.process import ProcessEngine

        return ProcessEngine(directory, deadline_s=deadline_s, **options)
    raise EngineError(f"unknown engine {kind!r}; choose local or process")
