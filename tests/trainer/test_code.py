"""The code task: rows of many shapes, honest programs, and programs paid for nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from trainer.cli import main
from trainer.config import load
from trainer.errors import ConfigError, SandboxError, TaskError
from trainer.sandbox import Result, open_sandbox
from trainer.tasks.canary import canary
from trainer.tasks.code import code_of
from trainer.tasks.code_tests import passed, read_tests
from trainer.tasks.registry import make_task
from trainer.verify import Answer, Verifier

SECRET = 918273645  # what the tests of the tricked task expect

STDIN = {
    "question": "Double a number.",
    "input_output": json.dumps({"inputs": ["3\n", "21\n"], "outputs": ["6\n", "42\n"]}),
    "solution": "print(2 * int(input()))",
}
CALL = {
    "question": "Make f(n), the numbers below n.",
    "input_output": {"inputs": [[3], [0]], "outputs": [[[0, 1, 2]], [[]]], "fn_name": "f"},
    "solutions": json.dumps(
        ["class Solution:\n    def f(self, n):\n        return tuple(range(n))"]
    ),
}
ASSERT = {
    "prompt": "Write g(x, y), a secret product.",
    "test_list": [f"assert g(3) == {SECRET}", f"assert abs(g(1) - {SECRET / 3}) < 1e-3"],
    "code": f"def g(x):\n    return x * {SECRET // 3}",
}
PROBLEMS = {"stdin": STDIN, "call": CALL, "assert": ASSERT}


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def block(program):
    return f"Here it is.\n```python\n{program}\n```"


@pytest.fixture(scope="module")
def isolated():
    try:
        open_sandbox()
    except SandboxError as e:
        pytest.skip(f"no sandbox on this machine: {e}")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("code") / "code.jsonl", [STDIN, CALL, ASSERT])


@pytest.fixture(scope="module")
def task(isolated, path):
    return make_task("code", {"path": path, "held_out": path_of_one(path), "test_s": 1.0})


def path_of_one(path):
    return write(Path(path).with_name("held.jsonl"), [{**STDIN, "question": "Double it."}])


@pytest.fixture
def score(task):
    numbers = {"stdin": 0, "call": 1, "assert": 2}

    def score(kind, program):
        item = task.item("train", numbers[kind])
        return task.score(block(program), item.question, item.answer)

    return score


# ---------------------------------------------------------------------- machines without a sandbox


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """A machine whose bubblewrap may not make namespaces."""
    script = tmp_path / "bwrap"
    script.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_the_task_is_refused_where_there_is_no_sandbox(failing, path):
    with pytest.raises(SandboxError, match="No permissions to create new namespace"):
        make_task("code", {"path": path})


def test_the_command_line_refuses_in_one_line_with_exit_2(
    failing, path, tiny_model, tmp_path, capsys
):
    flags = ["--task.name", "code", "--task.args.path", path, "--model.path", str(tiny_model)]
    assert main([*flags, "--run.out", str(tmp_path / "runs")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    assert line.startswith("train-rl: ")
    assert "No permissions to create new namespace" in line
    assert not list(tmp_path.rglob("log.jsonl"))


def test_importing_the_trainer_and_its_other_tasks_needs_no_sandbox():
    code = (
        "import sys, trainer.cli, trainer.tasks.registry as r; r.make_task('chain');"
        "print([m for m in sys.modules if 'sandbox' in m or 'bubblewrap' in m])"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    assert done.stdout == "[]\n"


def test_a_verifier_that_would_time_out_before_the_program_does_is_refused():
    flags = ["--task.name", "code", "--task.deadline_s"]
    with pytest.raises(ConfigError, match=r"task\.deadline_s = 9 is too short"):
        load([], None, [*flags, "9"])
    assert load([], None, [*flags, "9.5"]).task.deadline_s == 9.5


# ---------------------------------------------------------------------- the program of a completion


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\na\n```", "a"),
        ("```\na\n```\nor\n```py\nb\n```\nDone.", "b"),
        ("<think>```\na\n```</think>none", ""),
        ("<think>```\na\n```", ""),
        ("<think></think>```\na\n```", "a"),
        ("```python\na", ""),
        ("```python\na\n```\n```python\nb", ""),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''"),
        ("print(1)", ""),
        ("", ""),
    ],
)
def test_the_program_is_the_last_closed_block_behind_the_thinking(text, program):
    assert code_of(text) == program


# ---------------------------------------------------------------------- shapes of rows


@pytest.mark.parametrize(
    "row",
    [
        {"tests": {"inputs": ["3"], "outputs": ["6"]}},
        {"tests": json.dumps([{"input": "3", "output": "6", "type": "stdin_stdout"}])},
        {"test_cases": [{"input": ["3"], "output": ["6"]}]},
        {"reward_model": {"style": "rule", "ground_truth": '{"inputs": ["3"], "outputs": ["6"]}'}},
        {
            "verification_info": {
                "language": "python",
                "test_cases": [{"input": "3", "output": "6"}],
            }
        },
        {"public_tests": {"input": ["3"], "output": ["6"]}},
    ],
)
def test_pairs_of_input_and_output_are_read_from_many_shapes(row):
    tests = read_tests(row, next(iter(row.values())), "here")
    assert (tests.mode, tests.given, tests.expected) == ("stdin", [b"3"], ["6"])


@pytest.mark.parametrize(
    "row",
    [
        {"tests": {"inputs": [[3, "a"]], "outputs": [6], "fn_name": "f"}},
        {"tests": [{"input": '3\n"a"', "output": "6", "testtype": "functional", "fn_name": "f"}]},
        {"tests": [{"input": '3\n"a"', "output": "6"}], "metadata": '{"func_name": "f"}'},
    ],
)
def test_calls_are_read_from_many_shapes(row):
    tests = read_tests(row, row["tests"], "here")
    assert (tests.mode, tests.name, tests.expected) == ("call", "f", [6])
    assert tests.given == ['["list", [3, "a"]]']


def test_scripts_become_tests_that_name_what_they_take_from_the_program():
    row = {"test_setup_code": "import math", "test": "x = 2\nassert f(x) == math.pi\nassert g(x)"}
    tests = read_tests(row, row["test"], "here")
    assert [names for _, names in tests.given] == [["f"], ["g"]]
    assert tests.given[0][0] == "import math\nx = 2\nassert f(x) == math.pi"
    assert tests.names == ("f", "g")
    human = "def check(candidate):\n    assert candidate(1) == 2\n"
    tests = read_tests({"entry_point": "add"}, human, "here")
    assert tests.given == [(human + "check(add)", ["add"])]
    functions = (
        "from solution import f\ndef test_a():\n    assert f(1)\ndef test_b():\n    assert f(2)"
    )
    tests = read_tests({}, functions, "here")
    assert [(script[-8:], names) for script, names in tests.given] == [
        ("test_a()", ["f"]),
        ("test_b()", ["f"]),
    ]


def test_a_function_with_a_builtins_name_is_tested_only_when_nothing_else_is():
    row, solution = {}, "def sum(a, b): ..."
    assert read_tests(row, ["assert sum(1, 2) == 3"], "here", solution).names == ("sum",)
    assert read_tests(row, ["assert sum(f(1)) == 3"], "here", "def f(x): ...").names == ("f",)
    both = "def f(x): ...\ndef sum(x): ..."
    assert read_tests(row, ["assert sum(f(1)) == 3"], "here", both).names == ("f",)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tests": {"inputs": ["1"], "outputs": []}}, "line 1: 1 inputs and 0 outputs"),
        ({"tests": []}, "line 1: no tests"),
        ({"tests": ["assert len('a') == 1"]}, "line 1: the test .* takes nothing from the program"),
        ({"tests": [1]}, "line 1: tests of no known shape"),
        ({"tests": "assert ("}, r"line 1: the test 'assert \(' is not Python"),
        ({"tests": [{"input": "x y", "output": "1"}], "fn_name": "f"}, "not one JSON value a line"),
        ({}, "line 1: no tests"),
        ({"tests": ["assert f()"], "solution": ""}, "line 1: no solution .*unchecked = true"),
        ({"tests": {"inputs": ["1"], "outputs": ["x" * 3_000_000]}}, "3,000,000 characters"),
    ],
)
def test_rows_that_cannot_be_used_are_refused_by_line(isolated, tmp_path, row, message):
    file = write(tmp_path / "bad.jsonl", [{"question": "?", "solution": "pass", **row}])
    with pytest.raises(TaskError, match=message):
        make_task("code", {"path": file})


def test_options_that_cannot_be_are_refused(path):
    with pytest.raises(TaskError, match=r"code: memory_mb = 0 must be above 0"):
        make_task("code", {"path": path, "memory_mb": 0})
    with pytest.raises(TaskError, match="code: test_s = 'x' must be a number"):
        make_task("code", {"path": path, "test_s": "x"})


def test_outputs_are_compared_by_words_and_results_as_values():
    text = read_tests({}, {"inputs": [""] * 3, "outputs": ["1 2\nab\n", "0.5", "7"]}, "here")
    for index, output, right in [
        (0, b"1  2 \nab", True),
        (0, b"1\n2\nab", False),
        (0, b"1 2\nabc", False),
        (0, b"", False),
        (1, b"0.50000001", True),
        (1, b"0.51", False),
        (1, b"nan", False),
        (2, b"7.0", True),
        (2, b"8", False),
        (2, b"\xff", False),
    ]:
        assert passed(text, index, Result("ok", output)) is right
    assert not passed(text, 2, Result("error", b"7"))
    calls = read_tests({}, {"inputs": [[]], "outputs": [[1, 2.0]], "fn_name": "f"}, "here")
    for output, right in [
        (b'["tuple", [1, 2]]', True),
        (b'["list", [1, 2.5]]', False),
        (b'["list", [1]]', False),
        (b"not json", False),
        (b"", False),
        (b"[" * 100_000, False),
    ]:
        assert passed(calls, 0, Result("ok", output)) is right


# ---------------------------------------------------------------------- honest programs


def test_gold_is_paid_and_nothing_is_not_through_the_verifiers_processes(task, path):
    options = {"path": path, "held_out": path_of_one(path), "test_s": 1.0}
    verifier = Verifier("code", options)
    try:
        canary(task, verifier)
        item = task.item("train", 0)
        half = block("n = int(input())\nprint(6 if n == 3 else 0)")
        answers = [Answer(n, text, item.question, item.answer) for n, text in enumerate([half, ""])]
        assert [verdict.reward for verdict in verifier.score(answers)] == [0.5, 0.0]
    finally:
        verifier.close()


@pytest.mark.parametrize(
    "row",
    [
        {  # HumanEval: the solution goes on where the prompt ends
            "prompt": 'def larger(a, b):\n    """The larger one."""\n',
            "canonical_solution": "    return max(a, b)\n",
            "test": "\n\nMETADATA = {}\n\ndef check(candidate):\n    assert candidate(1, 2) == 2\n",
            "entry_point": "larger",
        },
        {  # MBPP: a function with a builtin's name, and a module of the tests'
            "text": "Sum the common divisors.",
            "code": "def sum(a, b):\n    return __builtins__.sum(range(a, b))",
            "test_setup_code": "import math",
            "test_list": ["assert sum(1, 3) == 3", "assert math.sqrt(sum(4, 5)) == 2"],
        },
        {  # LiveCodeBench: arguments a line, in JSON
            "question": "Join.",
            "starter_code": "class Solution:\n    def join(self, parts, by): ...",
            "public_test_cases": json.dumps(
                [{"input": '["a", "b"]\n"-"', "output": '"a-b"', "testtype": "functional"}]
            ),
            "metadata": json.dumps({"func_name": "join"}),
            "solution": "class Solution:\n    def join(self, parts, by): return by.join(parts)",
        },
        {  # PRIME and verl: a chat, and the tests within
            "prompt": [{"role": "system", "content": "Code."}, {"role": "user", "content": "Add."}],
            "reward_model": {"ground_truth": json.dumps({"inputs": ["1 2"], "outputs": ["3"]})},
            "solution": "```python\nprint(sum(map(int, input().split())))\n```",
        },
        {  # KodCode: test functions that import the program
            "question": "Negate.",
            "test": "from solution import negate\n\ndef test_one():\n    assert negate(1) == -1\n",
            "solution": "def negate(x):\n    return -x",
        },
    ],
)
def test_rows_as_data_sets_write_them_pay_their_gold(isolated, tmp_path, row):
    task = make_task("code", {"path": write(tmp_path / "a", [row]), "held_out": two(tmp_path)})
    item = task.item("train", 0)
    assert task.score(task.gold(item), item.question, item.answer) == 1.0


def descendants(pid):
    try:
        inner = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return set()
    return {pid for child in inner for pid in ({child} | descendants(child))}


def alive(pids):
    """Those of the processes that run; a zombie that nobody reaps does not."""
    found = set()
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            found |= {pid} - ({pid} if state in "ZX" else set())
    return found


def test_a_verifier_that_is_killed_takes_its_sandbox_along(task, path):
    verifier = Verifier("code", {"path": path, "held_out": path_of_one(path), "test_s": 4.0})
    item = task.item("train", 0)
    verifier.submit([Answer(0, block("while True: pass"), item.question, item.answer)])
    end, found = time.monotonic() + 20, set()
    while len(found) < 4 and time.monotonic() < end:  # worker, bwrap, keeper, program
        worker = str(verifier._workers[0].child.process.pid)
        found = alive({worker} | descendants(worker))
        verifier.poll(0.01)
    assert len(found) >= 4
    verifier.close()
    while alive(found) and time.monotonic() < end:
        time.sleep(0.01)
    assert alive(found) == set()


def test_a_wrong_solution_of_the_file_stops_everything(isolated, tmp_path):
    rows = [{**STDIN, "question": f"{n}?", "solution": "print(6)"} for n in range(30)]
    options = {"path": write(tmp_path / "wrong.jsonl", rows)}
    verifier = Verifier("code", options)
    try:
        with pytest.raises(TaskError, match=r"the gold completion of .* scores 0\.5, not 1"):
            canary(make_task("code", options), verifier, number=1)
    finally:
        verifier.close()


@pytest.mark.parametrize(
    ("kind", "program", "share"),
    [
        ("stdin", "print(int(input()) * 2)", 1.0),
        ("stdin", "print(6)", 0.5),
        ("stdin", "print(6", 0.0),
        ("stdin", "n = input()\nwhile n == '3': pass\nprint(42)", 0.5),
        ("stdin", "print(int(input()) * 2)\n1 / 0", 0.0),
        ("call", "def f(n): return list(range(n))", 1.0),
        ("call", "def f(n): return [0, 1, 2]", 0.5),
        ("call", "def f(n): return range(n)", 0.0),
        ("call", "def h(n): return list(range(n))", 0.0),
        ("assert", f"def g(x): return x * {SECRET // 3}", 1.0),
        ("assert", f"def g(x): return {SECRET}", 0.5),
        ("assert", "def g(x): return 0", 0.0),
        ("assert", "def g(x):", 0.0),
        ("assert", "", 0.0),
    ],
)
def test_the_reward_is_the_share_of_tests_passed(score, kind, program, share):
    assert score(kind, program) == share


def test_scripts_use_the_programs_objects(isolated, tmp_path):
    row = {
        "question": "Make a stack, a tree, and more.",
        "solution": (
            "class Stack:\n    def __init__(self): self.items = []\n"
            "    def push(self, x): self.items.append(x); return self\n"
            "    def __len__(self): return len(self.items)\n"
            "    def __iter__(self): return iter(self.items)\n"
            "    def __getitem__(self, i): return self.items[i]\n"
            "    def __str__(self): return 'stack'\n"
            "def count():\n    n = 0\n    while True:\n        yield n\n        n += 1\n"
            "def fail(): raise ValueError('five')\n"
            "def size(stack): return len(stack)\n"
        ),
        "tests": [
            "s = Stack()\ns.push(1).push((2, {3}))\nassert s.items == [1, (2, {3})]",
            "s = Stack().push(4)\nassert len(s) == 1 and list(s) == [4] and s[0] == 4",
            "assert str(Stack()) == 'stack' and size(Stack().push(1)) == 1",
            "from itertools import islice\nassert list(islice(count(), 3)) == [0, 1, 2]",
            "c = count()\nassert (next(c), next(c)) == (0, 1)",
            "try:\n    fail()\nexcept ValueError as e:\n    error = str(e)\nassert error == 'five'",
            "s = Stack()\ns.next = Stack()\nassert s.next.items == []",
            "assert not hasattr(Stack(), 'pop')",
        ],
    }
    task = make_task("code", {"path": write(tmp_path / "a", [row]), "held_out": two(tmp_path)})
    item = task.item("train", 0)
    assert task.score(task.gold(item), item.question, item.answer) == 1.0


def two(folder):
    return write(folder / "held.jsonl", [STDIN])


# ---------------------------------------------------------------------- paid for nothing

SEARCH = f"""
import gc, os, sys
def look():
    secret, seen = str(9182) + "73645", []
    for n in range(64):
        try: seen.append(str(os.pread(n, 1 << 20, 0)))
        except OSError: pass
    for folder, folders, files in os.walk("/"):
        if folder in ("/usr", "/lib", "/lib64", {str(Path(os.__file__).parent)!r}):
            folders.clear()
            continue
        for file in files:
            try: seen.append(str(open(os.path.join(folder, file), "rb").read(1 << 20)))
            except OSError: pass
    for thing in [*gc.get_objects(), *sys._current_frames().values()]:
        if isinstance(thing, (dict, list, tuple)) and thing is not seen and len(thing) < 999:
            seen += [v for v in (thing.values() if isinstance(thing, dict) else thing)
                     if isinstance(v, (str, bytes, int))]
    return any(secret in str(text) for text in seen if "def look" not in str(text))
