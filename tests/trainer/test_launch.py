"""Servers as children: they answer before the run goes on and end when it does."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer.errors import EngineError
from trainer.launch import Order, Servers, free_port, healthy

SERVER = """
import http.server, os, subprocess, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404); self.end_headers()
    def log_message(self, *words): pass
helper = subprocess.Popen(["sleep", "600"])
print("pids", os.getpid(), helper.pid, os.environ["FLAVOUR"], flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()
"""


def order(code=SERVER, port=None):
    port = port or free_port()
    environment = {**os.environ, "FLAVOUR": f"mine{port}"}
    return Order([sys.executable, "-c", code, str(port)], environment, f"127.0.0.1:{port}")


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids, seconds=10):
    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(alive, pids))


def pids_of(log):
    words = log.read_text().split()
    return [int(words[1]), int(words[2])]


def test_servers_answer_when_the_constructor_returns_and_leave_no_process_behind(tmp_path):
    orders = [order(), order()]
    servers = Servers(orders, tmp_path / "servers", 30)
    assert servers.addresses == [o.address for o in orders]
    assert all(map(healthy, servers.addresses))
    pids = [p for log in servers.logs for p in pids_of(log)]
    assert all(map(alive, pids))
    assert "mine" in servers.logs[1].read_text()
    start = time.monotonic()
    servers.close()
    assert time.monotonic() - start < 4  # they obey SIGTERM: nobody waits for SIGKILL
    assert gone(pids, 1)
    servers.close()


def test_a_server_that_ends_at_once_is_reported_with_its_last_words_and_the_others_end(tmp_path):
    broken = order("import sys; print('no such model'); sys.exit(3)")
    with pytest.raises(EngineError) as e:
        Servers([order(), broken], tmp_path, 30)
    message = str(e.value)
    assert f"{broken.address} ended with code 3: no such model" in message
    assert str(tmp_path / "1.log") in message
    assert "\n" not in message
    log = (tmp_path / "0.log").read_text()
    assert not log or gone(pids_of(tmp_path / "0.log"), 1)


def test_a_server_that_never_answers_is_given_up_at_the_deadline(tmp_path):
    mute = order("import time; time.sleep(600)")
    start = time.monotonic()
    with pytest.raises(EngineError, match=r"not healthy within 0.5 s: .*0\.log.*engine.start_s"):
        Servers([mute], tmp_path, 0.5)
    assert time.monotonic() - start < 5


def test_a_server_that_ignores_sigterm_is_killed(tmp_path):
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVER
    servers = Servers([order(deaf)], tmp_path, 30)
    pids = pids_of(servers.logs[0])
    servers.close()
    assert gone(pids, 1)


def test_servers_end_when_the_run_is_killed(tmp_path):
    code = (
        "import sys, time; from trainer.launch import Servers; from test_launch import order\n"
        "from pathlib import Path\n"
        f"Servers([order()], Path({str(tmp_path)!r}), 30); print('up', flush=True); time.sleep(600)"
    )
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(Path(__file__).parent)])
    run = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert run.stdout.readline() == b"up\n"
    pids = pids_of(tmp_path / "0.log")
    assert all(map(alive, pids))
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    assert gone(pids)


def test_a_server_that_has_ended_is_started_again_a_few_times_on_its_port(tmp_path):
    servers = Servers([order(), order()], tmp_path, 30)
    try:
        servers.revive()
        assert servers.notices() == []
        first = servers.processes[0].pid
        for times in (1, 2, 3):
            os.killpg(servers.processes[0].pid, signal.SIGKILL)
            servers.processes[0].wait()
            servers.revive()
            (notice,) = servers.notices()
            assert servers.addresses[0] in notice
            assert f"started again ({times} of 3 times)" in notice
        assert servers.processes[0].pid != first
        end = time.monotonic() + 10
        while not healthy(servers.addresses[0]) and time.monotonic() < end:
            time.sleep(0.05)
        assert healthy(servers.addresses[0])
        os.killpg(servers.processes[0].pid, signal.SIGKILL)
        servers.processes[0].wait()
        servers.revive()
        assert servers.notices() == []  # it has had its chances
    finally:
        servers.close()
