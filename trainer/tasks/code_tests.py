"""The tests of a code problem, in the shapes that common data sets have, and their verdicts.

========  ==============================================================  ==========================
mode      what a test is                                                  who compares
========  ==============================================================  ==========================
stdin     text for standard input, text expected on standard output       `passed`, outside
call      arguments of a function, its expected result                    `passed`, outside
assert    a script that calls the program and asserts                     the script, in a process
                                                                          apart from the program's
========  ==============================================================  ==========================

Read are: ``{"inputs": [...], "outputs": [...], "fn_name": ...}`` (APPS, TACO, PRIME), lists of
``{"input": ..., "output": ...}`` (LiveCodeBench, DeepCoder), either also as JSON text or within
``reward_model.ground_truth`` or ``verification_info.test_cases``; lists of assert statements (MBPP,
AceCode); a script of asserts, of ``def test_...`` functions, or HumanEval's ``check``.
"""

from __future__ import annotations

import ast
import builtins
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainer.errors import TaskError
from trainer.inside.plain import decode, encode
from trainer.sandbox import Result

__all__ = ["TESTS", "Tests", "passed", "read_tests"]

TESTS = (
    "tests",
    "test_cases",
    "input_output",
    "test_list",
    "ground_truth",
    "reward_model",
    "verification_info",
    "public_tests",
    "public_test_cases",
    "test",
)
INPUTS, OUTPUTS = ("inputs", "input"), ("outputs", "output", "expected_output")
NAMES = ("fn_name", "func_name", "function_name", "entry_point")
WITHIN = ("ground_truth", "test_cases", "tests")
MODULES = ("solution", "main")  # what scripts import the program as
CLOSE = 1e-6  # numbers written with a point or an exponent may differ by so much


@dataclass(frozen=True)
class Tests:
    """Tests of one problem.

    Parameters
    ----------
    mode : {"stdin", "call", "assert"}
    given : list
        What `trainer.sandbox.Sandbox.run` takes.
    expected : list
        What each test expects; empty for scripts, which know it themselves.
    name : str
        The function that "call" calls.
    names : tuple of str
        What a program must define.
    """

    mode: str
    given: list[Any]
    expected: list[Any]
    name: str = ""
    names: tuple[str, ...] = ()


def passed(tests: Tests, index: int, result: Result) -> bool:
    """Whether a test passed, by how its process ended and by what came out of the sandbox."""
    if result.outcome != "ok":
        return False
    if tests.mode == "assert":
        return True
    if tests.mode == "stdin":
        return _same_text(result.output.decode(errors="replace"), tests.expected[index])
    try:
        value = decode(result.output)
        expected = tests.expected[index]
        # data sets of this shape put some results in a list of one
        return _same(value, expected) or (
            type(expected) is list and len(expected) == 1 and _same(value, expected[0])
        )
    except Exception:  # what a hostile program wrote need not be a value
        return False


def read_tests(record: dict[str, Any], value: Any, where: str, solution: str = "") -> Tests:
    """The tests of a row.

    Parameters
    ----------
    record, where
        The row and its place.
    value
        Its field with the tests.
    solution : str
        Its solution, for the names that scripts take from a program.

    Raises
    ------
    TaskError
        Naming the row, when it has none or of no known shape.
    """
    value = _parsed(value)
    while isinstance(value, dict) and (inner := _first(value, WITHIN)) is not None:
        value = _parsed(inner)
    if isinstance(value, str):
        return _scripts(_split(_tree(value, where), record), record, where, solution)
    if isinstance(value, list) and value and all(isinstance(test, str) for test in value):
        return _scripts([_tree(test, where) for test in value], record, where, solution)
    pairs, names = _pairs(value, where)
    name = next(filter(None, [*names, *_told(record)]), "")
    if not pairs:
        raise TaskError(f"{where}: no tests; every line needs one")
    if name:
        given = [encode(_arguments(given, where)) for given, _ in pairs]
        expected = [_plain(_value(expected)) for _, expected in pairs]
        return Tests("call", given, expected, name, (name.split(".")[-1],))
    given = [_text(given).encode() for given, _ in pairs]
    return Tests("stdin", given, [_text(expected) for _, expected in pairs])


# -------------------------------------------------------------------- pairs


def _pairs(value: Any, where: str) -> tuple[list[tuple[Any, Any]], list[str]]:
    """Inputs with outputs, and the function's name where the tests say it."""
    if isinstance(value, dict):
        inputs, outputs = _first(value, INPUTS), _first(value, OUTPUTS)
        if isinstance(inputs, list) and isinstance(outputs, list):
            if len(inputs) != len(outputs):
                raise TaskError(f"{where}: {len(inputs)} inputs and {len(outputs)} outputs")
            return list(zip(inputs, outputs, strict=True)), [_first(value, NAMES) or ""]
    elif isinstance(value, list) and all(isinstance(test, dict) for test in value):
        pairs = [(_first(test, INPUTS), _first(test, OUTPUTS)) for test in value]
        names = [_first(test, NAMES) or "" for test in value]
        if all(None not in pair for pair in pairs) and len(set(names)) <= 1:
            return pairs, names
    raise TaskError(
        f"{where}: tests of no known shape; give inputs and outputs, or assert statements"
    )


def _told(record: dict[str, Any]) -> Iterator[str]:
    """The function's name where the row says it."""
    metadata = _parsed(record.get("metadata"))
    for place in (record, metadata if isinstance(metadata, dict) else {}):
        yield _first(place, NAMES) or ""


