"""What cleaning does to rows, and what it says about it."""

from __future__ import annotations

import pytest

from curvefit.errors import InputError
from curvefit.readers import load


def read(step, score, **more):
    columns = {name: values for name, values in more.items() if isinstance(values, list)}
    options = {name: value for name, value in more.items() if name not in columns}
    return load({"step": step, "reward": score, **columns}, **options)


def codes(run) -> set[str]:
    return {note.code for note in run.notes}


def test_a_clean_run_passes_untouched():
    run = read([0, 1, 2, 5], [0.1, 0.2, 0.2, 0.4])[0]
    assert run.compute.tolist() == [0, 1, 2, 5]
    assert codes(run) == {"columns"}
    assert run.dropped == ()


def test_unsorted_rows_are_sorted_and_keep_their_origin():
    run = read([20, 0, 10], [0.3, 0.1, 0.2])[0]
    assert run.score.tolist() == [0.1, 0.2, 0.3]
    assert run.row.tolist() == [2, 3, 1]
    assert "sorted" in codes(run)


def test_blocks_in_the_wrong_order_are_sorted_not_restarts():
    run = read([30, 40, 50, 0, 10, 20], [0.4, 0.5, 0.6, 0.1, 0.2, 0.3])[0]
    assert run.score.tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert "restart" not in codes(run)


def test_shuffled_rows_with_repeats_are_sorted_and_averaged():
    run = read([2, 0, 1, 0, 2, 1], [0.4, 0.1, 0.2, 0.3, 0.6, 0.2])[0]
    assert run.compute.tolist() == [0, 1, 2]
    assert run.score.tolist() == pytest.approx([0.2, 0.2, 0.5])


def test_steps_that_fall_all_the_time_are_unsorted_not_restarts():
    run = read([0, 2, 1, 3, 2, 4, 3, 5], [0.1, 0.3, 0.2, 0.4, 0.5, 0.6, 0.8, 0.7])[0]
    assert run.compute.tolist() == [0, 1, 2, 3, 4, 5]
    assert run.score.tolist() == pytest.approx([0.1, 0.2, 0.4, 0.6, 0.6, 0.7])


def test_a_restart_keeps_the_later_rows():
    run = read([0, 10, 20, 30, 20, 30, 40], [0.1, 0.2, 0.3, 0.4, 0.31, 0.41, 0.5])[0]
    assert run.compute.tolist() == [0, 10, 20, 30, 40]
    assert run.score.tolist() == [0.1, 0.2, 0.31, 0.41, 0.5]
    assert [drop.row for drop in run.dropped] == [3, 4]
    assert "restart" in codes(run)


def test_two_restarts():
    step = [0, 10, 20, 30, 20, 30, 10, 20, 30, 40]
    run = read(step, [0.1, 0.2, 0.3, 0.4, 0.31, 0.41, 0.22, 0.32, 0.42, 0.5])[0]
    assert run.score.tolist() == [0.1, 0.22, 0.32, 0.42, 0.5]
    assert [drop.row for drop in run.dropped] == [2, 3, 4, 5, 6]


def test_runs_appended_to_one_file_are_told_apart():
    step = [*range(1, 6), *range(1, 9), *range(1, 3), *range(1, 7)]
    runs = read(step, [i / 100 for i in range(len(step))])
    assert runs.names == ("run #1", "run #2", "run #4")
    assert [len(run) for run in runs] == [5, 8, 6]
    note = dict(runs[0].notes)["appended-runs"]
    assert note == (
        "the step starts over at rows 6, 14, 16: 4 runs in one file, "
        "of which #3 with fewer than 4 points left out"
    )
    assert [drop.row for drop in runs[0].dropped] == [14, 15]


