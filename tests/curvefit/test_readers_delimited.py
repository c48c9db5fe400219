"""CSV and its relatives: separators, headers, cells, torn ends."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import numpy as np
import pytest

from curvefit.errors import InputError
from curvefit.readers import load

TABLE = "step,accuracy\n0,0.1\n10,0.2\n20,0.3\n"


def write(folder: Path, text: str | bytes, name: str = "log.csv") -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def codes(run) -> dict[str, str]:
    return {note.code: note.message for note in run.notes}


@pytest.mark.parametrize("separator", [",", "\t", ";", "|"])
def test_the_separator_is_found_by_content(tmp_path, separator):
    run = load(write(tmp_path, TABLE.replace(",", separator), "a.txt"))[0]
    assert run.compute.tolist() == [0, 10, 20]
    assert run.score.tolist() == [0.1, 0.2, 0.3]
    assert run.row.tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    ("dress", "name"),
    [
        (lambda text: b"\xef\xbb\xbf" + text.encode(), "bom.csv"),
        (lambda text: text.encode("utf-16"), "utf16.csv"),
        (lambda text: text.replace("\n", "\r\n").encode(), "windows.csv"),
        (lambda text: text.replace("\n", "\r").encode(), "old-mac.csv"),
        (lambda text: gzip.compress(text.encode()), "no-gz-in-the-name.csv"),
        (lambda text: b"# from a notebook\n\n" + text.encode(), "comment.csv"),
        (lambda text: b"# step,accuracy\n" + text.encode().split(b"\n", 1)[1], "savetxt.txt"),
        (lambda text: text.replace("step", '"step"').replace("0.2", '"0.2"').encode(), "q.csv"),
        (lambda text: text.rstrip("\n").encode(), "no-last-newline.csv"),
        (lambda text: text.replace("\n", ",\n").encode(), "trailing-separator.csv"),
    ],
)
def test_the_same_table_in_other_dress(tmp_path, dress, name):
    run = load(write(tmp_path, dress(TABLE), name))[0]
    assert run.compute.tolist() == [0, 10, 20]
    assert run.score.tolist() == [0.1, 0.2, 0.3]


def test_utf16_is_reported(tmp_path):
    assert "encoding" in codes(load(write(tmp_path, TABLE.encode("utf-16")))[0])


@pytest.mark.parametrize("blank", ["", "NaN", "nan", "null", "None", "-", "N/A", "  "])
def test_missing_cells(tmp_path, blank):
    run = load(write(tmp_path, f"step,accuracy\n0,0.1\n10,{blank}\n20,0.3\n"))[0]
    assert run.compute.tolist() == [0, 20]
    assert codes(run)["no-score"].startswith("1 of 3 rows without accuracy")


def test_a_score_without_compute_is_dropped_with_its_line(tmp_path):
    run = load(write(tmp_path, "step,accuracy\n0,0.1\n,0.2\n20,0.3\n"))[0]
    assert run.dropped == ((3, "no step"),)
    assert "line 3" in codes(run)["no-compute"]


def test_thousands_separators_in_quoted_cells(tmp_path):
    run = load(write(tmp_path, 'tokens,accuracy\n"1,000",0.1\n"12,345,678",0.2\n999,0.05\n'))[0]
    assert run.compute.tolist() == [999, 1000, 12345678]
    assert {"thousands", "sorted"} <= set(codes(run))


@pytest.mark.parametrize(
    "text",
    [
        "step;accuracy\n1;0,5\n2;0,6\n",
        "step;accuracy\n1.000;0.5\n1,234;0.6\n",
        'step,accuracy\n1,"0,5"\n',
        'step,accuracy\n1,"1.234,5"\n',
    ],
)
def test_a_decimal_comma_is_never_guessed(tmp_path, text):
    with pytest.raises(InputError, match=r"line [23]: \w+ is '[\d.,]+', where the comma"):
        load(write(tmp_path, text))


def test_the_header_again_is_skipped(tmp_path):
    run = load(write(tmp_path, "step,accuracy\n" + TABLE))[0]
    assert run.score.tolist() == [0.1, 0.2, 0.3]
    assert run.dropped == ((2, "the header again"),)


def test_a_half_written_last_line_is_left_out(tmp_path):
    run = load(write(tmp_path, TABLE + "30"))[0]
    assert run.compute.tolist() == [0, 10, 20]
    assert run.dropped == ((5, "only half written"),)


def test_wide_export_of_a_tracker(tmp_path):
    head = (
        '"Step","a - b - eval/acc","a - b - eval/acc__MIN","a - b - eval/acc__MAX","c - eval/acc"\n'
    )
    rows = '"0","0.1","0","1","0.2"\n"5","0.3","0","1",""\n"10","","","","0.4"\n'
    runs = load(write(tmp_path, head + rows))
    assert runs.names == ("a - b", "c")
    assert runs["a - b"].compute.tolist() == [0, 5]
    assert runs["c"].score.tolist() == [0.2, 0.4]
    assert runs["c"].y.column == "eval/acc"


def test_wide_table_of_plain_fractions(tmp_path):
    runs = load(write(tmp_path, "step,baseline,large\n0,0.1,0.2\n10,0.3,0.5\n"))
    assert runs.names == ("baseline", "large")
    assert runs["large"].score.tolist() == [0.2, 0.5]


def test_tensorboard_csv(tmp_path):
    text = "Wall time,Step,Value\n1700000000.5,0,0.1\n1700003600.5,10,0.2\n1700007200.5,20,0.3\n"
    path = write(tmp_path, text)
    assert load(path)[0].compute.tolist() == [0, 10, 20]
    assert load(path, gpus=8)[0].compute.tolist() == [0, 8, 16]


def test_standard_input_and_open_files(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TABLE.encode())))
    piped = load("-")[0]
    assert (piped.file, piped.name, len(piped)) == ("-", "stdin", 3)
    assert load(io.StringIO(TABLE))[0].score.tolist() == [0.1, 0.2, 0.3]
    packed = io.BytesIO(gzip.compress(TABLE.encode()))
    assert load(packed)[0].score.tolist() == [0.1, 0.2, 0.3]


def test_mappings_of_columns():
    import pandas as pd

    frame = pd.DataFrame({"gpu_hours": [1, 2, 4], "pass_rate": [0.1, None, 0.3]})
    from_frame = load(frame)[0]
    assert from_frame.compute.tolist() == [1, 4]
    assert from_frame.row.tolist() == [1, 3]
    nullable = frame.convert_dtypes()
    assert load(nullable)[0].score.tolist() == [0.1, 0.3]
    assert load({"step": np.arange(3), "reward": [1.0, 2.0, 3.0]})[0].y.unit == "reward"


def test_several_files_and_names(tmp_path):
    for folder in ("alpha", "beta"):
        (tmp_path / folder).mkdir()
    paths = [write(tmp_path / "alpha", TABLE), write(tmp_path / "beta", TABLE)]
    assert load(paths).names == ("alpha", "beta")
    same = [write(tmp_path / "alpha", TABLE, "x.csv"), write(tmp_path / "beta", TABLE, "x.csv")]
    assert load(same).names == (f"x ({same[0]})", f"x ({same[1]})")
    long = "run,step,acc\na,0,.1\na,1,.2\nb,0,.1\n"
    two = [write(tmp_path, long, "one.csv"), write(tmp_path, long, "two.csv")]
    assert load(two).names == ("a (one.csv)", "b (one.csv)", "a (two.csv)", "b (two.csv)")


def test_names_with_control_characters_are_escaped(tmp_path):
    runs = load(write(tmp_path, "run,step,acc\n\x07b\u202ec,0,0.1\n\x07b\u202ec,1,0.2\n"))
    assert runs.names == (r"\x07b\u202ec",)


def test_a_thousand_runs_in_one_file(tmp_path):
    rows = (f"r{r},{i},{(r * 7 + i) % 100 / 100}\n" for r in range(1000) for i in range(100))
    runs = load(write(tmp_path, "run,gpu_hours,pass_rate\n" + "".join(rows)))
    assert len(runs) == 1000
    assert {len(run) for run in runs} == {100}
    assert runs["r3"].score[:2].tolist() == [0.21, 0.22]
    assert runs["r3"].row[:2].tolist() == [302, 303]
