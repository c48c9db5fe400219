"""Held-out evaluation: mean@k and the unbiased pass@k, with standard errors over prompts.

Chen et al., "Evaluating large language models trained on code", arXiv:2107.03374, equation 1. "Any
of the first k" is noisier, and the bootstrap with replacement is biased low; neither is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer.engine.base import SamplingParams
    from trainer.rollout import RolloutWorker
    from trainer.types import Group, Prompt

__all__ = ["Evaluation", "evaluate", "pass_at_k", "summarise"]


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found.

    Parameters
    ----------
    pass_rate, pass_rate_se : float
        mean@n: share of correct rollouts, mean over prompts; standard error over prompts.
    reward : float
        Mean reward; differs from the pass rate where rewards are continuous.
    pass_at_k, pass_at_k_se : dict of int to float
    n_prompts, n_samples : int
        Prompts with at least one scored rollout; rollouts asked for per prompt.
    tokens, truncated, errors : int
        Tokens drawn; rollouts that ran out of budget; rollouts without a reward.
    """

    pass_rate: float
    pass_rate_se: float
    reward: float
    pass_at_k: dict[int, float]
    pass_at_k_se: dict[int, float]
    n_prompts: int
    n_samples: int
    tokens: int
    truncated: int
    errors: int

    def row(self) -> dict[str, Any]:
        """The fields as they stand in the log."""
        row = dict(vars(self))
        for name in ("pass_at_k", "pass_at_k_se"):
            row[name] = {str(k): value for k, value in row[name].items()}
        return row


def evaluate(
    worker: RolloutWorker,
    prompts: Sequence[Prompt],
    *,
    n: int,
    ks: Sequence[int],
    params: SamplingParams,
    seed: int,
    threshold: float = 1.0,
) -> Evaluation:
    """Draw `n` rollouts for each held-out prompt and count.

    Parameters
    ----------
    worker : RolloutWorker
        Training groups on their way in it go on.
    seed : int
        Of this evaluation: derive it from the evaluation's own seed and the step, so that the
        noise of two evaluations is independent.
    threshold : float
        A rollout is correct when its reward reaches it.
    """
    if max(ks, default=1) > n:
        raise TaskError(f"pass@{max(ks)} needs {max(ks)} rollouts a prompt, eval.samples is {n}")
    groups = worker.sample(prompts, n, params, seed=(seed,))
    return summarise(groups, n=n, ks=ks, threshold=threshold)


def summarise(
    groups: Sequence[Group], *, n: int, ks: Sequence[int], threshold: float = 1.0
) -> Evaluation:
    """Statistics of verified groups; rollouts without a reward count as errors, not as wrong.

    Raises
    ------
    TaskError
        When no rollout has a reward.
    """
    scored = [group.rewards for group in groups if group.rewards]
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    if not scored:
        raise TaskError("no rollout of the evaluation could be scored; see the verifier's errors")
    counts = [(len(r), sum(reward >= threshold for reward in r)) for r in scored]
    rate, rate_se = _mean_se([c / m for m, c in counts])
    chosen = {k: [pass_at_k(m, c, k) for m, c in counts if m >= k] for k in ks}
    pairs = {k: _mean_se(values) for k, values in chosen.items() if values}
    return Evaluation(
        pass_rate=rate,
        pass_rate_se=rate_se,
        reward=_mean_se([sum(r) / len(r) for r in scored])[0],
        pass_at_k={k: mean for k, (mean, _) in pairs.items()},
        pass_at_k_se={k: se for k, (_, se) in pairs.items()},
        n_prompts=len(scored),
        n_samples=n,
        tokens=sum(sum(rollout.mask) for rollout in rollouts),
        truncated=sum(rollout.finish_reason == "length" for rollout in rollouts),
        errors=sum(not rollout.scored for rollout in rollouts),
    )


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that k of n rollouts, c of them correct, hold a correct one: 1 − C(n−c,k)/C(n,k).

    >>> round(pass_at_k(4, 2, 2), 4), pass_at_k(16, 1, 8), pass_at_k(4, 4, 1)
    (0.8333, 0.5, 1.0)
    """
    if not 1 <= k <= n or not 0 <= c <= n:
        raise TaskError(f"pass@{k} of {n} rollouts with {c} correct is not defined")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def _mean_se(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error sqrt(Σ(x − mean)²)/P over P prompts."""
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((x - mean) ** 2 for x in values)) / len(values)
