"""Order of prompts, the zero-variance filter, No-Positive-Resampling, resume."""

import factory
import pytest

from trainer.curriculum import Curriculum, live
from trainer.errors import RunStopped
from trainer.types import Group, Prompt


def prompt_at(index):
    return Prompt(f"q{index}", (1, 2), None, None, index)


def curriculum(size=10, *flags):
    return Curriculum(prompt_at, size, factory.config(*flags))


def answered(visit, passed, of=16, errors=0):
    """A group with `passed` of `of` rollouts right, `errors` of them without a reward."""
    group = Group(*visit)
    for i in range(of):
        r = factory.rollout(group.id, group.prompt.ids, 2, float(i < passed), seed=i)
        if i >= of - errors:
            r.reward, r.reward_error = None, "timeout"
        group.rollouts.append(r)
    return group


def visit(c, passed=8, **kwargs):
    (drawn,) = c.draw(1)
    c.observe(answered(drawn, passed, **kwargs))
    return drawn[1].index


def test_each_epoch_visits_every_prompt_once_in_another_order():
    c = curriculum(10)
    first, second = ([visit(c) for _ in range(10)] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_the_order_depends_on_the_seed_alone():
    def orders(seed):
        return [p.index for _, p in curriculum(50, "--run.seed", seed).draw(20)]

    assert orders("1") == orders("1")
    assert orders("1") != orders("2")


def test_a_prompt_drawn_twice_is_two_groups():
    numbers = [g for g, _ in curriculum(3).draw(6)]
    assert numbers == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("passed", "drawn_again"), [(15, False), (14, True)])
def test_fifteen_of_sixteen_retires_a_prompt_and_fourteen_does_not(passed, drawn_again):
    c = curriculum(4)
    index = visit(c, passed)
    for _ in range(3):
        visit(c)
    later = {visit(c) for _ in range(8)}
    assert (index in later) is drawn_again


def test_a_prompt_at_exactly_the_threshold_retires():
    c = curriculum(2)
    (drawn,) = c.draw(1)
    c.observe(answered(drawn, 9, of=10))
    assert c.retired == {drawn[1].id}


def test_a_group_whose_rollouts_all_failed_is_not_a_visit():
    c = curriculum(2)
    visit(c, passed=16, errors=16)
    assert c.retired == set()


def test_failed_rollouts_do_not_count_in_the_pass_rate():
    c = curriculum(2)
    visit(c, passed=12, errors=4)  # 12 of 12 scored are right
    assert len(c.retired) == 1


def test_retirement_can_be_switched_off():
    c = curriculum(2, "--curriculum.retire_above", "0")
    assert len({visit(c, passed=16) for _ in range(4)}) == 2
    assert c.retired == set()


def test_resume_in_the_middle_of_an_epoch_keeps_order_and_exclusions():
    whole, first = curriculum(7), curriculum(7)
    passed = [16, 3, 16, 8, 1, 16, 2, 5, 5, 5]
    expected = [visit(whole, p) for p in passed]
    got = [visit(first, p) for p in passed[:4]]
    second = curriculum(7)
    second.load_state_dict(first.state_dict())
    got += [visit(second, p) for p in passed[4:]]
    assert got == expected
    assert second.state_dict() == whole.state_dict()


def test_what_was_under_way_is_generated_again_under_the_same_numbers():
    c = curriculum(9)
    drawn = c.draw(4)
    c.observe(answered(drawn[1], 3))
    later = curriculum(9)
    later.load_state_dict(c.state_dict())
    assert later.take_back() == [drawn[i] for i in (0, 2, 3)]


def test_a_starved_pool_stops_the_run_with_the_reason():
    c = curriculum(10, "--curriculum.floor", "0.5")
    for drawn in c.draw(10):
        c.observe(answered(drawn, passed=16))
    with pytest.raises(RunStopped, match=r"with curriculum\.floor"):
        c.draw(1)


def test_a_pool_of_which_nothing_is_left_stops_the_run_without_a_floor_too():
    c = curriculum(4, "--curriculum.floor", "0")
    for drawn in c.draw(4):
        c.observe(answered(drawn, passed=16))
    with pytest.raises(RunStopped, match="0% of 4 prompts are left"):
        c.draw(1)


def test_prompts_that_come_again_under_another_index_are_retired_with_it():
    def prompt_of_three(index):
        return Prompt(f"q{index % 3}", (1, 2), None, None, index)

    c = Curriculum(prompt_of_three, 12, factory.config("--curriculum.floor", "0.5"))
    with pytest.raises(RunStopped, match=r"with curriculum\.floor"):
        _ = [visit(c, passed=16) for _ in range(4)]  # three prompts to be solved, then none
    assert c.left == pytest.approx(5 / 12)  # 7 of 12 indices were met, fewer than half are left


def test_a_pool_cuts_the_task():
    c = curriculum(1000, "--curriculum.pool", "3")
    assert {visit(c) for _ in range(6)} == {0, 1, 2}


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ((1, 1, 1), False),
        ((0, 0), False),
        ((1, 0), True),
        ((0.5, 0.5 + 1e-7), False),
        ((1,), False),
    ],
)
def test_live_means_rewards_that_differ(rewards, expected):
    group = Group(0, prompt_at(0))
    group.rollouts = [factory.rollout(0, (1,), 2, r, seed=0) for r in rewards]
    assert live(group, 1e-6) is expected
