"""trackio's databases, as the package writes them, while a run goes on, and other databases."""

from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from test_cli import assert_one_error_line, fit_curve

from curvefit.errors import InputError
from curvefit.fit import fit
from curvefit.readers import load, request_of
from curvefit.watch import Watch

PACKED = Path(__file__).parent / "inputs" / "trackio_countdown.db.gz"
OLD = "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp, run_name TEXT, step INTEGER, "


def score(step, speed):  # as inputs/write_tracker_logs.py has it
    return 0.2 + 0.5 * step / (step + speed)


def refusal(source, **options):
    with pytest.raises(InputError) as caught:
        load(source, **options)
    assert str(caught.value).isprintable()
    return str(caught.value)


def database(path, *statements, rows=()):
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    insert(connection, rows)
    connection.close()
    return path


def insert(connection, rows):
    wanted = "INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES ('now', ?, ?, ?)"
    connection.executemany(wanted, rows)
    connection.commit()


def rows_of(*points, run="a"):
    return [(run, step, json.dumps({"eval/acc": y})) for step, y in points]


@pytest.fixture
def project(tmp_path):
    path = tmp_path / "countdown.db"
    path.write_bytes(gzip.decompress(PACKED.read_bytes()))
    return path


def test_each_run_of_a_project_is_a_run_also_under_one_name(project):
    runs = load(project)
    assert runs.names == ("grpo", "dapo", "grpo [2]")
    for run, speed in zip(runs, (40, 20, 30), strict=True):
        assert (run.x.column, run.y.column) == ("train/global_step", "eval/reward")
        assert run.compute.tolist() == [10, 20, 30, 40]
        np.testing.assert_allclose(run.score, score(run.compute, speed) - 0.02, rtol=1e-12)


def test_compute_comes_from_the_time_of_a_step_and_never_from_the_timestamps(project):
    run = load(project, gpus=8)["dapo"]
    assert run.x.column == "train/step_time"
    np.testing.assert_allclose(run.compute, np.array([10, 20, 30, 40]) * 30 * 8 / 3600)
    assert "timestamp" not in refusal(project, x="nothing")


def test_the_counter_of_calls_can_be_asked_for(project):
    run = load(project, x="_step", y="train/reward")[0]
    assert run.compute.tolist() == [0, 1, 3, 4, 6, 7, 9, 10]


def test_the_command_line_reads_a_project(project):
    done = fit_curve(project, "--gpus", "8", "--compare", "--json")
    assert done.returncode == 0
    assert [run["run"] for run in json.loads(done.stdout)["runs"]] == ["grpo", "dapo", "grpo [2]"]


def test_an_early_database_without_ids_and_a_resumed_run(tmp_path):
    points = [(0, 0.1), (10, 0.2), (20, 0.3), (30, 0.4), (20, 0.35), (30, 0.45), (40, 0.5)]
    path = database(tmp_path / "p.db", OLD + "metrics TEXT)", rows=rows_of(*points))
    (run,) = load(path)
    assert (run.name, run.x.column) == ("a", "step")
    assert run.score.tolist() == [0.1, 0.2, 0.35, 0.45, 0.5]
    assert [drop.row for drop in run.dropped] == [3, 4]


def test_pictures_and_numbers_that_are_none_are_blank(tmp_path):
    rows = rows_of(*((step, step / 100) for step in range(0, 50, 10)))
    picture = {"eval/acc": "NaN", "im": {"_type": "trackio.image", "file_path": "x.png"}}
    rows.append(("a", 50, json.dumps(picture)))
    path = database(tmp_path / "p.db", OLD + "metrics TEXT)", rows=rows)
    assert load(path)[0].compute.tolist() == [0, 10, 20, 30, 40]
    assert "im/" not in refusal(path, y="nothing")


def test_what_a_run_has_just_written_is_read_and_nothing_is_changed(project):
    writer = sqlite3.connect(project)
    assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    more = json.dumps({"eval/reward": 0.6, "train/global_step": 50})
    wanted = (
        "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, '', ?, ?, ?)"
    )
    watch = Watch([str(project)], request_of(*[None] * 6), fit)
    assert len(watch.look().changes) == 3
    before = project.read_bytes()
    writer.execute(wanted, ("another", "new", 0, more))
    writer.commit()
    assert project.read_bytes() == before  # it stands in the log beside the database
    assert load(project)["new"].compute.tolist() == [50]
    watch.look()
    assert watch.runs.names == ("grpo", "dapo", "grpo [2]", "new")
    writer.close()


def test_a_database_at_rest_is_read_without_a_trace(project):
    assert len(load(project)) == 3
    assert sorted(path.name for path in project.parent.iterdir()) == ["countdown.db"]


@pytest.mark.parametrize(
    ("statements", "says"),
    [
        (["CREATE TABLE models (a)", "CREATE TABLE t (b)"], "no table metrics (tables: models, t)"),
        (["CREATE TABLE metrics (key, value)"], "no id, run_name, step, metrics in its table"),
        ([OLD + "metrics TEXT)"], "holds no metrics yet"),
        (["CREATE TABLE 'x\x1b[31m' (a)"], "no table metrics (tables: x\\x1b[31m)"),
        (
            ["CREATE VIEW metrics AS SELECT 1 id, 'a' run_name, 1 step, '{}' metrics"],
            "no table metrics (tables: none)",
        ),
        (
            [OLD + "metrics TEXT)", "INSERT INTO metrics VALUES (7, '', 'a', 1, '[1, 2]')"],
            "row 7: its metrics are no JSON object: '[1, 2]'",
        ),
        (
            [OLD + "metrics TEXT)", "INSERT INTO metrics VALUES (7, '', 'a', 'x', '{\"acc\": 1}')"],
            "no column of numbers is left for compute among acc, run, step",
        ),
        (
            [OLD + "metrics)", "INSERT INTO metrics VALUES (7, '', 'a', 1, zeroblob(20000000))"],
            "string or blob too big",
        ),
    ],
)
def test_other_databases_are_one_sentence(tmp_path, statements, says):
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    assert_one_error_line(fit_curve(path), 2, str(path), says)


def test_a_damaged_database_is_one_sentence(project):
    data = bytearray(project.read_bytes())
    assert "cannot be read as an SQLite database" in refusal(damaged(project, data[:5000]))
    data[100:8192] = os.urandom(8092)
    assert "SQLite database" in refusal(damaged(project, data))


def damaged(path, data):
    path.write_bytes(data)
    return path


def test_a_database_must_be_a_file_of_its_own(project):
    says = "can only be read from its own file, unpacked and named by its path"
    assert says in refusal(PACKED)
    assert says in refusal(io.BytesIO(project.read_bytes()))
