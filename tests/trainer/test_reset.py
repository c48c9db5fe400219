"""ProRL's reset: the rule on series worked by hand, what it does to a learner, the command."""

import copy
import json
import math

import factory
import pytest
import torch
from test_run import flags, rows, timeless

import curvefit.cli
from trainer.cli import main
from trainer.learner import Learner
from trainer.reset import Resets

# The rule


def judged(rates, *settings, n=400, kls=()):
    """What the rule says after each evaluation; `kls` are the steps' KL losses before each."""
    resets, said = Resets(factory.config(*settings)), []
    for step, rate in enumerate(rates):
        for kl_loss in kls[step] if kls else ():
            resets.observe(kl_loss)
        said.append(resets.observe_eval(step, rate, n))
    return said


def steps_of(said):
    return [alarm.step for alarm in said if alarm is not None]


def test_a_stall_is_a_best_of_the_last_w_that_is_not_above_the_best_before_by_more_than_delta():
    stall = ("--reset.stall_evals", "3", "--reset.min_gain", "0.01")
    said = judged([0.30, 0.35, 0.355, 0.36, 0.36, 0.37], *stall)
    # at 3: .36 over .30; at 4: .36 over .35, a rise of .01, which is δ and no more
    assert steps_of(said) == [4]
    assert (said[4].signal, said[4].action, said[4].threshold) == ("reset", "reset", 0.01)
    assert said[4].value == pytest.approx(0.01)
    assert steps_of(judged([0.30, 0.35, 0.355, 0.36, 0.361], *stall)) == []  # .011 is more


def test_after_a_reset_the_window_starts_at_the_policy_that_was_reset():
    stall = ("--reset.stall_evals", "2")
    # at 3: .5, .4 against .6; the window is then [.4], so that the best is .4 and .41 is a rise
    assert steps_of(judged([0.3, 0.6, 0.5, 0.4, 0.41, 0.39, 0.40, 0.42], *stall)) == [3, 6]


def test_a_steady_climb_is_no_stall_however_slow():
    rates = [0.2 + 0.004 * i for i in range(30)]
    assert steps_of(judged(rates, "--reset.stall_evals", "5", "--reset.min_gain", "0.01")) == []


def test_a_fall_is_three_errors_of_a_difference_twice_running():
    drop = ("--reset.drop_se", "3")
    # n = 400: σ² = (.5·.5 + .4·.6)/400 = .001225, σ = .035, 3 σ = .105: a fall of .1 is none,
    # though it is four errors (.025) of one evaluation
    assert steps_of(judged([0.5, 0.4, 0.4, 0.4], *drop)) == []
    # .39: σ² = (.25 + .2379)/400, 3 σ = .10477 < .11
    said = judged([0.5, 0.39, 0.39, 0.39], *drop)
    assert steps_of(said) == [2]
    assert said[2].value == pytest.approx(0.11)
    assert said[2].threshold == pytest.approx(3 * math.sqrt(0.4879 / 400))
    assert steps_of(judged([0.5, 0.39, 0.41, 0.39, 0.5], *drop)) == []  # never twice running
    assert steps_of(judged([1.0, 0.0, 0.0], *drop)) == [2]  # where both errors are 0


def test_the_kl_is_the_mean_of_the_steps_since_the_last_evaluation():
    flags = ("--kl.coef", "0.1", "--reset.kl_above", "0.25")
    kls = [[], [0.01, 0.03], [0.02, 0.04, float("nan")], []]  # β KL: means of .2 and .3
    said = judged([0.5] * 4, *flags, kls=kls)
    assert steps_of(said) == [2]
    assert said[2].value == pytest.approx(0.3)
    assert "reference and optimiser start anew" in said[2].message


def test_a_reset_every_n_evaluations_and_none_by_default():
    rates = [0.1 * i for i in range(8)]
    assert steps_of(judged(rates, "--reset.every_evals", "3")) == [3, 6]
    assert steps_of(judged([0.5, 0.0] * 30)) == []


