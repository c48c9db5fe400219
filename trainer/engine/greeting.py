"""What is asked of a server before it is used, and what is refused: one line, with the remedy.

Its routes, its version and its model are read; one request then tells two more things. It holds the
greatest token id of our vocabulary, which a smaller model would refuse, and is drawn with top_k =
1: of the distribution that is sampled from, the token has probability 1, and a log-probability that
is not 0 is one of the raw logits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from trainer.engine.fleet import Server
from trainer.engine.messages import GENERATE
from trainer.engine.wire import ServerFault
from trainer.errors import EngineError

__all__ = ["Card", "check_alike", "greet"]

OLDEST = (0, 32)  # the first vLLM whose answers say which weights drew which token
RAW = -1e-5
START = (
    "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --tokens-only --logprobs-mode processed_logprobs, "
    "or train-rl serve MODEL"
)


class Card(NamedTuple):
    """What a server says of itself.

    Parameters
    ----------
    software : str
        "vllm 0.32.0" or "train-rl 1.0".
    model : str
        As the server names it.
    max_length : int
        Longest prompt plus completion.
    world : int
        Accelerators that hold its weights, or parts of them.
    """

    software: str
    model: str
    max_length: int
    world: int


def greet(server: Server, *, vocabulary: int, shapes: str, deadline: float) -> Card:
    """Ask a server who it is.

    Parameters
    ----------
    vocabulary : int
        Of the model to be trained.
    shapes : str
        Fingerprint of its weights' names and shapes; compared where the server knows its own.

    Raises
    ------
    ServerFault
        It cannot be reached, or cannot be used.
    """
    try:
        server.get("start", "/health", deadline=deadline)
    except ServerFault as e:
        raise ServerFault(e.phase, e.address, f"{e.reason}; start one: {START}", e.status) from e
    version = server.get("start", "/version", deadline=deadline).get("version", "")
    [model, *_] = server.get("start", "/v1/models", deadline=deadline)["data"]
    ours = model.get("owned_by") == "train-rl"
    if not ours:
        _check_version(server, str(version))
    _check_routes(server, deadline)
    if model.get("shapes", shapes) != shapes:
        raise _unfit(server, f"serves another model ({model['id']}): its weights have other shapes")
    world = server.get("start", "/get_world_size", deadline=deadline)["world_size"]
    server.post("start", "/resume", deadline=deadline)  # a run that died may have left it paused
    _check_answer(server, vocabulary, model["id"], deadline)
    software = f"{'train-rl' if ours else 'vllm'} {version}"
    return Card(software, str(model["id"]), int(model["max_model_len"]), int(world))


def check_alike(servers: Sequence[Server], cards: Sequence[Card]) -> None:
    """Refuse servers of several versions or models: their log-probabilities would differ."""
    for what in ("software", "model"):
        named = {getattr(card, what): s.address for s, card in zip(servers, cards, strict=True)}
        if len(named) > 1:
            told = ", ".join(f"{address} has {value}" for value, address in named.items())
            raise EngineError(f"start: the servers differ in {what}: {told}; start them alike")


def _check_version(server: Server, version: str) -> None:
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers and (0,) < numbers < OLDEST:
        least = ".".join(map(str, OLDEST))
        raise _unfit(server, f"vLLM {version} is too old; install {least} or newer there")


def _check_routes(server: Server, deadline: float) -> None:
    try:
        server.get("start", "/is_paused", deadline=deadline)
    except ServerFault as e:
        if e.status != 404:
            raise
        raise _unfit(
            server,
            "the routes that pause and update are missing; start the server with "
            "VLLM_SERVER_DEV_MODE=1 in its environment",
        ) from e


def _check_answer(server: Server, vocabulary: int, model: str, deadline: float) -> None:
    params: dict[str, Any] = {"max_tokens": 1, "temperature": 1.0, "top_k": 1, "logprobs": 0}
    params |= {"detokenize": False, "ignore_eos": True}
    body = {"token_ids": [vocabulary - 1], "sampling_params": params}
    try:
        [choice] = server.post("start", GENERATE, body, deadline=deadline)["choices"]
    except ServerFault as e:
        if not e.refused or e.status == 404:
            raise
        reason = f"another model ({model})? Token {vocabulary - 1} is refused: {e.reason}"
        raise _unfit(server, reason) from e
    if choice["logprobs"]["content"][0]["logprob"] < RAW:
        raise _unfit(
            server,
            "its log-probabilities are of the raw logits; start it with "
            "--logprobs-mode processed_logprobs",
        )


def _unfit(server: Server, reason: str) -> ServerFault:
    return ServerFault("start", server.address, reason, 400)
