"""Servers for the tests: in a process of their own as users start them, or in this one."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

from trainer.engine.faults import Faults
from trainer.engine.server import Options, open_server

ROOT = Path(__file__).parents[2]


class Process:
    """``train-rl serve`` as a child; `kill` it, `stop` it (it hangs), start it `again`."""

    def __init__(self, directory, *, port=0, host="127.0.0.1", slots=512, prefix=()):
        self.directory, self.host, self.slots, self.prefix = directory, host, slots, prefix
        self.port = port
        self.start()

    def start(self):
        options = ["--host", self.host, "--port", str(self.port), "--slots", str(self.slots)]
        self.process = subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "trainer", "serve", str(self.directory), *options],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        self.address = self.process.stdout.readline().strip()
        assert self.address, "the server did not start"
        self.port = int(self.address.rpartition(":")[2])

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        os.killpg(self.process.pid, signal.SIGSTOP)

    def go_on(self):
        os.killpg(self.process.pid, signal.SIGCONT)

    def again(self):
        self.kill()
        self.start()


@contextmanager
def processes(directory, *hosts, slots=512, prefix=()):
    """One server a host."""
    servers = []
    try:
        for host in hosts:
            servers.append(Process(directory, host=host, slots=slots, prefix=prefix))
        yield servers
    finally:
        for server in servers:
            server.kill()


class Here:
    """A server in a thread of this process, which does wrong what `faults` says."""

    def __init__(self, directory, *, port=0, slots=512):
        self.directory, self.port, self.slots = directory, port, slots
        self.start()

    def start(self):
        self.faults = Faults()
        options = Options(port=self.port, slots=self.slots)
        self.server = open_server(self.directory, options, faults=self.faults)
        self.address = self.server.address
        self.port = int(self.address.rpartition(":")[2])
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self.thread.start()

    def close(self):
        self.faults.heal()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