def test_the_rule_goes_on_where_it_was_saved():
    settings = ("--reset.stall_evals", "2", "--reset.drop_se", "3", "--kl.coef", "0.1")
    whole, before = (Resets(factory.config(*settings)) for _ in range(2))
    rates = [0.5, 0.6, 0.3, 0.3, 0.3, 0.4, 0.2, 0.2]
    want = [whole.observe_eval(i, rate, 400) for i, rate in enumerate(rates)]
    assert len(steps_of(want)) > 1
    got = []
    for i, rate in enumerate(rates):
        before.observe(0.01)
        after = Resets(factory.config(*settings))
        after.load_state_dict(json.loads(json.dumps(before.state_dict())))
        got.append(after.observe_eval(i, rate, 400))
        before = after
    assert got == want
    assert before.count == len(steps_of(want))


# What it does to a learner

KL = ("--kl.coef", "0.1", "--optim.lr", "1e-2")


def trained(*settings, steps=3):
    cfg = factory.config(*KL, *settings)
    learner, batch = Learner(factory.model(), cfg), factory.batch(cfg)
    return learner, batch, [learner.step(batch) for _ in range(steps)]


WAYS = {
    "k2": (),
    "k3": ("--kl.estimator", "k3"),
    "packed": ("--learner.packing", "true", "--learner.micro_tokens", "12"),
    "recomputed": ("--learner.checkpointing", "true", "--optim.micro_batch", "3"),
    "adapters": ("--learner.lora_rank", "4"),
}


@pytest.mark.parametrize("way", WAYS)
def test_after_a_reset_the_kl_is_exactly_0_and_grows_again(way):
    if way == "adapters":
        pytest.importorskip("peft")
    learner, batch, results = trained(*WAYS[way])
    assert results[-1].kl_loss > 0.01
    before = {n: w.clone() for n, w in learner.weights().items()}
    learner.reset(optimizer=True)
    policy = learner.logprobs(batch)
    assert torch.equal(learner.logprobs(batch, reference=True), policy)
    assert all(torch.equal(w, before[n]) for n, w in learner.weights().items())
    first, second = learner.step(batch), learner.step(batch)
    assert first.kl_loss == 0.0
    assert second.kl_loss > 0
    assert torch.equal(learner.logprobs(batch, reference=True), policy)  # it stands still


def gradients(learner):
    return [p.grad.clone() for p in learner.parameters]


