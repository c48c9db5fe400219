"""One optimiser step: the gradient does not depend on how the batch is cut, packed or spread."""

import copy
import math

import factory
import pytest
import torch

from trainer.batch import make_batch, rows, shaped_rewards
from trainer.errors import ConfigError
from trainer.learner import Learner
from trainer.micro import micro_batches
from trainer.packing import lengths
from trainer.policy import score

AGGREGATIONS = ("token", "sample", "prompt", "constant")


def step(cfg, batch, model=None, **kwargs):
    learner = Learner(model or factory.model(), cfg)
    result = learner.step(batch, **kwargs)
    return learner, result


def unshared_logprobs(model, groups):
    """Each sample alone, prompt and all, as one plain forward pass."""
    out = []
    for group in groups:
        for r in group.rollouts:
            ids = torch.tensor([[*group.prompt.ids, *r.ids]])
            logp = model(input_ids=ids).logits[0].float().log_softmax(-1)
            n = len(group.prompt.ids)
            out.append(logp[n - 1 : -1].gather(1, torch.tensor(r.ids)[:, None])[:, 0])
    return out


def test_shared_prompts_give_the_log_probabilities_of_plain_forward_passes():
    model, groups = factory.model(), factory.groups()
    batch = factory.batch(factory.config(), groups)
    logp, entropy = score(model, batch, 1.0)
    want = unshared_logprobs(model, groups)
    for i, w in enumerate(want):
        assert torch.allclose(logp[i, : len(w)], w, atol=1e-5)
    assert (entropy[batch.mask > 0] > 0).all()
    assert (logp[batch.mask == 0] == 0).all()


def test_shared_prompts_give_the_gradient_of_plain_forward_passes():
    model, groups = factory.model(), factory.groups()
    batch = factory.batch(factory.config(), groups)
    parameters = list(model.parameters())
    loss = (score(model, batch, 1.0)[0].sum(1) * batch.advantages).sum()
    got = torch.autograd.grad(loss, parameters)
    logps = unshared_logprobs(model, groups)
    plain = sum(x.sum() * a for x, a in zip(logps, batch.advantages, strict=True))
    for a, b in zip(got, torch.autograd.grad(plain, parameters), strict=True):
        assert torch.allclose(a, b, atol=1e-4 * b.abs().max().item())


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("micro", [1, 2, 4])
def test_micro_batches_do_not_change_the_gradient(aggregation, micro):
    flags = ("--loss.aggregation", aggregation, "--optim.clip", "0")
    whole = factory.config(*flags)
    cut = factory.config(*flags, "--optim.micro_batch", str(micro))
    a, ra = step(whole, factory.batch(whole))
    b, rb = step(cut, factory.batch(cut))
    assert (factory.gradient(a) - factory.gradient(b)).abs().max() <= 1e-6
    assert ra.loss == pytest.approx(rb.loss, abs=1e-6)
    assert factory.gradient(a).abs().max() > 1e-3


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_packing_order_does_not_change_the_gradient(aggregation):
    cfg = factory.config("--loss.aggregation", aggregation, "--optim.clip", "0")
    a, _ = step(cfg, factory.batch(cfg))
    shuffled = [factory.groups()[i] for i in (2, 0, 1)]
    for group in shuffled:
        group.rollouts.reverse()
    b, _ = step(cfg, factory.batch(cfg, shuffled))
    assert (factory.gradient(a) - factory.gradient(b)).abs().max() <= 1e-6


