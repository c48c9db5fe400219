"""A vLLM server as a child, started with the command that a run would start it with."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from serving import ROOT

from trainer.config import load
from trainer.launch import free_port
from trainer.servers import command, environment, runnable

START_S = 240


@contextmanager
def vllm_server(directory, *, slots=512, device="cpu"):
    """``host:port`` of a healthy server; on ``cuda:N`` it holds that GPU."""
    kind, _, number = device.partition(":")
    config = load(
        [],
        None,
        ["--engine.kind", "vllm", "--model.device", kind, "--engine.slots", str(slots)],
    )
    port = free_port()
    words = runnable(command(config, "vllm", directory, port))
    extra = environment(config, "vllm", (number,) if number else ())
    log = Path(directory) / "vllm.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, **extra, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        _await(f"http://127.0.0.1:{port}/health", process, log)
        yield f"127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await(url, process, log):
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    sys.stderr.write(log.read_text()[-4000:])
    raise AssertionError("the vLLM server did not start")
