"""What the tests of engines share: requests, updates, and the plain pass to compare with."""

from __future__ import annotations

import itertools

import torch

from trainer.engine.base import Request, SamplingParams

numbers = itertools.count()


def ask(prompt, max_tokens=20, **params):
    return Request(next(numbers), tuple(prompt), SamplingParams(max_tokens, **params))


def prompts(n):
    return [[(7 * i + 3 * j) % 23 for j in range(1 + i % 6)] for i in range(n)]


def load(engine, model, *, keep_cache=False):
    """Give the engine the weights of a model, as its next version."""
    engine.pause(keep_cache=keep_cache)
    engine.update(engine.version + 1, model.state_dict())
    engine.resume()


def reference(model, prompt, ids, temperature=1.0):
    """Log-probabilities of `ids` behind `prompt` by one plain forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0] / temperature
    logp = torch.log_softmax(logits.double(), -1)[len(prompt) - 1 : -1]
    return logp.gather(1, torch.tensor(ids)[:, None])[:, 0]


def gaps(model, request, completion):
    """Differences between engine and reference, token by token."""
    expected = reference(model, request.ids, completion.ids, request.params.temperature or 1.0)
    return (expected - torch.tensor(completion.logprobs, dtype=torch.float64)).abs()


def gap(model, request, completion, start=0, end=None):
    """Greatest difference between engine and reference from token `start` on."""
    return float(gaps(model, request, completion)[start:end].max())