def test_an_aborted_start_leaves_one_run_under_its_own_name():
    runs = read([1, 2, 1, 2, 3, 4, 5], [0.5, 0.6, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert runs.names == ("run",)
    assert runs[0].score.tolist() == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert [drop.row for drop in runs[0].dropped] == [1, 2]


def test_a_block_that_stands_twice_is_left_out():
    run = read([0, 1, 2, 3, 0, 1, 2, 3], [0.1, 0.2, 0.3, 0.4] * 2)[0]
    assert run.compute.tolist() == [0, 1, 2, 3]
    assert [drop.row for drop in run.dropped] == [5, 6, 7, 8]
    assert "repeated-rows" in codes(run)


def test_identical_repeats_count_once():
    run = read([0, 1, 1, 2], [0.1, 0.2, 0.2, 0.3])[0]
    assert run.compute.tolist() == [0, 1, 2]
    assert run.dropped == ((3, "stands above already"),)


def test_evaluations_at_one_step_are_averaged_by_size():
    run = read([0, 1, 1, 2], [0.1, 0.2, 0.5, 0.6], size=[100, 100, 200, 100], n="size")[0]
    # (100 × 0.2 + 200 × 0.5) / 300 = 0.4
    assert run.score.tolist() == pytest.approx([0.1, 0.4, 0.6])
    assert run.n_eval.tolist() == [100, 300, 100]
    assert run.dropped == ((3, "averaged into row 2"),)
    assert "weighted by evaluation size" in dict(run.notes)["repeated-steps"]


def test_values_carried_forward_are_kept_once():
    values = [0.1, 0.2, 0.25, 0.25, 0.3, 0.28]
    filled = [v for v in values for _ in range(5)]
    run = read(list(range(30)), filled)[0]
    assert run.compute.tolist() == [0, 5, 10, 15, 20, 25]
    assert run.score.tolist() == values
    assert len(run.dropped) == 24
    assert "5 times in a row" in dict(run.notes)["forward-filled"]


def test_a_cut_first_block_of_carried_values():
    filled = [0.1] * 2 + [v for v in (0.2, 0.3, 0.35, 0.4) for _ in range(4)] + [0.5] * 3
    run = read(list(range(len(filled))), filled)[0]
    assert run.compute.tolist() == [0, 2, 6, 10, 14, 18]


@pytest.mark.parametrize(
    "score",
    [
        [0.0] * 8 + [0.025, 0.025, 0.05, 0.1, 0.15, 0.1],  # nothing solved at first
        [0.5, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 0.99, 1.0, 1.0, 1.0, 1.0, 1.0],  # solved
        [0.1, 0.1, 0.2, 0.2, 0.2, 0.3, 0.3, 0.3, 0.3, 0.4],  # a coarse scale
    ],
)
def test_values_that_merely_agree_are_kept(score):
    run = read(list(range(len(score))), score)[0]
    assert len(run) == len(score)
    assert "forward-filled" not in codes(run)


@pytest.mark.parametrize(
    ("name", "values", "expected", "unit"),
    [
        ("accuracy", [12.0, 30.5, 46.0], [0.12, 0.305, 0.46], "pass_rate"),
        ("accuracy", ["12%", "30.5 %", "46%"], [0.12, 0.305, 0.46], "pass_rate"),
        ("reward", ["12%", "30.5%", "146%"], [0.12, 0.305, 1.46], "reward"),
        ("accuracy", [0.4, 0.9, 3.0, 12.0], [0.004, 0.009, 0.03, 0.12], "pass_rate"),
        ("accuracy", [0.5, 0.9, 1.02], [0.5, 0.9, 1.02], "reward"),
        ("score", [12.0, 30.5, 46.0], [12.0, 30.5, 46.0], "reward"),
        ("reward", [0.0, 0.5, 1.0], [0.0, 0.5, 1.0], "pass_rate"),
        ("reward", [-0.5, 0.5, 1.0], [-0.5, 0.5, 1.0], "reward"),
    ],
)
def test_percent_fraction_and_reward(name, values, expected, unit):
    run = load({"step": list(range(len(values))), name: values})[0]
    assert run.score.tolist() == pytest.approx(expected)
    assert run.y.unit == unit
    assert ("outside-0-1" in codes(run)) == (unit == "reward")


def test_percent_and_fractions_in_one_column_are_refused():
    mixed = [0.11, 0.2, 0.31, 40.0, 45.0, 50.0]
    with pytest.raises(InputError, match=r"accuracy mixes fractions \(up to 0.31\) and percent"):
        load({"step": list(range(6)), "accuracy": mixed})


def test_scores_outside_name_the_rows():
    notes = dict(load({"step": [0, 1, 2], "accuracy": [0.5, 0.9, 1.02]})[0].notes)
    assert notes["outside-0-1"].startswith("1 of 3 scores outside 0 to 1, up to 1.02 (row 3)")


def test_runs_without_scores_are_left_out_and_named():
    table = {"run": ["a", "a", "b"], "step": [0, 1, 0], "acc": [0.1, 0.2, None]}
    runs = load(table)
    assert runs.names == ("a",)
    assert dict(runs[0].notes)["empty-runs"] == "1 run without any score left out: b"
