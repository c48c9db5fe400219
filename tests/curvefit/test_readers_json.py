"""JSON in one piece, JSONL, and the trainer's own log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from curvefit.errors import InputError
from curvefit.readers import load

INPUTS = Path(__file__).parent / "inputs"
DATA = Path(__file__).parents[2] / "data"
RECORDS = [{"step": s, "accuracy": a} for s, a in ((0, 0.1), (10, 0.2), (20, 0.3))]


def write(folder: Path, value: object, name: str = "log.json") -> str:
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


@pytest.mark.parametrize(
    "document",
    [
        RECORDS,
        {"log_history": RECORDS, "best_metric": None, "global_step": 20},
        {"step": [0, 10, 20], "accuracy": [0.1, 0.2, 0.3]},
        {"step": {"0": 0, "1": 10, "2": 20}, "accuracy": {"0": 0.1, "1": 0.2, "2": 0.3}},
        "\n".join(map(json.dumps, RECORDS)),
        "\n".join(
            json.dumps({"step": r["step"], "data": {"accuracy": r["accuracy"]}}) for r in RECORDS
        ),
        "[" + ",\n".join(map(json.dumps, RECORDS)) + ',\n{"step": 30, "accuracy": NaN}]',
    ],
    ids=["records", "log_history", "columns", "pandas", "jsonl", "nested", "nan"],
)
def test_the_same_points_in_every_shape(tmp_path, document):
    run = load(write(tmp_path, document))[0]
    assert run.compute.tolist() == [0, 10, 20]
    assert run.score.tolist() == [0.1, 0.2, 0.3]


def test_keys_name_runs(tmp_path):
    runs = load(write(tmp_path, {"A": {"merged": RECORDS, "note": "x"}, "B": RECORDS[:2]}))
    assert runs.names == ("A", "B")
    assert [len(run) for run in runs] == [3, 2]


def test_rows_are_records_in_a_document_and_lines_in_jsonl(tmp_path):
    assert load(write(tmp_path, RECORDS))[0].row.tolist() == [1, 2, 3]
    lines = "\n\n".join(map(json.dumps, RECORDS))
    assert load(write(tmp_path, lines))[0].row.tolist() == [1, 3, 5]


def test_a_torn_last_line_is_left_out(tmp_path):
    run = load(write(tmp_path, "\n".join(map(json.dumps, RECORDS)) + '\n{"step": 30, "acc'))[0]
    assert len(run) == 3
    assert run.dropped == ((4, "not valid JSON"),)
    assert "half-written-line" in {note.code for note in run.notes}


def test_a_line_torn_by_a_crash_is_left_out_and_reported(tmp_path):
    first, second, third = map(json.dumps, RECORDS)
    run = load(write(tmp_path, f"{first}\n{second[:9]}{second}\n{third}\n"))[0]
    assert run.compute.tolist() == [0, 20]
    assert run.dropped == ((2, "not valid JSON"),)


def test_more_than_a_few_bad_lines_are_refused(tmp_path):
    with pytest.raises(InputError, match="lines 2, 3, 4, 5 are not JSON objects"):
        load(write(tmp_path, json.dumps(RECORDS[0]) + "\nhello" * 9))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": [1, 2', "not valid JSON: line 1, column 12"),
        ("[" * 100_000, "not JSON that can be read"),
        ("[]", "without records"),
        ('{"a": {"b": {}}}', "without records"),
        ("[[1, 2], [3, 4]]", "without records"),
        ('[{"step": 1, "accuracy": true}, {"step": 2, "accuracy": false}]', "no column looks like"),
        ('[{"step": 1, "accuracy": 0.5}, {"step": 2, "accuracy": true}]', "true or false"),
        ('[{"step": 1, "accuracy": Infinity}]', "not finite"),
        ('[{"step": 1, "accuracy": 1' + "0" * 400 + "}]", "not finite"),
        ('[{"step": 1, "accuracy": 1' + "0" * 5000 + "}]", "not JSON that can be read"),
    ],
)
def test_bad_json_is_one_sentence(tmp_path, text, says):
    with pytest.raises(InputError, match=says) as caught:
        load(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_verl_file_logger():
    run = load(INPUTS / "verl_file_logger.jsonl")[0]
    assert run.y.column == "val-core/openai/gsm8k/reward/mean@1"
    assert run.compute.tolist() == [0, 2, 4]
    assert run.score.tolist() == [0.2103, 0.2881, 0.3442]


def test_verl_seconds_a_step_become_gpu_hours():
    run = load(INPUTS / "verl_file_logger.jsonl", gpus=30)[0]
    # 61.5 + 58.5 = 120 s at step 2, 240 s at step 4; 30 GPUs make 1 and 2 GPU-hours of them
    assert run.compute.tolist() == pytest.approx([0, 1, 2])
    assert run.x.unit == "gpu_hours"


def test_trainer_log():
    runs = load(INPUTS / "trainer_log.jsonl")
    assert runs.names == ("tiny",)
    run = runs[0]
    assert (run.x, run.y) == (("gpu_hours", "gpu_hours"), ("pass_rate", "pass_rate"))
    assert run.n_eval.tolist() == [400, 400, 400, 400]
    assert run.compute.tolist() == [0, 0.11, 0.35, 0.46]
    assert run.score.tolist() == [0.11, 0.21, 0.35, 0.44]


def test_trainer_log_leaves_out_what_a_restart_rewound_but_counts_its_compute():
    run = load(INPUTS / "trainer_log.jsonl")[0]
    assert run.dropped == ((7, "its step was trained again after a restart"),)
    assert "restart" in {note.code for note in run.notes}
    assert run.compute[2] == 0.35  # 0.22 without the wasted steps


def test_trainer_log_gives_training_signals_by_name():
    run = load(INPUTS / "trainer_log.jsonl", y="reward", x="step")[0]
    assert run.compute.tolist() == [1, 10, 20]
    assert run.score.tolist() == [0.125, 0.2, 0.32]


def test_the_reward_of_evaluations_and_that_of_training_are_two_columns():
    log = DATA / "train-rl" / "grpo-seed0.jsonl"
    trained, evaluated = (load(log, y=name, x="step")[0] for name in ("reward", "eval/reward"))
    assert trained.compute.tolist() == list(range(1, 81))
    assert evaluated.compute.tolist() == list(range(0, 81, 5))
    assert evaluated.score.tolist() == load(log, x="step")[0].score.tolist()  # rewards of 0 and 1


def test_trainer_log_with_two_splits(tmp_path):
    lines = ['{"event": "run", "schema": "trainer-log/1", "run": "r"}']
    for hours, split, rate in ((0, "a", 0.1), (0, "b", 0.3), (1, "a", 0.2), (1, "b", 0.4)):
        event = {"event": "eval", "step": hours, "gpu_hours": hours, "pass_rate": rate}
        lines.append(json.dumps({**event, "split": split, "n_prompts": 10, "n_samples": 2}))
    runs = load(write(tmp_path, "\n".join(lines)))
    assert runs.names == ("r (a)", "r (b)")
    assert runs["r (b)"].score.tolist() == [0.3, 0.4]


def mixture_log(tmp_path):
    lines = ['{"event": "run", "schema": "trainer-log/1", "run": "r"}']
    for hours, math, code in ((0, 0.1, 0.4), (1, 0.2, 0.5), (2, 0.25, None), (3, 0.3, 0.6)):
        prompts = {"math": 8, "code": 2 if code is not None else 0}
        rate = (8 * math + 2 * (code or 0)) / sum(prompts.values())
        event = {"event": "eval", "step": hours, "gpu_hours": hours, "pass_rate": rate}
        event |= {"n_prompts": sum(prompts.values()), "n_samples": 4, "n_prompts_of": prompts}
        event |= {"pass_rate_of": {"math": math, "code": code}}
        event |= {"pass_at_k_of": {"math": {"1": math, "4": 2 * math}, "code": {}}}
        lines.append(json.dumps(event))
        lines.append(json.dumps({"event": "step", "step": hours, "reward_of": {"math": math}}))
    return write(tmp_path, "\n".join(lines))


def test_trainer_log_of_several_tasks_is_read_as_one_without_a_word(tmp_path):
    run = load(mixture_log(tmp_path))[0]
    assert run.y.column == "pass_rate"
    assert run.score.tolist() == pytest.approx([0.16, 0.26, 0.25, 0.36])
    assert run.n_eval.tolist() == [40, 40, 32, 40]


@pytest.mark.parametrize(
    ("column", "score", "size"),
    [
        ("pass_rate_of/math", [0.1, 0.2, 0.25, 0.3], [32] * 4),
        ("pass_rate_of/code", [0.4, 0.5, 0.6], [8] * 3),  # once nothing of it could be scored
        ("pass_at_k_of/math/4", [0.2, 0.4, 0.5, 0.6], [32] * 4),
    ],
)
def test_trainer_log_gives_each_task_with_its_own_size(tmp_path, column, score, size):
    run = load(mixture_log(tmp_path), y=column)[0]
    assert run.score.tolist() == score
    assert run.n_eval.tolist() == size
    assert f"n = n_prompts_of/{column.split('/')[1]} × n_samples" in dict(run.notes)["columns"]
    assert load(mixture_log(tmp_path), y=column, n=7)[0].n_eval.tolist() == [7] * len(score)


def test_trainer_log_has_no_size_for_a_training_reward_of_a_task(tmp_path):
    run = load(mixture_log(tmp_path), y="reward_of/math", x="step")[0]
    assert run.n_eval is None
    assert run.score.tolist() == [0.1, 0.2, 0.25, 0.3]


def test_trainer_log_of_a_cpu_says_what_its_hours_are(tmp_path):
    text = (INPUTS / "trainer_log.jsonl").read_text()
    assert "cpu-hours" not in dict(load(INPUTS / "trainer_log.jsonl")[0].notes)
    on_cpu = load(write(tmp_path, text.replace("H100", "cpu")))[0]
    assert dict(on_cpu.notes)["cpu-hours"].endswith("count CPU-device hours")


def test_trainer_log_before_its_first_evaluation(tmp_path):
    lines = [
        '{"event": "run", "schema": "trainer-log/1", "run": "r"}',
        '{"event": "step", "step": 1, "gpu_hours": 0.1, "reward": 0.2}',
    ]
    with pytest.raises(InputError, match=r"no evaluation yet \(1 training step\)"):
        load(write(tmp_path, "\n".join(lines)))
