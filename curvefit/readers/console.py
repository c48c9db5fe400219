"""Console output of trainers: recognised, and refused with what to read instead.

Lines printed for people leave out what a fit needs (the step, the GPU count) or bury it in text.
Each pattern names the trainer and the file of the same run that holds the numbers.
"""

from __future__ import annotations

import re
from typing import NoReturn

from curvefit.errors import InputError
from curvefit.readers.source import Source
from curvefit.wording import quoted

__all__ = ["read", "recognises"]

TRACKER = "give its TensorBoard folder, or export the metrics from its tracker (W&B, MLflow) as CSV"
PATTERNS = (
    (
        r"\bstep:\d+ - \S+:",
        "verl prints",
        "add 'file' to trainer.logger, which writes JSONL, or " + TRACKER,
    ),
    (
        r"verl\.trainer|\(TaskRunner pid=\d+\)|\(main_task pid=\d+\)",
        "verl prints",
        "add 'file' to trainer.logger, which writes JSONL, or " + TRACKER,
    ),
    (r"\brollout \d+: \{'", "slime prints", TRACKER),
    (r"\bStep \d+ \| .*Reward", "prime-rl prints", TRACKER),
    (
        r"^\{'[\w/]+': ",
        "transformers and TRL print",
        "give trainer_state.json from a checkpoint folder of the same run",
    ),
    (r"^\S*\s*\d+/\d+ \| .*=", "a training script prints", TRACKER),
    (r"\|[█▏▎▍▌▋▊▉#\s]*\| \d+/\d+ \[", "progress bars leave", TRACKER),
    (r"\x1b\[\d", "a terminal shows", TRACKER),
    (
        r"^\(\w+ pid=\d+\)|^\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d.*(INFO|DEBUG|WARN)",
        "a logger prints",
        TRACKER,
    ),
)
COMPILED = [(re.compile(pattern, re.MULTILINE), who, what) for pattern, who, what in PATTERNS]


def recognises(head: str) -> bool:
    """Whether a text has lines as trainers print them."""
    return any(pattern.search(head) for pattern, _, _ in COMPILED)


def read(source: Source) -> NoReturn:
    """Refuse console output, saying whose it is and what to give instead.

    Raises
    ------
    InputError
        Always.
    """
    for pattern, who, what in COMPILED:
        found = pattern.search(source.head)
        if found:
            start = source.head.rfind("\n", 0, found.start()) + 1
            line = source.head.count("\n", 0, start) + 1
            shown = quoted(source.head[start : start + 200].split("\n")[0].strip(), 50)
            raise InputError(
                f"{source.label} is console output as {who} it (line {line}: {shown}), not a "
                f"table: {what}"
            )
    raise AssertionError("recognises() decides who reads a file")
