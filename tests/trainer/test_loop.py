"""Parts of the loop on a real run: parity after an update, groups without a gradient, stopping."""

import copy

import factory
import pytest
import torch

from trainer import loop
from trainer.config import load
from trainer.errors import EngineError, RunStopped
from trainer.ledger import read
from trainer.run import open_run
from trainer.sources import Synchronous
from trainer.types import Group, Rollout

SMALL = ("--sample.prompts", "2", "--sample.group", "4", "--eval.prompts", "4", "--run.steps", "3")


@pytest.fixture
def opened(tmp_path, tiny_model):
    runs = []

    def open_with(*flags):
        config = load(["tiny"], None, [*SMALL, "--model.path", str(tiny_model), *flags])
        run = open_run(config, tmp_path / f"run{len(runs)}", resume=False)
        runs.append(run)
        return run

    yield open_with
    for run in runs:
        run.close("end of the test")


def test_weights_that_did_not_reach_the_engine_stop_the_run(opened):
    run = opened()
    loop.measure(run)
    with torch.no_grad():
        run.learner.model.get_output_embeddings().weight.mul_(1.2)
    with pytest.raises(EngineError, match="did not arrive whole"):
        loop.measure(run)
    run.source.update(0, run.weights())
    loop.measure(run)


def test_an_evaluation_within_a_nucleus_compares_the_whole_distribution_with_the_learner(opened):
    rates = []
    for top_p in ("1", "0.3"):
        run = opened("--eval.top_p", top_p, "--eval.prompts", "32", "--eval.samples", "4")
        loop.measure(run)
        row = list(read(run.ledger.path))[-1]
        assert row["event"] == "eval"
        assert row["logp_gap_max"] < 1e-4
        rates.append((row["pass_rate"], row["pass_at_k"]["4"]))
    # the tiny model errs by choosing among likely digits: with fewer of them answers repeat
    assert rates[1][1] - rates[1][0] < rates[0][1] - rates[0][0]


def equal_groups(run, reward, finish_reason="stop"):
    groups = []
    for number, prompt in run.curriculum.draw(2):
        rollouts = [
            Rollout(
                group=number,
                prompt_id=prompt.id,
                prompt_ids=list(prompt.ids),
                ids=[3, 5, 2],
                logprobs=[-1.0, -1.0, -1.0],
                mask=[1, 1, 1],
                finish_reason=finish_reason,
                versions=[(0, 0, 3)],
                reward=reward,
            )
            for _ in range(4)
        ]
        groups.append(Group(number, prompt, rollouts))
    return groups


def test_groups_without_variance_move_nothing_even_with_a_kl_term(opened):
    run = opened("--kl.coef", "0.1")
    before = copy.deepcopy(run.learner.model.state_dict())
    groups = equal_groups(run, 1.0)
    batch = loop.prepare(run, groups)
    assert batch is None
    result = loop.learn(run, groups, batch, None, 0)
    assert result.skipped == "no group has a gradient"
    for name, w in run.learner.model.state_dict().items():
        assert torch.equal(w, before[name])
    assert run.signals["reward"] == 1.0  # reported before filtering
    assert run.signals["all_pass_fraction"] == 1.0
    assert len(run.curriculum.retired) == 2  # all-pass groups count as visits


def test_a_critical_alarm_set_to_abort_stops_before_anything_is_saved(opened):
    run = opened("--watch.on_critical", "abort", "--checkpoint.every", "1")
    groups = equal_groups(run, 1.0, finish_reason="length")
    result = loop.learn(run, groups, loop.prepare(run, groups), None, 0)
    with pytest.raises(RunStopped, match="truncation_rate"):
        loop.judge(run, result)
    assert not run.checkpoints.exists() or not any(run.checkpoints.iterdir())


def test_dynamic_sampling_fills_the_batch_with_groups_that_have_a_gradient(opened):
    run = opened("--curriculum.refill", "true", "--sample.prompts", "8", "--sample.group", "2")
    (groups,) = run.source.take(0)
    alive = [g for g in groups if loop.live(g, 1e-6)]
    assert len(alive) >= 8
    assert len(groups) > 8  # at a pass rate of 0.2 a group of two is rarely mixed


