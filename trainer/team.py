"""The learners of all ranks behind the calls of one.

Rank 0 holds a ``Team`` where a run on one rank holds a ``Learner``. Each call posts an order, cuts
the batch by ranks, and joins in; the other ranks do the same work in ``follow``. Only tensors of
the rank's own samples travel, weights never leave their rank except to be gathered.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer import setup
from trainer.learner import Learner, StepResult
from trainer.micro import empty_part
from trainer.packing import lengths
from trainer.ranks import Ranks
from trainer.settings import Config
from trainer.types import Batch

__all__ = ["Team", "cut", "follow"]


class Team:
    """The calls of a ``Learner``, made on rank 0 and answered by all.

    Parameters
    ----------
    model : transformers causal language model
    config : Config
    ranks : Ranks

    Raises
    ------
    RankError
        From every call: another rank failed, is gone, or did not answer within the deadline.
    """

    sharded = True

    def __init__(self, model: Any, config: Config, ranks: Ranks) -> None:
        self.ranks = ranks
        ranks.order("open", config)
        with ranks.watched():
            self.learner = Learner(model, config)
            ranks.collect(None)
        self.model = self.learner.model
        self.learning_rate = self.learner.learning_rate

    def step(self, batch: Batch, version: int = 0, old: Tensor | None = None) -> StepResult:
        """Differentiate the batch on all ranks and move the weights once."""
        pieces = cut(batch, self.ranks.size)
        parts = [(p, None if old is None else _rows(old, i, p)) for i, p in pieces]
        self.ranks.order("step", version)
        with self.ranks.watched():
            return _step(self.learner, self.ranks, parts, version)

    def logprobs(
        self, batch: Batch, *, reference: bool = False, temperature: float | None = None
    ) -> Tensor:
        """Log-probabilities of the batch, [N, T]."""
        pieces = cut(batch, self.ranks.size)
        self.ranks.order("logprobs", reference, temperature)
        parts = [p for _, p in pieces]
        with self.ranks.watched():
            found = _logprobs(self.learner, self.ranks, parts, reference, temperature)
        out = torch.zeros(batch.mask.shape)
        for (index, _), logp in zip(pieces, found, strict=True):
            out[index, : logp.shape[1]] = logp[: len(index)]
        return out

    def weights(self) -> dict[str, Tensor]:
        """Gather the whole weights by name."""
        return self._all("weights", _weights)

    def reset(self, *, optimizer: bool) -> None:
        """Make the policy the reference on all ranks and, with `optimizer`, forget the moments."""
        self._all("reset", _reset, optimizer)

    def save(self, folder: Path) -> None:
        """Write every rank's share of weights and optimiser below `folder`."""
        self._all("save", _save, folder)

    def load(self, path: Path) -> None:
        """Load a checkpoint of any number of ranks."""
        self._all("load", _load, path)

    def _all(self, name: str, do: Callable[..., Any], *args: Any) -> Any:
        self.ranks.order(name, *args)
        with self.ranks.watched():
            return do(self.learner, self.ranks, None, *args)


def follow(ranks: Ranks) -> None:
    """Do what rank 0 orders until it sends everyone home (every other rank).

    Signals are rank 0's to obey: it ends the run between two steps, and these ranks with it.

    Raises
    ------
    RankError
        Rank 0 or another rank failed, is gone, or did not answer within the deadline.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    learner: Learner | None = None
    try:
        while (order := ranks.next_order()) is not None:
            name, args = order
            with ranks.watched():
                if name == "open":
                    learner = _open(ranks, *args)
                else:
                    assert learner is not None
                    DEEDS[name](learner, ranks, None, *args)
    except BaseException as e:
        ranks.fail(e)
        raise


# What every rank does at an order; `parts` are rank 0's to give


def _open(ranks: Ranks, config: Config) -> Learner:
    torch.set_num_threads(config.run.threads)
    model, _ = setup.load_model(setup.model_directory(config), config)
    learner = Learner(model, config)
    ranks.collect(None)
    return learner


def _step(learner: Learner, ranks: Ranks, parts: Any, version: int) -> StepResult:
    part, old = ranks.scatter(parts)
    return learner.step(part, version, None if old is None else old.to(learner.device))


def _logprobs(
    learner: Learner, ranks: Ranks, parts: Any, reference: bool, temperature: float | None
) -> list[Tensor]:
    part = ranks.scatter(parts)
    logp = learner.logprobs(part, reference=reference, temperature=temperature)
    return ranks.collect(logp.cpu())


def _weights(learner: Learner, ranks: Ranks, parts: None) -> dict[str, Tensor]:
    return learner.weights()


def _reset(learner: Learner, ranks: Ranks, parts: None, optimizer: bool) -> None:
    learner.reset(optimizer=optimizer)
    ranks.collect(None)


def _save(learner: Learner, ranks: Ranks, parts: None, folder: Path) -> None:
    learner.save(folder)
    ranks.collect(None)


def _load(learner: Learner, ranks: Ranks, parts: None, path: Path) -> None:
    learner.load(path)
    ranks.collect(None)


DEEDS: dict[str, Callable[..., Any]] = {
    "step": _step,
    "logprobs": _logprobs,
    "weights": _weights,
    "reset": _reset,
    "save": _save,
    "load": _load,
}


# The cut


def cut(batch: Batch, n: int) -> list[tuple[Tensor, Batch]]:
    """Cut a batch into `n` parts of about as many tokens: the samples of each, and the part.

    A group stays on one rank when that costs little balance, for its samples then share a prompt
    where prompts are shared. Numbers of prompts stay what they are: denominators count by them. A
    rank without samples gets one in which nothing counts.
    """
    size = lengths(batch)
    together = _balanced(_by_group(batch, size), n)
    apart = _balanced([(int(s), [i]) for i, s in enumerate(size)], n)
    shares = together if _heaviest(together, size) <= 1.1 * _heaviest(apart, size) else apart
    pieces = []
    for members in shares:
        index = torch.tensor(sorted(members), dtype=torch.int64)
        pieces.append((index, _narrow(batch.select(index)) if members else empty_part(batch)))
    return pieces


def _by_group(batch: Batch, size: Tensor) -> list[tuple[int, list[int]]]:
    groups: dict[int, list[int]] = {}
    for i, p in enumerate(batch.prompt_of.tolist()):
        groups.setdefault(p, []).append(i)
    return [(int(size[members].sum()), members) for members in groups.values()]


def _balanced(things: list[tuple[int, list[int]]], n: int) -> list[list[int]]:
    """Heaviest first, each to the lightest rank."""
    shares: list[list[int]] = [[] for _ in range(n)]
    load = [0] * n
    for weight, members in sorted(things, key=lambda t: (-t[0], t[1])):
        lightest = load.index(min(load))
        load[lightest] += weight
        shares[lightest] += members
    return shares


def _heaviest(shares: list[list[int]], size: Tensor) -> int:
    return max(int(size[members].sum()) for members in shares)


def _narrow(part: Batch) -> Batch:
    """Cut the padding off that no sample of the part needs, so that less travels."""
    width = max(1, int((part.versions >= 0).sum(1).max()))
    per_token = ("ids", "mask", "counted", "logprobs", "versions")
    return replace(part, **{k: getattr(part, k)[:, :width].contiguous() for k in per_token})


def _rows(old: Tensor, index: Tensor, part: Batch) -> Tensor:
    """`old` of a part's samples; zeros for a part in which nothing counts."""
    if len(index) == 0:
        return torch.zeros(part.mask.shape)
    return old.cpu()[index, : part.mask.shape[1]]
