"""Exact resume: everything that the next step depends on, written so that a kill cannot hurt it.

A checkpoint is a folder ``checkpoints/step-NNNNNN`` with ``state.pt`` and ``meta.json``. It is
written under another name, flushed to disk and renamed: it is there whole or not at all. The
state holds weights, optimiser, reference, prompt order, exclusions, watcher, counters and the state
of torch's generators; device time lives in the log, which outlives any checkpoint.

Of a learner spread over ranks, weights and optimiser stand beside it in ``learner/``, a folder of
``torch.distributed.checkpoint`` to which every rank writes its share. Both kinds are read by any
number of ranks.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "check_room",
    "fingerprint",
    "latest",
    "load",
    "read_learner",
    "save",
    "write_shards",
]

SHARDS = "learner"


def fingerprint(model: Any) -> str:
    """Hash the names, shapes and dtypes of a model's parameters."""
    lines = [f"{n} {tuple(p.shape)} {p.dtype}" for n, p in model.named_parameters()]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def save(
    folder: Path,
    step: int,
    state: dict[str, Any],
    meta: dict[str, Any],
    keep: int,
    shards: Callable[[Path], None] | None = None,
) -> Path:
    """Write a checkpoint and remove the oldest beyond `keep`; `shards` writes a folder of its own.

    Raises
    ------
    CheckpointError
        The disk is full or the folder cannot be written; earlier checkpoints are untouched.
    """
    import torch

    final = folder / f"step-{step:06d}"
    partial = folder / f".partial-{step:06d}-{os.getpid()}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        if shards is not None:
            shards(partial / SHARDS)
        torch.save(state, partial / "state.pt")
        (partial / "meta.json").write_text(json.dumps({"step": step, **meta}), encoding="utf-8")
        for path in [*partial.rglob("*"), partial]:
            _flush(path)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        _flush(folder)
    except (OSError, RuntimeError) as e:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(f"cannot write the checkpoint {final}: {e}") from e
    for old in _finished(folder)[:-keep]:
        shutil.rmtree(old)
    return final


def latest(folder: Path) -> Path | None:
    """Return the newest whole checkpoint; half-written ones are cleared away."""
    for leftover in folder.glob(".partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    finished = _finished(folder)
    return finished[-1] if finished else None


def load(path: Path, expected: str) -> tuple[int, dict[str, Any]]:
    """Read a checkpoint of a model whose fingerprint is `expected`: its step and its state.

    Raises
    ------
    CheckpointError
        It belongs to another model, or cannot be read.
    """
    import torch

    try:
        meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
        if meta["model"] != expected:
            raise CheckpointError(
                f"{path} is of another model (parameters {meta['model']}, here {expected}): "
                "give the run another name or the model it was started with"
            )
        state = torch.load(path / "state.pt", weights_only=True, mmap=True)
    except (OSError, RuntimeError, json.JSONDecodeError, KeyError) as e:
        raise CheckpointError(f"cannot read the checkpoint {path}: {e}") from e
    return meta["step"], state


def write_shards(folder: Path, state: dict[str, Any]) -> None:
    """Write this rank's share of a learner's state; a collective.

    Raises
    ------
    CheckpointError
        On every rank, when one of them could not write.
    """
    import torch.distributed.checkpoint as dcp

    try:
        dcp.save({"learner": state}, checkpoint_id=folder)
    except dcp.CheckpointException as e:
        raise CheckpointError(f"cannot write the checkpoint {folder.parent}: {_first(e)}") from e


def read_learner(path: Path, blank: Callable[[set[str]], dict[str, Any]]) -> dict[str, Any]:
    """Read the learner's state of a checkpoint written by any number of ranks.

    A collective when the checkpoint has shards and there is a process group. `blank` makes a state
    to be filled, told the names of what is stored: the tensors that this rank wants, spread as it
    wants them.

    Raises
    ------
    CheckpointError
        It cannot be read.
    """
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    try:
        if not (path / SHARDS).is_dir():
            return torch.load(path / "state.pt", weights_only=True, mmap=True)["learner"]
        names = dcp.FileSystemReader(path / SHARDS).read_metadata().state_dict_metadata
        state = {"learner": blank({name.removeprefix("learner.") for name in names})}
        with warnings.catch_warnings():  # one rank alone is meant
            warnings.filterwarnings("ignore", message=".*is disabled, unavailable or uninit")
            dcp.load(state, checkpoint_id=path / SHARDS, no_dist=not dist.is_initialized())
    except dcp.CheckpointException as e:
        raise CheckpointError(f"cannot read the checkpoint {path}: {_first(e)}") from e
    except (OSError, RuntimeError, KeyError) as e:
        raise CheckpointError(f"cannot read the checkpoint {path}: {e}") from e
    return state["learner"]


def _first(e: Any) -> str:
    """Say which rank failed first, and why, in one line."""
    rank, (error, _) = min(e.failures.items())
    return f"rank {rank}: {(str(error).splitlines() or [type(error).__name__])[0]}"


def check_room(folder: Path, model: Any, keep: int, *, reference: bool = False) -> None:
    """Refuse to start when the checkpoints to come would not fit.

    Weights and two moments each, and with `reference` its weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    copies = 4 if reference else 3
    size = sum(p.numel() * p.element_size() for p in model.parameters()) * copies
    free = shutil.disk_usage(folder).free
    if free < size * (keep + 1):
        raise CheckpointError(
            f"{folder} has {free / 1e9:.2f} GB free and {keep + 1} checkpoints need "
            f"{size * (keep + 1) / 1e9:.2f} GB: make room or set run.out elsewhere"
        )


def _finished(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("step-*") if (p / "meta.json").is_file())


def _flush(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
