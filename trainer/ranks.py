"""The processes of torchrun as one learner: who they are, what they are told, who is missing.

Rank 0 leads. It posts orders in the store of torch's process group; the others wait for them
there, as long as it takes, and then all of them run the same collectives, which have a deadline.
Every rank also leaves a sign of life in the store each second: when a collective fails, the ranks
whose signs have stopped are named, and a rank that sees none of another's for the whole deadline
ends, whatever it is waiting for.

Without torchrun there is one rank, and no process group unless the passes are in another dtype than
the weights, which is FSDP2's business (``shard.py``).
"""

from __future__ import annotations

import os
import pickle
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from trainer.errors import ConfigError, RankError
from trainer.settings import Config

__all__ = ["Ranks", "joined", "rank"]

BEAT_S = 1.0
GRACE_S = 10.0  # for the main thread to end by an error of its own
FOREVER = timedelta(days=365)
STOP = "stop"


def rank() -> int:
    """Return this process's number under torchrun, 0 without."""
    return int(os.environ.get("RANK", "0"))


@contextmanager
def joined(config: Config) -> Iterator[Ranks]:
    """Join the process group that the environment and the settings ask for, and leave it.

    Raises
    ------
    ConfigError
        There is no GPU.
    RankError
        Not all ranks came within ``learner.deadline_s``, or one has no GPU of its own.
    """
    place = int(os.environ.get("LOCAL_RANK", "0"))
    if config.model.device == "cuda":
        _check_device(place)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 and config.learner.compute == "same":
        yield Ranks()
        return
    deadline = timedelta(seconds=config.learner.deadline_s)
    backend = "gloo"
    if config.model.device == "cuda":
        torch.cuda.set_device(place)
        backend = "cpu:gloo,cuda:nccl"
    where: dict[str, Any] = {} if size > 1 else {"store": dist.HashStore(), "rank": 0}
    try:
        dist.init_process_group(
            backend, timeout=deadline, world_size=size, **({"rank": rank()} | where)
        )
    except (dist.DistError, RuntimeError, ValueError) as e:
        raise RankError(
            f"rank {rank()} of {size}: not all ranks met within {config.learner.deadline_s:g} s "
            f"({_line(e)}): start every one, with the same MASTER_ADDR and MASTER_PORT"
        ) from e
    ranks = Ranks(rank(), size, config.learner.deadline_s)
    try:
        yield ranks
    finally:
        ranks.close()


def _check_device(place: int) -> None:
    if not torch.cuda.is_available():
        remedy = "see what nvidia-smi says" if torch.version.cuda else "install one with CUDA"
        raise ConfigError(
            f"model.device = cuda, and torch {torch.__version__} finds no GPU: set it to cpu, or "
            f"{remedy}"
        )
    found = torch.cuda.device_count()
    if place >= found:
        raise RankError(
            f"rank {rank()} is number {place + 1} on this machine, where torch finds "
            f"{found} GPU{'s' * (found > 1)}: start no more ranks than GPUs (--nproc-per-node)"
        )


