"""From groups to tensors: ids as they are, masks, versions, shaped rewards."""

import factory
import pytest
import torch

from trainer.batch import make_batch, minus_kl, rows, shaped_rewards
from trainer.settings import Kl


def test_token_ids_pass_through_untouched_and_prompts_are_stored_once():
    groups = factory.groups()
    batch = factory.batch(factory.config(), groups)
    rollouts = [r for g in groups for r in g.rollouts]
    assert batch.prompt_ids.shape == (3, 5)
    for i, r in enumerate(rollouts):
        assert batch.ids[i, : len(r.ids)].tolist() == r.ids
        prompt, there = batch.prompt_ids[batch.prompt_of[i]], batch.prompt_mask[batch.prompt_of[i]]
        assert prompt[there].tolist() == r.prompt_ids
        assert bool(there[-1])  # left-padded: the last column is the prompt's last token


def test_ids_that_would_be_tokenised_otherwise_are_not_tokenised_again():
    groups = factory.groups(((2,), (2,)), ((1,), (0,)))
    groups[0].rollouts[0].ids = [4, 5]  # "a", "b", whose text another tokenizer writes as one "ab"
    assert factory.batch(factory.config(), groups).ids[0].tolist() == [4, 5]


def test_versions_stand_beside_their_tokens_and_minus_one_in_the_padding():
    groups = factory.groups(((3, 1),), ((1, 0),))
    groups[0].rollouts[0].versions = [(4, 0, 1), (5, 1, 3)]
    groups[0].rollouts[1].versions = [(5, 0, 1)]
    batch = factory.batch(factory.config(), groups)
    assert batch.versions.tolist() == [[4, 5, 5], [5, -1, -1]]
    assert groups[0].oldest == 4


def test_rollouts_without_a_reward_are_left_out_of_batch_and_advantages():
    groups = factory.groups(((2, 2, 2),), ((1, 0, 1),))
    groups[0].rollouts[2].reward = None
    groups[0].rollouts[2].reward_error = "timeout"
    batch = factory.batch(factory.config("--loss.advantage", "none"), groups)
    assert len(batch) == 2
    assert batch.advantages.tolist() == [0.5, -0.5]


def test_overlong_punishment_is_added_to_the_reward():
    cfg = factory.config("--reward.overlong_max", "6", "--reward.overlong_cache", "4")
    groups = factory.groups(((2, 4, 7),), ((1, 1, 0),))
    assert shaped_rewards(groups, cfg) == [[1.0, 0.5, -1.0]]


def test_kl_in_the_reward_by_hand():
    cfg = factory.config("--loss.advantage", "none")
    groups = factory.groups(((2, 1),), ((1, 0),))
    groups[0].rollouts[0].logprobs = [-1.0, -2.0]
    groups[0].rollouts[1].logprobs = [-0.5]
    batch = make_batch(groups, [[1.0, 0.0]], cfg)
    ref = torch.tensor([[-1.5, -2.25], [-0.25, 99.0]])
    kl = Kl(coef=0.1, estimator="k1", place="reward")
    # k1 = μ - ref: 0.5 + 0.25 and -0.25; the padding does not count
    ((first, second),) = minus_kl([[1.0, 0.0]], batch, ref, kl)
    assert (first, second) == (pytest.approx(1 - 0.075), pytest.approx(0.025))


def test_a_micro_batch_holds_only_the_prompts_and_the_width_it_needs():
    batch = factory.batch(factory.config())
    part = rows(batch, torch.tensor([0, 2]))
    assert part.prompt_ids.tolist() == [[1, 2, 3]]
    assert part.ids.shape == (2, 2)
    assert part.prompt_of.tolist() == [0, 0]
    last = rows(batch, torch.tensor([6, 1]))
    assert last.prompt_of.tolist() == [1, 0]
    assert last.ids.shape == (2, 7)
