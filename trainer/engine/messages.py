"""What goes over the wire: the JSON of vLLM 0.32's own routes, for both ends of it.

Generation is ``POST /inference/v1/generate`` (token ids in and out; `vllm/entrypoints/scale_out/
token_in_token_out/protocol.py`), one request a call. Two details matter:

* ``ignore_eos`` with our stop ids: nothing ends a completion that the caller does not know of.
* JSON has no NaN. vLLM writes -9999 for a log-probability that is none; here that is NaN again, and
  the learner leaves the token out.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from trainer.engine.base import Completion, Request, SamplingParams, Span

__all__ = [
    "GENERATE",
    "UnknownWeights",
    "digest",
    "read_answer",
    "read_request",
    "read_scores",
    "write_answer",
    "write_request",
    "write_score_request",
]

GENERATE = "/inference/v1/generate"
NO_NUMBER = -9999.0
KNOWN = (
    "max_tokens",
    "temperature",
    "seed",
    "stop_token_ids",
    "ignore_eos",
    "detokenize",
    "logprobs",
    "prompt_logprobs",
    "top_k",
    "top_p",
)


class UnknownWeights(Exception):
    """A completion was drawn by weights that this run never sent; the argument is their label."""


def digest(shapes: Mapping[str, Sequence[int]]) -> str:
    """Hash of a model's weights by name and shape, the same on both ends."""
    lines = sorted(f"{name} {tuple(shape)}" for name, shape in shapes.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


# The client's end


def write_request(request: Request, salt: str) -> dict[str, Any]:
    """The body of a generation request; only prefixes of the same `salt` are shared."""
    p = request.params
    return {
        "token_ids": list(request.ids),
        "cache_salt": salt,
        "sampling_params": {
            "max_tokens": p.max_tokens,
            "temperature": p.temperature,
            "top_p": p.top_p,
            "seed": p.seed,
            "stop_token_ids": list(p.stop_ids),
            "ignore_eos": True,
            "detokenize": False,
            "logprobs": 0,  # the drawn token's and no other
        },
    }


def read_answer(request: Request, answer: dict[str, Any], labels: Mapping[str, int]) -> Completion:
    """The completion in a server's answer.

    Parameters
    ----------
    labels : mapping of str to int
        Version of the weights of each label that was sent.

    Raises
    ------
    UnknownWeights
    KeyError, IndexError, TypeError, ValueError
        The answer is not what the route promises.
    """
    [choice] = answer["choices"]
    ids = [int(token) for token in choice["token_ids"]]
    found = [_number(entry["logprob"]) for entry in choice["logprobs"]["content"]]
    spans = _read_spans(choice["weight_versions"], labels)
    reason = choice["finish_reason"]
    whole = len(ids) == len(found) and ids and spans and spans[-1].end == len(ids)
    if not whole or reason not in ("stop", "length"):
        raise ValueError(f"{len(ids)} tokens, {len(found)} log-probabilities, ended by {reason!r}")
    return Completion(request.id, ids, found, reason, spans)


def _read_spans(spans: Sequence[dict[str, Any]], labels: Mapping[str, int]) -> list[Span]:
    for span in spans:
        if span["version"] not in labels:
            raise UnknownWeights(span["version"])
    return [Span(labels[s["version"]], s["start"], s["end"]) for s in spans]


def write_score_request(ids: Sequence[int]) -> dict[str, Any]:
    """The body that asks for the log-probabilities of a sequence itself, at temperature 1."""
    params = {"max_tokens": 1, "prompt_logprobs": 0, "logprobs": 0, "detokenize": False, "seed": 0}
    return {"token_ids": list(ids), "sampling_params": {**params, "ignore_eos": True}}


def read_scores(ids: Sequence[int], answer: dict[str, Any]) -> tuple[str, list[float]]:
    """Label of the weights that scored, and the log-probabilities of ``ids[1:]``."""
    rows = answer["prompt_logprobs"][1:]
    found = [_number(row[str(t)]["logprob"]) for row, t in zip(rows, ids[1:], strict=True)]
    return answer["choices"][0]["weight_versions"][0]["version"], found


def _number(logprob: float) -> float:
    return math.nan if logprob <= NO_NUMBER else float(logprob)


# The server's end


def read_request(number: int, body: dict[str, Any]) -> Request:
    """The request in a body.

    Raises
    ------
    ValueError
        Something is asked for that the local engine cannot do, or that is no number.
    """
    params = body["sampling_params"]
    unknown = sorted(params.keys() - set(KNOWN))
    if unknown:
        raise ValueError(f"sampling parameter {unknown[0]} is not served here")
    if params.get("top_k", 0) not in (0, 1):
        raise ValueError("top_k above 1 is not served here")
    greedy = params.get("top_k", 0) == 1
    sampling = SamplingParams(
        max_tokens=int(params["max_tokens"]),
        temperature=0.0 if greedy else float(params.get("temperature", 1.0)),
        stop_ids=tuple(map(int, params.get("stop_token_ids", ()))),
        seed=int(params.get("seed", 0)),
        top_p=float(params.get("top_p", 1.0)),
    )
    return Request(number, tuple(map(int, body["token_ids"])), sampling)


def write_answer(
    completion: Completion,
    spans: Sequence[tuple[str, int, int]],
    scores: Sequence[float] | None = None,
    prompt: Sequence[int] = (),
) -> dict[str, Any]:
    """The answer; `spans` with labels for versions, `scores` of ``prompt[1:]`` when asked for."""
    content = [
        {"token_id": token, "logprob": _written(logprob)}
        for token, logprob in zip(completion.ids, completion.logprobs, strict=True)
    ]
    choice = {
        "index": 0,
        "finish_reason": completion.finish_reason,
        "token_ids": completion.ids,
        "logprobs": {"content": content},
        "weight_versions": [{"version": v, "start": a, "end": b} for v, a, b in spans],
    }
    answer: dict[str, Any] = {"choices": [choice], "prompt_logprobs": None}
    if scores is not None:
        rows = [{str(t): {"logprob": _written(x)}} for t, x in zip(prompt[1:], scores, strict=True)]
        answer["prompt_logprobs"] = [None, *rows]
    return answer


def _written(logprob: float) -> float:
    return max(logprob, NO_NUMBER) if math.isfinite(logprob) else NO_NUMBER
