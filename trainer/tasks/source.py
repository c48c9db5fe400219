"""From a task's text to the token ids of a prompt, once; ids in, ids out from there on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.errors import TaskError
from trainer.tasks.base import spread
from trainer.tasks.mixture import parts_of
from trainer.types import Prompt

if TYPE_CHECKING:
    from trainer.tasks.base import Split, Task

__all__ = ["PromptSource", "encode_prompt", "stop_ids"]

SPOT_CHECKS = 256  # items of a generated task whose length is looked at before training


class PromptSource:
    """A task's prompts as token ids.

    Parameters
    ----------
    task : Task
    tokenizer : transformers tokenizer
    max_prompt : int
        Longest prompt in tokens.
    """

    def __init__(self, task: Task, tokenizer: Any, max_prompt: int) -> None:
        self.task, self.tokenizer, self.max_prompt = task, tokenizer, max_prompt

    @property
    def size(self) -> int:
        """Number of training prompts."""
        return self.task.size("train")

    def train(self, index: int) -> Prompt:
        """The training prompt at `index`."""
        return self._prompt(self.task, "train", index)

    def held_out(self, number: int) -> list[Prompt]:
        """The first `number` held-out prompts: no question of theirs is ever trained on.

        Raises
        ------
        TaskError
            There are not so many, or a task of a mixture has none among them.
        """
        there = self.task.size("held-out")
        if number > there:
            raise TaskError(
                f"{number} held-out prompts asked for, task {self.task.name} has {there}; "
                "lower eval.prompts"
            )
        prompts = [self._prompt(self.task, "held-out", index) for index in range(number)]
        shown = {prompt.label for prompt in prompts}
        missing = [label for label in parts_of(self.task) if label and label not in shown]
        if missing:
            raise TaskError(
                f"the first {number} held-out prompts of task {self.task.name} hold none of "
                f"{', '.join(missing)}; raise eval.prompts"
            )
        return prompts

    def check(self) -> None:
        """Encode prompts before training: all of a listed task, a spread of a generated one."""
        for part in parts_of(self.task).values():
            size = part.size("train")
            for index in range(size) if part.listed else spread(size, SPOT_CHECKS):
                self._prompt(part, "train", index)

    def _prompt(self, task: Task, split: Split, index: int) -> Prompt:
        item = task.item(split, index)
        ids = encode_prompt(self.tokenizer, item.text)
        if len(ids) > self.max_prompt:
            raise TaskError(
                f"{split} prompt {index} of task {task.name} has {len(ids)} tokens, more than "
                f"the budget of {self.max_prompt}; raise sample.prompt_tokens or shorten it"
            )
        return Prompt(item.id, ids, item.question, item.answer, index, item.label)


def encode_prompt(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Token ids of a question: the chat template once where there is one, special tokens once.

    Raises
    ------
    TaskError
        When two BOS tokens result, the tokenizer ends the prompt with EOS, or characters of the
        prompt are not in its vocabulary.
    """
    if tokenizer.chat_template:
        chat = [{"role": "user", "content": text}]
        text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    else:
        ids = tokenizer(text)["input_ids"]
        if ids and ids[-1] == tokenizer.eos_token_id:
            raise TaskError("the tokenizer ends prompts with EOS; switch its add_eos_token off")
    check_prompt_ids(ids, tokenizer.bos_token_id)
    blanks = {tokenizer.unk_token_id, tokenizer.pad_token_id}
    blanks -= {None, tokenizer.eos_token_id, tokenizer.bos_token_id}
    if blanks & set(ids):
        raise TaskError(f"the tokenizer cannot write {text[:60]!r}; this task needs another model")
    return tuple(ids)


def check_prompt_ids(ids: list[int], bos: int | None) -> None:
    """Refuse an empty prompt and a doubled BOS (template and tokenizer each adding one)."""
    if not ids:
        raise TaskError("a prompt has no tokens")
    if bos is not None and list(ids[:2]) == [bos, bos]:
        raise TaskError("a prompt starts with two BOS tokens; template and tokenizer both add one")


def stop_ids(tokenizer: Any, directory: str | Path) -> tuple[int, ...]:
    """Every id that ends a completion: of the tokenizer, the model and its generation settings."""
    found: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        path = Path(directory) / name
        ids = json.loads(path.read_text()).get("eos_token_id") if path.is_file() else None
        found.update([ids] if isinstance(ids, int) else ids or [])
    if tokenizer.eos_token_id is not None:
        found.add(tokenizer.eos_token_id)
    if not found:
        raise TaskError(f"{directory}: no EOS token in tokenizer or config; completions never end")
    return tuple(sorted(found))