def test_kl_in_the_reward_is_paid_by_every_sample(opened):
    run = opened("--kl.coef", "0.5", "--kl.place", "reward", "--loss.advantage", "none")
    (groups,) = run.source.take(0)
    while not any(loop.live(g, 1e-6) for g in groups):
        (groups,) = run.source.take(0)
    batch = loop.prepare(run, groups)
    assert batch is not None
    # the reference is the policy: the cost is rounding, the advantages are those of the rewards
    kept = [g for g in groups if loop.live(g, 1e-6)]
    plain = factory.batch(factory.config("--loss.advantage", "none"), kept)
    assert torch.allclose(batch.advantages, plain.advantages, atol=1e-4)


def test_a_step_without_one_finite_token_counts_as_not_finite(opened):
    run = opened("--optim.max_skipped", "2")
    before = copy.deepcopy(run.learner.model.state_dict())
    for step in range(2):
        groups = equal_groups(run, 1.0)
        for group in groups:
            group.rollouts[0].reward = 0.0
            for rollout in group.rollouts:
                rollout.logprobs = [float("nan")] * 3
        result = loop.learn(run, groups, loop.prepare(run, groups), None, 0)
        assert result.skipped.startswith("loss")
        if step == 0:
            loop.judge(run, result)
    assert run.not_finite == 1
    with pytest.raises(RunStopped, match="2 steps in a row were not finite"):
        loop.judge(run, result)
    after = run.learner.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def failing(monkeypatch, call, version):
    """Let the source's `call` fail at a version, as when the last engine is gone."""
    works = getattr(Synchronous, call)

    def fails(self, at, *rest):
        if at == version:
            raise EngineError(f"{call}: no engine is left")
        return works(self, at, *rest)

    monkeypatch.setattr(Synchronous, call, fails)


def results(folder, event):
    """What steps or evaluations came to, by step: each once."""
    keys = ["pass_rate"] if event == "eval" else ["reward", "loss", "grad_norm"]
    rows = [row for row in read(folder / "log.jsonl") if row["event"] == event]
    found = {row["step"]: [row[key] for key in keys] for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("call", ["take", "update"])
@pytest.mark.parametrize("mode", [(), ("--pipeline.mode", "off-policy", "--pipeline.k", "2")])
def test_a_failed_engine_costs_no_step_and_no_evaluation(
    tmp_path, tiny_model, monkeypatch, call, mode
):
    flags = [*SMALL, "--model.path", str(tiny_model), "--checkpoint.every", "0", *mode]
    flags += ["--run.steps", "4", "--eval.every", "2"]
    config = load(["tiny"], None, flags)
    loop.train(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        failing(patch, call, 2)  # update: of the weights that the evaluation of step 2 waits for
        words = f"{call}: no engine is left; the last good checkpoint is .*step-000002: resume from"
        with pytest.raises(EngineError, match=words):
            loop.train(config, tmp_path / "run")
    assert sorted(results(tmp_path / "run", "eval")) == ([0, 2] if call == "take" else [0])
    loop.train(config, tmp_path / "run", resume=True)
    for event in ("step", "eval"):
        assert results(tmp_path / "run", event) == results(tmp_path / "whole", event)


def test_a_failed_engine_between_steps_of_one_collection_leaves_the_last_checkpoint(
    tmp_path, tiny_model, monkeypatch
):
    """The groups of the steps to come are lost: what is saved must not count them as learned."""
    flags = [*SMALL, "--model.path", str(tiny_model), "--pipeline.mode", "off-policy"]
    flags += ["--pipeline.k", "2", "--checkpoint.every", "2", "--run.steps", "4"]
    failing(monkeypatch, "update", 3)
    with pytest.raises(EngineError, match=r"the last good checkpoint is .*step-000002: resume"):
        loop.train(load(["tiny"], None, flags), tmp_path / "run")


def test_an_alarm_that_asks_for_a_checkpoint_gets_it_once_the_step_is_done(opened):
    run = opened("--watch.on_critical", "checkpoint", "--checkpoint.every", "0")
    groups = equal_groups(run, 1.0, finish_reason="length")
    loop.judge(run, loop.learn(run, groups, loop.prepare(run, groups), None, 0))
    assert run.saved == 0
    loop.save_when_due(run)
    assert run.saved == 1
    run.step = 2
    loop.save_when_due(run)
    assert run.saved == 1