def _arguments(given: Any, where: str) -> list[Any]:
    if isinstance(given, list):
        return given
    if not isinstance(given, str):
        return [given]
    try:
        return [json.loads(line) for line in given.splitlines() if line.strip()]
    except json.JSONDecodeError as e:
        raise TaskError(f"{where}: arguments {given[:40]!r} are not one JSON value a line") from e


def _value(expected: Any) -> Any:
    """JSON text as its value, other text as it is."""
    try:
        return json.loads(expected) if isinstance(expected, str) else expected
    except json.JSONDecodeError:
        return expected


def _text(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _parsed(value: Any) -> Any:
    """JSON text of a list or an object as such."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return value
    return value


def _first(table: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((table[name] for name in names if table.get(name) is not None), None)


def _same_text(output: str, expected: str) -> bool:
    """Line by line, word by word; blank lines at the ends and spaces do not count."""
    ours, theirs = ([line.split() for line in t.strip().split("\n")] for t in (output, expected))
    return len(ours) == len(theirs) and all(
        len(a) == len(b) and all(map(_same_word, a, b)) for a, b in zip(ours, theirs, strict=True)
    )


def _same_word(a: str, b: str) -> bool:
    if a == b:
        return True
    if not (set(a + b) & set(".eE")) or max(len(a), len(b)) > 40:
        return False
    try:
        x, y = float(a), float(b)
    except ValueError:
        return False
    return math.isclose(x, y, rel_tol=CLOSE, abs_tol=CLOSE)


def _same(value: Any, expected: Any) -> bool:
    """Equal after JSON: tuples are lists, numbers with a fraction are equal when close."""
    value = _plain(value)
    if isinstance(expected, list):
        return (
            type(value) is list and len(value) == len(expected) and all(map(_same, value, expected))
        )
    if isinstance(expected, dict):
        return (
            type(value) is dict
            and value.keys() == expected.keys()
            and all(_same(value[key], expected[key]) for key in expected)
        )
    if isinstance(expected, float) and type(value) in (int, float):
        return math.isclose(value, expected, rel_tol=CLOSE, abs_tol=CLOSE)
    return bool(value == expected)


def _plain(value: Any) -> Any:
    """As JSON would bring it back: tuples are lists, keys are text."""
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    return value


# -------------------------------------------------------------------- scripts


def _tree(script: str, where: str) -> ast.Module:
    try:
        return ast.parse(script)
    except (SyntaxError, ValueError, RecursionError) as e:
        raise TaskError(f"{where}: the test {script[:40]!r} is not Python: {e}") from e


def _split(tree: ast.Module, record: dict[str, Any]) -> list[ast.Module]:
    """A script as tests: each assert, or each test function, with what stands before it."""
    setup: list[ast.stmt] = []
    tests: list[ast.Module] = []
    functions: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Assert):
            tests.append(ast.Module([*setup, node], []))
            continue
        setup.append(node)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            functions.append(node.name)
    calls = [ast.parse(f"{name}()").body for name in functions]
    defined = {node.name for node in setup if isinstance(node, ast.FunctionDef)}
    if not functions and not tests and "check" in defined and record.get("entry_point"):
        calls = [ast.parse(f"check({record['entry_point']})").body]
    tests += [ast.Module([*setup, *call], []) for call in calls]
    return tests or [tree]


def _scripts(trees: list[ast.Module], record: dict[str, Any], where: str, solution: str) -> Tests:
    """Scripts with the names that each takes from the program."""
    before = "\n".join(
        part if isinstance(part, str) else "\n".join(part)
        for key in ("test_imports", "test_setup_code")
        if (part := record.get(key))
    )
    entry = record.get("entry_point")
    given, everything = [], {entry} - {None}
    for tree in trees:
        body = [*_tree(before, where).body, *tree.body]
        imported = {name for node in body for name in _of_program(node)} - {"*"}
        body = [node for node in body if not _of_program(node)]
        whole = ast.Module(body, [])
        names = _free(whole) | imported | ({entry} & _loaded(whole))
        # a problem about a function called sum is about no other
        names = names or (_defined(solution) & _loaded(whole))
        if not names:
            raise TaskError(
                f"{where}: the test {ast.unparse(tree)[-40:]!r} takes nothing from the program, so "
                "any would pass it; leave it out"
            )
        given.append((ast.unparse(whole), sorted(names)))
        everything |= names
    return Tests("assert", given, [], names=tuple(sorted(everything)))


def _of_program(node: ast.stmt) -> list[str]:
    """Names that a statement imports from the program."""
    if isinstance(node, ast.ImportFrom) and node.module in MODULES:
        return [alias.name for alias in node.names if alias.name != "*"] or ["*"]
    return []


def _defined(solution: str) -> set[str]:
    """Functions and classes of a solution."""
    try:
        body = ast.parse(solution).body
    except (SyntaxError, ValueError, RecursionError):
        return set()  # the canary will say what is wrong with it
    return {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def _loaded(tree: ast.Module) -> set[str]:
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _free(tree: ast.Module) -> set[str]:
    """Names that a script reads and neither it nor Python defines.

    A program may not lend a script Python's own names: one that redefines ``abs`` or ``all`` would
    judge itself.
    """
    bound = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    return _loaded(tree) - bound
