"""What a run over several tasks logs of each of them: its rows' statistics by label.

A run over one task logs none of this, and the row's own keys are those of all prompts together: a
mean over prompts, so a task weighs in it what it has of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer.evaluate import summarise
from trainer.types import Group

__all__ = ["evaluation_of", "reward_of"]


def evaluation_of(
    groups: Sequence[Group], *, n: int, ks: Sequence[int], threshold: float = 1.0
) -> dict[str, dict[str, Any]]:
    """Pass rate, pass@k and number of prompts by label, as they stand in an ``eval`` row.

    A task of which no rollout has a reward has no pass rate (None) and 0 prompts.
    """
    row: dict[str, dict[str, Any]] = {}
    for label, those in _by_label(groups).items():
        scored = any(group.rewards for group in those)
        found = summarise(those, n=n, ks=ks, threshold=threshold).row() if scored else {}
        for name, nothing in (("pass_rate", None), ("n_prompts", 0), ("pass_at_k", {})):
            row.setdefault(f"{name}_of", {})[label] = found.get(name, nothing)
    return row


def reward_of(groups: Sequence[Group]) -> dict[str, dict[str, float]]:
    """Mean reward of all rollouts by label, as it stands in a ``step`` row, before any filter.

    A task without a rollout in the step has none.
    """
    rewards = {
        label: [reward for group in those for reward in group.rewards]
        for label, those in _by_label(groups).items()
    }
    means = {label: sum(rs) / len(rs) for label, rs in rewards.items() if rs}
    return {"reward_of": means} if rewards else {}


def _by_label(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups of a mixture's tasks, in the order of the labels."""
    labels = sorted({group.prompt.label for group in groups} - {""})
    return {label: [g for g in groups if g.prompt.label == label] for label in labels}
