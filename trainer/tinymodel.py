"""The tiny model: 0.1 million parameters that can add, badly enough to be worth training.

``train-rl tiny-model DIR`` writes an ordinary local model directory (config.json, safetensors,
tokenizer), loaded from there through transformers like any downloaded model. Two supervised phases
on questions of the training split only:

1. clean demonstrations until the model writes them without error;
2. demonstrations in which each written sum is wrong with the probability that brings the pass rate
   from where it then is down to `pass_rate` (`trainer.tasks.chain.step_error`), until sampled
   completions pass at about that rate.

So the skill is there and the habit is bad: reinforcement learning climbs from 0.2 towards 1 within
some dozen steps. The weights start at a standard deviation of 0.06; with the usual 0.02 the
first phase takes five times as long. A copy is kept in the cache directory under the hash of its
settings and is made again when its weights do not match their checksum.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from trainer.engine.base import Request, SamplingParams, derive_seed, generate
from trainer.engine.decoder import Decoder
from trainer.engine.local import LocalEngine
from trainer.errors import TaskError, TrainerError
from trainer.tasks.chain import Chain, step_error
from trainer.tasks.registry import make_task

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TinySettings", "cache_root", "make_tiny_model"]

VOCABULARY = (
    *("<pad>", "<bos>", "<eos>", "<think>", "</think>", "<time>"),
    *"0123456789+=,",
)
PAD, BOS, EOS = 0, 1, 2
RECIPE = 2  # goes up when the making of the model changes, so that old copies are not taken


@dataclass(frozen=True)
class TinySettings:
    """What a tiny model is made of; equal settings give equal weights on equal machines.

    Parameters
    ----------
    kind : {"llama", "qwen3"}
    hidden, layers : int
        Width, a multiple of 32 (one head per 32), and depth.
    task : str
        A task whose class is `Chain`.
    options : dict
        Of the task.
    pass_rate : float
        Where reinforcement learning is to start.
    clean : float or None
        Share of demonstrations that phase 1 must reproduce without error before phase 2. None:
        0.97 for chains of one length, 0.3 for several, which the tiny model never masters.
    seed : int
    """

    kind: str = "llama"
    hidden: int = 64
    layers: int = 2
    task: str = "chain"
    options: dict[str, Any] = field(default_factory=dict)
    pass_rate: float = 0.2
    clean: float | None = None
    seed: int = 0

    batch: int = 64
    lr: float = 3e-3
    deviation: float = 0.06
    max_steps: int = 1000
    check_every: int = 25

    def __post_init__(self) -> None:
        """Refuse sizes that no attention kernel takes."""
        if self.kind not in ("llama", "qwen3"):
            raise TrainerError(f"tiny model of kind {self.kind!r}; choose llama or qwen3")
        if self.hidden % 32 or self.hidden < 32 or self.layers < 1:
            raise TrainerError(
                f"tiny model with hidden {self.hidden}, layers {self.layers}: hidden must be a "
                "multiple of 32 (heads have size 32), layers at least 1"
            )


def make_tiny_model(
    directory: str | Path | None = None, settings: TinySettings | None = None
) -> Path:
    """Return the directory of the tiny model, made now or taken from the cache.

    Parameters
    ----------
    directory : path or None
        Where to put a copy; the cache's own when None.
    settings : TinySettings or None

    Raises
    ------
    TrainerError
        When `directory` holds something else, or the supervised phases miss their marks.
    """
    settings = settings or TinySettings()
    cached = cache_root() / f"tiny-{_key(settings)}"
    with _locked(cached):  # of two runs that start together one makes it and one waits
        if not _intact(cached):
            _replace(cached, lambda path: _write(path, settings))
    if directory is None:
        return cached
    directory = Path(directory)
    if directory.exists() and any(directory.iterdir()) and not (directory / "tiny.json").is_file():
        raise TrainerError(f"{directory} is not empty and holds no tiny model; name another")
    _replace(directory, lambda path: shutil.copytree(cached, path, dirs_exist_ok=True))
    return directory


def cache_root() -> Path:
    """Where tiny models are kept: $XDG_CACHE_HOME or ~/.cache, below it rl-curvefit."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rl-curvefit"


