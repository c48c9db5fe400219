"""How well does the forecast do on real curves? Ours beside simple peers, by source and pooled.

    python benchmarks/forecast_skill.py         the 29 curves of data/real_curves.csv, 10 seconds
    python benchmarks/forecast_skill.py --sizes the curves whose evaluation size is known, given it
    python benchmarks/forecast_skill.py FILE    any tidy file: curve, source, step, accuracy, n

Each curve is fitted on the first 10, 25 and 50 % of its steps and the mean of its last tenth is
predicted. Columns: mean absolute error in points of accuracy, averaged over sources / over curves;
for the forecasts that have intervals, the share of curves inside the 50 and 90 % intervals and the
median width of the latter, in points. Peers: persistence (mean of the last three seen), a straight
line in ln(step), and least-squares fits of the sigmoid, the power law and the exponential.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import curvefit

DATA = Path(__file__).parents[1] / "data" / "real_curves.csv"
ORIGINS = (0.1, 0.25, 0.5)
LAST = 0.9  # the last tenth is what is predicted
FORECASTS = {
    "default (laws averaged)": {},
    "posterior, sigmoid": {"law": "sigmoid"},
    "posterior, power law": {"law": "power"},
    "least squares, sigmoid": {"method": "least-squares"},
    "least squares, power law": {"method": "least-squares", "law": "power"},
    "least squares, exponential": {"method": "least-squares", "law": "exponential"},
}


def read(path, sizes=False):
    """Runs, with their evaluation sizes if `sizes`, and the source of each."""
    table = defaultdict(list)
    sources = {}
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if not sizes or row["n"]:
                table[row["curve"]].append(row)
                sources[row["curve"]] = row["source"]
    runs = []
    for name, rows in table.items():
        columns = ["step", "accuracy", "n"] if sizes else ["step", "accuracy"]
        data = {column: [float(row[column]) for row in rows] for column in columns}
        data["run"] = [name] * len(rows)
        runs += list(curvefit.load(data, n="n" if sizes else None))
    return runs, sources


def log_linear(run, share):
    """Error of a straight line through accuracy against ln(step)."""
    last = run.compute[-1]
    seen = (run.compute > 0) & (run.compute <= share * last)
    late = run.compute > LAST * last
    if seen.sum() < 2:
        return np.nan
    slope, start = np.polyfit(np.log(run.compute[seen]), run.score[seen], 1)
    said = np.clip(start + slope * np.log(run.compute[late]), 0.0, 1.0)
    return float(said.mean() - run.score[late].mean())


def by_source(errors, sources):
    """Mean absolute error in points, by source and pooled, of {curve: error}."""
    groups = defaultdict(list)
    for curve, error in errors.items():
        if np.isfinite(error):
            groups[sources[curve]].append(100.0 * abs(error))
    means = [float(np.mean(v)) for v in groups.values()]
    return f"{np.mean(means):.2f} / {np.mean([e for v in groups.values() for e in v]):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", default=DATA)
    parser.add_argument("--sizes", action="store_true")
    args = parser.parse_args()
    runs, sources = read(args.file, args.sizes)
    print(f"{len(runs)} curves of {len(set(sources.values()))} sources\n")
    print("| forecast | " + " | ".join(f"{share:.0%}" for share in ORIGINS) + " |")
    print("|---|" + "---|" * len(ORIGINS))
    cells = defaultdict(list)
    for name, options in FORECASTS.items():
        result = curvefit.backtest(runs, at=ORIGINS, **options)
        for share in ORIGINS:
            here = [o for o in result.origins if o.at == share]
            cell = by_source({o.run: o.error for o in here}, sources)
            pooled = next(p for p in result.pooled if p.at == share)
            if np.isfinite(pooled.inside):
                cell += f"; {pooled.inside_50:.0%}, {pooled.inside:.0%}, {100 * pooled.width:.1f}"
            cells[name].append(cell)
            if not options:
                still = {o.run: o.persistence_error for o in here}
                cells["persistence"].append(by_source(still, sources))
    for share in ORIGINS:
        line = {run.name: log_linear(run, share) for run in runs}
        cells["straight line in ln(step)"].append(by_source(line, sources))
    for name, row in cells.items():
        print(f"| {name} | " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