@pytest.mark.parametrize("flag", ["--learner.checkpointing", "--learner.packing"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_rows_and_recomputed_layers_do_not_change_the_gradient(aggregation, flag):
    flags = ("--loss.aggregation", aggregation, "--optim.clip", "0")
    a, ra = step(cfg := factory.config(*flags), factory.batch(cfg))
    b, rb = step(cfg := factory.config(*flags, flag, "true"), factory.batch(cfg))
    assert (factory.gradient(a) - factory.gradient(b)).abs().max() <= 1e-6
    assert ra.loss == pytest.approx(rb.loss, abs=1e-6)


def test_recomputed_layers_keep_less_for_the_backward_pass():
    kept = []
    for flags in (("--learner.packing", "true"), ("--learner.checkpointing", "true")):
        cfg = factory.config(*flags)
        learner, sizes = Learner(factory.model(layers=8), cfg), []
        pack = torch.autograd.graph.saved_tensors_hooks(
            lambda x, sizes=sizes: (sizes.append(x.numel()), x)[1], lambda x: x
        )
        with pack:
            learner.scorer(factory.batch(cfg), 1.0)
        kept.append(sum(sizes))
    assert kept[1] < kept[0] / 4


def test_passes_of_packed_rows_hold_so_many_tokens():
    cfg = factory.config("--learner.packing", "true", "--learner.micro_tokens", "20")
    batch = factory.batch(cfg)
    cuts = list(micro_batches(batch, cfg))
    assert sorted(torch.cat(cuts).tolist()) == list(range(8))
    # by hand: 9 + 9, then 8 + 8 with the 4 that fits best, then 8 + 6 + 3
    assert [int(lengths(batch)[i].sum()) for i in cuts] == [18, 20, 17]


def test_a_model_that_mixes_packed_samples_is_refused():
    model = factory.model()

    def forgetful(**inputs):  # as a model that takes no note of where a sample begins
        inputs.pop("position_ids")
        return type(model.model).forward(model.model, **inputs)

    model.model.forward = forgetful
    with pytest.raises(ConfigError, match="samples of a row change each other"):
        Learner(model, factory.config("--learner.packing", "true"))
    learner = Learner(model, factory.config("--learner.checkpointing", "true"))
    assert learner.scorer.way == "padded"  # where rows of several samples are a matter of speed


# Non-finite numbers


def test_a_non_finite_sampler_log_probability_leaves_that_token_out_and_the_step_goes_on():
    cfg, groups = factory.config("--loss.aggregation", "token"), factory.groups()
    groups[0].rollouts[1].logprobs[3] = math.nan
    batch = factory.batch(cfg, groups)
    assert batch.dropped_tokens == 1
    assert batch.counted.sum() == 32 - 1
    _, result = step(cfg, batch)
    assert result.skipped == ""
    assert math.isfinite(result.loss)


def test_a_non_finite_loss_leaves_weights_and_optimiser_bit_identical():
    cfg = factory.config()
    learner = Learner(factory.model(), cfg)
    learner.step(factory.batch(cfg))
    before = copy.deepcopy(learner.state_dict())
    bad = factory.batch(cfg)
    bad.advantages[0] = math.nan
    result = learner.step(bad)
    assert result.skipped
    after = learner.state_dict()
    for name, w in before["model"].items():
        assert torch.equal(w, after["model"][name])
    for i, s in before["optimizer"]["state"].items():
        for key, value in s.items():
            assert torch.equal(value, after["optimizer"]["state"][i][key])
    assert after["step_count"] == before["step_count"] == 1
    assert learner.step(factory.batch(cfg)).skipped == ""


# Temperature, anchors, masks


def sampled(model, temperature):
    """Groups whose log-probabilities are the model's own at `temperature`."""
    groups = factory.groups()
    for group in groups:
        for r in group.rollouts:
            ids = torch.tensor([[*group.prompt.ids, *r.ids]])
            z = model(input_ids=ids).logits[0].double() / temperature
            n = len(group.prompt.ids)
            logp = z.log_softmax(-1)[n - 1 : -1].gather(1, torch.tensor(r.ids)[:, None])
            r.logprobs = logp[:, 0].tolist()
    return groups


@pytest.mark.parametrize(("learner_temperature", "agrees"), [("0.6", True), ("1.0", False)])
def test_learner_and_sampler_agree_only_at_the_same_temperature(learner_temperature, agrees):
    model = factory.model()
    cfg = factory.config("--sample.temperature", learner_temperature)
    _, result = step(cfg, factory.batch(cfg, sampled(model, 0.6)), model)
    signals = result.tally.signals()
    assert (signals["logp_gap"] < 1e-4) is agrees
    assert (abs(signals["is_ratio_max"] - 1) < 1e-3) is agrees


def test_on_policy_with_normalised_advantages_the_loss_is_near_0_while_the_gradient_is_not():
    model = factory.model()
    flags = ("--loss.name", "clip", "--loss.aggregation", "sample", "--loss.anchor", "old")
    cfg = factory.config(*flags, "--loss.advantage", "prompt")
    _, result = step(cfg, factory.batch(cfg, sampled(model, 1.0)), model)
    assert abs(result.loss) < 1e-5
    assert result.grad_norm > 0.05


def truncated():
    groups = factory.groups(((3, 3, 3, 3),), ((1, 0, 0, 1),))
    groups[0].rollouts[3].finish_reason = "length"
    return groups


def test_masking_truncated_samples_with_renormalisation_equals_removing_them():
    flags = ("--loss.aggregation", "token", "--loss.advantage", "none", "--optim.clip", "0")
    cfg = factory.config(*flags, "--loss.mask_truncated", "true")
    _, masked = step(cfg, factory.batch(cfg, truncated()))
    full = factory.batch(factory.config(*flags), truncated())
    _, removed = step(factory.config(*flags), rows(full, torch.tensor([0, 1, 2])))
    assert masked.loss == pytest.approx(removed.loss, abs=1e-6)
    cfg = factory.config(*flags, "--loss.mask_truncated", "true", "--loss.renormalise", "false")
    _, weighted = step(cfg, factory.batch(cfg, truncated()))
    assert weighted.loss == pytest.approx(0.75 * removed.loss, abs=1e-6)


def test_injected_tokens_carry_no_gradient_and_count_in_no_denominator():
    cfg, groups = factory.config("--loss.aggregation", "token"), factory.groups()
    groups[0].rollouts[1].mask = [1, 1, 0, 0, 0, 1, 1]
    batch = factory.batch(cfg, groups)
    assert batch.counted.sum() == 32 - 3
    changed = copy.deepcopy(groups)
    for t in (2, 3, 4):
        changed[0].rollouts[1].logprobs[t] = -50.0
    a, _ = step(cfg, batch)
    b, _ = step(cfg, factory.batch(cfg, changed))
    assert torch.equal(factory.gradient(a), factory.gradient(b))


def test_equal_rewards_have_gradient_exactly_zero():
    cfg = factory.config("--optim.clip", "0")
    groups = factory.groups(rewards=((1, 1, 1), (0, 0, 0), (1, 1)))
    learner, _ = step(cfg, make_batch(groups, shaped_rewards(groups, cfg), cfg))
    assert factory.gradient(learner).abs().max() == 0


def test_kl_to_the_reference_is_zero_at_the_start_and_pulls_back_later():
    cfg = factory.config("--kl.coef", "0.1", "--kl.estimator", "k3", "--optim.warmup", "0")
    learner = Learner(factory.model(), cfg)
    first = learner.step(factory.batch(cfg))
    second = learner.step(factory.batch(cfg))
    assert first.kl_loss == pytest.approx(0.0, abs=1e-9)
    assert second.kl_loss > 0
    assert second.loss == pytest.approx(second.policy_loss + second.kl_loss)


def test_old_log_probabilities_are_those_before_the_first_step():
    flags = ("--loss.name", "clip", "--loss.anchor", "old", "--optim.warmup", "0")
    cfg = factory.config(*flags, "--pipeline.mode", "off-policy", "--pipeline.k", "2")
    learner, batch = Learner(factory.model(), cfg), factory.batch(cfg_to := cfg)
    old = learner.logprobs(batch)
    assert torch.allclose(old, score(factory.model(), batch, cfg_to.sample.temperature)[0])
    first = learner.step(batch, old=old).tally.signals()
    second = learner.step(batch, old=old).tally.signals()
    assert first["is_ratio_max"] == pytest.approx(1.0, abs=1e-5)
    assert second["is_ratio_max"] > 1.001


def test_warm_up_is_linear_and_then_constant():
    learner = Learner(factory.model(), factory.config("--optim.lr", "1.0", "--optim.warmup", "4"))
    rates = []
    for n in range(6):
        learner.step_count = n
        rates.append(learner.learning_rate())
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