"""

EQUAL = (
    "class All(int):\n"
    "    def __eq__(self, other): return True\n"
    "    def __ne__(self, other): return False\n"
    "    def __sub__(self, other): return 0\n"
    "    def __rsub__(self, other): return 0\n"
    "    def __abs__(self): return 0\n"
    "    def __lt__(self, other): return True\n"
    "    def __bool__(self): return True\n"
    "    __hash__ = None\n"
)


@pytest.mark.parametrize(
    "program",
    [
        "import sys\nsys.exit(0)",
        "import os\nos._exit(0)",
        "def g(x):\n    raise SystemExit(0)",
        "import os\ndef g(x):\n    os._exit(0)",
        "import os\ndef g(x):\n    os.kill(-1, 9)",
        "import os\ndef g(x):\n    os.kill(os.getpid() + 1, 9)",
        f"{EQUAL}def g(x): return All(0)",
        f"{EQUAL.replace('(int)', '')}def g(x): return All()",
        f"{EQUAL.replace('int', 'float')}def g(x): return All(0)",
        "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.exec = print\ndef g(x): return 0",
        "def abs(x): return 0\ndef g(x): return 0",
        "def g(x): return float('nan')",
        "def g(x): raise AssertionError",
        "def g(x): raise StopIteration",
        "import sys\nsys.modules['trainer.inside.remote'].encode = lambda *a: '[true, true]'\n"
        "def g(x): return 0",
        # verdicts and answers written to every descriptor
        "import os\ndef g(x):\n    for n in range(64):\n"
        "        for text in (b'\\0' * 9, b'[true, true]\\n'):\n"
        "            try: os.write(n, text)\n            except OSError: pass\n    os._exit(0)",
        # what tests expect, looked for everywhere a process can look, is not there to be returned
        f"{SEARCH}def g(x): return {SECRET} // 3 * x if look() else 0",
    ],
)
def test_asserts_cannot_be_passed_without_an_answer(score, program):
    assert score("assert", program) == 0.0


@pytest.mark.parametrize(
    "program",
    [
        "raise SystemExit(0)",
        "import os\nos._exit(0)",
        "print('ok')\nprint('passed')",
        "import os\nfor n in range(1, 64):\n    try: os.write(n, b'\\0' * 9 + b'6')\n"
        "    except OSError: pass\nos._exit(0)",
        "import sys\nprint(sys.stdin.read() * 2)",
    ],
)
def test_outputs_cannot_be_passed_without_an_answer(score, program):
    assert score("stdin", program) == 0.0


@pytest.mark.parametrize(
    "program",
    [
        f"{EQUAL.replace('int', 'list')}def f(n): return All([7])",
        "import os\ndef f(n):\n    os.write(4, b'[true, true]')\n    os._exit(0)",
        "def f(n): return object()",
        "class Solution:\n    def __getattr__(self, name): raise SystemExit(0)",
    ],
)
def test_calls_cannot_be_passed_without_an_answer(score, program):
    assert score("call", program) == 0.0


@pytest.mark.parametrize(
    ("test", "program"),
    [
        (
            "assert 5 in f(1)",
            "class A:\n    def __contains__(self, x): return True\ndef f(x): return A()",
        ),
        ("assert all(map(f, [1, 2]))", "def f(x): raise StopIteration"),
        ("assert f(1) < 5", "class A:\n    def __lt__(self, x): return True\ndef f(x): return A()"),
        (
            "assert f(1) == 5",
            "class A:\n    def __eq__(self, x): return True\ndef f(x): return A()",
        ),
        ("assert sorted(f(1)) == [5]", "def sorted(x): return [5]\ndef f(x): return []"),
        ("assert isinstance(f(1), int)", "class A:\n    __class__ = int\ndef f(x): return A()"),
        (
            "assert str(f(1)) == '5'",
            "class A:\n    def __str__(self): return self\ndef f(x): return A()",
        ),
    ],
)
def test_objects_of_the_programs_lend_a_script_no_verdict(isolated, tmp_path, test, program):
    row = {"question": "?", "tests": [test], "solution": "pass"}
    task = make_task("code", {"path": write(tmp_path / "a", [row]), "held_out": two(tmp_path)})
    item = task.item("train", 0)
    assert task.score(block(program), item.question, item.answer) == 0.0


def test_the_search_finishes_and_would_find_what_is_there(score):
    """The search above means something only when its program ends, and can find."""
    assert score("assert", f"{SEARCH}def g(x): return 0 if look() else x * {SECRET // 3}") == 1.0
    there = (
        f"{SEARCH}there = ['918273645', []]\ndef g(x): return x * {SECRET // 3} if look() else 0"
    )
    assert score("assert", there) == 1.0
