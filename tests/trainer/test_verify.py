"""Verifiers that hang, die, leak or lie, in real processes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from trainer.errors import TaskError
from trainer.tasks.canary import canary
from trainer.tasks.registry import make_task
from trainer.verify import Answer, Verdict, Verifier


@pytest.fixture
def verifier():
    verifier = Verifier("traps:Trap", workers=1, deadline_s=0.5)
    verifier.score([Answer(0, "right", None, "right")])  # started
    yield verifier
    verifier.close()
    verifier.close()


def test_a_hanging_answer_times_out_and_the_others_score_on_time(verifier):
    texts = ["right", "wrong", "hang", "right", "right"]
    start = time.monotonic()
    verdicts = verifier.score([Answer(i, text, None, "right") for i, text in enumerate(texts)])
    assert verdicts == [
        Verdict(0, 1.0, None),
        Verdict(1, 0.0, None),
        Verdict(2, None, "timeout"),
        Verdict(3, 1.0, None),
        Verdict(4, 1.0, None),
    ]
    assert time.monotonic() - start < 5.0
    assert verifier.kills == 1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("die", "crash: ended with code 3"),
        ("raise", "KeyError: 'no such symbol'"),
        ("nan", "ValueError: reward nan is not within 0 and 1"),
        ("leak", "MemoryError: "),
    ],
)
def test_an_error_of_the_verifier_is_an_error_and_not_a_zero(verifier, text, error):
    verdicts = verifier.score(
        [Answer("a", text, None, "right"), Answer("b", "right", None, "right")]
    )
    assert verdicts == [Verdict("a", None, error), Verdict("b", 1.0, None)]


def test_many_hanging_answers_each_get_their_own_verdict(verifier):
    texts = ["hang", "right"] * 3
    verdicts = verifier.score([Answer(i, text, None, "right") for i, text in enumerate(texts)])
    assert [verdict.error for verdict in verdicts] == ["timeout", None] * 3
    assert verifier.pending == 0


def test_a_parent_that_looks_all_the_time_never_sees_a_clock_half_written(verifier):
    many = 30_000
    verifier.submit(Answer(i, "right", None, "right") for i in range(many))
    verdicts = []
    while len(verdicts) < many:
        verdicts += verifier.poll(0.0)
    assert {(verdict.reward, verdict.error) for verdict in verdicts} == {(1.0, None)}
    assert verifier.kills == 0


def test_no_process_is_left_behind(verifier):
    pid = verifier._workers[0].child.process.pid
    verifier.score([Answer(0, "hang", None, "right")])
    replaced = verifier._workers[0].child.process.pid
    assert replaced != pid
    verifier.close()
    assert not Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{replaced}").exists()


def test_poll_waits_no_longer_than_asked(verifier):
    verifier.submit([Answer(0, "hang", None, "right")])
    start = time.monotonic()
    assert verifier.poll(0.1) == []
    assert time.monotonic() - start < 5


def test_a_verifier_that_cannot_start_says_so():
    with pytest.raises(TaskError, match="verifier of task nothing did not start"):
        Verifier("nothing").score([Answer(0, "", None, "")])


# ---------------------------------------------------------------------- the canary


def test_the_canary_lets_a_sound_verifier_pass(verifier):
    canary(make_task("traps:Trap"), verifier, number=3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("traps:Deaf", "the gold completion of 'train0' .* scores 0.0, not 1"),
        ("traps:Generous", "the empty completion of 'train0' .* scores 1.0, not 0"),
        ("traps:Hanging", "the gold completion of 'train0' .* scores timeout, not 1"),
    ],
)
def test_the_canary_refuses_to_train(name, message):
    verifier = Verifier(name, deadline_s=0.5)
    try:
        with pytest.raises(TaskError, match=message):
            canary(make_task(name), verifier, number=1)
    finally:
        verifier.close()


def test_the_canary_sings_for_the_tiny_models_task():
    verifier = Verifier("chain")
    try:
        canary(make_task("chain"), verifier)
    finally:
        verifier.close()