def _key(settings: TinySettings) -> str:
    content = json.dumps([RECIPE, torch.__version__, dataclasses.asdict(settings)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _checksum(directory: Path) -> str:
    return hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()


def _intact(directory: Path) -> bool:
    """Whether a copy is complete: its checksum is written last."""
    note = directory / "tiny.json"
    if not note.is_file() or not (directory / "model.safetensors").is_file():
        return False
    return bool(json.loads(note.read_text())["sha256"] == _checksum(directory))


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.parent.mkdir(parents=True, exist_ok=True)
    with open(directory.with_name(f".{directory.name}.lock"), "w") as file:
        with suppress(OSError):  # a file system without locks: both make it
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _replace(directory: Path, write: Any) -> None:
    """Write a directory beside its place and rename it, so that no half of one is ever seen."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=directory.name, dir=directory.parent))
    try:
        write(fresh)
        fresh.chmod(0o755)
        shutil.rmtree(directory, ignore_errors=True)
        fresh.rename(directory)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write(directory: Path, settings: TinySettings) -> None:
    from transformers.utils import logging

    model, measured = _train(settings)
    logging.disable_progress_bar()  # it would count to one
    model.save_pretrained(directory)
    logging.enable_progress_bar()
    _tokenizer().save_pretrained(directory)
    note = {"settings": dataclasses.asdict(settings), **measured, "sha256": _checksum(directory)}
    (directory / "tiny.json").write_text(json.dumps(note, indent=1) + "\n")


def _tokenizer() -> Any:
    """One token a character or tag; BOS in front, nothing behind."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids = {token: i for i, token in enumerate(VOCABULARY)}
    core = Tokenizer(models.WordLevel(ids, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"</?\w+>|."), "isolated")
    core.decoder = decoders.Fuse()
    core.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", BOS)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        clean_up_tokenization_spaces=False,
    )


def new_model(settings: TinySettings) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    heads = settings.hidden // 32
    config = AutoConfig.for_model(
        settings.kind,
        vocab_size=len(VOCABULARY),
        hidden_size=settings.hidden,
        intermediate_size=3 * settings.hidden,
        num_hidden_layers=settings.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=32,
        tie_word_embeddings=True,
        max_position_embeddings=256,
        initializer_range=settings.deviation,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


# ---------------------------------------------------------------------- the supervised phases


def _train(settings: TinySettings) -> tuple[Any, dict[str, Any]]:
    """Both phases; returns the model and what was measured on the way."""
    task = make_task(settings.task, settings.options)
    if not isinstance(task, Chain):
        raise TaskError(
            f"no tiny model for task {settings.task}: only chain and mixed have demonstrations to "
            "make one from; set model.path to a model directory, or model.tiny.task to one of them"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = new_model(settings)
    student = _Student(model, task, settings)
    mark = settings.clean or (0.97 if task.min_terms == task.max_terms else 0.3)
    clean = student.learn(0.0, lambda accuracy: accuracy >= mark)
    low, high = 0.85 * settings.pass_rate, 1.15 * settings.pass_rate
    sums = (task.min_terms + task.max_terms) // 2 - 1
    above = max(settings.pass_rate, student.pass_rate("train")) - 0.1  # 0.1 is blind guessing
    error = step_error(0.1 + 0.9 * (settings.pass_rate - 0.1) / above, sums)
    noisy = student.learn(error, lambda _: low <= student.pass_rate("train") <= high)
    return model, {
        "steps": [clean, noisy],
        "parameters": sum(p.numel() for p in model.parameters()),
        "held_out_pass_rate": student.pass_rate("held-out"),
    }


class _Student:
    """A model, its optimiser and the stream of demonstrations."""

    def __init__(self, model: Any, task: Chain, settings: TinySettings) -> None:
        self.model, self.task, self.settings = model, task, settings
        self.rng = np.random.default_rng(settings.seed)
        self.ids = {token: i for i, token in enumerate(VOCABULARY)}
        self.pattern = _tokenizer().backend_tokenizer.pre_tokenizer
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=settings.lr, betas=(0.9, 0.95), weight_decay=0.0
        )

    def learn(self, error: float, done: Any) -> int:
        """Steps on demonstrations with this error until `done(accuracy)`; returns their number."""
        settings, right = self.settings, 0.0
        for step in range(1, settings.max_steps + 1):
            for group in self.optimizer.param_groups:
                group["lr"] = settings.lr * min(1.0, step / 20)
            right += self._step(error) / settings.check_every
            if step % settings.check_every == 0:
                if sys.stderr.isatty():
                    print(f"\rtiny model: step {step}, {right:.0%} right ", end="", file=sys.stderr)
                if done(right):
                    return step
                right = 0.0
        raise TrainerError(
            f"the tiny model missed its mark in {settings.max_steps} supervised steps "
            f"(error {error:.2f}); try another seed or more layers"
        )

    def _step(self, error: float) -> float:
        """One optimiser step; returns the share of demonstrations reproduced without error."""
        tokens, targets = self._demonstrations(error)
        logits = self.model(tokens).logits
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        right = (logits.argmax(-1) == targets) | (targets < 0)
        return float(right.all(dim=1).float().mean())

    def _demonstrations(self, error: float) -> tuple[Tensor, Tensor]:
        """A batch of training questions with worked answers: inputs and targets [batch, L]."""
        indices = self.rng.integers(0, self.task.size("train"), self.settings.batch)
        rows = []
        for index in indices:
            item = self.task.item("train", int(index))
            prompt = self._encode(item.text)
            answer = self._encode(self.task.demonstration(item, self.rng, error))
            rows.append(([BOS, *prompt], [*answer, EOS]))
        width = max(len(prompt) + len(answer) for prompt, answer in rows)
        tokens = torch.full((len(rows), width), PAD)
        targets = torch.full((len(rows), width), -100)
        for i, (prompt, answer) in enumerate(rows):
            end = len(prompt) + len(answer)
            tokens[i, :end] = torch.tensor(prompt + answer)
            targets[i, len(prompt) - 1 : end - 1] = torch.tensor(answer)
        return tokens[:, :-1], targets[:, :-1]

    def _encode(self, text: str) -> list[int]:
        return [self.ids[piece] for piece, _ in self.pattern.pre_tokenize_str(text)]

    def pass_rate(self, split: Any, number: int = 256, samples: int = 4) -> float:
        """Share of sampled completions that pass, on spread-out items of a split."""
        size = self.task.size(split)
        items = [self.task.item(split, i * size // number) for i in range(number)] * samples
        engine = LocalEngine(Decoder(self.model.config, self.model.state_dict()))
        requests = [
            Request(
                i,
                (BOS, *self._encode(item.text)),
                SamplingParams(2 * len(item.text), 1.0, (EOS,), derive_seed(self.settings.seed, i)),
            )
            for i, item in enumerate(items)
        ]
        passed = 0.0
        for item, done in zip(items, generate(engine, requests), strict=True):
            text = "".join(VOCABULARY[i] for i in done.ids if i != EOS)
            passed += self.task.score(text, item.question, item.answer)
        return passed / len(items)
