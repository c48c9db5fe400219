"""The in-process engine: continuous batching over one key/value cache, on CPU or GPU.

All running rows advance by one token a tick. A row that finishes leaves at once: the last row
moves into its place, so that the running rows are always rows 0..n-1 of the cache, and waiting
requests are filled in behind them. Equal prompts that start together are computed once and copied.

A new row enters with all but the last token of its prompt in the cache; the last token is fed by
the ordinary tick. Rebuilding the cache under new weights is the same call on the same rows.

Leaves out paging (a row owns `width` places whatever it uses) and CUDA graphs: for long contexts
and large models use the vLLM engine.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trainer.engine.base import Completion, Request, Span, check_requests
from trainer.engine.decoder import Decoder, load_config
from trainer.engine.sampling import draw, uniform
from trainer.engine.weights import load_weights
from trainer.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from trainer.engine.base import Score

__all__ = ["LocalEngine"]

WIDTH_STEP = 32  # cache widths are multiples of it, so that growing is rare
FILL_TOKENS = 16_384  # tokens of one prefill, which bounds its memory


class LocalEngine:
    """An `Engine` (see `trainer.engine.base`) around a `Decoder` in this process.

    Parameters
    ----------
    decoder : Decoder
    slots : int
        Rows that run at the same time; further requests wait.
    version : int
        Version of the decoder's weights.
    max_length : int or None
        Longest prompt plus completion; the model's own limit when None.
    """

    def __init__(
        self,
        decoder: Decoder,
        *,
        slots: int = 512,
        version: int = 0,
        max_length: int | None = None,
    ) -> None:
        if slots < 1:
            raise EngineError(f"engine slots is {slots}; give at least 1")
        self.decoder = decoder
        self.slots = slots
        self.max_length = max_length or decoder.config.max_position_embeddings
        self._version = version
        self._paused = False
        self._stale = False  # the cache is to be rebuilt before the next token
        self._tainted = False  # a row gave non-finite numbers: clear rows before they are reused
        self._waiting: deque[Request] = deque()
        self._rows: list[Request] = []
        self._spans: list[list[tuple[int, int]]] = []  # per row (version, first token)
        self._cache = decoder.new_cache(0, WIDTH_STEP)
        # of each row: places of the cache in use; token drawn, but not yet in the cache; tokens
        # drawn; most tokens to draw; line of the table of stop ids
        self._numbers = np.zeros((5, slots), dtype=np.int64)
        self._position, self._token, self._count, self._budget, self._stop_set = self._numbers
        self._temperature = np.ones(slots, dtype=np.float32)
        self._top_p = np.ones(slots, dtype=np.float32)
        self._ids = np.zeros((slots, WIDTH_STEP), dtype=np.int64)
        self._logprobs = np.zeros((slots, WIDTH_STEP), dtype=np.float32)
        self._noise = np.zeros((slots, WIDTH_STEP))
        self._plain = self._uncut = True  # every running row has temperature 1, top_p 1
        self._stop_sets: dict[tuple[int, ...], int] = {}
        self._stops = np.zeros((0, decoder.vocabulary), dtype=bool)  # [stop sets, V]

    @classmethod
    def from_directory(
        cls,
        directory: str | Path,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        fp32_head: bool = True,
        **options: Any,
    ) -> LocalEngine:
        """An engine for a local model directory (config.json, safetensors)."""
        config = load_config(directory)
        weights = load_weights(directory, tied=config.tie_word_embeddings)
        decoder = Decoder(
            config, weights, dtype=getattr(torch, dtype), device=device, fp32_head=fp32_head
        )
        return cls(decoder, **options)

    # ------------------------------------------------------------------ the protocol

    @property
    def version(self) -> int:
        """Version of the weights that draw the next token."""
        return self._version

    @property
    def running(self) -> int:
        """Requests submitted and not yet returned."""
        return len(self._rows) + len(self._waiting)

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests, refusing those that can never fit."""
        check_requests(
            requests,
            vocabulary=self.decoder.vocabulary,
            max_length=self.max_length,
            taken={request.id for request in (*self._rows, *self._waiting)},
        )
        self._waiting.extend(requests)

    def collect(self, timeout: float = 0.0) -> list[Completion]:
        """Advance until a request finishes, `timeout` seconds have passed or nothing runs."""
        until = time.monotonic() + timeout
        if self._paused:
            time.sleep(timeout)
            return []
        while self.running:
            finished = self.tick()
            if finished or time.monotonic() >= until:
                return finished
        return []

    def pause(self, *, keep_cache: bool = True) -> None:
        """Stop between two tokens; without `keep_cache` the cache is rebuilt when resumed."""
        self._paused = True
        self._stale = self._stale or not keep_cache

    def update(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Copy new weights in. They are checked first: a refused update changes nothing."""
        if not self._paused:
            raise EngineError("update of a running engine; call pause() first")
        self.decoder.load(weights)
        self._version = version
        for spans, drawn in zip(self._spans, self._count, strict=False):
            spans.append((version, int(drawn)))

    def resume(self) -> None:
        """Go on; rows whose cache is stale are computed again first."""
        self._paused = False
        if self._stale:
            self._rebuild()
        self._stale = False

    def verify(self, score: Callable[[], Score]) -> None:
        """Nothing: nothing lies between learner and engine, and every evaluation compares."""

    def notices(self) -> list[str]:
        """Nothing: what goes wrong here ends the run."""
        return []

    def sleep(self) -> None:
        """Nothing: weights and cache stay where they are."""

    def wake(self) -> None:
        """Nothing, as for `sleep`."""

    def close(self) -> None:
        """Forget every request and free the cache."""
        self._waiting.clear()
        self._rows.clear()
        self._spans.clear()
        self._cache = self.decoder.new_cache(0, WIDTH_STEP)

    # ------------------------------------------------------------------ one token for every row

    @torch.inference_mode()
    def tick(self) -> list[Completion]:
        """Admit, draw one token for each running row, and let the finished ones go."""
        free = self.slots - len(self._rows)
        if self._waiting and (free * 8 >= self.slots or not self._rows):
            self._admit(min(free, len(self._waiting)))  # in lots: a prefill a row would be slow
        if not self._rows:
            return []
        return self._retire(self._draw())

    def _draw(self) -> np.ndarray:
        """Draw a token for each row; returns whether it is a stop token, bool [n]."""
        n, device = len(self._rows), self.decoder.device
        position, count = self._position[:n], self._count[:n]
        logits = self.decoder.step(
            torch.from_numpy(self._token[:n]).to(device),
            torch.from_numpy(position).to(device),
            self._cache,
            int(position.max()) + 1,
        )
        everyone = np.arange(n)
        temperature = None if self._plain else self._temperature[:n]
        top_p = None if self._uncut else self._top_p[:n]
        token, logprob = draw(logits, temperature, self._noise[everyone, count], top_p)
        self._token[:n] = token
        self._ids[everyone, count] = token
        self._logprobs[everyone, count] = logprob
        self._tainted = self._tainted or not np.isfinite(logprob.sum())
        position += 1
        count += 1
        return self._stops[self._stop_set[:n], token]

    def _retire(self, stopped: np.ndarray) -> list[Completion]:
        """Return finished rows and move the last rows into their places."""
        n = len(self._rows)
        done = stopped | (self._count[:n] >= self._budget[:n])
        if not done.any():
            return []
        finished = np.flatnonzero(done)
        completions = [self._completion(row, bool(stopped[row])) for row in finished.tolist()]
        left = n - len(finished)
        holes = finished[finished < left]
        movers = left + np.flatnonzero(~done[left:])
        if len(holes):
            self._move(movers, holes)
        del self._rows[left:], self._spans[left:]
        return completions

    def _completion(self, row: int, stopped: bool) -> Completion:
        count = int(self._count[row])
        starts = self._spans[row]
        ends = [start for _, start in starts[1:]] + [count]
        spans = [Span(v, a, b) for (v, a), b in zip(starts, ends, strict=True) if b > a]
        return Completion(
            id=self._rows[row].id,
            ids=self._ids[row, :count].tolist(),
            logprobs=self._logprobs[row, :count].tolist(),
            finish_reason="stop" if stopped else "length",
            spans=spans,
        )

    def _move(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """Copy rows: a few at a time, so slices are faster than index tensors."""
        self._numbers[:, targets] = self._numbers[:, sources]
        for state in (self._temperature, self._top_p, self._ids, self._logprobs, self._noise):
            state[targets] = state[sources]
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            length = int(self._position[source])
            self._cache[:, :, target, :, :length] = self._cache[:, :, source, :, :length]
            self._rows[target] = self._rows[source]
            self._spans[target] = self._spans[source]

    # ------------------------------------------------------------------ entering the cache

    def _admit(self, number: int) -> None:
        """Start waiting requests in the rows behind those that run."""
        first = len(self._rows)
        requests = [self._waiting.popleft() for _ in range(number)]
        self._grow(requests)
        for row, request in enumerate(requests, start=first):
            params = request.params
            self._position[row] = len(request.ids) - 1
            self._token[row] = request.ids[-1]
            self._count[row] = 0
            self._budget[row] = params.max_tokens
            self._temperature[row] = params.temperature
            self._top_p[row] = params.top_p if params.temperature > 0 else 1.0
            self._stop_set[row] = self._stop_index(params.stop_ids)
            self._rows.append(request)
            self._spans.append([(self._version, 0)])
        last = first + number
        seeds = [request.params.seed & 0xFFFF_FFFF_FFFF_FFFF for request in requests]
        budget = int(self._budget[first:last].max())
        self._noise[first:last, :budget] = uniform(
            np.array(seeds, dtype=np.uint64)[:, None], np.arange(budget)[None]
        )
        self._plain = bool((self._temperature[:last] == 1).all())
        self._uncut = bool((self._top_p[:last] == 1).all())
        if self._tainted:
            self._cache[:, :, first:last] = 0
        self._fill(list(range(first, last)))

    def _rebuild(self) -> None:
        """Compute the cache of every running row again, under the weights of now."""
        self._fill(list(range(len(self._rows))))

    def _fill(self, rows: list[int]) -> None:
        """Compute what the cache must hold for `rows`; equal contents are computed once."""
        same: dict[tuple[int, ...], list[int]] = {}
        for row in rows:
            held = (*self._rows[row].ids, *self._ids[row, : self._count[row]].tolist())
            same.setdefault(held[: self._position[row]], []).append(row)
        same.pop((), None)
        contents = sorted(same, key=len)
        while contents:
            width = len(contents[-1])
            lot = contents[-max(1, FILL_TOKENS // width) :]
            del contents[-len(lot) :]
            self._fill_lot(lot, [same[content] for content in lot])

    def _fill_lot(self, contents: list[tuple[int, ...]], rows: list[list[int]]) -> None:
        width = max(map(len, contents))
        tokens = np.zeros((len(contents), width), dtype=np.int64)
        for line, content in zip(tokens, contents, strict=True):
            line[: len(content)] = content
        firsts = torch.tensor([same[0] for same in rows])
        self.decoder.fill(torch.from_numpy(tokens).to(self.decoder.device), self._cache, firsts)
        copies = [(same[0], row) for same in rows for row in same[1:]]
        if copies:
            source, target = (torch.tensor(side) for side in zip(*copies, strict=True))
            self._cache[:, :, target, :, :width] = self._cache[:, :, source, :, :width]

    def _stop_index(self, stop_ids: tuple[int, ...]) -> int:
        """Row of the stop table for this set of ids, added when it is new."""
        if stop_ids not in self._stop_sets:
            line = np.zeros((1, self.decoder.vocabulary), dtype=bool)
            line[0, list(stop_ids)] = True
            self._stop_sets[stop_ids] = len(self._stops)
            self._stops = np.concatenate([self._stops, line])
        return self._stop_sets[stop_ids]

    def _grow(self, requests: list[Request]) -> None:
        """Make room for these requests: more rows, or wider ones for the longest of them."""
        old, had = self._cache, self._cache.shape[2]
        needed = len(self._rows) + len(requests)
        rows = had if needed <= had else min(self.slots, max(needed, 2 * had))
        length = max(len(request.ids) + request.params.max_tokens for request in requests)
        width = max(old.shape[4], -(-length // WIDTH_STEP) * WIDTH_STEP)
        if (rows, width) == (had, old.shape[4]):
            return
        self._cache = self.decoder.new_cache(rows, width)
        self._cache[:, :, :had, :, : old.shape[4]] = old
        wider = ((0, 0), (0, width - self._ids.shape[1]))
        self._ids = np.pad(self._ids, wider)
        self._logprobs = np.pad(self._logprobs, wider)
        self._noise = np.pad(self._noise, wider)
