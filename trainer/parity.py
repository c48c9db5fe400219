"""Whether engine and learner are the same model: two comparisons of log-probabilities.

`parity` compares what an evaluation drew; `fixed_score` is what servers compare with after every
update, before a token of theirs is learned from. A weight update that did not arrive whole (a tied
head left behind, stale keys and values) shows here before it costs a run.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

from trainer.batch import make_batch
from trainer.engine.base import Score
from trainer.errors import EngineError
from trainer.settings import passes
from trainer.types import Group, Prompt, Rollout

if TYPE_CHECKING:
    from trainer.run import Run

__all__ = ["PROMPTS", "fixed_score", "parity"]

PROMPTS = 8
SEQUENCE = 64  # tokens of the fixed sequence, where prompts and budget allow
LIMIT = {"float32": 1e-3, "bfloat16": 1.0}  # bf16: a wrong model differs by several nats


def parity(run: Run, groups: list[Group]) -> float:
    """Largest difference of the engine's log-probabilities to the learner's, same weights.

    Raises
    ------
    EngineError
        The two sides are not the same model.
    """
    scored = [g for g in groups if g.rewards][:PROMPTS]
    batch = make_batch(scored, [g.rewards for g in scored], run.config)
    logp = run.learner.logprobs(batch, temperature=run.config.eval.temperature or 1.0).cpu()
    gap = float((logp - batch.logprobs).abs().max())
    limit = LIMIT[passes(run.config)]
    if not gap <= limit:
        raise EngineError(
            f"after the weight update of step {run.step} engine and learner differ by {gap:.2g} in "
            f"log-probability, more than {limit:g}: the update did not arrive whole"
        )
    return gap


def fixed_score(run: Run) -> Score:
    """The learner's log-probabilities of a sequence that is the same at every step.

    Held-out prompts, one behind the other: text that the model knows.
    """
    longest = len(run.held_out[0].ids) + run.config.sample.max_tokens - 1
    ids = tuple(islice(chain.from_iterable(p.ids for p in run.held_out), min(SEQUENCE, longest)))
    prompt = Prompt("fixed", ids[:1], None, None, 0)
    n = len(ids) - 1
    rollout = Rollout(
        group=0,
        prompt_id=prompt.id,
        prompt_ids=list(ids[:1]),
        ids=list(ids[1:]),
        logprobs=[0.0] * n,
        mask=[1] * n,
        finish_reason="stop",
        versions=[(run.step, 0, n)],
        reward=0.0,
    )
    batch = make_batch([Group(0, prompt, [rollout])], [[0.0]], run.config)
    logp = run.learner.logprobs(batch, temperature=1.0).cpu()
    return Score(ids, tuple(logp[0].tolist()), LIMIT[passes(run.config)])
