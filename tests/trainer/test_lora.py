"""Adapters are trained, the base stays, and the engine gets the sum of both."""

import copy
import sys

import factory
import pytest
import torch
from transformers import AutoModelForCausalLM

from trainer.cli import main
from trainer.engine import open_engine
from trainer.engine.base import Request, SamplingParams, generate
from trainer.errors import ConfigError
from trainer.learner import Learner
from trainer.policy import score

pytest.importorskip("peft")

RANK4 = ("--learner.lora_rank", "4", "--learner.lora_alpha", "8", "--optim.warmup", "0")


def trained(*flags, steps=3, model=None, lr="1e-2"):
    cfg = factory.config(*RANK4, "--optim.lr", lr, *flags)
    learner = Learner(model or factory.model(), cfg)
    for _ in range(steps):
        assert learner.step(factory.batch(cfg)).skipped == ""
    return learner, cfg


def test_the_first_step_starts_from_the_model_itself_and_only_adapters_move():
    before = factory.model().state_dict()
    learner, _ = trained(steps=0)
    assert all(torch.equal(w, before[n]) for n, w in learner.weights().items())
    learner, _ = trained()
    trainable = [n for n, p in learner.model.named_parameters() if p.requires_grad]
    assert len(trainable) == 2 * 7 * 2  # A and B of seven linear layers, twice
    assert sum(p.numel() for p in learner.parameters) < sum(w.numel() for w in before.values()) / 2
    for name, w in learner.model.state_dict().items():
        if ".lora_" not in name:
            assert torch.equal(w, before[name.replace(".base_layer", "")]), name


def test_merged_weights_are_w_plus_alpha_over_r_times_b_a_under_the_models_names():
    learner, _ = trained()
    before = factory.model().state_dict()
    merged = learner.weights()
    assert merged.keys() == before.keys()
    name = "model.layers.1.mlp.up_proj"
    state = learner.model.state_dict()
    A, B = (state[f"{name}.lora_{x}.default.weight"].double() for x in "AB")
    want = before[f"{name}.weight"].double() + 8 / 4 * B @ A
    assert torch.allclose(merged[f"{name}.weight"].double(), want, atol=1e-6)
    assert (merged[f"{name}.weight"] - before[f"{name}.weight"]).abs().max() > 1e-3


def test_the_merged_model_computes_what_the_learner_does():
    learner, cfg = trained()
    plain = factory.model()
    plain.load_state_dict(learner.weights())
    batch = factory.batch(cfg)
    want = score(plain, batch, 1.0)[0]
    assert torch.allclose(learner.logprobs(batch), want, atol=1e-5)
    assert (want - score(factory.model(), batch, 1.0)[0]).abs().max() > 0.1


def test_the_engine_draws_with_the_learners_log_probabilities(tiny_model):
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    learner, cfg = trained(model=model)
    engine = open_engine("local", tiny_model)
    engine.pause()
    engine.update(1, learner.weights())
    engine.resume()
    prompt = factory.groups()[0].prompt
    done = generate(engine, [Request(0, prompt.ids, SamplingParams(max_tokens=8, seed=3))])[0]
    group = factory.groups(((len(done.ids), 1),), ((1, 0),))[0]
    group.rollouts[0].ids, group.rollouts[0].logprobs = done.ids, done.logprobs
    logp = learner.logprobs(factory.batch(cfg, [group]))[0, : len(done.ids)]
    assert torch.allclose(logp, torch.tensor(done.logprobs), atol=1e-4)


def test_the_reference_is_the_base_and_costs_no_copy():
    learner, cfg = trained("--kl.coef", "0.1")
    assert learner.reference is None
    batch = factory.batch(cfg)
    base = score(factory.model(), batch, 1.0)[0]
    adapted = learner.logprobs(batch)
    assert torch.allclose(learner.logprobs(batch, reference=True), base, atol=1e-6)
    assert torch.equal(learner.logprobs(batch), adapted)  # and the adapters are back
    assert learner.step(batch).kl_loss > 0


@pytest.mark.parametrize("flag", ["--learner.checkpointing", "--learner.packing"])
def test_rows_and_recomputed_layers_give_the_same_adapters(flag):
    a, _ = trained(lr="1e-3")
    b, _ = trained(flag, "true", lr="1e-3")
    for x, y in zip(a.parameters, b.parameters, strict=True):
        assert (x - y).abs().max() <= 1e-5


def test_a_checkpoint_holds_the_adapters_alone_and_goes_on_bit_for_bit():
    first, cfg = trained()
    state = copy.deepcopy(first.state_dict())
    assert all(".lora_" in name for name in state["model"])
    second, _ = trained(steps=0)
    second.load_state_dict(state)
    a, b = (learner.step(factory.batch(cfg)) for learner in (first, second))
    assert (a.loss, a.grad_norm) == (b.loss, b.grad_norm)
    for x, y in zip(first.parameters, second.parameters, strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("target", ["q_porj", "lm_head"])
def test_a_layer_that_cannot_have_adapters_is_refused(target):
    cfg = factory.config(*RANK4, "--learner.lora_targets", f'["{target}"]')
    with pytest.raises(ConfigError, match=r"there are down_proj, .*q_proj"):
        Learner(factory.model(), cfg)


def test_a_missing_peft_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)  # as Python marks what cannot be imported
    with pytest.raises(ConfigError, match=r"learner.lora_rank needs peft: pip install"):
        Learner(factory.model(), factory.config(*RANK4))


def test_a_run_with_adapters_is_interrupted_and_resumed(tmp_path, tiny_model):
    from test_run import flags, rows

    settings = {"model__path": tiny_model, "learner__lora_rank": 4, "kl__coef": 0.01}
    assert main(["--recipe", "tiny", *flags(tmp_path, run__name="a", **settings)]) == 0
    short = flags(tmp_path, run__name="b", **{**settings, "run__steps": 3})
    assert main(["--recipe", "tiny", *short]) == 0
    assert main(["--resume", str(tmp_path / "b"), "--run.steps", "6"]) == 0
    whole, cut = (
        [(r["step"], r["loss"], r["grad_norm"]) for r in rows(tmp_path / name, "step")]
        for name in "ab"
    )
    assert cut == whole
    assert all(r["logp_gap_max"] < 1e-4 for r in rows(tmp_path / "a", "eval"))
