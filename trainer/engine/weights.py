"""What a set of weights must be before an engine takes it: names, shapes, finite numbers, one head.

Weights travel as ``model.state_dict()`` has them: full tensors by name, the head written out even
when it is tied to the embedding. Neither ``named_parameters()`` nor the safetensors files of a tied
model hold that head, and an engine that keeps its own copy of it would go on with the old one in
silence. So every engine checks the whole set first: a refused update changes nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from trainer.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

__all__ = ["check_weights", "load_weights", "stored_shapes"]

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def check_weights(
    weights: Mapping[str, Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    tied: bool,
    exact: bool = False,
) -> None:
    """Refuse weights that are not those of the model.

    Parameters
    ----------
    weights : mapping of str to Tensor
        Named as in ``model.state_dict()``.
    shapes : mapping of str to tuple of int
        What the model needs.
    tied : bool
        Head and embedding are one matrix.
    exact : bool
        Names that the model does not know are refused too.

    Raises
    ------
    EngineError
        A name is missing or unknown, a shape differs, a number is not finite, or a tied head is not
        the embedding.
    """
    missing = sorted(shapes.keys() - weights.keys())
    if missing:
        raise EngineError(
            f"weights lack {missing[0]!r} ({len(missing)} missing of {len(shapes)}); send "
            "all of model.state_dict(), the head too when it is tied to the embedding"
        )
    unknown = sorted(weights.keys() - shapes.keys()) if exact else []
    if unknown:
        raise EngineError(
            f"weight {unknown[0]!r} is none of the model's ({len(unknown)} unknown); send "
            "model.state_dict() under the names of the model's files, without wrappers' prefixes"
        )
    for name, shape in shapes.items():
        if tuple(weights[name].shape) != tuple(shape):
            raise EngineError(
                f"weight {name!r} is {tuple(weights[name].shape)}, not {tuple(shape)}"
            )
        if not torch.isfinite(weights[name]).all():
            raise EngineError(f"weight {name!r} is not finite; the last update diverged")
    if tied and not torch.equal(weights[HEAD], weights[EMBEDDING]):
        raise EngineError(
            f"{HEAD!r} differs from the embedding it is tied to: one of the two is of "
            "an older version; send both from one model.state_dict()"
        )


def stored_shapes(directory: str | Path, *, tied: bool) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a model directory's weights, a tied head written out; reads headers."""
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for path in _files(Path(directory)):
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in names}
    if tied:
        shapes[HEAD] = shapes[EMBEDDING]
    return shapes


def load_weights(directory: str | Path, *, tied: bool) -> dict[str, Tensor]:
    """Every weight of a model directory's safetensors files, a tied head written out."""
    from safetensors.torch import load_file

    weights: dict[str, Tensor] = {}
    for path in _files(Path(directory)):
        weights.update(load_file(path))
    if tied:
        weights[HEAD] = weights[EMBEDDING]
    return weights


def _files(directory: Path) -> list[Path]:
    """The safetensors files of a model directory: one, or those that its index names."""
    index = directory / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.is_file():
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    for name in names:
        if not (directory / name).is_file():
            raise EngineError(f"{directory}: no {name}; save the model with save_pretrained")
    return [directory / name for name in names]
