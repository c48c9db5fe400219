"""Groups from prompts: rewards, forced interruption, weights that change on the way."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from trainer.engine.base import (
    Completion,
    Request,
    SamplingParams,
    Span,
    derive_seed,
    generate,
)
from trainer.engine.local import LocalEngine
from trainer.errors import EngineError, TaskError
from trainer.evaluate import evaluate
from trainer.rollout import Interruption, RolloutWorker, _extend
from trainer.tasks.registry import make_task
from trainer.tasks.source import PromptSource, stop_ids
from trainer.types import Rollout
from trainer.verify import Verifier

PHRASE = (5, 4)  # <time></think>


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture(scope="module")
def model(tiny_model):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_model)


@pytest.fixture(scope="module")
def source(tokenizer):
    return PromptSource(make_task("chain"), tokenizer, 16)


@pytest.fixture
def worker(tiny_model, tokenizer):
    worker = RolloutWorker(
        LocalEngine.from_directory(tiny_model),
        Verifier("chain"),
        tokenizer,
        group_size=4,
        params=SamplingParams(16, 1.0, stop_ids(tokenizer, tiny_model)),
        seed=7,
    )
    yield worker
    worker.close()


def finish(worker):
    groups = []
    while worker.running:
        groups += worker.poll(1.0)
    return sorted(groups, key=lambda group: group.id)


def logprobs(model, rollout):
    ids = torch.tensor([[*rollout.prompt_ids, *rollout.ids]])
    with torch.no_grad():
        logp = torch.log_softmax(model(ids).logits[0], -1)[len(rollout.prompt_ids) - 1 : -1]
    return logp.gather(1, torch.tensor(rollout.ids)[:, None])[:, 0]


def test_groups_come_complete_with_the_verifiers_rewards(worker, source, tokenizer, model):
    worker.start([(10 + i, source.train(i)) for i in range(8)])
    assert worker.running == 8
    groups = finish(worker)
    assert [group.id for group in groups] == list(range(10, 18))
    task = make_task("chain")
    for group in groups:
        assert len(group.rollouts) == 4
        for r in group.rollouts:
            text = tokenizer.decode(r.ids, skip_special_tokens=True)
            assert r.reward == task.score(text, group.prompt.question, group.prompt.answer)
            assert r.group == group.id
            assert r.prompt_ids == list(group.prompt.ids)
            assert r.versions == [(0, 0, len(r.ids))]
            assert r.mask == [1] * len(r.ids)
            assert (logprobs(model, r) - torch.tensor(r.logprobs)).abs().max() < 1e-4
    assert worker.running == 0


def test_the_pass_rate_of_the_tiny_model_is_that_of_its_making(worker, source, tiny_model):
    found = evaluate(worker, source.held_out(256), n=8, ks=[1, 8], params=worker.params, seed=1)
    assert 0.15 <= found.pass_rate <= 0.25
    assert found.pass_at_k[8] > found.pass_at_k[1] == pytest.approx(found.pass_rate)


def test_the_same_prompt_twice_makes_two_groups(worker, source):
    prompt = source.train(3)
    worker.start([(0, prompt), (1, prompt)])
    one, two = finish(worker)
    assert (one.id, two.id) == (0, 1)
    assert [r.group for r in two.rollouts] == [1] * 4
    assert [r.ids for r in one.rollouts] != [r.ids for r in two.rollouts]
    with pytest.raises(EngineError, match="group 2 is on its way"):
        worker.start([(2, prompt), (2, prompt)])


def test_a_group_drawn_again_after_a_restart_is_the_same(worker, source, tiny_model, tokenizer):
    worker.start([(i, source.train(i)) for i in range(6)])
    first = finish(worker)
    again = RolloutWorker(
        LocalEngine.from_directory(tiny_model, slots=3),
        Verifier("chain"),
        tokenizer,
        group_size=4,
        params=worker.params,
        seed=7,
    )
    again.start([(4, source.train(4))])
    [group] = finish(again)
    again.close()
    assert [r.ids for r in group.rollouts] == [r.ids for r in first[4].rollouts]


def test_evaluation_leaves_training_groups_on_their_way_alone(worker, source):
    worker.start([(i, source.train(i)) for i in range(5)])
    found = evaluate(worker, source.held_out(8), n=2, ks=[1], params=worker.params, seed=1)
    assert (found.n_prompts, found.n_samples) == (8, 2)
    assert worker.running == 5
    assert [group.id for group in finish(worker)] == [0, 1, 2, 3, 4]


def test_evaluations_repeat_with_their_seed_and_differ_with_another(worker, source):
    def rates(seed):
        groups = worker.sample(source.held_out(8), 2, worker.params, seed=(seed,))
        return [r.ids for group in groups for r in group.rollouts]

    assert rates(1) == rates(1)
    assert rates(1) != rates(2)


def test_more_rollouts_for_pass_at_k_than_there_are_is_refused(worker, source):
    with pytest.raises(TaskError, match=r"pass@4 needs 4 rollouts a prompt, eval\.samples is 2"):
        evaluate(worker, source.held_out(1), n=2, ks=[4], params=worker.params, seed=1)


# ---------------------------------------------------------------------- forced interruption


def interruption(tokenizer, thinking, answer):
    return Interruption.from_text(
        tokenizer,
        thinking_tokens=thinking,
        answer_tokens=answer,
        phrase="<time></think>",
        end="</think>",
    )


def test_thinking_beyond_its_budget_gets_the_phrase_masked_and_then_an_answer(
    worker, source, tokenizer, model
):
    worker.interruption = interruption(tokenizer, 4, 4)
    worker.start([(i, source.train(i)) for i in range(8)])
    for group in finish(worker):
        for r in group.rollouts:
            assert r.interrupted
            assert tuple(r.ids[4:6]) == PHRASE
            assert r.mask == [1] * 4 + [0] * 2 + [1] * (len(r.ids) - 6)
            assert r.logprobs[4:6] == [0.0, 0.0]
            assert r.versions == [(0, 0, len(r.ids))]
            assert 7 <= len(r.ids) <= 10
            drawn = torch.tensor(r.mask) == 1
            gap = (logprobs(model, r) - torch.tensor(r.logprobs))[drawn].abs().max()
            assert gap < 1e-4  # the answer is drawn given the phrase
            assert r.reward is not None


def test_thinking_that_ended_by_itself_goes_on_without_the_phrase(worker, source, tokenizer):
    worker.interruption = interruption(tokenizer, 7, 4)  # <think>a,b,c</think> is seven tokens
    worker.start([(i, source.train(i)) for i in range(8)])
    plain = [r for group in finish(worker) for r in group.rollouts if not r.interrupted]
    assert plain
    for r in plain:
        assert PHRASE[0] not in r.ids
        assert r.mask == [1] * len(r.ids)
        assert r.ids[6] == 4


def test_interrupted_is_not_truncated(worker, source, tokenizer):
    worker.interruption = interruption(tokenizer, 4, 2)
    worker.start([(i, source.train(i)) for i in range(8)])
    ended = [r.finish_reason for group in finish(worker) for r in group.rollouts]
    assert "stop" in ended  # a digit and the end fit in two tokens
    worker.interruption = interruption(tokenizer, 4, 1)
    worker.start([(i, source.train(i)) for i in range(8, 16)])
    rollouts = [r for group in finish(worker) for r in group.rollouts]
    assert {r.finish_reason for r in rollouts} == {"length"}
    assert all(r.interrupted for r in rollouts)


@pytest.mark.parametrize(
    ("phrase", "end", "message"),
    [
        ("Okay, time is up. </think>", "</think>", "cannot write 'Okay, time is up. </think>'"),
        ("<time>", "</think>", "does not end the thinking"),
        ("<time></think>", "</thought>", "cannot write '</thought>'"),
    ],
)
def test_a_phrase_that_cannot_work_is_refused(tokenizer, phrase, end, message):
    with pytest.raises(TaskError, match=message):
        Interruption.from_text(
            tokenizer, thinking_tokens=4, answer_tokens=2, phrase=phrase, end=end
        )


# ---------------------------------------------------------------------- weights on the way


def test_rollouts_that_live_through_an_update_say_which_weights_drew_which_token(
    worker, source, model
):
    worker.start([(i, source.train(i)) for i in range(4)])
    for _ in range(3):
        worker.engine.collect(0.0)
    worker.engine.pause(keep_cache=True)
    worker.engine.update(5, model.state_dict())
    worker.engine.resume()
    for group in finish(worker):
        for r in group.rollouts:
            assert r.versions == [(0, 0, 3), (5, 3, len(r.ids))]
            assert r.oldest == 0
        assert group.oldest == 0


def test_parts_join_into_spans_that_cover_the_rollout():
    rollout = Rollout(0, "p", [1], [], [], [], "error", [])
    _extend(rollout, Completion(0, [7, 7, 7], [-1.0] * 3, "length", [Span(1, 0, 2), Span(2, 2, 3)]))
    _extend(rollout, Completion(1, [8, 8], [-2.0] * 2, "stop", [Span(2, 0, 1), Span(3, 1, 2)]))
    assert rollout.versions == [(1, 0, 2), (2, 2, 4), (3, 4, 5)]
    assert rollout.ids == [7, 7, 7, 8, 8]
    assert rollout.finish_reason == "stop"


def test_ids_go_through_unchanged_even_where_the_text_would_be_read_otherwise(
    worker, source, tokenizer
):
    merging = copy.deepcopy(tokenizer)
    merging.add_tokens([f"{a}{b}" for a in range(10) for b in range(10)])
    worker.tokenizer = merging
    worker.params = replace(worker.params, temperature=5.0)  # digits beside digits
    worker.start([(0, source.train(0)), (1, source.train(1))])
    rollouts = [r for group in finish(worker) for r in group.rollouts]
    requests = [
        Request(
            i,
            tuple(r.prompt_ids),
            replace(worker.params, seed=derive_seed(worker.seed, i // 4, i % 4, 0)),
        )
        for i, r in enumerate(rollouts)
    ]
    drawn = [completion.ids for completion in generate(worker.engine, requests)]
    assert [r.ids for r in rollouts] == drawn
    again = [merging(merging.decode(ids), add_special_tokens=False)["input_ids"] for ids in drawn]
    assert any(len(read) < len(ids) for read, ids in zip(again, drawn, strict=True))
