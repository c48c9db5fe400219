"""The admission rule, simulated: no group is ever older than k when it is learned from."""

import random

import pytest

from trainer.staleness import Admission


@pytest.mark.parametrize("discarded", [0.0, 0.3])
@pytest.mark.parametrize("k", [0, 1, 8])
@pytest.mark.parametrize("B", [1, 4])
def test_no_group_is_older_than_k_however_slow_some_are(k, B, discarded):
    rng, rule, version, number = random.Random(7), Admission(B, k), 0, 0
    admitted, ages = {}, []
    while version < 100:
        new = list(range(number, number := number + rule.room(version)))
        rule.start(new, version)
        admitted.update(dict.fromkeys(new, version))
        for group in list(rule.running):
            if rng.random() < (0.02 if group % 5 == 0 else 0.5):  # a fifth are stragglers
                rule.discard(group) if rng.random() < discarded else rule.finish(group)
        batch = rule.batch(version)
        if batch is not None:
            assert len(batch) == B
            ages += [version - admitted[g] for g in batch]
            version += 1
    assert max(ages) == k
    assert len(ages) == 100 * B


def test_room_is_the_formula_by_hand():
    rule = Admission(B=4, k=2, accepted=5)
    rule.start([1, 2, 3], version=1)
    assert rule.room(version=1) == (1 + 2 + 1) * 4 - 5 - 3
    assert Admission(4, 0, accepted=8).room(0) == 0


def test_after_a_resume_capacity_does_not_jump():
    assert Admission(B=4, k=2, accepted=10 * 4).room(10) == (2 + 1) * 4


def test_a_step_takes_the_oldest_groups_first():
    rule = Admission(B=2, k=8)
    rule.start([0, 1], 0)
    rule.start([2, 3], 3)
    for group in (3, 2, 1):
        rule.finish(group)
    assert rule.batch(3) == [1, 2]
