"""Steps, seconds and tokens as compute."""

from __future__ import annotations

import numpy as np
import pytest

from curvefit.compute import accumulated
from curvefit.errors import InputError
from curvefit.readers import load

SCORE = [0.1, 0.2, 0.3]


def compute(gpus=None, hours=None, x=None, **columns):
    run = load({**columns, "accuracy": SCORE}, gpus=gpus, gpu_hours_per_step=hours, x=x)[0]
    return run.compute.tolist(), run.x.unit, dict(run.notes).get("compute", "")


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("_runtime", [0, 1800, 3600], [0, 4, 8]),
        ("wall_s", [0, 1800, 3600], [0, 4, 8]),
        ("Relative Time (Process)", [0, 1800, 3600], [0, 4, 8]),
        ("elapsed_hours", [0, 0.5, 1], [0, 4, 8]),
        ("wall_minutes", [0, 30, 60], [0, 4, 8]),
        ("_timestamp", [1.7e9, 1.7e9 + 1800, 1.7e9 + 3600], [0, 4, 8]),
        ("Wall time", [1.7e9, 1.7e9 + 1800, 1.7e9 + 3600], [0, 4, 8]),
        ("step_time", [1800, 1800, 3600], [4, 8, 16]),
        ("time/total", [1800, 1800, 3600], [4, 8, 16]),
        ("timing_s/step", [1800, 1800, 3600], [4, 8, 16]),
        ("elapsed_time", [1800, 900, 3600], [4, 6, 14]),  # falls: per step
        ("elapsed_time", [1800, 3600, 5400], [4, 8, 12]),  # never falls: since the start
    ],
)
def test_gpus_turn_a_time_column_into_gpu_hours(name, values, expected):
    found, unit, note = compute(gpus=8, step=[0, 1, 2], **{name: values})
    assert found == pytest.approx(expected, abs=1e-9)
    assert unit == "gpu_hours"
    assert "8 GPUs × hours" in note


def test_a_time_per_step_stands_for_all_steps_since_the_last_row():
    # TRL logs the mean over its window: 5 steps of 720 s are one hour
    found, _, note = compute(gpus=2, step=[5, 10, 20], step_time=[720, 720, 360])
    assert found == pytest.approx([2, 4, 6])
    assert "step_time is per step and was summed" in note


def test_time_per_step_sums_over_rows_without_a_score():
    nan = float("nan")
    table = {
        "step": [0, 1, 2, 2],
        "time/total": [nan, 1800, 1800, nan],
        "acc": [0.1, nan, nan, 0.2],
    }
    run = load(table, gpus=2)[0]
    assert run.compute.tolist() == pytest.approx([0, 2])


def test_steps_trained_again_after_a_restart_cost_what_they_cost():
    table = {
        "step": [1, 2, 3, 4, 3, 4, 5],
        "step_time": [3600] * 7,
        "acc": [i / 10 for i in range(7)],
    }
    run = load(table, gpus=1)[0]
    assert run.compute.tolist() == pytest.approx([1, 2, 5, 6, 7])
    assert run.score.tolist() == [0.0, 0.1, 0.4, 0.5, 0.6]


def test_accumulated_by_hand():
    values = np.array([2.0, np.nan, 3.0, 1.0])
    assert accumulated(values, None).tolist() == [2, 2, 5, 6]
    # strides 4, 2 and, where the step stands still, the usual 2: 8, 8, 14, 16
    step = np.array([4.0, 5.0, 6.0, 6.0])
    assert accumulated(values, step).tolist() == [8, 8, 14, 16]
    # step 0 is one step, whatever the stride
    assert accumulated(np.array([5.0, 5.0]), np.array([0.0, 10.0])).tolist() == [5, 55]


def test_a_price_per_step():
    found, unit, note = compute(hours=2.5, step=[0, 10, 20], gpu_hours=[0, 1, 2])
    assert found == [0, 25, 50]
    assert unit == "gpu_hours"
    assert note == "GPU-hours = 2.5 × step"


def test_tokens_per_step_are_summed_and_totals_are_not():
    assert compute(**{"perf/total_num_tokens": [10, 20, 30]})[0] == [10, 30, 60]
    assert compute(num_tokens=[10, 20, 30])[0] == [10, 20, 30]


def test_seconds_without_gpus_are_hours_of_wall_clock():
    found, unit, note = compute(_runtime=[0, 1800, 3600])
    assert (found, unit) == ([0, 0.5, 1], "hours")
    assert "with --gpus N they become GPU-hours" in note


def test_steps_are_preferred_to_time_unless_gpus_are_given():
    columns = {"step": [0, 1, 2], "_runtime": [0, 1800, 3600]}
    assert compute(**columns)[1] == "step"
    assert compute(gpus=1, **columns)[1] == "gpu_hours"


@pytest.mark.parametrize(
    ("options", "columns", "says"),
    [
        ({"gpus": 8}, {"step": [0, 1, 2]}, "--gpus needs a time column"),
        ({"gpus": 8, "x": "step"}, {"step": [0, 1, 2]}, "'step' is not known as a time"),
        ({"gpus": 8, "x": "gpu_hours"}, {"gpu_hours": [0, 1, 2]}, "in GPU-hours already"),
        ({"gpus": 0}, {"_runtime": [0, 1, 2]}, "number of GPUs must be positive"),
        ({"gpus": float("nan")}, {"_runtime": [0, 1, 2]}, "number of GPUs must be positive"),
        ({"hours": -1}, {"step": [0, 1, 2]}, "--gpu-hours-per-step is -1"),
        ({"hours": 1, "gpus": 8}, {"_runtime": [0, 1, 2]}, "not both"),
        ({"gpus": 8}, {"_runtime": [0, -5, 2]}, "compute cannot be negative"),
        ({"hours": 1e300}, {"step": [0, 1, 1e300]}, "too large to be compute"),
    ],
)
def test_what_cannot_be_converted(options, columns, says):
    with pytest.raises(InputError, match=says):
        compute(**options, **columns)
