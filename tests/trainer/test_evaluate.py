"""pass@k, mean@k and their errors against values worked by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.errors import TaskError
from trainer.evaluate import pass_at_k, summarise
from trainer.types import Group, Prompt, Rollout


@pytest.mark.parametrize(
    ("n", "c", "k", "value"),
    [
        (4, 2, 2, 5 / 6),  # the naive 1 − (1 − 1/2)² would be 0.75
        (16, 1, 8, 0.5),
        (4, 0, 4, 0.0),
        (4, 1, 4, 1.0),
        (10, 3, 1, 0.3),
        (5, 4, 2, 1.0),
    ],
)
def test_pass_at_k_worked_values(n, c, k, value):
    assert pass_at_k(n, c, k) == pytest.approx(value, abs=1e-12)


@given(n=st.integers(1, 7), data=st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_one(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    outcomes = [1] * c + [0] * (n - c)
    subsets = list(itertools.combinations(outcomes, k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize(("n", "c", "k"), [(4, 2, 5), (4, 5, 2), (4, 2, 0), (0, 0, 1)])
def test_pass_at_k_that_is_not_defined_is_refused(n, c, k):
    with pytest.raises(TaskError, match="not defined"):
        pass_at_k(n, c, k)


def group(number, rewards, reason="stop"):
    rollouts = [
        Rollout(
            number,
            "p",
            [1],
            [5, 2],
            [-1.0, -1.0],
            [1, 1],
            reason,
            [(0, 0, 2)],
            reward=reward,
            reward_error=None if reward is not None else "timeout",
        )
        for reward in rewards
    ]
    return Group(number, Prompt("p", (1,), "?", "!", number), rollouts)


def test_an_evaluation_worked_by_hand():
    groups = [group(0, [1.0, 1.0, 0.0, 0.0]), group(1, [0.0] * 4, "length"), group(2, [1.0] * 4)]
    found = summarise(groups, n=4, ks=[1, 2, 4])
    assert found.pass_rate == pytest.approx(0.5)
    assert found.pass_rate_se == pytest.approx(math.sqrt(0.5) / 3)  # sqrt(0 + .25 + .25) / 3
    assert found.pass_at_k == pytest.approx({1: 0.5, 2: (5 / 6 + 0 + 1) / 3, 4: 2 / 3})
    squares = (5 / 6 - 11 / 18) ** 2 + (11 / 18) ** 2 + (7 / 18) ** 2
    assert found.pass_at_k_se[2] == pytest.approx(math.sqrt(squares) / 3)
    assert (found.n_prompts, found.n_samples) == (3, 4)
    assert (found.tokens, found.truncated, found.errors) == (24, 4, 0)
    assert found.row()["pass_at_k"]["2"] == found.pass_at_k[2]


def test_rollouts_without_a_reward_are_errors_and_not_wrong():
    found = summarise([group(0, [1.0, None, 1.0, None]), group(1, [None] * 4)], n=4, ks=[1, 2, 4])
    assert found.pass_rate == 1.0
    assert found.errors == 6
    assert found.n_prompts == 1
    assert found.pass_at_k == {1: 1.0, 2: 1.0}  # no prompt has four scored rollouts


def test_continuous_rewards_are_correct_from_a_threshold_on():
    groups = [group(0, [0.2, 0.9, 1.0, 0.5])]
    assert summarise(groups, n=4, ks=[1]).pass_rate == 0.25
    found = summarise(groups, n=4, ks=[1], threshold=0.5)
    assert (found.pass_rate, found.reward) == (0.75, pytest.approx(0.65))


def test_an_evaluation_without_any_reward_is_refused():
    with pytest.raises(TaskError, match="no rollout of the evaluation could be scored"):
        summarise([group(0, [None, None])], n=2, ks=[1])
