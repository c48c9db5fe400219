"""Programs for problems of the user's: a JSONL or parquet file, run against tests in a sandbox.

    [task]
    name = "code"
    args = {path = "problems.jsonl"}

The reward is the share of tests passed (ProRL, arXiv:2505.24864); a program that does not compile
passes none, and a test of more than 5 seconds has failed. The program is the last fenced code block
behind the thinking. Nothing of it runs outside `trainer.sandbox`; without one the task refuses.

What keeps a program from paying itself: it never sees what is expected. Standard output and results
of calls are compared outside of the sandbox, as data. Scripts of asserts run in a process of their
own and reach the program by calls that carry plain data (`trainer.inside.remote`); their verdict is
that process's exit. So leaving early (``sys.exit(0)``, ``os._exit(0)``), patched builtins, objects
that equal everything, reading frames, files or descriptors, and killing what watches earn nothing.

What it does not prevent: a program that recognises the inputs of tests and answers by heart; a
script so weak that a wrong program passes (``assert f(3)``); a script that itself hands what it
expects to a function of the program's. Scripts compare plain values and use the program's objects
through calls, attributes, items and iteration; they cannot give it functions of theirs, or see it
change a list of theirs in place.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from trainer.errors import TaskError
from trainer.sandbox import Limits, Sandbox, open_sandbox
from trainer.tasks.base import Item, Split
from trainer.tasks.code_tests import TESTS, Tests, passed, read_tests
from trainer.tasks.records import field_of, splits

__all__ = ["Code", "code_of"]

QUESTIONS = ("question", "prompt", "problem", "text", "description")
SOLUTIONS = ("solution", "canonical_solution", "reference_solution", "code", "solutions")
LONGEST = 1 << 16  # characters of a program
FENCE = re.compile(r"\s*(`{3,})([^`]*)$")


class Problem(NamedTuple):
    """A row; what the model is asked comes first."""

    question: str
    tests: Tests
    solution: str


@dataclass(frozen=True)
class Code:
    """Problems and tests from a file.

    Parameters
    ----------
    path : str
        JSONL (one object a line) or parquet.
    held_out : str
        A second file for evaluation; when empty, a tenth of the questions is held out by the hash
        of their text. A question in both files is left out of training.
    question, tests, solution : str
        Names of the fields; found among known names when empty.
    unchecked : bool
        Accept problems without a solution to check tests and verifier with.
    instruction : str
        Appended to every question.
    test_s, total_s : float
        Seconds for a test, and for all tests of a program; tests not run by then have failed.
    memory_mb, output_mb, files_mb, threads : int
        Limits of a program, as in `trainer.sandbox.Limits`.
    """

    path: str = ""
    held_out: str = ""
    question: str = ""
    tests: str = ""
    solution: str = ""
    unchecked: bool = False
    instruction: str = "Give the whole Python program in one fenced code block at the end."
    test_s: float = Limits.test_s
    total_s: float = Limits.total_s
    memory_mb: int = Limits.memory_mb
    output_mb: int = Limits.output_mb
    files_mb: int = Limits.files_mb
    threads: int = Limits.threads
    seed: int = 0
    name: str = "code"
    listed = True

    def __post_init__(self) -> None:
        """Refuse a machine without a sandbox, limits of nothing, and rows that cannot be used."""
        for name in ("test_s", "total_s", "memory_mb", "output_mb", "files_mb", "threads"):
            if not getattr(self, name) > 0:
                raise TaskError(f"code: {name} = {getattr(self, name)} must be above 0")
        _ = self._sandbox
        _ = self._rows

    def size(self, split: Split) -> int:
        """Problems of a split."""
        return len(self._rows[split])

    def item(self, split: Split, index: int) -> Item:
        """The problem at `index`, in the order of the file; its tests stay with the task."""
        question, tests, _ = self._rows[split][index]
        text = "\n\n".join(filter(None, [question, _form(tests), self.instruction]))
        return Item(f"{split}:{index}", text, [split, index], f"{len(tests.given)} tests")

    def score(self, text: str, question: Any, answer: Any) -> float:
        """Share of the tests that the program passes.

        Raises
        ------
        SandboxError
            When the sandbox itself failed: that is an error, not a wrong program.
        """
        program = code_of(text)
        if not program or len(program) > LONGEST:
            return 0.0
        split, index = question
        tests = self._rows[split][index].tests
        results = self._sandbox.run(program, tests.mode, tests.given, name=tests.name)
        right = sum(passed(tests, number, result) for number, result in enumerate(results))
        return right / len(tests.given)

    def gold(self, item: Item) -> str:
        """The file's solution as a code block; empty when it has none and that was accepted."""
        split, index = item.question
        solution = self._rows[split][index].solution
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", solution)), default=0))
        return f"{fence}python\n{solution}\n{fence}" if solution else ""

    @cached_property
    def _sandbox(self) -> Sandbox:
        return open_sandbox(
            Limits(
                test_s=self.test_s,
                total_s=self.total_s,
                memory_mb=self.memory_mb,
                output_mb=self.output_mb,
                files_mb=self.files_mb,
                threads=self.threads,
            )
        )

    @cached_property
    def _rows(self) -> dict[str, list[Problem]]:
        return splits("code", self.path, self.held_out, self._problem)

    def _problem(self, record: dict[str, Any], where: str) -> Problem:
        question = _asked(field_of(record, self.question, QUESTIONS, where))
        names = (self.solution,) if self.solution else SOLUTIONS
        found = next((record[name] for name in names if record.get(name)), "")
        solution = _whole(_text_of(found), str(record.get("prompt", "")))
        tests = read_tests(record, field_of(record, self.tests, TESTS, where), where, solution)
        longest = max((len(e) for e in tests.expected if isinstance(e, str)), default=0)
        if longest > self.output_mb << 19:
            raise TaskError(
                f"{where}: a test expects {longest:,} characters, more than half of "
                f"output_mb = {self.output_mb}; raise task.args.output_mb or leave the test out"
            )
        if not solution and not self.unchecked:
            raise TaskError(
                f"{where}: no solution to check the tests with; add one, or set "
                "task.args.unchecked = true"
            )
        if starter := record.get("starter_code"):
            question = f"{question}\n\n{starter}"
        return Problem(question, tests, solution)


