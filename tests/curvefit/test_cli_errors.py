"""What goes wrong for a user: one line, the right exit code, no traceback."""

import gzip
import json
import os
import sys

import pytest
from test_cli import FIG1A, RISE, assert_one_error_line, csv_of, fit_curve

BAD_FILES = {
    "empty": b"",
    "one column": b"pass_rate\n0.1\n0.2\n0.3\n0.4\n",
    "text where numbers should be": b"gpu_hours,pass_rate\n1,0.2\n2,good\n3,0.3\n4,0.4\n",
    "two points": b"gpu_hours,pass_rate\n1,0.2\n2,0.3\n",
    "all-equal x": b"gpu_hours,pass_rate\n5,0.2\n5,0.3\n5,0.4\n5,0.5\n",
    "negative compute": b"gpu_hours,pass_rate\n-1,0.2\n2,0.3\n3,0.4\n4,0.5\n",
    "not UTF-8": "gpu_hours,pass_rate,größe\n1,0.2,ü\n2,0.3,ü\n3,0.4,ü\n".encode("latin-1"),
    "binary": b"\x7fELF\x02\x01\x01\x00\x00\x00" * 20,
    "a zip archive": b"PK\x03\x04" + bytes(60),
    "a damaged gzip file": gzip.compress(csv_of(RISE).encode() * 50)[:60],
    "prose": b"It was a dark and stormy night.\nThe rain fell in torrents.\n",
    "10,000 columns of nothing known": (
        ",".join(f"c{i}" for i in range(10_000)) + "\n" + ",".join(["1"] * 10_000) + "\n"
    ).encode(),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_bad_file_is_one_line_and_exit_code_2(what, tmp_path):
    file = tmp_path / "runs.csv"
    file.write_bytes(BAD_FILES[what])
    assert_one_error_line(fit_curve(file), 2)


def test_a_missing_file_and_a_directory(tmp_path):
    assert_one_error_line(fit_curve("no/such/file.csv"), 2, "no/such/file.csv", "does not exist")
    assert_one_error_line(fit_curve(tmp_path), 2, str(tmp_path), "directory")


def test_a_header_that_stands_twice_is_read_and_said(tmp_path):
    file = tmp_path / "runs.csv"
    text = csv_of(RISE)
    file.write_text(text + text.splitlines()[0] + "\n640,0.55\n")
    done = fit_curve(file, "--json")
    assert done.returncode == 0
    assert "header" in done.stderr
    points = json.loads(done.stdout)["runs"][0]["points"]
    assert (points["read"], points["used"], len(points["dropped"])) == (9, 8, 1)


def test_nonsense_lines_are_refused_early(tmp_path):
    """A large file of nonsense costs its first block, not its length."""
    file = tmp_path / "noise.csv"
    with file.open("wb") as out:
        out.write(b"lorem ipsum dolor sit amet\n")
        out.truncate(2 << 30)  # 2 GB of zeros, which take no room on the disk
    assert_one_error_line(fit_curve(file), 2)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], ["FILE"]),
        ([FIG1A, "--jsn"], ["--jsn", "--json"]),
        ([FIG1A, "--zzz"], ["--zzz"]),
        ([FIG1A, "--x"], ["--x"]),
        ([FIG1A, "--at", "100k"], ["--at", "100k", "1e5"]),
        ([FIG1A, "--at", "nan"], ["--at"]),
        ([FIG1A, "--at", "1,,2"], ["--at"]),
        ([FIG1A, "--at=-1"], ["--at", "negative"]),
        ([FIG1A, "--level", "90"], ["--level", "0.9"]),
        ([FIG1A, "--until", "120%"], ["--until", "120%"]),
        ([FIG1A, "--until", "0"], ["--until"]),
        ([FIG1A, "--until", "half"], ["--until"]),
        ([FIG1A, "--gpus", "0"], ["--gpus"]),
        ([FIG1A, "--n", "0"], ["--n"]),
        ([FIG1A, "--r0", "second"], ["--r0"]),
        ([FIG1A, "--r0", "1.5"], ["1.5"]),
        ([FIG1A, "--law", "cubic"], ["--law", "sigmoid"]),
        ([FIG1A, "--plot", "curve.jpg"], ["--plot", ".png"]),
        ([FIG1A, "--x", "gpu_hour"], ["gpu_hour", "gpu_hours"]),
        ([FIG1A, "--n", "size"], ["size"]),
        ([FIG1A, "--csv", "-"], ["--json"]),
        ([FIG1A, "--csv", "no/such/folder/a.csv"], ["no/such/folder/a.csv"]),
        ([FIG1A, "--csv", FIG1A], [FIG1A, "input"]),
        ([FIG1A, "--csv", "a.out", "--html", "./a.out"], ["a.out"]),
    ],
)
def test_usage_errors_name_the_option_and_the_remedy(args, words):
    done = fit_curve(*args)
    if args[1:2] == ["--csv"] and "no/such" in args[2]:
        assert done.stdout  # the table is still shown
        done.stdout = ""
    if args[1:3] == ["--r0", "1.5"]:  # each run is refused
        assert done.returncode == 2
        assert done.stderr.count("fit-curve: error: ") == 2
        return
    assert_one_error_line(done, 2, *words)


def test_nothing_left_to_fit_is_exit_code_1():
    done = fit_curve(FIG1A, "--until", "2000")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("fit-curve: error: ") == 2


def test_a_run_that_cannot_be_fitted_does_not_stop_the_others(tmp_path):
    file = tmp_path / "runs.csv"
    rows = [("long", *row) for row in RISE] + [("short", 1, 0.2), ("short", 2, 0.3)]
    file.write_text(csv_of(rows, "run,gpu_hours,pass_rate"))
    done = fit_curve(file, "--json")
    assert done.returncode == 0
    assert [run["run"] for run in json.loads(done.stdout)["runs"]] == ["long"]
    assert "'short' has 2 points" in done.stderr


def test_an_unreadable_file_does_not_stop_the_others_but_shows_in_the_exit_code(tmp_path):
    done = fit_curve(FIG1A, tmp_path / "missing.csv", "--json")
    assert done.returncode == 2
    assert len(json.loads(done.stdout)["runs"]) == 2
    assert "missing.csv does not exist" in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full device to write to")
def test_a_full_disk_is_one_line():
    done = fit_curve(FIG1A, "--csv", "/dev/full")
    assert "8B dense" in done.stdout  # the table is still shown
    done.stdout = ""
    assert_one_error_line(done, 2, "/dev/full", "No space left")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full device to write to")
def test_a_full_standard_output_is_one_line():
    import subprocess

    from test_cli import ROOT

    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "curvefit", FIG1A, "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            timeout=120,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.splitlines()[1:] == [
        "fit-curve: error: standard output: No space left on device"
    ]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    from curvefit import files
    from curvefit.errors import InputError

    target = tmp_path / "table.csv"
    target.write_text("old")
    monkeypatch.setattr(files.os, "fsync", _no_space)
    with pytest.raises(InputError, match=r"table\.csv cannot be written: No space left"):
        files.write(str(target), b"new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def _no_space(_descriptor):
    raise OSError(28, "No space left on device")
