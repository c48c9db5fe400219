"""TensorBoard's event files, as PyTorch and tensorboardX write them, and as damage leaves them."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import time
import tracemalloc
from pathlib import Path
from signal import SIGINT

import numpy as np
import pytest
from event_files import blob, curve, record, scalar, version
from following import following
from hypothesis import given
from hypothesis import strategies as st
from test_cli import assert_one_error_line, fit_curve

import curvefit
from curvefit.errors import InputError
from curvefit.readers import load, request_of
from curvefit.readers.crc32c import masked_crc, masked_crcs
from curvefit.watch import Watch

FOLDER = Path(__file__).parent / "inputs" / "tensorboard"
NAME = "events.out.tfevents.1790000000.host.1.0"


def score(step, speed=40.0):  # as inputs/write_tracker_logs.py has it
    return 0.2 + 0.5 * step / (step + speed)


def notes(run):
    return dict(run.notes)


def refusal(source, **options):
    with pytest.raises(InputError) as caught:
        load(source, **options)
    assert str(caught.value).isprintable()
    return str(caught.value)


def written(folder, content, name=NAME):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name


# ---------------------------------------------------------------- what trainers write


def test_a_run_that_was_continued_in_a_second_file():
    (run,) = load(FOLDER / "verl_like")
    assert (run.name, run.x.column) == ("verl_like", "step")
    assert run.y.column == "val-core/openai/gsm8k/acc/mean@4"
    assert run.compute.tolist() == list(range(0, 55, 5))
    np.testing.assert_allclose(run.score, score(run.compute), rtol=1e-7)
    assert run.dropped == ((25, "its step was trained again after a restart"),)
    assert "(step 25)" in notes(run)["restart"]


def test_the_clock_stands_still_between_the_files_but_counts_what_was_lost():
    (run,) = load(FOLDER / "verl_like", gpus=8)
    # A minute a step: 30 steps, ten hours of nothing, 30 steps from the 21st on.
    minutes = [*range(1, 22, 5), *(30 + step - 20 for step in range(25, 55, 5))]
    np.testing.assert_allclose(run.compute, np.array(minutes) * 8 / 60, rtol=1e-12)
    assert (run.x.column, run.x.unit) == ("elapsed_s", "gpu_hours")


def test_a_time_that_the_trainer_logs_can_be_asked_for():
    (run,) = load(FOLDER / "verl_like", x="timing_s/step", gpus=8, y="critic/score/mean")
    assert run.compute[-1] == pytest.approx(8.0)  # 60 steps of a minute, on 8 GPUs


def test_scalars_written_as_tensors():
    (run,) = load(FOLDER / "tensors")
    np.testing.assert_allclose(run.score, score(np.arange(0, 40, 5)), rtol=1e-7)
    (double,) = load(FOLDER / "tensors", y="reward")
    assert double.score.tolist() == [step / 40 for step in range(0, 40, 5)]


def test_purge_step_voids_what_was_logged_before():
    (run,) = load(FOLDER / "purged")
    assert run.compute.tolist() == [*range(0, 12, 2), 12, 14, 16]
    np.testing.assert_allclose(run.score[6:], score(np.array([12, 14, 16])) + 0.012, rtol=1e-7)
    assert notes(run)["restart"] == "the run was started again at step 12: 5 rows left out"
    assert [drop.row for drop in run.dropped] == [12, 14, 16, 18, 20]


def test_one_file_is_named_by_its_folder_whatever_it_is_called(tmp_path):
    (original,) = (FOLDER / "tensorboardx").iterdir()
    (run,) = load(original)
    assert run.name == "tensorboardx"
    np.testing.assert_allclose(run.score, score(np.arange(0, 40, 5), 25.0), rtol=1e-7)
    copy = written(tmp_path / "beta" / "logs", original.read_bytes(), "renamed.csv")
    assert load(copy)[0].name == "beta"
    packed = written(tmp_path, gzip.compress(original.read_bytes()), "packed.gz")
    assert load(packed)[0].score.tolist() == run.score.tolist()
    assert load(io.BytesIO(original.read_bytes()))[0].score.tolist() == run.score.tolist()


# ---------------------------------------------------------------- directories


def test_each_folder_with_event_files_is_a_run_named_by_its_path(tmp_path):
    for name in ("grpo/seed0", "grpo/seed1", "dapo/seed0", ".trash/seed0"):
        shutil.copytree(FOLDER / "tensorboardx", tmp_path / "runs" / name)
    (tmp_path / "runs" / "grpo" / "config.yaml").write_text("lr: 1e-6\n")
    written(tmp_path / "runs" / "grpo" / "seed1", b"", "events.out.tfevents.1790000001.host")
    runs = load(tmp_path / "runs")
    assert runs.names == ("dapo/seed0", "grpo/seed0", "grpo/seed1")
    assert runs[0].file == str(tmp_path / "runs" / "dapo" / "seed0")


def test_folders_of_settings_are_left_out_where_others_hold_curves():
    assert load(FOLDER).names == ("purged", "tensorboardx", "tensors", "verl_like")
    settings = next(path for path in (FOLDER / "tensors").iterdir() if path.is_dir())
    assert "no column looks like a score" in refusal(settings)


def test_a_directory_on_the_command_line():
    done = fit_curve(FOLDER, "--json", "--gpus", "8", cwd=FOLDER)
    assert done.returncode == 0
    found = json.loads(done.stdout)["runs"]
    assert [run["run"] for run in found] == ["purged", "tensorboardx", "tensors", "verl_like"]
    assert {run["x"]["unit"] for run in found} == {"gpu_hours"}


def test_a_directory_without_event_files_is_refused_as_before(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1, "acc": 0.1}\n')
    done = fit_curve(tmp_path)
    assert_one_error_line(done, 2, "is a directory: name a file in it, as", "log.jsonl")


def test_a_run_without_a_score_does_not_stop_the_others(tmp_path):
    written(tmp_path / "good", curve(1e9, range(8)))
    written(tmp_path / "new", curve(1e9, range(3), tag="loss"))
    done = fit_curve(tmp_path, "--json")
    assert done.returncode == 2
    assert [run["run"] for run in json.loads(done.stdout)["runs"]] == ["good"]
    assert "new: no column looks like a score" in done.stderr


def test_files_written_side_by_side_are_one_run(tmp_path):
    written(tmp_path, curve(1e9, range(0, 50, 10)))
    written(tmp_path, curve(1e9 + 1, range(0, 50, 10), tag="train/reward"), f"{NAME}.other")
    (run,) = load(tmp_path, gpus=60)
    assert run.compute.tolist() == pytest.approx([(60 * i + 1) / 60 for i in range(5)])
    (other,) = load(tmp_path, y="train/reward")
    assert len(other) == 5
    assert not other.dropped


def test_a_run_that_is_started_over_in_its_folder_starts_its_clock_again(tmp_path):
    written(tmp_path, curve(1e9, [0, 10]))
    written(tmp_path, curve(1e9 + 5000, [0, 10, 20, 30, 40]), f"{NAME}.later")
    (run,) = load(tmp_path, gpus=60)
    assert run.compute.tolist() == [0, 1, 2, 3, 4]
    assert "#1 with fewer than 4 points left out" in notes(run)["appended-runs"]


def test_several_scores_at_one_step_are_averaged_and_a_step_back_is_a_restart(tmp_path):
    events = [(0, 0.1), (5, 0.2), (5, 0.4), (10, 0.5), (15, 0.6), (10, 0.7), (15, 0.8), (20, 0.9)]
    content = version(1e9) + b"".join(scalar(1e9, step, "eval/acc", y) for step, y in events)
    (run,) = load(written(tmp_path, content))
    assert run.compute.tolist() == [0, 5, 10, 15, 20]
    np.testing.assert_allclose(run.score, [0.1, 0.3, 0.7, 0.8, 0.9], rtol=1e-7)


# ---------------------------------------------------------------- damage, and what is no log


def test_crc32c_against_rfc_3720():
    vectors = [bytes(32), b"\xff" * 32, bytes(range(32)), bytes(range(31, -1, -1)), b"123456789"]
    known = [0x8A9136AA, 0x62A8AB43, 0x46DD794E, 0x113FDB5C, 0xE3069283]
    masked = [((c >> 15 | c << 17) + 0xA282EAD8) % 2**32 for c in known]
    assert [masked_crc(data) for data in vectors] == masked
    data = np.frombuffer(b"".join(vectors), dtype=np.uint8)
    starts, lengths = np.array([0, 32, 64, 96, 128]), np.array([32, 32, 32, 32, 9])
    assert masked_crcs(data, starts, lengths).tolist() == masked


def test_any_byte_that_changes_is_noticed(tmp_path):
    good = curve(1e9, range(5))
    load(written(tmp_path, good))
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x11
        refusal(written(tmp_path, bytes(bad)))


def test_damage_is_told_with_its_byte_and_what_stands_before_it_can_be_read(tmp_path):
    begin, end = curve(1e9, range(5)), scalar(2e9, 9, "eval/acc", 0.5)
    path = written(tmp_path, begin + end[:-5] + b"\0" + end[-4:])
    message = refusal(path)
    assert f"{path} is damaged at byte {len(begin):,}: a checksum is wrong" in message
    assert f"head -c {len(begin)} FILE > COPY" in message
    assert len(load(written(tmp_path, path.read_bytes()[: len(begin)]))[0]) == 5
    assert f"damaged at byte {len(begin):,}" in refusal(written(tmp_path, begin + bytes(500)))


def test_a_long_record_of_scalars_is_checked_too(tmp_path):
    bad = bytearray(scalar(1e9, 9, "eval/" + "x" * 5000, 0.5))
    bad[2000] ^= 1
    path = written(tmp_path, curve(1e9, range(5)) + bad)
    assert "a checksum is wrong" in refusal(path)


def test_a_record_that_is_no_event_is_told(tmp_path):
    path = written(tmp_path, version(1e9) + record(b"\x0a\xff\xff\xff\xff\x7f"))
    assert f"at byte {len(version(1e9))}: the record is no event" in refusal(path)


@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 3))
def test_whatever_a_record_holds_is_read_or_refused(junk, at, cut):
    simple = scalar(1e9, 9, "eval/acc", 0.9)[12:-4]
    content = simple[:at] + junk + simple[at + cut :]
    file = io.BytesIO(curve(1e9, range(5)) + record(content))
    try:
        good = len(load(file, y="eval/acc")[0]) > 0
    except InputError as error:
        good = str(error).isprintable()
    assert good


def test_a_file_that_ends_in_the_middle_of_a_record_is_read_up_to_there(tmp_path):
    begin, end = curve(1e9, range(5)), scalar(2e9, 9, "eval/acc", 0.5)
    for cut in range(1, len(end)):
        (run,) = load(written(tmp_path, begin + end[:cut]))
        assert len(run) == 5
    assert f"half written (byte {len(begin):,})" in notes(run)["half-written-line"]
    assert "half-written-line" not in notes(load(written(tmp_path, begin + end))[0])


@pytest.mark.parametrize("length", [2**60, 2**63, 2**64 - 1, 2**30])
def test_a_length_that_is_claimed_is_not_allocated(tmp_path, length):
    path = written(tmp_path, curve(1e9, range(5)) + record(b"abc", length))
    tracemalloc.start()
    (run,) = load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(run) == 5
    assert peak < 4e6


def test_pictures_are_passed_over_and_not_kept(tmp_path):
    picture, size = blob(1e9, 1, bytes(1_000_000)), 20_000_000
    huge = record(b"", size)[:12] + bytes(size + 4)
    path = written(tmp_path, version(1e9))
    with path.open("ab") as stream:
        for step in range(4):
            stream.writelines([picture, picture, huge, huge])
            stream.write(scalar(1e9 + step, step, "eval/acc", step / 10))
    tracemalloc.start()
    (run,) = load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 160e6
    assert run.compute.tolist() == [0, 1, 2, 3]
    assert peak < 10e6


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (record(b"\x0a\x03abc") * 3, "is no event file of TensorBoard: its first record has no"),
        (version(1e9), "holds no scalar yet"),
        (version(1e9) + blob(1e9, 1, b"x"), "holds no scalar yet"),
        (version(1e9)[:10], "is a binary file"),
        (b"", "is empty"),
        (curve(1e9, range(4), tag="eval/\x1b[31m\u202e"), "eval/\\x1b[31m\\u202e"),
        (version(1e9) + scalar(1e9, 1, "eval/a", float("inf")), "which is not finite"),
        (version(1e9) + scalar(1e9, 2**64 - 5, "eval/a", 0.5), "cannot be negative"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(tmp_path, content, says):
    path = written(tmp_path, content)
    if "x1b" in says:
        assert load(path)[0].y.column == says
    else:
        assert says in refusal(path)


def test_more_than_can_be_kept_is_refused(tmp_path, monkeypatch):
    from curvefit.readers import event_rows, events

    path = written(tmp_path, curve(1e9, range(50)))
    monkeypatch.setattr(event_rows, "MAX_CELLS", 40)
    assert "1 tags at 50 steps" in refusal(path)
    monkeypatch.setattr(events, "MAX_VALUES", 40)
    assert "scalars or 100,000 tags" in refusal(path)


# ---------------------------------------------------------------- a run that goes on


def test_a_folder_is_followed(tmp_path):
    path = written(tmp_path / "alpha", curve(1e9, [0, 10, 20, 30, 40, 50]))
    new = scalar(2e9, 320, "eval/acc", 0.7)
    with following(tmp_path) as command, path.open("ab", buffering=0) as stream:
        command.started()
        stream.write(new[:20])
        time.sleep(0.2)  # some looks; a line of a point that is not there would come first
        stream.write(new[20:])
        assert "alpha  320 steps  0.7" in command.said("moved")[-1]
        later = version(3e9) + scalar(3e9, 640, "eval/acc", 0.8)
        written(tmp_path / "alpha", later, f"{NAME}.later")
        assert "alpha  640 steps  0.8" in command.said("moved")[-1]
        assert command.end(SIGINT)[0] == 130


def test_python_follows_a_folder(tmp_path):
    written(tmp_path / "alpha", curve(1e9, range(0, 60, 10)))
    fit = next(curvefit.follow(tmp_path))
    assert (fit.run.name, len(fit.run)) == ("alpha", 6)


def test_a_folder_that_is_not_there_yet_is_waited_for(tmp_path):
    watch = Watch([str(tmp_path / "runs")], request_of(*[None] * 6), curvefit.fit)
    assert "runs does not exist" in str(watch.look().troubles[0].error)
    for name in ("alpha", "beta"):
        written(tmp_path / "runs" / name, curve(1e9, range(0, 60, 10)))
    assert [change.fit.run.name for change in watch.look().changes] == ["alpha", "beta"]