class Ranks:
    """One rank among all.

    Parameters
    ----------
    rank, size : int
    deadline_s : float
        That a rank waits for another.
    """

    def __init__(self, rank: int = 0, size: int = 1, deadline_s: float = 300.0) -> None:
        self.rank, self.size, self.deadline_s = rank, size, deadline_s
        self.phase = "start"
        self._orders = 0
        self._over = threading.Event()
        if size > 1:
            store = dist.distributed_c10d._get_default_store()
            self._store = store.clone()
            threading.Thread(target=self._beat, args=(store.clone(),), daemon=True).start()

    # Orders

    def order(self, name: str, *args: Any) -> None:
        """Tell the others what comes next (rank 0)."""
        self.phase = name
        self._store.set(f"order/{self._orders}", pickle.dumps((name, args)))
        if self._orders > 0:  # every order ends in a collective: all have read the one before
            self._store.delete_key(f"order/{self._orders - 1}")
        self._orders += 1

    def next_order(self) -> tuple[str, tuple[Any, ...]] | None:
        """Wait for rank 0's next order; None when there will be none (other ranks)."""
        self.phase = "waiting for rank 0"
        key = f"order/{self._orders}"
        self._store.wait([key], FOREVER)  # whether rank 0 lives at all is `_beat`'s question
        self._orders += 1
        name, args = pickle.loads(self._store.get(key))
        self.phase = name
        return None if name == STOP else (name, args)

    # Data

    def scatter(self, parts: list[Any] | None) -> Any:
        """Give part i to rank i; only rank 0 has `parts`."""
        mine: list[Any] = [None]
        dist.scatter_object_list(mine, parts)
        return mine[0]

    def collect(self, part: Any) -> list[Any]:
        """Bring all ranks' parts to rank 0, in order; an empty list elsewhere."""
        parts: list[Any] = [None] * self.size if self.rank == 0 else []
        dist.gather_object(part, parts if self.rank == 0 else None)
        return parts

    # Failure

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Name the phase and the rank when another rank's end makes a collective fail here.

        Raises
        ------
        RankError
        """
        try:
            yield
        except RuntimeError as e:
            if isinstance(e, torch.OutOfMemoryError):
                raise
            culprits = self.missing()
            if not culprits and "gloo" not in str(e).lower() and not isinstance(e, dist.DistError):
                raise
            who = "; ".join(culprits) or f"not all ranks answered within {self.deadline_s:g} s"
            raise RankError(f"rank {self.rank}, phase {self.phase}: {who} ({_line(e)})") from e

    def fail(self, e: BaseException) -> None:
        """Leave word of why this rank ends, unless another's end is why."""
        if isinstance(e, RankError):
            return
        with suppress(dist.DistError):  # the store may be gone: then nobody is left to read it
            self._store.set(f"failed/{self.rank}", _line(e))

    def missing(self) -> list[str]:
        """Say of each other rank that has failed or shows no sign of life what is known."""
        others = [r for r in range(self.size) if r != self.rank]
        try:
            before = self._signs(others)
            time.sleep(3 * BEAT_S)
            after = self._signs(others)
            return [
                f"rank {r} failed: {self._store.get(f'failed/{r}').decode()}"
                if self._store.check([f"failed/{r}"])
                else f"rank {r} no longer answers"
                for r, a, b in zip(others, before, after, strict=True)
                if a == b or self._store.check([f"failed/{r}"])
            ]
        except dist.DistError:
            return ["the ranks' store no longer answers"]

    def _signs(self, others: list[int]) -> list[int]:
        return [self._store.add(f"beat/{r}", 0) for r in others]

    def _beat(self, store: Any) -> None:
        """Give a sign of life each second; end the process when another's have stopped for long."""
        others = [r for r in range(self.size) if r != self.rank]
        last = dict.fromkeys(others, (0, time.monotonic()))
        while not self._over.wait(BEAT_S):
            try:
                store.add(f"beat/{self.rank}", 1)
                signs = {r: store.add(f"beat/{r}", 0) for r in others}
            except dist.DistError as e:
                self._end(f"the ranks' store no longer answers ({_line(e)})")
                return
            now = time.monotonic()
            last = {r: last[r] if last[r][0] == n else (n, now) for r, n in signs.items()}
            for r, (_, since) in last.items():
                if now - since > self.deadline_s:
                    self._end(f"rank {r} gave no sign of life for {now - since:.0f} s")

    def _end(self, why: str) -> None:
        """End a process whose main thread may be stuck for good in a collective."""
        if not self._over.wait(GRACE_S):
            text = f"train-rl: rank {self.rank}, phase {self.phase}: {why}"
            print(text, file=sys.stderr, flush=True)
            os._exit(RankError.exit_code)

    def close(self) -> None:
        """Send the others home (rank 0) and leave the group, unless another may be stuck in it."""
        self._over.set()
        if self.size > 1 and self.rank == 0:
            with suppress(dist.DistError):  # the store may be gone, and the others with it
                self.order(STOP)
        calm = self.size == 1 or sys.exc_info()[0] is None
        if calm and dist.is_initialized():  # vLLM in this process ends it too
            dist.destroy_process_group()


def _line(e: BaseException) -> str:
    """Return the first sentence of an error, without the place in torch's sources before it."""
    first = (str(e).strip().splitlines() or [type(e).__name__])[0]
    return re.sub(r"^\[\S+:\d+\] ", "", first).split(". ")[0][:200]
