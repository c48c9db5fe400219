"""Weights over NCCL, from GPU to GPU: vLLM's own transfer, fanned out over several servers.

vLLM's trainer side (`vllm.distributed.weight_transfer`, 0.32) drives one server through four calls
and tells it rank_offset 1. Here those calls go to all servers at once: the learner is rank 0, each
server's workers take the ranks behind those of the servers before it, and the group has one rank
for every one of them. The broadcast runs in a daemon thread; when a server refuses a call, or the
deadline passes, we stop waiting at once: a peer that is missing cannot be waited for inside NCCL.

A collective that failed cannot be used again, and servers may hang in it: the run then ends with
the phase named. A server that was lost before an update is left out of the next group, and one that
is back is taken in: the group is opened anew, and everyone takes the weights.

``ipc`` is the same with CUDA IPC, for a server on the learner's own GPU, which must run with
VLLM_ALLOW_INSECURE_SERIALIZATION=1 (handles travel pickled).
"""

from __future__ import annotations

import base64
import pickle
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from trainer.engine.fleet import Crew, Server, ask_each
from trainer.engine.wire import ServerFault
from trainer.errors import EngineError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["CollectiveTransfer", "SyncClient", "Weights"]

BACKENDS = ("nccl", "ipc")


class Meta(NamedTuple):
    """Name, dtype and shape of one weight."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class Weights:
    """The present weights as vLLM's ``WeightSource``: metadata first, tensors in the same order."""

    def __init__(self) -> None:
        self.present: Mapping[str, Tensor] = {}

    def metadata(self) -> list[Meta]:
        """What iteration will give."""
        return [Meta(name, w.dtype, tuple(w.shape)) for name, w in self.present.items()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, w.detach().contiguous()) for name, w in self.present.items())


class SyncClient:
    """vLLM's four-call client protocol, for several servers.

    Parameters
    ----------
    servers : sequence of Server
        In the order of their ranks; each server's card says how many it has.
    crew : Crew
    deadline_s : float
        Of every call.
    """

    def __init__(self, servers: Sequence[Server], crew: Crew, deadline_s: float) -> None:
        self.servers, self.crew, self.deadline = list(servers), crew, deadline_s
        self.failed: Future[None] = Future()  # set by the first call that a server did not take

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Tell each server its ranks; over NCCL, workers return when the group stands."""
        bodies, rank = {}, 1
        for server in self.servers:
            assert server.card is not None
            ranks = {"rank_offset": rank} if "rank_offset" in init_info else {}  # IPC has none
            bodies[server] = {"init_info": {**init_info, **ranks}}
            rank += server.card.world
        self._post("/init_weight_transfer_engine", bodies)

    def start_weight_update(self) -> None:
        """Make every server ready to receive."""
        self._post("/start_weight_update", dict.fromkeys(self.servers))

    def update_weights(self, update_info: Any) -> None:
        """Have every server receive; returns when all have."""
        body = {"update_info": _json_safe(update_info)}
        self._post("/update_weights", dict.fromkeys(self.servers, body))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Have every server put the weights to use."""
        body = None if weight_version is None else {"weight_version": weight_version}
        self._post("/finish_weight_update", dict.fromkeys(self.servers, body))

    def _post(self, path: str, bodies: Mapping[Server, Any]) -> None:
        def post(server: Server) -> None:
            server.post(f"update ({path[1:]})", path, bodies[server], deadline=self.deadline)

        phase = f"update ({path[1:]})"
        for fault in ask_each(self.crew, self.servers, phase, post, self.deadline)[1].values():
            if not self.failed.done():
                self.failed.set_exception(fault)
            raise fault


def _json_safe(info: Any) -> Any:
    """IPC handles pickled, as the worker takes them over HTTP; everything else as it is."""
    if isinstance(info, list):
        return [_json_safe(part) for part in info]
    if info.get("ipc_handles") is None:
        return info
    rest = {name: value for name, value in info.items() if name != "ipc_handles"}
    handles = base64.b64encode(pickle.dumps(info["ipc_handles"])).decode()
    return {**rest, "ipc_handles_pickled": handles}


