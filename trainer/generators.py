"""The generating side of a run: its servers, where it starts them itself, and the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainer.engine import open_engine
from trainer.engine.base import Completion, Engine
from trainer.engine.served import ServedEngine
from trainer.launch import Order, Servers, free_port
from trainer.placement import Placement
from trainer.servers import full_environment, runnable, server_command
from trainer.settings import Config, passes

__all__ = ["open_generators"]


def open_generators(config: Config, placement: Placement, directory: Path, folder: Path) -> Engine:
    """Open the engine that the placement chose; its servers stand when this returns.

    Parameters
    ----------
    directory : Path
        Of the model.
    folder : Path
        Of the run; servers write their logs to ``servers/`` in it.

    Raises
    ------
    EngineError
        The engine would not start; nothing is left running.
    """
    kind, e = placement.choice.kind, config.engine
    options: dict[str, Any] = {"slots": e.slots, "max_length": e.max_length or None}
    if kind == "served":
        options |= {"transfer": placement.choice.transfer, "folder": e.folder}
        options |= {"deadline_s": config.pipeline.deadline_s}
        if placement.servers:
            servers = Servers(_orders(config, placement, directory), folder / "servers", e.start_s)
            return OwnServers(servers, directory, **options)
        return open_engine(kind, directory, addresses=placement.addresses, **options)
    options |= {"device": placement.engine_device, "dtype": passes(config)}
    if kind == "process":
        options |= {"threads": config.run.threads}
    if kind == "vllm":
        options |= {"memory": e.memory, "eager": e.eager, "sleep": placement.sleep}
    return open_engine(kind, directory, deadline_s=config.pipeline.deadline_s, **options)


def _orders(config: Config, placement: Placement, directory: Path) -> list[Order]:
    orders = []
    for devices in placement.servers:
        port = free_port()
        words = server_command(config, placement, directory, port)
        environment = full_environment(config, placement.choice.software, devices)
        orders.append(Order(runnable(words), environment, f"127.0.0.1:{port}"))
    return orders


class OwnServers(ServedEngine):
    """Servers that the run started: started again when they end, and ended with the engine."""

    def __init__(self, servers: Servers, directory: Path, **options: Any) -> None:
        self._own = servers
        try:
            super().__init__(directory, addresses=servers.addresses, **options)
        except BaseException:
            servers.close()
            raise

    def collect(self, timeout: float = 0.0) -> list[Completion]:
        """Completions that have arrived; a server that has ended is started again meanwhile."""
        self._own.revive()
        return super().collect(timeout)

    def notices(self) -> list[str]:
        """What went wrong and was dealt with since the last call."""
        return [*self._own.notices(), *super().notices()]

    def close(self) -> None:
        """End all calls and the servers."""
        super().close()
        self._own.close()
