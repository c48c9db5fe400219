r"""Mathematics with answers of the user's: a JSONL or parquet file, checked by math-verify.

    [task]
    name = "math"
    args = {path = "polaris.jsonl"}

A completion's final answer is what stands in its last ``<answer>`` or ``\boxed{}`` behind the
thinking. math-verify's own timeouts work by signals, which are lost outside a main thread and then
make everything wrong; they are switched off, and the verifier's process is killed instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainer.tasks.base import Item, Split, final_answer
from trainer.tasks.records import field_of, splits

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
        _ = self._rows

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
        return splits("math", self.path, self.held_out, self._row)

    def _row(self, record: dict[str, Any], where: str) -> tuple[str, str]:
        question = field_of(record, self.question, QUESTIONS, where)
        answer = field_of(record, self.answer, ANSWERS, where)
        return str(question).strip(), str(answer).strip()
