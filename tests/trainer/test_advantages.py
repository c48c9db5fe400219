"""Advantages: every worked value of the papers' definitions, computed by hand."""

import pytest
import torch

from trainer.advantages import advantages, whiten_tokens

REWARDS = torch.tensor([1.0, 0, 0, 0, 1, 1, 1, 0], dtype=torch.float64)
GROUPS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
CENTERED = [0.75, -0.25, -0.25, -0.25, 0.25, 0.25, 0.25, -0.75]


def test_none_is_the_reward_minus_the_mean_of_its_prompt():
    assert advantages(REWARDS, GROUPS, "none").tolist() == pytest.approx(CENTERED)


def test_prompt_divides_by_the_population_std_of_the_group():
    # std of [1, 0, 0, 0] is sqrt(3)/4 = 0.4330
    expected = [x / 0.4330127 for x in CENTERED]
    assert advantages(REWARDS, GROUPS, "prompt").tolist() == pytest.approx(expected, abs=1e-5)


def test_batch_divides_by_the_std_of_centered_rewards_not_of_raw_ones():
    # centered 0.4330; the raw rewards' std would be 0.5
    A = advantages(REWARDS, GROUPS, "batch")
    assert A[0].item() == pytest.approx(0.75 / 0.4330127, abs=1e-6)
    assert A[0].item() != pytest.approx(0.75 / 0.5, abs=1e-2)


def test_the_filter_must_run_before_the_std_an_all_correct_group_moves_it():
    r = torch.cat([REWARDS, torch.ones(4, dtype=torch.float64)])
    p = torch.cat([GROUPS, torch.full((4,), 2)])
    A = advantages(r, p, "batch")
    assert A[0].item() == pytest.approx(0.75 / 0.3535534, abs=1e-6)  # 0.3536 instead of 0.4330


def test_leave_one_out_is_the_reward_minus_the_mean_of_the_others():
    A = advantages(REWARDS, GROUPS, "loo").tolist()
    assert A[0] == pytest.approx(1.0 - 0.0)
    assert A[1] == pytest.approx(0.0 - 1 / 3)
    assert A[7] == pytest.approx(0.0 - 1.0)


def test_an_all_equal_group_has_advantage_zero_and_no_division_by_zero():
    r, p = torch.ones(4), torch.zeros(4, dtype=torch.long)
    for scale in ("prompt", "batch", "none", "loo"):
        assert advantages(r, p, scale).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("scale", ["prompt", "batch", "none", "loo"])
def test_shuffled_order_gives_the_same_advantages(scale):
    order = torch.tensor([5, 0, 7, 2, 4, 1, 6, 3])
    expected = advantages(REWARDS, GROUPS, scale)[order]
    assert torch.allclose(advantages(REWARDS[order], GROUPS[order], scale), expected)


def test_the_same_prompt_drawn_twice_is_two_groups():
    r = torch.tensor([1.0, 0, 1, 1])
    assert advantages(r, torch.tensor([0, 0, 1, 1]), "none").tolist() == [0.5, -0.5, 0, 0]


def test_whitening_over_tokens_weighs_samples_by_their_length():
    # A = [1, -1] with 3 and 1 tokens: mean 0.5, variance (3·0.25 + 2.25)/4 = 0.75
    A = whiten_tokens(torch.tensor([1.0, -1.0]), torch.tensor([3.0, 1.0]))
    assert A.tolist() == pytest.approx([0.5 / 0.8660254, -1.5 / 0.8660254])
