"""Whole runs through servers that stand elsewhere: trajectories, kills, cuts."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import serving
from waiting import wait_until

from trainer.cli import main
from trainer.ledger import read

ROOT = Path(__file__).parents[2]
SMALL = {
    "sample.prompts": 8,
    "sample.group": 4,
    "eval.prompts": 8,
    "eval.samples": 2,
    "eval.every": 2,
    "checkpoint.every": 3,
    "run.steps": 6,
}


@pytest.fixture(scope="module")
def children(tiny_model):
    with serving.processes(tiny_model, "127.0.0.1", "127.0.0.2") as two:
        yield two


def arguments(out, name, model, addresses=(), **settings):
    values = {**SMALL, "run.out": out, "run.name": name, "model.path": model}
    if addresses:
        values["engine.addresses"] = json.dumps(list(addresses))
    values |= {key.replace("__", "."): value for key, value in settings.items()}
    return ["--recipe", "tiny", *(part for k, v in values.items() for part in (f"--{k}", str(v)))]


def command(*words, prefix=()):
    return subprocess.Popen(
        [*prefix, sys.executable, "-m", "trainer", *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows(folder, event):
    return [row for row in read(folder / "log.jsonl") if row["event"] == event]


def learned(folder):
    """What the steps were, without times and rounding."""
    keys = ("reward", "tokens", "samples", "grad_norm", "loss")
    steps = {row["step"]: [row[key] for key in keys] for row in rows(folder, "step")}
    return [value for _, values in sorted(steps.items()) for value in values]


def wait_for_step(folder, step, process):
    def there():
        return any(row["step"] >= step for row in rows(folder, "step"))

    wait_until(there, process, f"step {step}")


def test_two_servers_at_two_addresses_learn_what_one_process_learns(children, tmp_path, tiny_model):
    addresses = [child.address for child in children]
    assert main(arguments(tmp_path, "served", tiny_model, addresses)) == 0
    assert main(arguments(tmp_path, "local", tiny_model)) == 0
    served, local = learned(tmp_path / "served"), learned(tmp_path / "local")
    assert len(served) == 6 * 5
    assert served == pytest.approx(local, rel=1e-3, abs=1e-5)
    assert rows(tmp_path / "served", "alarm") == rows(tmp_path / "local", "alarm") == []
    header = rows(tmp_path / "served", "run")[0]
    assert header["engine"]["placement"] == "remote"


def test_a_pipeline_over_servers_overlaps_and_bounds_its_staleness(children, tmp_path, tiny_model):
    addresses = [child.address for child in children]
    settings = {"pipeline__mode": "pipeline", "pipeline__k": 2, "run__steps": 8}
    assert main(arguments(tmp_path, "a", tiny_model, addresses, **settings)) == 0
    steps = rows(tmp_path / "a", "step")
    assert len(steps) == 8
    stale = [row["staleness_max"] for row in steps]
    assert 0 < max(stale) <= 2
    gaps = [row["logp_gap"] for row in steps if row["logp_gap"] is not None]
    assert gaps
    assert max(gaps) < 1e-3  # tokens of the same version: the labels of the spans are right


@pytest.mark.slow
def test_a_run_survives_the_kill_of_one_server_and_takes_it_back(children, tmp_path, tiny_model):
    addresses = [child.address for child in children]
    settings = {"run__steps": 5000, "eval__every": 5000}
    process = command(*arguments(tmp_path, "a", tiny_model, addresses, **settings))
    wait_for_step(tmp_path / "a", 2, process)
    children[1].again()

    def told():
        alarms = rows(tmp_path / "a", "alarm")
        return [row["message"] for row in alarms if row["signal"] == "servers"]

    back = f"{children[1].address} is back"
    wait_until(lambda: any(back in line for line in told()), process, back)
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    lost = re.compile(rf"^[a-z]+: {children[1].address}: .*servers are left")
    assert any(lost.search(line) for line in told()), told()
    assert main(arguments(tmp_path, "local", tiny_model, run__steps=3)) == 0
    first, local = learned(tmp_path / "a")[:15], learned(tmp_path / "local")
    assert first == pytest.approx(local, rel=1e-3, abs=1e-5)


@pytest.mark.slow
def test_without_a_server_the_run_ends_with_a_checkpoint_and_resumes_exactly(tmp_path, tiny_model):
    settings = {"checkpoint__every": 1, "pipeline__deadline_s": 5, "run__steps": 30}
    with serving.processes(tiny_model, "127.0.0.1") as [child]:
        process = command(*arguments(tmp_path, "a", tiny_model, [child.address], **settings))
        wait_for_step(tmp_path / "a", 3, process)
        child.kill()
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1
        last = errors.strip().splitlines()[-1]
        assert re.search(
            rf"(generation|pause|update|resume|parity): {child.address}: .* no server came back in "
            r"5 s.* the last good checkpoint is .*step-\d+: resume from it$",
            last,
        ), last
        child.start()
        assert main(["--resume", str(tmp_path / "a"), "--pipeline.deadline_s", "60"]) == 0
    assert main(arguments(tmp_path, "local", tiny_model, **settings)) == 0
    served, local = learned(tmp_path / "a"), learned(tmp_path / "local")
    assert served[:50] == pytest.approx(local[:50], rel=1e-2, abs=1e-4)


@pytest.mark.vllm
@pytest.mark.slow
def test_vllm_teaches_what_the_local_engine_teaches(tmp_path, tiny_model):
    """Twenty steps in a pipeline and twenty in turns; vLLM draws with other random numbers."""
    from vllm_server import vllm_server

    model = shutil.copytree(tiny_model, tmp_path / "model")
    rate = {}
    settings = {"sample__prompts": 16, "sample__group": 8, "run__steps": 20}
    settings |= {"eval__every": 20, "eval__prompts": 64, "eval__samples": 4}
    with vllm_server(model) as address:
        for mode in ("sync", "pipeline"):
            k = 0 if mode == "sync" else 2
            there = {**settings, "pipeline__mode": mode, "pipeline__k": k}
            start = time.monotonic()
            assert main(arguments(tmp_path, mode, model, [address], **there)) == 0
            steps = rows(tmp_path / mode, "step")[1:]  # a row tells of the sync before it
            sync = sum(row["sync_s"] for row in steps) / len(steps)
            print(f"{mode}: {time.monotonic() - start:.1f} s, {sync:.3f} s a weight update")
            rate[mode] = rows(tmp_path / mode, "eval")[-1]["pass_rate"]
            assert rows(tmp_path / mode, "eval")[-1]["logp_gap_max"] < 1e-4
    assert main(arguments(tmp_path, "local", model, **settings)) == 0
    local = rows(tmp_path / "local", "eval")[-1]["pass_rate"]
    print(rate, local)
    assert abs(rate["sync"] - local) < 0.25  # 256 answers after 20 steps: two seeds differ by 0.1
    assert rate["pipeline"] > 0.25


# ---------------------------------------------------------------------- two network namespaces


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def two_machines():
    """Two network namespaces joined by a cable; prefixes that run a command in either."""
    if shutil.which("ip") is None:
        pytest.skip("no ip command")
    names = [f"rl{os.getpid()}{side}" for side in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
    except subprocess.CalledProcessError as e:
        pytest.skip(f"network namespaces are not permitted: {e.stderr.decode().strip()}")
    ip("-n", names[0], "link", "add", "cable", "type", "veth", "peer", "cable", "netns", names[1])
    for i, name in enumerate(names, 1):
        ip("-n", name, "address", "add", f"10.77.0.{i}/24", "dev", "cable")
        ip("-n", name, "link", "set", "cable", "up")
        ip("-n", name, "link", "set", "lo", "up")
    yield [("ip", "netns", "exec", name) for name in names]
    for name in names:
        ip("netns", "del", name)


@pytest.mark.slow
def test_server_and_learner_on_two_machines(two_machines, tmp_path, tiny_model):
    here, there = two_machines
    with serving.processes(tiny_model, "10.77.0.1", prefix=here) as [child]:
        settings = {"engine__folder": tmp_path / "weights", "run__steps": 300, "eval__every": 150}
        words = arguments(tmp_path, "a", tiny_model, [child.address], **settings)
        process = command(*words, "--pipeline.deadline_s", "120", prefix=there)
        wait_for_step(tmp_path / "a", 3, process)
        child.again()  # the run waits for it, gives it the weights of now, and goes on
        wait_for_step(tmp_path / "a", rows(tmp_path / "a", "step")[-1]["step"] + 5, process)
        process.terminate()
        process.communicate(timeout=60)
        told = [row["message"] for row in rows(tmp_path / "a", "alarm")]
        assert any("is back with the weights of version" in line for line in told), told

        words = ["--resume", str(tmp_path / "a"), "--pipeline.deadline_s", "4"]
        before = len(rows(tmp_path / "a", "step"))
        process = command(*words, prefix=there)
        wait_for_step(tmp_path / "a", rows(tmp_path / "a", "step")[-1]["step"] + 2, process)
        ip("-n", here[-1], "link", "set", "cable", "down")
        start = time.monotonic()
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1
        assert time.monotonic() - start < 30
        last = errors.strip().splitlines()[-1]
        assert re.search(r"(generation|pause|update|resume|parity): 10\.77\.0\.1:\d+: ", last), last
        assert re.search(r"checkpoint is .*step-\d+", last), last
        assert len(rows(tmp_path / "a", "step")) > before
