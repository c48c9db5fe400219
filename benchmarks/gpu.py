r"""One GPU: parity, in-flight updates, speed against TRL with vLLM, shares of the peak.

    python benchmarks/gpu.py                       about half an hour on an H100
    python benchmarks/gpu.py --only parity swap    some parts
    python benchmarks/gpu.py --device cpu --tiny   a smoke test of the parts, without vLLM or TRL

Neither network nor data are needed: the tiny model, and Qwen3-0.6B with random weights, are made
here. Pack the wheels on a machine with a network, the same Python and the same platform:

    pip download -d wheels '.[train,vllm]' 'trl>=1.16' 'accelerate>=1.15' 'datasets>=4'
    pip wheel --no-deps -w wheels .
    python -m venv v && v/bin/pip install --no-index --find-links wheels \
        'rl-curvefit[train,vllm]' trl accelerate datasets
    HF_HUB_OFFLINE=1 v/bin/python benchmarks/gpu.py --out gpu.json

Parts, each in a process of its own, so that one that fails leaves memory and the others alone:

* peak: matrix products of the model's dtype and of plain float32, and copies: measured, for the
  shares below;
* parity: log-probabilities of the engine against the learner's, on the same completions;
* swap: weights change while requests run; spans, seconds, bytes a second, parity afterwards;
* engine: tokens a second, its share of peak arithmetic and of bandwidth;
* learner: tokens a second and the share of the peak that 6 FLOP a parameter and token make;
* k0, k8: whole runs, synchronous and as a pipeline of staleness 8: samples a second, share of sync;
* trl: GRPOTrainer with vLLM in its process, on the work of k0.

Random weights never stop early, so that lengths are equal on all sides; rewards are constant, and
the filter of groups without variance is off. What a part measures is printed as one line of JSON.
The GPU paths of this script have not run yet.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PARTS = ("peak", "parity", "swap", "engine", "learner", "k0", "k8", "trl")
GOALS = {
    "samples a second, k0 / trl": 2.0,
    "learner, share of measured peak": 0.40,
    "sync, share of the step": 0.02,
}


def main() -> int:
    options = read_options()
    if options.part:
        import gpu_parts

        print(json.dumps(gpu_parts.run(options)))
        return 0
    refusal = refused(options.device)
    if refusal:
        print(f"gpu.py: {refusal}", file=sys.stderr)
        return 2
    results, failed = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for part in options.only:
            row = child(part, options, Path(folder))
            print(json.dumps({"part": part, **row}), flush=True)
            if "error" in row:
                failed.append(part)
            else:
                results[part] = row
    for line in summary(results):
        print(line)
    if options.out:
        Path(options.out).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="the tiny model and small work")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--engine", choices=["vllm", "local"], help="default: vllm on a GPU")
    parser.add_argument("--out", help="write the figures as JSON")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.engine = options.engine or ("vllm" if options.device == "cuda" else "local")
    if options.device == "cpu":  # no vLLM, and TRL has a benchmark of its own there
        options.only = [part for part in options.only if part != "trl"]
    return options


def refused(device: str) -> str:
    """Why nothing can be measured here, or nothing."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        return "torch sees no CUDA device; --device cpu --tiny tries the parts without one"
    return ""


def child(part: str, options: argparse.Namespace, folder: Path) -> dict:
    """Run one part in a process of its own; its figures, or the last line it said."""
    command = [sys.executable, __file__, "--part", part, "--folder", str(folder)]
    command += ["--device", options.device, "--engine", options.engine]
    command += ["--tiny"] if options.tiny else []
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    threads = {"OMP_NUM_THREADS": "1"} if options.device == "cpu" else {}
    done = subprocess.run(
        command, env={**os.environ, **offline, **threads}, capture_output=True, check=False
    )
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        return {"error": words[-1] if words else f"exit code {done.returncode}"}
    return json.loads(done.stdout.decode().strip().splitlines()[-1])


def summary(results: dict) -> list[str]:
    """Ratios, beside what is asked for."""
    lines = ["", f"{'ratio':<42}{'measured':>10}{'goal':>8}"]
    for name, value in ratios(results).items():
        goal = GOALS.get(name)
        lines.append(f"{name:<42}{value:>10.3g}{'' if goal is None else f'{goal:>8.2g}'}")
    return lines


def ratios(results: dict) -> dict[str, float]:
    """What can be told from the parts that ran."""
    out: dict[str, float] = {}
    get = results.get
    if get("engine") and get("peak"):
        out["engine, share of measured peak"] = get("engine")["flops"] / get("peak")["flops"]
        out["engine, share of measured bandwidth"] = get("engine")["bytes"] / get("peak")["bytes"]
    if get("learner") and get("peak"):
        out["learner, share of measured peak"] = get("learner")["flops"] / get("peak")["flops"]
        out["plain float32 peak / peak"] = get("peak")["flops_fp32"] / get("peak")["flops"]
    if get("learner"):
        out["learner, measured / planned tokens"] = get("learner")["of_plan"]
    if get("engine"):
        out["engine, measured / planned tokens"] = get("engine")["of_plan"]
    if get("k0"):
        out["sync, share of the step"] = get("k0")["sync_share"]
    if get("k0") and get("k8"):
        both = get("k8")["samples_per_s"] / get("k0")["samples_per_s"]
        out["samples a second, k8 / k0"] = both
    if get("k0") and get("trl"):
        out["samples a second, k0 / trl"] = get("k0")["samples_per_s"] / get("trl")["samples_per_s"]
    return out


if __name__ == "__main__":
    sys.exit(main())
