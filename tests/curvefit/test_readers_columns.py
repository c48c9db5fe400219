"""Which columns are taken when nobody says."""

from __future__ import annotations

import pytest

from curvefit.names import compute_meaning, is_trap, says_rate, score_rank
from curvefit.readers import load

VALUES = [0.1, 0.2, 0.3]


def chosen(*columns: str, **options: object) -> tuple[str, str]:
    table = {name: [v + i / 100 for v in VALUES] for i, name in enumerate(columns)}
    run = load(table, **options)[0]
    return run.x.column, run.y.column


@pytest.mark.parametrize(
    ("x", "y", "others"),
    [
        ("gpu_hours", "pass_rate", "step reward"),
        ("step", "eval_reward", "num_tokens reward"),
        ("step", "accuracy", "mean_reward reward"),
        ("train/global_step", "train/reward", "_step train/loss"),
        ("eval/step", "eval/aime", "rollout/step train/step rollout/raw_reward"),
        ("step", "rollout/raw_reward", "rollout/rewards"),
        ("step", "critic/score/mean", "critic/score/max critic/rewards/mean"),
        ("step", "val-core/x/acc/mean@8", "val-core/x/acc/best@8/mean val-aux/x/acc/std@8"),
        ("step", "test_score/gsm8k", "critic/score/mean"),
        ("step", "reward/pass@1", "reward/mean time/total"),
        ("step", "test/env/all/correct", "test/env/all/reward/total env/all/correct"),
        ("trainer/global_step", "eval/all/avg_score", "eval/gsm8k/avg_score eval/all/pass_at_8"),
        ("step", "validation/accuracy", "validation/avg_length train/reward"),
        ("stats/samples", "actor/test_success_mean", "actor/test_reward_mean actor/success_mean"),
        ("training_step", "eval/pass_at_1", "eval/stop_rate eval/sequence_lengths"),
        ("step", "eval_f1", "eval_avg_tool_calls eval_runtime eval_samples_per_second"),
        ("cum_gpu_h", "score", "budget"),
        ("GPU-hours", "Accuracy", ""),
        ("A100-hours", "solve-rate", ""),
        ("flops", "score", "tokens"),
        ("episode", "return", ""),
        ("step", "helpfulness", ""),
        ("petaflop_days", "accuracy", ""),
        ("wall_clock_hours", "accuracy", ""),
    ],
)
def test_choice_by_name(x, y, others):
    assert chosen(*others.split(), y, x) == (x, y)


@pytest.mark.parametrize(
    "name",
    [
        "rollout/rewards", "response_length/mean", "val_response_length/acc", "eval_loss",
        "reward_std", "frac_reward_zero_std", "kl", "actor/entropy", "train/grad_norm",
        "timing_s/step", "eval/acc__MIN", "eval/acc__MAX", "critic/score/max", "format_rate",
        "eval_samples_per_second", "learning_rate", "completions/clipped_ratio", "policy_ratio",
    ],
)  # fmt: skip
def test_traps_are_never_a_score(name):
    assert is_trap(name)
    assert score_rank(name) is None


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("gpu_hours", "gpu_hours"), ("budget_gpu_h", "gpu_hours"), ("H100 hours", "gpu_hours"),
        ("_step", "step"), ("Step", "step"), ("progress/batch", "step"), ("num_tokens", "tokens"),
        ("perf/total_num_tokens", "tokens"), ("stats/samples", "samples"), ("total_flos", "flops"),
        ("throughput/total_training_Gflops", None), ("tokens_per_sec", None), ("accuracy", None),
    ],
)  # fmt: skip
def test_units_of_compute(name, unit):
    meaning = compute_meaning(name)
    assert (meaning.unit if meaning else None) == unit


def test_names_that_say_percent():
    assert all(map(says_rate, ("eval_acc", "pass@1", "pass_rate", "win_rate", "score (%)")))
    assert not any(map(says_rate, ("reward", "score", "primary_score", "value")))


def test_columns_with_the_same_numbers_are_no_question():
    table = {"step": [0, 1], "mean_reward": [1.0, 2.0], "reward_mean": [1.0, 2.0]}
    assert load(table)[0].y.column == "mean_reward"


def test_a_constant_or_empty_column_is_passed_over():
    table = {"step": [7, 7, 7], "iteration": [0, 1, 2], "eval_acc": [None] * 3, "acc": VALUES}
    run = load(table)[0]
    assert (run.x.column, run.y.column) == ("iteration", "acc")


def test_compute_that_is_blank_where_scores_are_is_passed_over():
    nan = float("nan")
    table = {
        "step": [0, 1, 2, 3],
        "gpu_hours": [nan, 1.0, nan, 3.0],
        "eval_acc": [0.1, nan, 0.2, nan],
    }
    assert load(table)[0].x.column == "step"


def test_the_choice_is_kept_for_printing():
    table = {"recipe": ["a", "a", "b"], "seed": [0, 1, 0], "step": [0, 0, 0], "acc": VALUES}
    runs = load(table, n=100)
    assert runs.names == ("a, seed 0", "a, seed 1", "b, seed 0")
    assert runs[0].notes[0] == ("columns", "x = step, y = acc, run = recipe + seed, n = 100")
    assert runs[0].n_eval.tolist() == [100]


def test_other_scores_are_mentioned():
    notes = dict(load({"step": [0, 1], "accuracy": [0.1, 0.2], "reward": [1, 2]})[0].notes)
    assert notes["other-scores"] == "other columns that could be the score: reward (--y COL)"


def test_a_model_column_names_runs_only_where_it_varies():
    table = {"model": ["q", "q"], "step": [0, 1], "acc": [0.1, 0.2]}
    assert load(table).names == ("run",)
    assert load({**table, "model": ["q", "r"]}).names == ("q", "r")
    assert load(table, run="model").names == ("q",)
