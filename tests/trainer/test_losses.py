"""Losses, aggregation and KL: worked values by hand, and gradients by finite differences."""

import math

import pytest
import torch

from trainer import losses

LOW, HIGH = 0.2, 0.28


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def weight_of(loss, pi):
    """-dℓ/dπ: the weight with which the policy gradient of each token counts."""
    return (-torch.autograd.grad(loss.sum(), pi)[0]).flatten().tolist()


# Aggregation: p1 has lengths 1 and 3, p2 has 4 and 4


def aggregate(how, mask_rows=4):
    m = torch.zeros(4, 4, dtype=torch.float64)
    for i, n in enumerate([1, 3, 4, 4]):
        m[i, :n] = 1
    x = torch.tensor([[4.0] * 4, [0.0] * 4, [1.0] * 4, [3.0] * 4], dtype=torch.float64)
    p = torch.tensor([0, 0, 1, 1])
    total = losses.totals(*losses.count(m, p, 2))
    w = losses.sample_weights(m, p, how, total, length_constant=4)
    return losses.masked(x, m * w[:, None])[0].item()


@pytest.mark.parametrize(
    ("how", "expected"), [("token", 20 / 12), ("sample", 2.0), ("prompt", 1.5), ("constant", 1.25)]
)
def test_four_aggregations_of_one_batch_are_four_numbers(how, expected):
    assert aggregate(how) == pytest.approx(expected, abs=1e-12)


def test_a_masked_value_does_not_count_even_when_it_is_not_finite():
    total, n = losses.masked(torch.tensor([1.0, math.nan, math.inf]), torch.tensor([1.0, 0, 0]))
    assert (total.item(), n.item()) == (1.0, 1.0)


# Ratios


def test_cispo_weights_are_the_ratio_up_to_the_absolute_cap():
    pi = column(*map(math.log, [0.1, 2.0, 10.0])).requires_grad_()
    loss = losses.cispo(pi, torch.zeros(3, 1), torch.ones(3), cap=5.0)
    assert weight_of(loss, pi) == pytest.approx([0.1, 2.0, 5.0])


def test_at_ratio_ten_cispo_keeps_a_bounded_gradient_where_ppo_has_none_or_ten():
    for A, cispo, ppo in ((1.0, 5.0, 0.0), (-1.0, -5.0, -10.0)):
        pi = column(math.log(10.0)).requires_grad_()
        a = torch.tensor([A], dtype=torch.float64)
        assert weight_of(losses.cispo(pi, torch.zeros(1, 1), a, 5.0), pi) == pytest.approx([cispo])
        clipped = losses.clipped(pi, torch.zeros(1, 1), a, 0.2, 0.2)
        assert weight_of(clipped, pi) == pytest.approx([ppo])


def test_dual_clip_bounds_the_loss_of_negative_advantages():
    pi = column(math.log(10.0)).requires_grad_()
    loss = losses.clipped(pi, torch.zeros(1, 1), torch.tensor([-1.0]), 0.2, 0.2, dual=3.0)
    assert loss.item() == pytest.approx(3.0)
    assert weight_of(loss, pi) == [0.0]


@pytest.mark.parametrize(
    ("rho", "A", "expected"),
    [
        (1.0, 1.0, -1.0),
        (1.5, 1.0, -1.28),  # capped at 1 + 0.28
        (1.25, 1.0, -1.25),  # within the higher bound
        (0.5, 1.0, -0.5),  # below the lower bound and not clipped: the minimum
        (0.5, -1.0, 0.8),  # clipped at 1 - 0.2
        (1.5, -1.0, 1.5),
    ],
)
def test_decoupled_clip(rho, A, expected):
    loss = losses.clipped(column(math.log(rho)), torch.zeros(1, 1), torch.tensor([A]), LOW, HIGH)
    assert loss.item() == pytest.approx(expected)


def test_gspo_ratio_is_the_geometric_mean_over_valid_tokens():
    pi = torch.tensor([[0.1, 0.3, 9.0]], dtype=torch.float64)
    m = torch.tensor([[1.0, 1.0, 0.0]], dtype=torch.float64)
    loss = losses.gspo(pi, torch.zeros_like(pi), torch.ones(1), m, 10.0, 10.0)
    assert loss[0].tolist() == pytest.approx([-math.exp(0.2)] * 3)


def test_gspo_clips_a_ratio_that_grpo_would_let_pass():
    pi = torch.full((1, 4), 1e-3, dtype=torch.float64, requires_grad=True)
    loss = losses.gspo(pi, torch.zeros_like(pi), torch.ones(1), torch.ones(1, 4), 3e-4, 4e-4)
    assert loss[0, 0].item() == pytest.approx(-1.0004)
    assert weight_of(loss, pi) == [0.0] * 4


