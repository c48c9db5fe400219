"""Weights as a file: written once, read by every server, on one machine or over a shared folder.

The file is written under another name and renamed, so that a server reads it whole or not at all.
It holds what ``model.state_dict()`` has, the tied head on purpose: a safetensors file saved by
transformers lacks it, and vLLM's ``reload_weights`` would then go on with the old head in silence.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trainer.engine.fleet import Crew, Server, ask_each
from trainer.engine.wire import ServerFault
from trainer.errors import EngineError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FileTransfer", "Transfer"]


class Transfer(Protocol):
    """How weights reach paused servers.

    ``together`` says that servers cannot be given the present weights one by one: a server that
    comes back makes everyone take them again.
    """

    together: bool

    def send(
        self, servers: Sequence[Server], weights: Mapping[str, Tensor], label: str
    ) -> dict[Server, ServerFault]:
        """Give the weights to `servers`; those that did not take them, and why."""
        ...

    def repeat(self, servers: Sequence[Server]) -> dict[Server, ServerFault]:
        """Give the weights of the last `send` to further servers."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class FileTransfer:
    """A `Transfer` through a folder that every server sees.

    Parameters
    ----------
    folder : str
        A temporary one when empty.
    crew : Crew
    deadline_s : float
        For a server to read the file.
    """

    together = False

    def __init__(self, folder: str, crew: Crew, deadline_s: float) -> None:
        self.crew, self.deadline = crew, deadline_s
        self.temporary = not folder
        try:
            self.folder = Path(folder or tempfile.mkdtemp(prefix="train-rl-")).absolute()
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise EngineError(f"start: engine.folder = {folder}: {e.strerror}") from e
        self.present: Path | None = None

    def send(
        self, servers: Sequence[Server], weights: Mapping[str, Tensor], label: str
    ) -> dict[Server, ServerFault]:
        """Write the file and have every server read it."""
        old, self.present = self.present, self._write(weights, label)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
        return self.repeat(servers)

    def repeat(self, servers: Sequence[Server]) -> dict[Server, ServerFault]:
        """Have further servers read the present file."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(self.present)}}

        def load(server: Server) -> None:
            server.post("update", "/collective_rpc", body, deadline=self.deadline)

        return ask_each(self.crew, servers, "update", load, self.deadline)[1]

    def close(self) -> None:
        """Remove what was written."""
        if self.present is not None:
            shutil.rmtree(self.present, ignore_errors=True)
        if self.temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, weights: Mapping[str, Tensor], label: str) -> Path:
        from safetensors.torch import save_file

        final = self.folder / f"weights-{label}"
        partial = self.folder / f".partial-{label}"
        try:
            partial.mkdir()
            save_file(_separate(weights), partial / "model.safetensors", {"format": "pt"})
            partial.rename(final)
        except OSError as e:
            raise EngineError(f"update: cannot write the weights to {self.folder}: {e}") from e
        return final


def _separate(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors on the CPU that share no memory, which is what safetensors takes."""
    seen: set[int] = set()
    separate: dict[str, Tensor] = {}
    for name, weight in weights.items():
        tensor = weight.detach().cpu().contiguous()
        if tensor.data_ptr() in seen:
            tensor = tensor.clone()
        seen.add(tensor.data_ptr())
        separate[name] = tensor
    return separate
