"""benchmarks/gpu.py: what it refuses, what it makes of figures, and that its parts run."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import gpu
import gpu_parts
import pytest

KIT = Path(gpu.__file__)


def run(*flags):
    return subprocess.run(
        [sys.executable, str(KIT), *flags],
        capture_output=True,
        text=True,
        cwd=KIT.parents[1],
        env={**os.environ, "PYTHONPATH": str(KIT.parents[1])},
        check=False,
    )


def test_without_a_gpu_it_says_so_in_one_line(capsys, monkeypatch):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    assert gpu.main() == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    assert "no CUDA device" in line
    assert "--device cpu --tiny" in line


def test_ratios_by_hand():
    peak = {"flops": 800.0, "flops_fp32": 50.0, "bytes": 400.0}
    engine = {"flops": 80.0, "bytes": 100.0, "of_plan": 0.5}
    learner = {"flops": 320.0, "of_plan": 0.9}
    runs = {"k0": {"samples_per_s": 30.0, "sync_share": 0.01}, "k8": {"samples_per_s": 45.0}}
    out = gpu.ratios({"peak": peak, "engine": engine, "learner": learner, **runs})
    assert out["engine, share of measured peak"] == 0.1
    assert out["engine, share of measured bandwidth"] == 0.25
    assert out["learner, share of measured peak"] == 0.4
    assert out["plain float32 peak / peak"] == 0.0625
    assert out["samples a second, k8 / k0"] == 1.5
    assert "samples a second, k0 / trl" not in out  # it did not run
    out = gpu.ratios({**runs, "trl": {"samples_per_s": 10.0}})
    assert out["samples a second, k0 / trl"] == 3.0
    assert set(gpu.GOALS) <= set(out) | {"learner, share of measured peak"}


@pytest.mark.parametrize("part", [p for p in gpu.PARTS if p != "trl"])
def test_every_part_runs_on_a_cpu(part, tmp_path):
    options = argparse.Namespace(
        part=part, device="cpu", tiny=True, engine="local", folder=str(tmp_path)
    )
    figures = gpu_parts.run(options)
    json.dumps(figures)
    if part == "parity":
        assert figures["max_gap"] < 1e-4
    if part == "swap":
        assert figures["kept"]["with_both_versions"] == 1.0
        assert figures["rebuilt"]["with_both_versions"] == 1.0
    if part in ("k0", "k8"):
        assert figures["steps"] == 6
        assert figures["samples_per_s"] > 0


@pytest.mark.gpu
@pytest.mark.vllm
@pytest.mark.slow
def test_all_parts_run_on_a_gpu(tmp_path):
    out = tmp_path / "gpu.json"
    done = run("--tiny", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(json.loads(out.read_text())) == set(gpu.PARTS)