def code_of(text: str) -> str:
    r"""The program a completion commits to: its last fenced block; empty when there is none.

    What is thought does not count, as in `trainer.tasks.base.final_answer`. A block that is opened
    and not closed is no program, and then there is none.

    >>> code_of("<think>```\n1\n```</think>So:\n```python\nprint(2)\n```\n")
    'print(2)'
    >>> code_of("```\n1\n```\n```\nprint("), code_of("print(2)")
    ('', '')
    """
    _, closed, rest = text.rpartition("</think>")
    if not closed and "<think>" in text:
        return ""
    block: list[str] = []
    fence = ""
    for line in rest.split("\n"):
        mark = FENCE.match(line)
        if not fence and mark:
            fence, block = mark[1], []
        elif fence and mark and len(mark[1]) >= len(fence) and not mark[2].strip():
            fence = ""
        elif fence:
            block.append(line)
    return "" if fence else "\n".join(block).strip("\n")


def _asked(value: Any) -> str:
    """Text, or the last message of a chat."""
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        value = value[-1].get("content", "")
    return str(value).strip()


def _form(tests: Tests) -> str:
    """What a program must look like for its tests."""
    if tests.mode == "stdin":
        return "The program reads standard input and writes standard output."
    if tests.mode == "call":
        return f"Define the function {tests.name}, or a class Solution with that method."
    return f"Define {', '.join(tests.names)}."


def _text_of(value: Any) -> str:
    """A solution, or the first of several, without a fence."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return value
    if isinstance(value, list):
        value = value[0] if value else ""
    return code_of(str(value)) or str(value).strip("\n")


def _whole(solution: str, prompt: str) -> str:
    """HumanEval's solutions go on where their prompts end."""
    return f"{prompt}{solution}" if solution[:1].isspace() else solution
