"""The log of `train-rl` (schema ``trainer-log/1``): events of a run, one JSON object a line.

The points are the ``eval`` events: x is ``gpu_hours``, y is ``pass_rate``, the evaluation size is
``n_prompts × n_samples``. The ``step`` events stay in the table, so that a training signal can be
asked for by name. The run is called what its ``run`` event says; each split evaluated is a run of
its own. A run over several tasks has a score for each of them besides, ``pass_rate_of/LABEL``, with
the size ``n_prompts_of/LABEL × n_samples``.
"""

from __future__ import annotations

from curvefit.errors import InputError
from curvefit.readers import json_lines
from curvefit.readers.records import Record, table_of_records
from curvefit.readers.source import Source
from curvefit.readers.table import Table
from curvefit.runs import Note
from curvefit.wording import count, printable

__all__ = ["read", "recognises"]

SIZE = "n_prompts × n_samples"
OF = "_of/"  # between a statistic and the label of the task that it is of
CPU = "the run was trained on CPUs: its gpu_hours count CPU-device hours"


def recognises(head: str) -> bool:
    """Whether the first line is an event that states the schema."""
    first = head.lstrip().partition("\n")[0]
    return first.startswith("{") and '"event"' in first and '"trainer-log/1"' in first


def read(source: Source) -> list[Table]:
    """Read a log; one table a run name and split.

    Raises
    ------
    InputError
        When no evaluation was logged yet, or as `json_lines.parse` does.
    """
    events, lines, notes, dropped = json_lines.parse(source)
    source.ended = _has_ended(events)
    groups = _groups(source, events, lines)
    tables = [
        table_of_records(source, records, rows, "line", run)
        for run, (records, rows) in groups.items()
    ]
    devices = [Note("cpu-hours", CPU)] if any(map(_on_cpu, events)) else []
    for table in tables:
        table.run_from = "run event"
        table.notes += devices
        table.sizes = _sizes(table)
    tables[0].notes += notes
    tables[0].dropped += dropped
    return tables


def _groups(
    source: Source, events: list[Record], lines: list[int]
) -> dict[str, tuple[list[Record], list[int]]]:
    """Sort evaluations by run and split, and hand each run its training steps."""
    evaluations: dict[tuple[str, str], list[tuple[int, Record]]] = {}
    steps: dict[str, list[tuple[int, Record]]] = {}
    run = source.run
    for line, event in zip(lines, events, strict=True):
        kind = event.get("event")
        if kind == "run":
            run = printable(str(event.get("run") or source.run))
        elif kind == "eval":
            key = (run, str(event.get("split", "")))
            evaluations.setdefault(key, []).append((line, _with_size(event)))
        elif kind == "step":
            steps.setdefault(run, []).append((line, event))
        elif kind == "resume":
            steps.setdefault(run, []).append((line, _resumed(event)))
    if not evaluations:
        trained = sum(event["event"] == "step" for found in steps.values() for _, event in found)
        raise InputError(
            f"{source.label} has no evaluation yet ({count(trained, 'training step')}): "
            "wait for the first eval events, or evaluate more often"
        )
    several = {run for run, _ in evaluations if sum(r == run for r, _ in evaluations) > 1}
    groups = {}
    for (run, split), found in evaluations.items():
        merged = sorted(found + steps.get(run, []), key=lambda pair: pair[0])
        name = f"{run} ({printable(split)})" if run in several else run
        groups[name] = ([event for _, event in merged], [line for line, _ in merged])
    return groups


def _has_ended(events: list[Record]) -> bool:
    """Whether the last start of the run has ended; a run may be resumed after its end."""
    turns = [kind for event in events if (kind := event.get("event")) in ("run", "resume", "end")]
    return turns[-1:] == ["end"]


def _on_cpu(event: Record) -> bool:
    gpus = event.get("gpus")
    return isinstance(gpus, dict) and gpus.get("kind") == "cpu"


def _with_size(event: Record) -> Record:
    """Return an evaluation with the sizes that it states, of all prompts and of each task's.

    Its reward is of other prompts than the one that training steps state, and gets another name.
    """
    event = {f"eval/{key}" if key == "reward" else key: value for key, value in event.items()}
    samples, of_tasks = event.get("n_samples"), event.get("n_prompts_of")
    counts = {SIZE: event.get("n_prompts")}
    if isinstance(of_tasks, dict):
        counts |= {f"n_prompts{OF}{label} × n_samples": n for label, n in of_tasks.items()}
    if not isinstance(samples, int):
        return event
    return {**event, **{name: n * samples for name, n in counts.items() if isinstance(n, int)}}


def _sizes(table: Table) -> dict[str, str]:
    """Return the size column of each score that is one task's."""
    sizes = {}
    for name in table.columns:
        score, of, rest = name.partition(OF)
        if of and score != "n_prompts":
            label = rest.partition("/")[0]
            sizes[name] = f"n_prompts{OF}{label} × n_samples"
    return sizes


def _resumed(event: Record) -> Record:
    """Return a row for the first step trained again: what was logged from there on is void."""
    step = event.get("step")
    return {"event": "resume", "step": step + 1 if isinstance(step, int) else None}