def test_a_log_ratio_of_100_has_a_finite_loss_and_a_finite_gradient():
    for loss_of in (
        lambda pi: losses.clipped(pi, torch.zeros(1, 1), torch.tensor([-1.0]), 0.2, 0.2),
        lambda pi: losses.cispo(pi, torch.zeros(1, 1), torch.tensor([1.0]), 5.0),
        lambda pi: losses.kl(pi, torch.zeros(1, 1), "k3"),
        lambda pi: losses.kl(-pi, torch.zeros(1, 1), "k3"),
    ):
        pi = torch.tensor([[100.0]], requires_grad=True)
        loss = loss_of(pi)
        (g,) = torch.autograd.grad(loss.sum(), pi)
        assert torch.isfinite(loss).all()
        assert torch.isfinite(g).all()


def test_truncated_importance_weight():
    w = losses.truncated_weight(column(math.log(0.5), math.log(9.0)), torch.zeros(2, 1), 2.0)
    assert w.flatten().tolist() == pytest.approx([0.5, 2.0])


def test_effective_sample_size():
    assert losses.ess(torch.tensor([1.0, 1.0, 1.0, 5.0])).item() == pytest.approx(64 / 112)


# KL: Bernoulli π = 0.9 and reference 0.5, by the logit of π


@pytest.mark.parametrize(("estimator", "gradient"), [("k1", 0.0), ("k2", 0.19775), ("k3", 0.4)])
def test_expected_gradient_of_each_kl_estimator_used_as_a_loss(estimator, gradient):
    logit = torch.tensor(math.log(9.0), dtype=torch.float64, requires_grad=True)
    logp = torch.stack([torch.nn.functional.logsigmoid(s * logit) for s in (1, -1)])
    value = losses.kl(logp, torch.full((2,), math.log(0.5), dtype=torch.float64), estimator)
    expected = (logp.detach().exp() * value).sum()  # samples are fixed, π is differentiated
    (g,) = torch.autograd.grad(expected, logit)
    assert g.item() == pytest.approx(gradient, abs=1e-5)


def test_the_true_gradient_is_the_one_of_k2():
    def reverse(z):
        p = 1 / (1 + math.exp(-z))
        return p * math.log(p / 0.5) + (1 - p) * math.log((1 - p) / 0.5)

    z, h = math.log(9.0), 1e-5
    assert (reverse(z + h) - reverse(z - h)) / (2 * h) == pytest.approx(0.19775, abs=1e-5)


def test_values_of_k1_and_k3_are_unbiased():
    p = torch.tensor([0.9, 0.1], dtype=torch.float64)
    ref = torch.full((2,), math.log(0.5), dtype=torch.float64)
    true = (p * (p.log() - ref)).sum().item()
    for estimator in ("k1", "k3"):
        assert (p * losses.kl(p.log(), ref, estimator)).sum().item() == pytest.approx(true)


# DAPO's overlong punishment


@pytest.mark.parametrize(
    ("length", "expected"), [(16384, 0.0), (18432, -0.5), (20480, -1.0), (30000, -1.0), (10, 0.0)]
)
def test_overlong_punishment(length, expected):
    assert losses.overlong_penalty(torch.tensor(float(length)), 20480, 4096).item() == expected


# Finite differences


def finite_difference(f, x, h=1e-6):
    out = torch.zeros_like(x)
    for i in range(x.numel()):
        e = torch.zeros_like(x).flatten()
        e[i] = h
        e = e.view_as(x)
        out.view(-1)[i] = (f(x + e) - f(x - e)) / (2 * h)
    return out


@pytest.mark.parametrize("name", ["clipped", "dual", "gspo", "k1", "k2", "k3"])
def test_gradients_agree_with_finite_differences(name):
    g = torch.Generator().manual_seed(3)
    pi = torch.randn(3, 4, generator=g, dtype=torch.float64) * 0.3
    o = torch.randn(3, 4, generator=g, dtype=torch.float64) * 0.3
    A = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    m = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]], dtype=torch.float64)
    f = {
        "clipped": lambda x: losses.clipped(x, o, A, LOW, HIGH),
        "dual": lambda x: losses.clipped(x, o, A, LOW, HIGH, 1.1),
        "gspo": lambda x: losses.gspo(x, o, A, m, LOW, HIGH),
        "k1": lambda x: losses.kl(x, o, "k1"),
        "k2": lambda x: losses.kl(x, o, "k2"),
        "k3": lambda x: losses.kl(x, o, "k3"),
    }[name]
    x = pi.clone().requires_grad_()
    (analytic,) = torch.autograd.grad(losses.masked(f(x), m)[0], x)
    numeric = finite_difference(lambda y: losses.masked(f(y), m)[0].item(), pi)
    assert torch.allclose(analytic, numeric, atol=1e-8)
    assert analytic.abs().sum() > 0


def test_cispo_gradient_is_that_of_weighted_log_likelihood_with_the_weight_held():
    pi = torch.tensor([[0.2, -0.4]], dtype=torch.float64)
    A = torch.tensor([1.5], dtype=torch.float64)
    held = losses.ratio(pi, torch.zeros(1, 2)).clamp(max=5.0)
    x = pi.clone().requires_grad_()
    (analytic,) = torch.autograd.grad(losses.cispo(x, torch.zeros(1, 2), A, 5.0).sum(), x)
    numeric = finite_difference(lambda y: (-held * A[:, None] * y).sum().item(), pi)
    assert torch.allclose(analytic, numeric, atol=1e-8)
