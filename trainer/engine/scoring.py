"""One fixed sequence, scored by the learner and by every server after each update.

A weight update that did not arrive whole (a tied head left behind, one server missed, other
weights) shows here before a step is learned from it. The log-probabilities are those of the prompt,
at temperature 1, so that both sides score the same tokens and no queue of completions is waited
for.
"""

from __future__ import annotations

from trainer.engine.base import Score
from trainer.engine.fleet import Server
from trainer.engine.messages import GENERATE, read_scores, write_score_request
from trainer.engine.wire import ServerFault

__all__ = ["check_score"]


def check_score(server: Server, score: Score, label: str, deadline: float) -> str | None:
    """What is wrong with a server's weights; None when they are the learner's.

    Weights that have been replaced meanwhile are not judged: the next update has its own check.

    Raises
    ------
    ServerFault
        It does not answer, or not as the route promises.
    """
    body = write_score_request(score.ids)
    answer = server.post("parity", GENERATE, body, deadline=deadline)
    try:
        found_label, found = read_scores(score.ids, answer)
    except (KeyError, IndexError, TypeError, ValueError) as e:
        reason = f"it does not score prompts ({type(e).__name__}: {e})"
        raise ServerFault("parity", server.address, reason, 500) from e
    if found_label != label:
        return None
    gaps = [abs(ours - theirs) for ours, theirs in zip(score.logprobs, found, strict=True)]
    if all(gap <= score.limit for gap in gaps):  # false for NaN
        return None
    return (
        f"after the update it differs from the learner by {max(gaps):.2g} in log-probability, "
        f"more than {score.limit:g}: the weights did not arrive whole"
    )
