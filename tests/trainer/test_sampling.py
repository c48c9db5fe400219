"""The noise of a request against a published generator, and the draw against the distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trainer.engine.sampling import draw, uniform

# First outputs of SplitMix64 with seed 1234567, from the reference implementation's own test
# (Vigna, https://prng.di.unimi.it/splitmix64.c, values as published on Rosetta Code).
SPLITMIX = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]


def test_noise_is_splitmix64():
    found = uniform(np.full(5, 1234567, dtype=np.uint64), np.arange(5))
    assert found.tolist() == [(value >> 11) * 2.0**-53 for value in SPLITMIX]


def test_noise_is_uniform_and_streams_are_independent():
    seeds = np.repeat(np.arange(200, dtype=np.uint64), 50)
    noise = uniform(seeds, np.tile(np.arange(50), 200))
    assert noise.min() >= 0
    assert noise.max() < 1
    counts = np.histogram(noise, bins=20, range=(0, 1))[0]
    assert ((counts - 500) ** 2 / 500).sum() < 19 + 5 * np.sqrt(2 * 19)
    table = noise.reshape(200, 50)
    assert abs(np.corrcoef(table[:-1].ravel(), table[1:].ravel())[0, 1]) < 0.05


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draw_inverts_the_cumulative_distribution(temperature):
    logits = torch.tensor([[0.3, -1.0, 2.0, 0.0]])
    p = torch.softmax(logits.double()[0] / temperature, -1).numpy()
    levels = np.linspace(0, 1, 101)[:-1] + 1e-4
    n = len(levels)
    scale = np.full(n, temperature, np.float32)
    token, logprob = draw(logits.expand(n, -1), scale, levels)
    assert token.tolist() == np.searchsorted(np.cumsum(p), levels, side="right").tolist()
    assert logprob == pytest.approx(np.log(p[token]), abs=1e-6)


@pytest.mark.parametrize(
    ("top_p", "kept"),  # what stands before a token must be below top_p: 0, .5, .8, .95
    [(0.01, 1), (0.5, 1), (0.51, 2), (0.79, 2), (0.81, 3), (0.96, 4), (1.0, 4)],
)
def test_a_nucleus_holds_the_likeliest_tokens_and_is_renormalised(top_p, kept):
    p = np.array([0.15, 0.5, 0.05, 0.3])
    inside = np.where(np.isin(np.arange(4), [1, 3, 0, 2][:kept]), p, 0.0)
    inside /= inside.sum()
    levels = np.linspace(0, 1, 101)[:-1] + 1e-4
    cut = np.full(100, top_p, np.float32)
    token, logprob = draw(torch.log(torch.tensor(p)).float().expand(100, -1), None, levels, cut)
    assert token.tolist() == np.searchsorted(np.cumsum(inside), levels, side="right").tolist()
    assert logprob == pytest.approx(np.log(inside[token]), abs=1e-6)


def test_a_nucleus_is_a_rows_own():
    logits = torch.log(torch.tensor([0.6, 0.4])).expand(2, -1)
    cut = np.array([0.5, 1.0], np.float32)
    token, logprob = draw(logits, None, np.array([0.9, 0.9]), cut)
    assert token.tolist() == [0, 1]
    assert logprob == pytest.approx([0.0, np.log(0.4)], abs=1e-6)


def test_tokens_without_probability_are_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]])
    for level in (0.0, 0.4999999, 0.5, 1 - 2.0**-53):
        [token], [logprob] = draw(logits, np.ones(1, np.float32), np.array([level]))
        assert token in (1, 3)
        assert logprob == pytest.approx(np.log(0.5))


def test_logits_that_are_not_numbers_give_a_token_and_a_log_probability_that_is_none():
    logits = torch.full((1, 4), torch.nan)
    [token], [logprob] = draw(logits, np.ones(1, np.float32), np.array([0.3]))
    assert 0 <= token < 4
    assert np.isnan(logprob)