def test_the_next_step_is_the_first_of_a_fresh_adamw_and_the_learning_rate_stays():
    settings = ("--optim.weight_decay", "0.1", "--optim.beta2", "0.95", "--optim.warmup", "5")
    learner, batch, _ = trained(*settings, steps=7)
    start = [p.detach().clone().requires_grad_() for p in learner.parameters]
    learner.reset(optimizer=True)
    moments = learner.state_dict()["optimizer"]["state"].values()
    assert all(not x.any() for of in moments for x in of.values())
    assert learner.learning_rate() == 1e-2  # no second warm-up
    learner.step(batch)
    fresh = torch.optim.AdamW(start, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for p, g in zip(start, gradients(learner), strict=True):
        p.grad = g
    fresh.step()
    for got, want in zip(learner.parameters, start, strict=True):
        assert torch.allclose(got, want, rtol=0, atol=1e-7)


def test_moments_that_are_kept_are_those_of_an_adamw_that_went_on():
    (reset, batch, _), (other, _, _) = trained(), trained()
    reset.reset(optimizer=False)
    kept = copy.deepcopy(other.optimizer.state_dict()["state"])
    for i, of in reset.optimizer.state_dict()["state"].items():
        assert all(torch.equal(x, kept[i][name]) for name, x in of.items())
        assert of["exp_avg"].any()
    reset.step(batch)
    other.reset(optimizer=True)
    other.step(batch)
    assert not torch.allclose(flat(reset), flat(other), rtol=0, atol=1e-3)


def flat(learner):
    return torch.cat([p.detach().flatten() for p in learner.parameters])


@pytest.mark.parametrize("way", ["k2", "adapters"])
def test_a_checkpoint_right_after_a_reset_goes_on_bit_for_bit(way):
    if way == "adapters":
        pytest.importorskip("peft")
    first, batch, _ = trained(*WAYS[way])
    first.reset(optimizer=True)
    state = copy.deepcopy(first.state_dict())
    second, _, _ = trained(*WAYS[way], steps=1)
    second.load_state_dict(state)
    for _ in range(3):
        a, b = first.step(batch), second.step(batch)
        assert (a.loss, a.kl_loss, a.grad_norm) == (b.loss, b.kl_loss, b.grad_norm)
    assert torch.equal(flat(first), flat(second))


def test_adapters_are_stored_for_the_reference_only_after_a_reset():
    pytest.importorskip("peft")
    learner, _, _ = trained(*WAYS["adapters"])
    assert learner.state_dict()["reference"] is None
    learner.reset(optimizer=False)
    state = learner.state_dict()
    assert state["reference"].keys() == state["model"].keys()
    learner, _, _ = trained("--kl.coef", "0")
    learner.reset(optimizer=True)
    assert learner.state_dict()["reference"] is None  # no KL, no reference


def test_a_kl_term_that_a_resumed_run_switches_on_pulls_to_the_model_of_the_start():
    cfg = factory.config(*KL)
    plain, batch, _ = trained("--kl.coef", "0")
    learner = Learner(factory.model(), cfg)
    start = learner.logprobs(batch)
    learner.load_state_dict(plain.state_dict())
    assert torch.equal(learner.logprobs(batch, reference=True), start)
    assert torch.equal(learner.logprobs(batch), plain.logprobs(batch))


# The whole command


def test_the_command_resets_logs_it_trains_on_and_resumes_right_after_a_reset(
    tmp_path, tiny_model, capsys
):
    # mode off-policy, two steps a batch, an evaluation and a reset after every second step
    prorl = {"model__path": tiny_model, "kl__coef": 0.1, "reset__every_evals": 1}
    recipes = ["--recipe", "prorl", "--recipe", "tiny"]
    small = {"pipeline__k": 2, "curriculum__refill_rounds": 2, "reset__stall_evals": 0, **prorl}
    small |= {"optim__warmup": 0}
    assert main([*recipes, *flags(tmp_path, run__name="whole", **small)]) == 0
    progress = capsys.readouterr().err
    assert "step 4: reset = 1: evaluations since the last reset" in progress
    assert "reference and optimiser start anew (reset)" in progress
    alarms = [r for r in rows(tmp_path / "whole", "alarm") if r["signal"] == "reset"]
    assert [(r["step"], r["value"], r["threshold"]) for r in alarms] == [
        (i, 1, 1) for i in (2, 4, 6)
    ]
    assert {r["action"] for r in alarms} == {"reset"}
    kl = [r["kl_loss"] for r in rows(tmp_path / "whole", "step")]
    assert kl[0] == kl[2] == kl[4] == 0.0  # the steps after which the reference is the policy
    assert min(kl[1], kl[3], kl[5]) > 0

    assert main([*recipes, *flags(tmp_path, run__name="cut", **{**small, "run__steps": 4})]) == 0
    assert main(["--resume", str(tmp_path / "cut"), "--run.steps", "6"]) == 0
    for event in ("step", "eval", "alarm"):
        cut, whole = ([timeless(r) for r in rows(tmp_path / n, event)] for n in ("cut", "whole"))
        assert cut == whole
    capsys.readouterr()
    assert curvefit.cli.main([str(tmp_path / "whole" / "log.jsonl"), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["points"] == {"read": 4, "used": 4, "held_out": 0, "dropped": []}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["--reset.stall_evals=-1"], "reset.stall_evals = -1 must be at least 0"),
        (["--reset.min_gain", "1.5"], "from 0 to below 1"),
        (["--reset.min_gain", "0.01"], "set reset.stall_evals"),
        (["--reset.kl_above", "0.1"], "set kl.coef above 0 and kl.place to loss"),
        (
            ["--reset.kl_above", "0.1", "--kl.coef", "0.1", "--kl.place", "reward"],
            "or reset.kl_above to 0",
        ),
        (["--reset.drop_se", "3", "--reset.optimizer", "false"], "changes nothing"),
        (["--reset.stall_eval", "3"], "did you mean reset.stall_evals?"),
    ],
)
def test_a_reset_that_cannot_be_is_one_line_and_exit_2(settings, words, capsys):
    assert main(["--recipe", "tiny", *settings]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert words in line
