"""Real logs and pieces of them: each is read, or refused with a sentence that says what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from curvefit.errors import InputError
from curvefit.readers import load

INPUTS = Path(__file__).parent / "inputs"
DATA = Path(__file__).parents[2] / "data"


def codes(run) -> set[str]:
    return {note.code for note in run.notes}


@pytest.mark.parametrize(
    ("path", "y", "lengths"),
    [
        (DATA / "scalerl_fig1a.csv", "pass_rate", [34, 32]),
        (DATA / "octothinker_math500.csv", "val/test_score/MATH500", [50, 174, 220]),
        (DATA / "cognitive_behaviors_countdown.csv", "accuracy", [25, 26, 25, 24, *[26] * 6]),
        (DATA / "rasbt_grpo_clip_ratio.csv", "eval_acc", [11]),
        (DATA / "tinker_cog_rl_6.jsonl", "reward/pass@1", [80]),
        (DATA / "openrs_trainer_state.json", "rewards/r1_correctness", [10]),
        (DATA / "rookworld_appended_runs.jsonl", "mean_reward", [5, 120, 120]),
        (INPUTS / "octothinker_amc23_piece.csv", "val/test_score/AMC23", [14, 17, 20]),
        (INPUTS / "cognitive_behaviors_twice.csv", "accuracy", [3, 8, 4]),
        (INPUTS / "rasbt_aborted_start.csv", "eval_acc", [5]),
        (INPUTS / "fair_rlvr_filled.json", "reward_mean", [7]),
        (INPUTS / "countdown_trl_piece.jsonl", "accuracy", [12]),
    ],
)
def test_real_logs_are_read(path, y, lengths):
    runs = load(path)
    assert [len(run) for run in runs] == lengths
    x = "gpu_hours" if "scalerl" in path.name else "step"
    unit = "reward" if "fair" in path.name else "pass_rate"
    assert {(run.x.unit, run.y.column, run.y.unit) for run in runs} == {(x, y, unit)}


def test_values_against_the_files():
    scalerl = load(DATA / "scalerl_fig1a.csv")
    assert scalerl.names == ("8B dense", "17Bx16 MoE")
    assert (scalerl[0].compute[0], scalerl[0].score[0]) == (1328, 0.4021)
    percent = load(DATA / "rasbt_grpo_clip_ratio.csv")[0]
    assert (percent.compute[0], percent.score[0], percent.row[0]) == (1, 0.156, 2)
    filled = load(INPUTS / "fair_rlvr_filled.json")[0]
    assert filled.compute.tolist() == [11, 21, 31, 41, 51, 61, 71]
    twice = load(INPUTS / "cognitive_behaviors_twice.csv")["human_cot"]
    assert [drop.row for drop in twice.dropped] == list(range(17, 25))
    aborted = load(INPUTS / "rasbt_aborted_start.csv")[0]
    assert aborted.compute.tolist() == [50, 100, 150, 200, 250]
    assert "appended-runs" in codes(aborted)


def test_per_step_seconds_of_a_real_log():
    run = load(DATA / "tinker_cog_rl_6.jsonl", gpus=8)[0]
    # 89.33325839042664 s for step 0 on 8 GPUs
    assert run.compute[0] == pytest.approx(8 * 89.33325839042664 / 3600)
    assert (run.compute[1:] > run.compute[:-1]).all()


def test_several_held_out_scores_are_asked_for_and_then_read():
    path = INPUTS / "kg_grpo_piece.json"
    with pytest.raises(
        InputError, match=r"eval_em, eval_contains_em, eval_f1; choose one with --y"
    ):
        load(path)
    runs = load(path, y="eval_f1")
    assert runs.names == ("E1_outcome", "E2_heuristic", "E3_verifiable")
    assert [len(run) for run in runs] == [4, 6, 8]
    assert runs["E3_verifiable"].score[0] == 0.5194396825396825


def test_a_table_of_tasks_is_asked_for_and_then_read():
    path = INPUTS / "open_instruct_piece.csv"
    with pytest.raises(InputError, match=r"--run run,task"):
        load(path)
    runs = load(path, run="run,task", n="n_items")
    assert len(runs) == 7
    assert runs["Baseline, aime"].y.unit == "pass_rate"
    assert runs["Baseline, alpaca_eval"].y.unit == "reward"  # a win rate in percent
    assert set(runs["Baseline, aime"].n_eval) == {30}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "octothinker_length_piece.csv",
            "no column looks like a score among Step, val_response_len",
        ),
        (
            "rasbt_distill_piece.csv",
            "no column looks like a score among epoch, total_steps, train_",
        ),
        (
            "distillation_piece.jsonl",
            "(losses, lengths and times are never taken for one): name it",
        ),
        (
            "olmo_ladder_piece.csv",
            "3 columns could be the score: eval/downstream/boolq_val_rc_5sho",
        ),
        ("thesis_pto_budget.csv", "no column is known as a score; what is left is mean_a, mean_b"),
        ("verl_numpy2_console.txt", "is console output as verl prints it (line 1: "),
        ("verl_script_console.log.gz", "add 'file' to trainer.logger, which writes JSONL"),
        ("slime_console.txt", "is console output as slime prints it"),
        ("prime_rl_console.txt", "is console output as prime-rl prints it"),
        ("gsm8k_console.log", "a training script prints it (line 5: '[gsm8k_8B_s042]   1/50"),
    ],
)
def test_what_is_no_curve_is_refused_with_a_sentence(name, says):
    with pytest.raises(InputError) as caught:
        load(INPUTS / name)
    message = str(caught.value)
    assert says in message
    assert message.isprintable()
    assert len(message) < 700


def test_a_refused_log_is_read_once_the_score_is_named():
    key = "val_response_length/test_length_correct/MATH500"
    assert load(INPUTS / "octothinker_length_piece.csv", y=key)[0].score[0] == 157.3939393939394
    path, run = INPUTS / "thesis_pto_budget.csv", "select_metric,eval_metric"
    sweep = load(path, x="cum_gpu_h_a", y="mean_a", run=run, n="n")
    assert [len(run) for run in sweep] == [4, 2, 4]
    assert sweep[0].compute.tolist() == [7.8, 13.27, 18.31, 23.21]


def test_files_of_different_kinds_together():
    runs = load([DATA / "scalerl_fig1a.csv", INPUTS / "trainer_log.jsonl"])
    assert runs.names == ("8B dense", "17Bx16 MoE", "tiny")


def test_reading_a_csv_loads_neither_pandas_nor_scipy():
    script = (
        "import sys; from curvefit.readers import load; load(sys.argv[1]); "
        "heavy = {'pandas', 'scipy', 'matplotlib', 'lmfit', 'json', 'gzip', 'sqlite3'}; "
        "heavy &= set(sys.modules); assert not heavy, heavy"
    )
    path = DATA / "scalerl_fig1a.csv"
    subprocess.run([sys.executable, "-c", script, path], check=True, cwd=DATA.parent)
