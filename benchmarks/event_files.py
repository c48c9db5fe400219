"""Reading TensorBoard's event files, beside TensorBoard's own reader.

    pip install tensorboard && python benchmarks/event_files.py

Two files are written with TensorBoard's writer: 100 tags at 1,000 steps, and 30 pictures of a
megabyte with one scalar each. Both readers are asked for all scalars (`EventAccumulator` with
`size_guidance={"scalars": 0}`, else it keeps 10,000 a tag), and must find the same. Then the import
that each needs, in fresh processes.
"""

from __future__ import annotations

import timing  # isort: skip  (sets the number of threads before numpy loads)

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from curvefit.readers.event_folder import EventFolder
from curvefit.readers.tensorboard import read_folder

TAGS, STEPS, PICTURES = 100, 1_000, 30
IMPORTS = {
    "EventAccumulator": "import tensorboard.backend.event_processing.event_accumulator",
    "ours": "import curvefit.readers.tensorboard",
}


def written(folder: Path, values: list[list[Summary.Value]]) -> str:
    writer = EventFileWriter(str(folder))
    for step, row in enumerate(values):
        for value in row:
            event = Event(wall_time=time.time(), step=step, summary=Summary(value=[value]))
            writer.add_event(event)
    writer.close()
    return str(folder)


def scalars() -> list[list[Summary.Value]]:
    names = [f"group{tag // 10}/metric_{tag}/mean" for tag in range(TAGS)]
    return [
        [Summary.Value(tag=name, simple_value=step * 0.001) for name in names]
        for step in range(STEPS)
    ]


def pictures() -> list[list[Summary.Value]]:
    image = Summary.Image(height=1, width=1, colorspace=3, encoded_image_string=bytes(1_000_000))
    return [
        [Summary.Value(tag="picture", image=image), Summary.Value(tag="acc", simple_value=0.5)]
        for _ in range(PICTURES)
    ]


def theirs(folder: str) -> dict[str, list[float]]:
    found = EventAccumulator(folder, size_guidance={"scalars": 0}).Reload()
    return {tag: [e.value for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def ours(folder: str) -> dict[str, list[float]]:
    (table,) = read_folder(EventFolder(folder, "run"))
    own = ("step", "elapsed_s")
    return {tag: list(column) for tag, column in table.columns.items() if tag not in own}


def import_ms(code: str) -> float:
    """Median milliseconds of a fresh interpreter that imports something, less an empty one."""

    def once(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return (time.perf_counter() - start) * 1e3

    return statistics.median(once(f"import numpy; {code}") - once("import numpy") for _ in range(7))


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, values in (("scalars", scalars()), ("pictures", pictures())):
            path = written(Path(folder) / name, values)
            assert theirs(path) == ours(path)
            count = STEPS * TAGS if name == "scalars" else PICTURES
            work = {"theirs": (lambda p=path: theirs(p), 1), "ours": (lambda p=path: ours(p), 1)}
            ms = timing.measure(work, rounds=3)
            workload = f"{count:,} scalars" + " among pictures" * (name == "pictures")
            rows.append(timing.Row(workload, "EventAccumulator", ms["theirs"], ms["ours"]))
            speeds = {who: count / spent * 1e3 for who, spent in ms.items()}
            print(f"{workload}: " + ", ".join(f"{w} {s:,.0f} a second" for w, s in speeds.items()))
    cost = {who: import_ms(code) for who, code in IMPORTS.items()}
    peer = "EventAccumulator"
    rows.append(timing.Row("import, numpy there already", peer, cost[peer], cost["ours"]))
    print(timing.table(rows))


if __name__ == "__main__":
    main()
