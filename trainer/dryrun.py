"""``train-rl --dry-run``: who would run where, with which commands, and what this machine lacks."""

from __future__ import annotations

from trainer.errors import ConfigError
from trainer.placement import Placement, fit, here, resolve
from trainer.servers import printed
from trainer.settings import Config

__all__ = ["describe"]

TINY = "TINY_MODEL_FOLDER"  # what train-rl tiny-model writes
TRAVELS = {
    "memory": "within this machine's memory",
    "file": "as a file",
    "nccl": "over NCCL",
    "ipc": "within one GPU (CUDA IPC)",
}


def describe(config: Config) -> str:
    """Return the placement as text; nothing is loaded, started or written.

    Raises
    ------
    ConfigError
        Settings or ranks that contradict each other. What this machine lacks is only said.
    """
    machine = here(config)
    placement = resolve(config, machine)
    choice = placement.choice
    lines = [
        f"placement {choice.where}, engine {choice.kind}, weights travel {TRAVELS[choice.transfer]}"
    ]
    lines += _table(placement)
    lines.append(_held(placement))
    lines += _commands(config, placement)
    notes = [f"note: {note}" for note in placement.notes]
    try:
        fit(placement, machine)
    except ConfigError as e:
        notes.append(f"note: this machine would refuse the run: {e}")
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _table(placement: Placement) -> list[str]:
    rows = [
        (r.name, r.machine, f"GPU {','.join(r.devices)}" if r.devices else "CPU", r.what)
        for r in placement.roles
    ]
    if placement.choice.where == "remote":
        rows = [(n, m, "its own" if n == "server" else d, w) for n, m, d, w in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return [
        "  " + "  ".join([*(row[i].ljust(widths[i]) for i in range(3)), row[3]]) for row in rows
    ]


def _commands(config: Config, placement: Placement) -> list[str]:
    servers = printed(config, placement, config.model.path or TINY)
    if not servers:
        return []
    own = "servers that the run starts itself, on free ports:"
    lines = ["", "servers that must run by then:" if placement.addresses else own]
    lines.append(f"  {servers[0].line}")
    for server in servers[1:]:
        devices = f" with CUDA_VISIBLE_DEVICES={','.join(server.devices)}"
        lines.append(f"  the same at {server.address}{devices if server.devices else ''}")
    return lines


def _held(placement: Placement) -> str:
    kind = "GPU-hours" if placement.device == "cuda" else "CPU-device-hours"
    learn, generate = placement.gpus_train, placement.gpus_generate
    return (
        f"{kind} count {learn + generate} devices, idle or not: {learn} learn, {generate} generate"
    )
