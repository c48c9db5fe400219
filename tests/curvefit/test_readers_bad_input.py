"""Whatever is wrong with an input, one line says what, where and what to do."""

from __future__ import annotations

import gzip
import itertools
import time
from pathlib import Path

import pytest

from curvefit.errors import AmbiguousColumn, InputError
from curvefit.readers import load


def refusal(source: object, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        load(source, **options)
    message = str(caught.value)
    assert message.isprintable()  # one line, no control characters
    return message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"  \n\n", "is empty"),
        (b"step,accuracy\n", "has a header line but no rows below it"),
        (b"accuracy\n0.1\n0.2\n", "two, compute (or step) and score"),
        (b"step,accuracy\n1,0.1\n2,abc\n", "line 3: accuracy is 'abc', which is not a number"),
        (b"step,accuracy\n1,0.1\nx\x07y,0.2\n", "line 3: step is 'x\\x07y'"),
        (b"step,accuracy\n1,0.1\n2,\xe9\n", "is not UTF-8 text: byte 22 is 0xe9"),
        (b"step,accuracy\n1,inf\n2,0.2\n", "line 2: accuracy is 'inf', which is not finite"),
        (b"step,accuracy\n1,50%\n2,0.6\n", "line 3: accuracy is '0.6', while other cells carry"),
        (b"step,accuracy\n1,0.1\n-2,0.2\n", "line 3: step gives -2: compute cannot be negative"),
        (b"step,acc,acc\n1,0.1,0.2\n", "columns 2 and 3 are both called 'acc'"),
        (b"1,0.1\n2,0.2\n", "numbers stand where the column names should be"),
        (b"step,accuracy\n1,0.1\n2,0.2,0.3\n4,0.5\n", "line 3: 3 cells where the header has 2"),
        (b"step,accuracy\n1,0.1\n2,0.2,0.3\n", "line 3: 3 cells where the header has 2"),
        (b'step,accuracy\n1,"0.1\n2,0.2\n', "a quotation mark is not closed before line 3"),
        (b"a,b\nx,y\nz,w\n", "no number in the first 2 rows"),
        (b"\x00\x01\x02,\xff", "is a binary file (byte 0 is zero)"),
        (b"PK\x03\x04\x14\x00", "a workbook: unpack it, or save the sheet as CSV"),
        (b"PAR1\x15\x04", "a Parquet file"),
        (b"BZh91AY&SY", "compressed with bzip2"),
        (gzip.compress(b"step,accuracy\n1,0.1\n" * 50)[:-9], "is a damaged gzip file"),
        (b"Hello, world\nthis, is, text\nno\n", "line 2: 3 cells where the header has 2"),
        (b"step,accuracy\n,0.1\n,0.2\n", "no column"),
    ],
)
def test_bad_files(tmp_path, content, says):
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    message = refusal(path)
    assert says in message
    assert message.startswith(str(path))


def test_paths_that_cannot_be_read(tmp_path):
    assert refusal(tmp_path / "none.csv").endswith("none.csv does not exist")
    assert "is a directory: name a file in it" in refusal(tmp_path)
    assert "cannot be read: embedded null byte" in refusal("a\0b")
    assert "cannot be read: File name too long" in refusal("x" * 5000)


def test_sources_that_are_none():
    assert "cannot read int" in refusal(3)
    assert "no file was given" in refusal([])
    assert "have no rows" in refusal({})
    assert "differ in the number of rows" in refusal({"step": [1, 2], "accuracy": [0.1]})
    assert "has 2 dimensions" in refusal({"step": [[1], [2]], "accuracy": [0.1, 0.2]})


@pytest.mark.parametrize(
    "line", ["nonsense\n", "lorem ipsum, dolor\n", '{"a": "b"}\n', "\n", "x", "a,b,c\n1,2\n"]
)
def test_endless_nonsense_is_refused_from_its_beginning(line):
    class Endless:
        read_so_far = 0

        def read(self, size):
            self.read_so_far += size
            return (line * (size // len(line) + 1)).encode()

    source = Endless()
    started = time.perf_counter()
    refusal(source)
    assert source.read_so_far < 40_000_000
    assert time.perf_counter() - started < 5


def test_an_endless_table_is_refused_before_memory_ends(monkeypatch):
    from curvefit.readers import delimited, json_lines

    monkeypatch.setattr(delimited, "MAX_CELLS", 10_000)
    monkeypatch.setattr(json_lines, "MAX_CELLS", 10_000)

    class Numbered:
        def __init__(self, head, line):
            self.lines = itertools.chain([head], itertools.repeat(line))

        def read(self, size):
            return "".join(itertools.islice(self.lines, 1000))

    assert "cells: keep only the columns" in refusal(Numbered("step,acc\n", "1,0.5\n"))
    record = '{"step": 1, "acc": 0.5}\n'
    assert "values: keep only the keys" in refusal(Numbered(record, record))


def test_ten_thousand_columns_are_read_or_listed_briefly(tmp_path):
    names = [f"eval/task{i}" for i in range(10_000)]
    rows = "".join(
        f"{s}," + ",".join(str((i + s) % 7 / 7) for i in range(10_000)) + "\n" for s in (0, 1, 2)
    )
    path = tmp_path / "wide.csv"
    path.write_text("step," + ",".join(names) + "\n" + rows)
    message = refusal(path)
    assert "7 columns could be the score: eval/task0, eval/task1" in message
    assert len(message) < 1_000
    assert load(path, y="eval/task77")[0].score.tolist() == [0, 1 / 7, 2 / 7]
    assert "did you mean 'eval/task7" in refusal(path, y="eval/task777x")


def test_the_nearest_column_is_named(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,accuracy,n\n1,0.1,0\n2,0.2,5\n")
    assert "no column is called 'Accuracy' (--y); did you mean 'accuracy'?" in refusal(
        path, y="Accuracy"
    )
    assert "(--x); did you mean 'step'" in refusal(path, x="stpe")
    assert "(--run); there are step, accuracy, n" in refusal(path, run="zzz")
    assert "(--n); " in refusal(path, n="size")
    assert "cannot be both compute (--x) and score (--y)" in refusal(path, x="step", y="step")
    assert "line 2: n is 0: the size of an evaluation (--n)" in refusal(path, n="n")
    assert "(--n) is 0" in refusal(path, n=0)


def test_what_cannot_be_decided_is_asked_with_candidates_and_flag():
    with pytest.raises(AmbiguousColumn, match=r"eval/math, eval/code; choose one with --y COL"):
        load({"step": [0, 1], "eval/math": [0.1, 0.2], "eval/code": [0.3, 0.2]})
    with pytest.raises(AmbiguousColumn, match=r"iter, update; choose one with --x COL"):
        load({"iter": [0, 1], "update": [0, 5], "accuracy": [0.1, 0.2]})


def test_a_score_that_only_a_task_tells_apart_is_asked_for():
    table = {
        "run": ["a"] * 6,
        "step": [0, 0, 1, 1, 2, 2],
        "task": ["math", "code"] * 3,
        "score": [0.1, 0.5, 0.2, 0.6, 0.3, 0.7],
    }
    message = refusal(table)
    assert "told apart by column task (math, code)" in message
    assert "--run run,task" in message
    assert load(table, run="run,task").names == ("a, math", "a, code")


def test_paths_in_messages_are_printable(tmp_path):
    assert "\\x1b" in refusal(Path(tmp_path) / "no\x1b[31m.csv")
