"""The gold canary: a verifier that does not pay for right answers is found before training.

A verifier that returns 0 for everything looks like a model that learns nothing. So gold answers go
the whole way, through the same processes and deadlines as completions do, and must score 1; the
empty completion must score 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.errors import TaskError
from trainer.tasks.base import SPLITS, spread
from trainer.tasks.mixture import parts_of
from trainer.verify import Answer, Verifier

if TYPE_CHECKING:
    from trainer.tasks.base import Task

__all__ = ["canary"]


def canary(task: Task, verifier: Verifier, number: int = 16) -> None:
    """Score gold and empty completions of `number` items of each split, of each task of a mixture.

    Raises
    ------
    TaskError
        Naming the first item whose gold answer does not score 1, or whose empty one does not
        score 0.
    """
    items = [
        part.item(split, index)
        for part in parts_of(task).values()
        for split in SPLITS
        for index in spread(part.size(split), number)
    ]
    for item, wanted, text in [
        *((item, 1.0, task.gold(item)) for item in items),
        *((item, 0.0, "") for item in items),
    ]:
        verifier.submit(
            [Answer((item.id, item.answer, wanted, text), text, item.question, item.answer)]
        )
    while verifier.pending:
        for (name, answer, wanted, text), reward, error in verifier.poll(1.0):
            if wanted == 1.0 and not text:
                continue  # a generator without gold answers, accepted as unchecked
            if reward is None or abs(reward - wanted) > 1e-9:
                kind = "gold" if wanted else "empty"
                raise TaskError(
                    f"task {task.name}: the {kind} completion of {name!r} (answer {answer!r}) "
                    f"scores {reward if error is None else error}, not {wanted:g}; "
                    "the verifier or the data is wrong, so nothing is trained"
                )
