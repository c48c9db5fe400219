"""The chunked float32 head against plain torch, and its memory."""

import pytest
import torch

from trainer.head import logprob_entropy


def plain(hidden, weight, targets, temperature):
    logp = (hidden.float() @ weight.float().T / temperature).log_softmax(-1)
    return logp.gather(1, targets[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def inputs(M=13, D=8, V=31, dtype=torch.float32):
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(M, D, generator=g).to(dtype).requires_grad_()
    weight = torch.randn(V, D, generator=g).to(dtype).requires_grad_()
    return hidden, weight, torch.randint(0, V, (M,), generator=g)


@pytest.mark.parametrize("chunk", [1, 7, 13, None])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_any_chunk_gives_log_probability_entropy_and_gradients_of_plain_torch(chunk, temperature):
    hidden, weight, targets = inputs()
    u, v = torch.randn(2, 13, generator=torch.Generator().manual_seed(1))
    want = plain(hidden, weight, targets, temperature)
    got = logprob_entropy(hidden, weight, targets, temperature, chunk)
    for a, b in zip(got, want, strict=True):
        assert torch.allclose(a, b, atol=2e-6)
    g_want = torch.autograd.grad((want[0] * u + want[1] * v).sum(), (hidden, weight))
    g_got = torch.autograd.grad((got[0] * u + got[1] * v).sum(), (hidden, weight))
    for a, b in zip(g_got, g_want, strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_bfloat16_inputs_give_float32_values_and_bfloat16_gradients():
    hidden, weight, targets = inputs(dtype=torch.bfloat16)
    logp, entropy = logprob_entropy(hidden, weight, targets)
    assert logp.dtype == entropy.dtype == torch.float32
    assert torch.allclose(logp, plain(hidden, weight, targets, 1.0)[0], atol=2e-6)
    g_hidden, g_weight = torch.autograd.grad(logp.sum(), (hidden, weight))
    assert g_hidden.dtype == g_weight.dtype == torch.bfloat16


def test_gradients_of_bfloat16_factors_are_exact_up_to_their_own_rounding():
    """Rows of W share a large part, which the gradient of the logits, of sum 0, must cancel."""
    g = torch.Generator().manual_seed(2)
    hidden = torch.randn(9, 4, generator=g).bfloat16().requires_grad_()
    weight = (16 + torch.randint(-8, 9, (64, 4), generator=g) / 8).bfloat16().requires_grad_()
    targets, u = torch.randint(0, 64, (9,), generator=g), torch.randn(9, generator=g)
    logp, _ = logprob_entropy(hidden, weight, targets, 0.8, 4)
    got = torch.autograd.grad((logp * u).sum(), (hidden, weight))
    h, W = (x.detach().double().requires_grad_() for x in (hidden, weight))
    want = (h @ W.T / 0.8).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    for a, b in zip(got, torch.autograd.grad((want * u.double()).sum(), (h, W)), strict=True):
        # the gradient itself is rounded to 8 bits; of logits rounded to 8 bits it would be .07 off
        assert torch.allclose(a.double(), b, rtol=2**-8, atol=5e-4)


def test_finite_differences():
    hidden, weight, targets = inputs(M=3, D=4, V=5)
    logp, entropy = logprob_entropy(hidden, weight, targets, 0.7, 2)
    (g,) = torch.autograd.grad((logp + 0.3 * entropy).sum(), hidden)
    h = 1e-3
    for i, j in ((0, 0), (1, 2), (2, 3)):
        e = torch.zeros_like(hidden)
        e[i, j] = h
        up, down = (
            sum(
                x.double().sum() * c
                for x, c in zip(plain(y, weight, targets, 0.7), (1, 0.3), strict=True)
            )
            for y in (hidden + e, hidden - e)
        )
        assert g[i, j].item() == pytest.approx(((up - down) / (2 * h)).item(), abs=2e-3)


def test_peak_memory_does_not_grow_with_tokens_times_vocabulary():
    peak = {M: _peak_bytes(M) for M in (64, 512)}
    one_buffer = 512 * 50_000 * 4
    assert peak[512] - peak[64] < one_buffer / 20
    assert peak[512] < one_buffer


def _peak_bytes(M, V=50_000, D=4):
    """Greatest sum of live CPU allocations while forward and backward run, from the profiler."""
    hidden, weight = torch.randn(M, D, requires_grad=True), torch.randn(V, D, requires_grad=True)
    targets = torch.zeros(M, dtype=torch.long)
    with torch.profiler.profile(profile_memory=True) as prof:
        logprob_entropy(hidden, weight, targets, chunk=16)[0].sum().backward()
    live = peak = 0
    for event in prof.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    assert peak > V * D * 4
    return peak
