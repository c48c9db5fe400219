"""The vLLM engine in the learner's process: paging, prefix cache, CUDA graphs; one GPU or a CPU.

The loop steps vLLM itself, so a pause is not stepping: nothing is in flight while weights change.
Weights are handed over by reference and reloaded in place (``reload_weights``): sender and receiver
share a process and a device, so a transfer over NCCL or CUDA IPC would only add copies.

What keeps a swap in flight exact:

* a request that has not drawn a token yet starts again under the new weights, also when part of its
  prompt is in the cache: what its span says is then true of its keys and values too;
* prefixes are shared between requests of one version only (``cache_salt``);
* without ``keep_cache`` running requests are preempted and their cache is computed again.

On a GPU the engine can sleep while the learner works: level 2, which drops weights and cache, for
the next weights are on their way. It wakes by itself: for weights in `update`, whole in `submit`.

Leaves out deadlines inside a phase: a call into vLLM cannot be interrupted from its own process. A
run that must survive a GPU that hangs uses servers (``engine.kind = served``).
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import torch

from trainer.engine.base import Completion, Request, Span, check_requests
from trainer.engine.decoder import load_config
from trainer.engine.vllm_options import check_installed, check_model, engine_arguments, installed
from trainer.engine.vllm_start import one_line, start
from trainer.engine.weights import check_weights, stored_shapes
from trainer.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from trainer.engine.base import FinishReason, SamplingParams, Score

__all__ = ["VllmEngine"]

COLDEST, HOTTEST = 0.01, 2.0  # vLLM raises lower temperatures to the one and refuses the other
DISCARD = 2  # level of sleep that keeps neither weights nor cache


class VllmEngine:
    """An `Engine` (see `trainer.engine.base`) around vLLM in this process.

    Parameters
    ----------
    directory : path
        Model directory to start from.
    device : {"cpu", "cuda"}
    dtype : str
        Of the weights and of the cache; the head is float32.
    version : int
        Version of the directory's weights.
    slots, max_length, memory, eager, sleep
        See `trainer.engine.vllm_options.engine_arguments`; `max_length` None: the model's limit.

    Raises
    ------
    ConfigError
        vLLM is missing, too old or for other hardware, or the model cannot be used with it.
    EngineError
        vLLM would not start.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        version: int = 0,
        slots: int = 512,
        max_length: int | None = None,
        memory: float = 0.0,
        eager: bool = False,
        sleep: bool = False,
    ) -> None:
        if slots < 1:
            raise EngineError(f"engine slots is {slots}; give at least 1")
        check_installed(installed(), device)
        config = load_config(directory)
        check_model(config, directory)
        text = config.get_text_config()
        self._tied = bool(config.tie_word_embeddings)
        self._shapes = stored_shapes(directory, tied=self._tied)
        self._vocabulary = text.vocab_size
        self.max_length = max_length or text.max_position_embeddings
        self._version = version
        self._paused = False
        self._stale = False  # the cache is to be rebuilt before the next token
        self._tainted = False  # the cache may hold numbers that are not finite
        self._sleeps = sleep
        self._awake = True
        self._hollow = False  # sleep has dropped the weights
        self._running: dict[int, tuple[Request, str]] = {}  # by id, and vLLM's name for it
        arguments = engine_arguments(
            directory,
            config,
            device=device,
            dtype=dtype,
            slots=slots,
            max_length=self.max_length,
            memory=memory,
            eager=eager,
            sleep=sleep,
        )
        self._llm = start(arguments, device)
        self._llm.set_weight_version(str(version))

    # ------------------------------------------------------------------ the protocol

    @property
    def version(self) -> int:
        """Version of the weights that draw the next token."""
        return self._version

    @property
    def running(self) -> int:
        """Requests submitted and not yet returned."""
        return len(self._running)

    def submit(self, requests: Sequence[Request]) -> None:
        """Hand requests to vLLM's scheduler, refusing those that it could never serve."""
        check_requests(
            requests,
            vocabulary=self._vocabulary,
            max_length=self.max_length,
            taken=set(self._running),
        )
        for request in requests:
            _check_temperature(request)
        self.wake()
        if self._tainted and not self._running:
            self._clear_cache()
        for request in requests:
            self._add(request)

    def collect(self, timeout: float = 0.0) -> list[Completion]:
        """Step until a request finishes, `timeout` seconds have passed or nothing runs."""
        until = time.monotonic() + timeout
        if self._paused:
            time.sleep(timeout)
            return []
        while self._running:
            finished = [self._completion(output) for output in self._step()]
            if finished or time.monotonic() >= until:
                return finished
        return []

    def pause(self, *, keep_cache: bool = True) -> None:
        """Do not step; without `keep_cache` the cache is rebuilt when resumed."""
        self._paused = True
        self._stale = self._stale or not keep_cache

    def update(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Reload all weights in place. They are checked first: a refused update changes nothing."""
        if not self._paused:
            raise EngineError("update of a running engine; call pause() first")
        check_weights(weights, self._shapes, tied=self._tied, exact=True)
        if self._hollow:
            self._llm.wake_up(["weights"])
        try:
            pairs = [(name, weight.detach()) for name, weight in weights.items()]
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": pairs})
        except Exception as e:
            raise EngineError(
                f"update: vLLM took only part of the weights of version {version}: {one_line(e)}"
            ) from e
        self._hollow = False
        self._version = version
        self._llm.set_weight_version(str(version))
        self._start_again()
        if self._tainted and self._awake:
            self._clear_cache()

    def resume(self) -> None:
        """Go on; with a stale cache, running requests are preempted and computed again."""
        self._paused = False
        if self._stale:
            self._llm.reset_prefix_cache(reset_running_requests=True)
        self._stale = False

    def verify(self, score: Callable[[], Score]) -> None:
        """Nothing: it is handed the learner's own tensors, and every evaluation compares."""

    def notices(self) -> list[str]:
        """Nothing: what goes wrong here ends the run."""
        return []

    def sleep(self) -> None:
        """Give the GPU's memory to the learner; the next update brings new weights."""
        if not self._sleeps or not self._awake:
            return
        if self._running:
            raise EngineError(f"sleep with {self.running} requests running; collect them first")
        self._llm.sleep(level=DISCARD)
        self._awake, self._hollow = False, True
        self._tainted = True  # the memory that comes back for the cache holds anything

    def wake(self) -> None:
        """Take the GPU's memory back; an engine that is awake stays as it is."""
        if self._awake:
            return
        if self._hollow:
            raise EngineError("the engine's weights were dropped when it went to sleep: update it")
        self._llm.wake_up(["kv_cache"])
        self._awake = True

    def close(self) -> None:
        """End vLLM and its process group; running requests are lost. Calling it twice is fine."""
        self._running.clear()
        if self._llm is not None:
            self._llm.engine_core.shutdown()
            self._llm = None

    # ------------------------------------------------------------------ vLLM's side of a request

    def _add(self, request: Request) -> None:
        """Start a request under the weights of now, sharing prefixes with its like."""
        prompt = {
            "type": "token",
            "prompt_token_ids": list(request.ids),
            "cache_salt": str(self._version),
        }
        name = self._llm.add_request(str(request.id), prompt, _sampling(request.params))
        self._running[request.id] = request, name

    def _start_again(self) -> None:
        """Take back every request without a token yet and start it under the weights of now."""
        states = self._llm.output_processor.request_states
        fresh = [
            (request, name)
            for request, name in self._running.values()
            if states[name].detokenizer.num_output_tokens() == 0
        ]
        self._llm.abort_request([name for _, name in fresh], internal=True)
        for request, _ in fresh:
            self._add(request)

    def _clear_cache(self) -> None:
        """Zero the cache; attention multiplies what lies behind a row's end by 0, and NaN stays."""
        self._llm.reset_prefix_cache(reset_running_requests=True)
        self._llm.collective_rpc(_zero_cache)
        self._tainted = False

    def _step(self) -> list[Any]:
        """One token for each running request; returns those that have finished."""
        try:
            with torch.random.fork_rng(devices=[]):  # its sampler draws from the learner's too
                return [output for output in self._llm.step() if output.finished]
        except Exception as e:
            raise EngineError(f"generation: vLLM failed: {one_line(e)}") from e

    def _completion(self, output: Any) -> Completion:
        number = int(output.request_id)
        del self._running[number]
        [drawn] = output.outputs
        logprobs = list(drawn.logprobs.logprobs)
        self._tainted = self._tainted or not math.isfinite(sum(logprobs))
        reasons: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
        reason = reasons.get(drawn.finish_reason, "error")
        return Completion(
            id=number,
            ids=list(drawn.token_ids),
            logprobs=logprobs,
            finish_reason=reason,
            spans=[Span(int(s.version), s.start, s.end) for s in drawn.weight_versions],
            error=f"vLLM: {drawn.finish_reason}" if reason == "error" else None,
        )


@torch.inference_mode()
def _zero_cache(worker: Any) -> None:
    for cache in worker.model_runner.kv_caches:
        cache.zero_()


def _check_temperature(request: Request) -> None:
    temperature = request.params.temperature
    if temperature != 0 and not COLDEST <= temperature <= HOTTEST:
        raise EngineError(
            f"request {request.id}: vLLM draws at temperatures from {COLDEST:g} to {HOTTEST:g}, "
            f"not {temperature:g}"
        )


def _sampling(params: SamplingParams) -> Any:
    """The same in vLLM's words; the stop ids are ours alone, not the model's end of text."""
    from vllm.sampling_params import RequestOutputKind
    from vllm.sampling_params import SamplingParams as VllmSamplingParams

    return VllmSamplingParams(
        max_tokens=params.max_tokens,
        temperature=params.temperature,
        top_p=params.top_p,
        stop_token_ids=list(params.stop_ids),
        ignore_eos=True,
        seed=params.seed,
        logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
