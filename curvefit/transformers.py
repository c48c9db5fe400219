"""A callback of transformers' and TRL's trainers: pass rate against GPU-hours, for ``fit-curve``.

::

    from curvefit.transformers import GpuHoursCallback

    trainer = GRPOTrainer(..., callbacks=[GpuHoursCallback("runs/my-run/log.jsonl")])
    trainer.train()                     # then: fit-curve runs/my-run/log.jsonl

The log has schema ``trainer-log/1``, as that of ``train-rl``. With ``eval_on_start=True`` in the
trainer's arguments its first evaluation is that of step 0, at 0 GPU-hours; the callback does not
evaluate by itself. Importing this module loads transformers, importing ``curvefit`` does not.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sized
from pathlib import Path
from typing import Any

from curvefit.errors import CurvefitWarning, InputError
from curvefit.logged_metrics import evaluated, pass_rate, signals, tokens
from curvefit.run_log import RunLog, plain

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as e:
    if e.name != "transformers":  # it is there, and something that it needs is not
        raise
    TrainerCallback = object

__all__ = ["GpuHoursCallback"]

PACKAGES = ("torch", "transformers", "accelerate", "trl", "peft", "vllm")
SILENCE_S = 60.0  # a kill loses at most so much device time, or one step if that takes longer


class GpuHoursCallback(TrainerCallback):  # type: ignore[misc]  # untyped here
    """Logs pass rate and training signals against the GPU-hours that they took.

    GPU-hours are devices held × wall time, from the first `on_train_begin` to `on_train_end`:
    idle time, generation, evaluations and checkpoints included, summed over all starts of a run.
    An evaluation states what had been spent when the weights that it evaluates were there, and as
    gpu_hours_after what its own time makes of it. Only the main process writes.

    Parameters
    ----------
    path : str or Path
        The log, e.g. ``runs/NAME/log.jsonl``; its folder is made.
    gpus : int, optional
        Devices of the trainer; the world size times the devices of a process when left out.
    generators : int, optional
        Further devices that generate, such as those of a vLLM server; none when left out.
    metric : str, optional
        Which metric of an evaluation is the pass rate, e.g. ``eval_rewards/correct/mean``. Found
        when left out: a metric called pass_rate, accuracy or the like, else the mean of the only
        reward function, else the reward.
    n_prompts, n_samples : int, optional
        Prompts of an evaluation, and completions for each. Found when left out: the size of the
        evaluation's data set, and TRL's ``num_generations_eval`` or ``num_generations``. Together
        they tell ``fit-curve`` how noisy an evaluation is.
    run : str, optional
        The run's name; that of the log's folder when left out.
    resume : bool
        Go on with an existing log even if training starts at step 0, as it does when a job was
        killed before its first checkpoint. A start from a checkpoint always goes on.
    spent : float, optional
        GPU-hours of earlier starts, for a run that has no log of them.
    clock : callable
        Seconds that only rise.

    Raises
    ------
    ImportError
        transformers is not installed.
    InputError
        When training begins: the log is another run's, or it cannot be written; TRL generates on
        a vLLM server and `generators` is not given. After an evaluation at step 0: no metric, or
        several, could be the pass rate. Later a run is not ended for that: a `CurvefitWarning`
        says it once, and the row holds all metrics.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        gpus: int | None = None,
        generators: int | None = None,
        metric: str | None = None,
        n_prompts: int | None = None,
        n_samples: int | None = None,
        run: str | None = None,
        resume: bool = False,
        spent: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if TrainerCallback is object:
            raise ImportError(
                'GpuHoursCallback needs transformers: pip install "transformers[torch]"'
            )
        self.gpus, self.generators, self.metric = gpus, generators, metric
        self.n_prompts, self.n_samples = n_prompts, n_samples
        self.run, self.resume, self.spent = run, resume, spent
        self._log = RunLog(path, clock)
        self._hours = 0.0  # when the weights of now were there
        self._baselines: list[dict[str, Any]] = []  # evaluations before training
        self._warned = self._ended = False

    # Events of the trainer

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **others: Any
    ) -> None:
        """Begin the log, or go on with it."""
        if not state.is_world_process_zero:
            return
        header = {
            "run": self.run or self._log.name,
            "config": plain(args.to_dict()),
            "model": {"path": plain(getattr(getattr(model, "config", None), "name_or_path", None))},
            "task": {"size": _size(others.get("train_dataloader"))},
            "gpus": self._held(args, model),
            "versions": _versions(),
            "seed": args.seed,
        }
        step = state.global_step
        self._hours = self._log.begin(header, step, resume=self.resume, spent=self.spent)
        for row in self._baselines if step == 0 else []:
            self._log.write("eval", **row)
        self._baselines, self._ended = [], False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note what the new weights cost; write it when nothing else was written for long."""
        if state.is_world_process_zero:
            self._hours = self._log.gpu_hours
            if self._log.silent_s > SILENCE_S:
                self._log.write("step", step=state.global_step)

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, float | None] | None = None,
        **others: Any,
    ) -> None:
        """Write an evaluation's metrics as ``eval``, those of training steps as ``step``."""
        if not (state.is_world_process_zero and logs):
            return
        prefix = evaluated(logs)
        if prefix is not None:
            self._write_evaluation(args, state, logs, prefix, others.get("eval_dataloader"))
        elif "loss" in logs and self._log.begun:
            counters = {"tokens": tokens(logs), "samples": _samples(args, state.global_step)}
            self._log.write("step", step=state.global_step, **counters, **signals(logs))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop the clock."""
        if state.is_world_process_zero:
            whole = state.global_step >= state.max_steps
            self._log.end(state.global_step, "done" if whole else "stopped")
            self._ended = True

    # What is in a row

    def _write_evaluation(
        self,
        args: Any,
        state: Any,
        metrics: Mapping[str, float | None],
        prefix: str,
        dataloader: Any,
    ) -> None:
        if self._ended and args.load_best_model_at_end:
            return  # these are no longer the last step's weights
        settings = args.to_dict()
        key = self._pass_rate_key(metrics, prefix, state.global_step)
        samples = settings.get("num_generations_eval") or settings.get("num_generations")
        row = {
            "step": state.global_step,
            "split": prefix.removeprefix("eval_"),
            "pass_rate": None if key is None else metrics[key],
            "metric": key,
            "n_prompts": self.n_prompts or _size(dataloader),
            "n_samples": self.n_samples or samples,
            "tokens": tokens(metrics),
            "samples": _samples(args, state.global_step),
            "gpu_hours": self._hours,
            "metrics": plain({k: v for k, v in metrics.items() if k != "epoch"}),
        }
        if self._log.begun:
            self._log.write("eval", **row, gpu_hours_after=self._log.gpu_hours)
        else:
            self._baselines.append(row)

    def _pass_rate_key(
        self, metrics: Mapping[str, float | None], prefix: str, step: int
    ) -> str | None:
        """Find the pass rate; only before the first step may its absence end the run."""
        try:
            return pass_rate(metrics, prefix, self.metric)
        except InputError as e:
            if step == 0:
                raise
            if not self._warned:
                warnings.warn(f"{self._log.path}: {e}", CurvefitWarning, stacklevel=2)
            self._warned = True
            return None

    def _held(self, args: Any, model: Any) -> dict[str, Any]:
        """Return the devices held: the trainer's, those that generate beside it, and their kind."""
        settings = args.to_dict()
        served = settings.get("use_vllm") and settings["vllm_mode"] == "server"
        if served and self.generators is None:
            raise InputError(
                "a vLLM server generates (vllm_mode = server): say how many devices it holds, "
                "GpuHoursCallback(..., generators=N), or 0 if gpus counts them"
            )
        train = self.gpus or _devices(args, model)
        return {"train": train, "generate": self.generators or 0, "kind": _kind(args)}


def _devices(args: Any, model: Any) -> int:
    """World size × devices of a process: DataParallel's, or those that hold parts of the model."""
    spread = {p.device for p in model.parameters() if p.device.type not in ("cpu", "meta")}
    return int(args.world_size) * max(1, args.n_gpu, len(spread))


def _kind(args: Any) -> str:
    if args.device.type != "cuda":
        return str(args.device.type)
    import torch

    return str(torch.cuda.get_device_name(args.device))


def _samples(args: Any, step: int) -> int | None:
    """Completions drawn for so many steps, where the arguments say how many a step has."""
    settings = args.to_dict()
    if settings.get("num_generations") is None:
        return None
    batch = settings["per_device_train_batch_size"] * settings["gradient_accumulation_steps"]
    return step * int(batch * args.world_size) // int(settings.get("num_iterations") or 1)


def _size(dataloader: Any) -> int | None:
    """Items of a loader's data set; None where it has no length."""
    data = getattr(dataloader, "dataset", None)
    return len(data) if isinstance(data, Sized) else None


def _versions() -> dict[str, str]:
    found = {name: sys.modules[name].__version__ for name in PACKAGES if name in sys.modules}
    return {"python": sys.version.split()[0], **found}