class CollectiveTransfer:
    """A `Transfer` (see `trainer.engine.transfer`) in which all servers receive together.

    Parameters
    ----------
    backend : {"nccl", "ipc"}
    servers : sequence of Server
    crew : Crew
    deadline_s : float
        For the group to stand, and for an update.
    opens : callable
        ``opens(backend, client, source, world, address)`` gives vLLM's trainer side.

    Raises
    ------
    EngineError
        A server cannot take part.
    """

    together = True

    def __init__(
        self,
        backend: str,
        servers: Sequence[Server],
        crew: Crew,
        deadline_s: float,
        opens: Callable[..., Any] | None = None,
    ) -> None:
        if backend not in BACKENDS:
            raise EngineError(f"start: engine.transfer = {backend!r}; choose file, nccl or ipc")
        self.backend, self.crew, self.deadline = backend, crew, deadline_s
        self.opens = opens or open_trainer
        self.source = Weights()
        self.members: list[Server] = []
        self.engine: Any = None
        self.client: SyncClient | None = None
        for server in servers:
            _check(server, backend)

    def send(
        self, servers: Sequence[Server], weights: Mapping[str, Tensor], label: str
    ) -> dict[Server, ServerFault]:
        """Broadcast to all `servers`, in a group that they and the learner form."""
        if not servers:
            return {}
        self.source.present = weights
        if self.engine is None or self.members != list(servers):
            self._open(servers)
        self._guarded("broadcast", self.engine.send_weights)
        return {}

    def repeat(self, servers: Sequence[Server]) -> dict[Server, ServerFault]:
        """Not possible: `together` says so."""
        raise AssertionError("servers of a collective take weights together")

    def close(self) -> None:
        """Leave the group, without waiting for the others."""
        if self.engine is not None:
            threading.Thread(target=self.engine.shutdown, daemon=True).start()
            self.engine = None

    def _open(self, servers: Sequence[Server]) -> None:
        """Form the group anew."""
        if self.engine is not None:
            self.close()
            self._shut_down([server for server in self.members if server in servers])
        self.members = list(servers)
        self.client = SyncClient(servers, self.crew, self.deadline)
        world = 1 + sum(server.card.world for server in servers if server.card)
        address = _own_address(servers[0])

        def join() -> Any:
            return self.opens(self.backend, self.client, self.source, world, address)

        self.engine = self._guarded("joining the group", join)

    def _shut_down(self, servers: Sequence[Server]) -> None:
        def post(server: Server) -> None:
            path = "/shutdown_weight_transfer_engine"
            server.post("update (shutdown)", path, deadline=self.deadline)

        for fault in ask_each(self.crew, servers, "update (shutdown)", post, self.deadline)[
            1
        ].values():
            raise EngineError(str(fault)) from fault

    def _guarded(self, what: str, job: Callable[[], Any]) -> Any:
        """The job's result; it runs in a daemon thread, and is left there when it hangs."""
        assert self.client is not None
        over = threading.Event()
        future = self.crew.submit(_beside, self.source.present, job)
        for done in (future, self.client.failed):
            done.add_done_callback(lambda _: over.set())
        names = ", ".join(server.address for server in self.members)
        if not over.wait(self.deadline):
            raise EngineError(
                f"update: {what} with {names} is not done in {self.deadline:g} s: a server hangs "
                "or the network between the GPUs is cut; start the servers again and resume"
            )
        if self.client.failed.done():
            raise EngineError(
                f"{self.client.failed.exception()}; the group is broken: start the servers again "
                "and resume the run"
            )
        try:
            return future.result()
        except EngineError:
            raise
        except Exception as e:
            line = (str(e).strip() or type(e).__name__).splitlines()[0]
            raise EngineError(f"update: {what} with {names} failed: {line}") from e


def open_trainer(
    backend: str, client: SyncClient, source: Weights, world: int, address: str
) -> Any:
    """The trainer side of vLLM, in a group of `world` ranks whose rank 0 listens at `address`."""
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

    if backend == "ipc":
        from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

        info: Any = IPCTrainerInitInfo(rank=0, packed=True)
    else:
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

        info = NCCLTrainerInitInfo(address, _free_port(), world, rank=0)
    return WeightTransferTrainerFactory.trainer_init(info, client=client, source=source)


def _beside(weights: Mapping[str, Tensor], job: Callable[[], Any]) -> Any:
    """Run `job` with the weights' device as the current one, which is a matter of each thread."""
    import torch

    device = next(iter(weights.values())).device
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        return job()


def _check(server: Server, backend: str) -> None:
    assert server.card is not None
    if not server.card.software.startswith("vllm"):
        raise EngineError(
            f"start: {server.address}: engine.transfer = {backend} needs vLLM on a GPU and this is "
            f"{server.card.software}: set engine.transfer to file"
        )
    if server.card.world < 1:
        raise EngineError(f"start: {server.address}: a world of {server.card.world} workers")


def _own_address(server: Server) -> str:
    """The address of this machine that the server can reach."""
    with socket.create_connection((server.wire.host, server.wire.port), timeout=10.0) as probe:
        return str(probe.getsockname()[0])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
