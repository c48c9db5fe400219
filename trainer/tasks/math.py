r"""Mathematics with answers of the user's: a JSONL or parquet file, checked by math-verify.

    [task]
    name = "math"
    args = {path = "polaris.jsonl"}

A completion's final answer is what stands in its last ``<answer>`` or ``\boxed{}`` behind the
thinking. math-verify's own timeouts work by signals, which are lost outside a main thread and then
make everything wrong; they are switched off, and the verifier's process is killed instead.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.errors import TaskError
from trainer.tasks.base import Item, Split, final_answer, split_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Math"]

QUESTIONS = ("question", "problem", "prompt")
ANSWERS = ("answer", "solution", "ground_truth")
LONGEST = 1000  # characters of an answer; a list of candidates is no answer


@dataclass(frozen=True)
class Math:
    """Questions and answers from a file.

    Parameters
    ----------
    path : str
        JSONL (one object a line) or parquet.
    held_out : str
        A second file for evaluation; when empty, a tenth of the questions is held out by the hash
        of their text. A question in both files is left out of training.
    question, answer : str
        Names of the two fields; found among known names when empty.
    instruction : str
        Appended to every question.
    """

    path: str = ""
    held_out: str = ""
    question: str = ""
    answer: str = ""
    instruction: str = r"Reason step by step, and put the final answer within \boxed{}."
    seed: int = 0
    name: str = "math"
    listed = True

    def __post_init__(self) -> None:
        """Read the files: a missing answer is refused here, before anything else is loaded."""
        if not self.path:
            raise TaskError("math: no file; set task.args.path to a JSONL or parquet file")
        for split in ("train", "held-out"):
            if not self._rows[split]:
                raise TaskError(f"math: {self.path} leaves no {split} questions; give more of them")

    def size(self, split: Split) -> int:
        """Questions of a split."""
        return len(self._rows[split])

    def item(self, split: Split, index: int) -> Item:
        """The question at `index`, in the order of the file."""
        question, answer = self._rows[split][index]
        text = f"{question}\n\n{self.instruction}"
        return Item(f"{split}:{index}", text, question, answer)

    def score(self, text: str, question: Any, answer: Any) -> float:
        """1 when math-verify finds the final answer equal to the file's.

        Raises
        ------
        ValueError
            When the file's own answer cannot be read: that is an error, not a wrong completion.
        """
        from math_verify import parse, verify

        given = final_answer(text)
        if not given or len(given) > LONGEST:
            return 0.0
        gold = parse(f"\\boxed{{{answer}}}", parsing_timeout=None)
        if not gold:
            raise ValueError(f"the answer {answer!r} of the file cannot be read")
        parsed = parse(f"\\boxed{{{given}}}", parsing_timeout=None)
        return float(verify(gold, parsed, timeout_seconds=None, raise_on_error=True))

    def gold(self, item: Item) -> str:
        """The file's answer in a box."""
        return f"\\boxed{{{item.answer}}}"

    @cached_property
    def _rows(self) -> dict[str, list[tuple[str, str]]]:
        """Questions and answers by split."""
        rows = list(self._read(Path(self.path)))
        if not self.held_out:
            splits: dict[str, list[tuple[str, str]]] = {"train": [], "held-out": []}
            for row in rows:
                splits[split_of(row[0])].append(row)
            return splits
        held = list(self._read(Path(self.held_out)))
        known = {question for question, _ in held}
        return {"train": [row for row in rows if row[0] not in known], "held-out": held}

    def _read(self, path: Path) -> Iterator[tuple[str, str]]:
        if not path.is_file():
            raise TaskError(f"math: no file {path}")
        records = _parquet(path) if path.suffix == ".parquet" else _jsonl(path)
        for where, record in records:
            question = self._field(record, self.question, QUESTIONS, where)
            answer = self._field(record, self.answer, ANSWERS, where)
            yield question, answer

    def _field(self, record: dict[str, Any], name: str, names: tuple[str, ...], where: str) -> str:
        found = [name] if name else [known for known in names if known in record]
        value = record.get(found[0]) if found else None
        if value is None or not str(value).strip():
            raise TaskError(f"{where}: no {name or names[0]}; every line needs one")
        return str(value).strip()


def _jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{path}, line {number}"
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as e:
                raise TaskError(f"{where}: not JSON ({e.msg}); one object a line") from e
            if not isinstance(record, dict):
                raise TaskError(f"{where}: a {type(record).__name__}, not an object")
            yield where, record


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        import pyarrow.parquet
    except ImportError as e:
        raise TaskError(f"{path}: reading parquet needs pyarrow: pip install pyarrow") from e
    for number, record in enumerate(pyarrow.parquet.read_table(path).to_pylist(), start=1):
        yield f"{path}, row {number}", record
