"""Rows of several samples give what each sample gives alone."""

import factory
import pytest
import torch

from trainer import branches
from trainer.packing import fit, lay_out, lengths, probe
from trainer.policy import score

ROWS = ("padded", "packed", "one-row")


def weights(batch):
    """Of both signs, and of the size that advantages have over a global denominator."""
    return torch.linspace(-1.0, 1.0, len(batch)) / 32


def outcome(model, batch, way):
    logp, entropy = score(model, batch, 0.7, way)
    loss = (logp.sum(1) * weights(batch)).sum() + entropy.sum() / 64
    return logp, entropy, torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.parametrize(
    ("way", "attention"),
    [("branched", "sdpa"), *((way, a) for way in ROWS for a in ("sdpa", "eager"))],
)
def test_every_way_gives_values_and_gradients_of_samples_run_alone(way, attention):
    model = factory.model(attn_implementation=attention)
    batch = factory.batch(factory.config())
    logp, entropy, grads = outcome(model, batch, way)
    gradient = [torch.zeros_like(g) for g in grads]
    for i in range(len(batch)):
        one = batch.select(torch.tensor([i]))
        alone, alone_entropy = score(model, one, 0.7)
        assert torch.allclose(logp[i], alone[0], atol=1e-6)
        assert torch.allclose(entropy[i], alone_entropy[0], atol=1e-6)
        loss = alone.sum() * weights(batch)[i] + alone_entropy.sum() / 64
        for total, g in zip(
            gradient, torch.autograd.grad(loss, list(model.parameters())), strict=True
        ):
            total += g
    for got, want in zip(grads, gradient, strict=True):
        assert torch.allclose(got, want, atol=1e-6)


def test_sliding_windows_stay_within_a_sample_too(random_model):
    model = random_model("mistral", sliding_window=4)
    batch = probe(23)
    plain = score(model, batch, 1.0, "padded")[0]
    assert torch.allclose(score(model, batch, 1.0, "packed")[0], plain, atol=1e-6)
    wide = random_model("mistral", sliding_window=None)
    assert (score(wide, batch, 1.0, "packed")[0] - plain).abs().max() > 1e-3  # the window acts


@pytest.mark.parametrize("order", [(7, 6, 5, 4, 3, 2, 1, 0), (3, 0, 7, 1, 6, 2, 5, 4)])
def test_the_order_of_packing_does_not_change_the_gradient(order):
    model, batch = factory.model(), factory.batch(factory.config())
    grads = []
    for index in (torch.arange(len(batch)), torch.tensor(order)):
        logp, _ = score(model, batch.select(index), 1.0, "packed")
        loss = (logp.sum(1) * weights(batch)[index]).sum()
        grads.append(torch.autograd.grad(loss, list(model.parameters())))
    for a, b in zip(*grads, strict=True):
        assert (a - b).abs().max() <= 1e-6


def test_rows_are_as_wide_as_the_longest_sample_and_hold_every_token_once():
    batch = factory.batch(factory.config())  # prompts of 3, 4, 5; completions of 1,7,2,6,3,5,4,4
    assert lengths(batch).tolist() == [3, 9, 4, 9, 6, 8, 8, 8]
    padded = lay_out(batch, packed=False)
    packed = lay_out(batch, packed=True)
    row = lay_out(batch, packed=True, one_row=True)
    assert padded.ids.shape == (8, 9)
    assert packed.ids.shape == (7, 9)  # 3 and 6 share a row, nothing else fits
    assert row.ids.shape == (1, 55)
    assert (row.positions == 0).sum() == 8
    assert sorted(row.ids.flatten().tolist() + [0] * 8) == sorted(packed.ids.flatten().tolist())


def test_bins_are_filled_best_fit_first():
    # by hand: 6 | 5 | 4 to the 6 (left 0) | 3 to the 5 (left 2) | 2 to the 5 (left 0)
    assert fit([2, 3, 4, 5, 6], 10) == [[4, 2], [3, 1, 0]]
    assert fit([12, 1], 10) == [[0], [1]]


@pytest.mark.parametrize("limit", [1, 10, 14, 1024])
def test_groups_cut_into_rows_of_any_width_stay_exact(limit, monkeypatch):
    monkeypatch.setattr(branches.lay_out, "__defaults__", (limit,))
    model, batch = factory.model(), factory.batch(factory.config())
    plain = score(model, batch, 1.0)[0]
    assert torch.allclose(score(model, batch, 1.0, "branched")[0], plain, atol=1e-6)


def test_a_prompt_stands_once_in_a_row_with_its_completions():
    batch = factory.batch(factory.config())  # prompts of 3, 4, 5; completions of 1,7,2 6,3,5 4,4
    rows = branches.lay_out(batch)
    # by hand: 3 + 0+6+1, 4 + 5+2+4, 5 + 3+3 tokens in rows as wide as the longest
    assert rows.ids.shape == (3, 15)
    assert (rows.positions == 0).sum() == 3 + (3 * 15 - (10 + 15 + 11))
    assert branches.lay_out(batch, 11).ids.shape == (4, 11)  # 4+5+2 and 4+4 apart
    assert rows.mask[0, 0, 14].sum() == 4 + 4  # the last token of the longest: prompt and branch


def test_a_model_with_a_window_of_its_own_takes_plain_rows(random_model):
    assert branches.serves(factory.model())
    assert branches.serves(random_model("qwen3"))
    assert not branches.serves(random_model("mistral", sliding_window=4))
    assert not branches.serves(factory.model(attn_implementation="eager"))
