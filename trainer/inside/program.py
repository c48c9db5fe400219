"""What the process of one test does: run the program on an input, call it, serve it, or test it.

The functions here return nothing to the keeper: how the process ends is the outcome. Streams and
pipes have their numbers by then, limits and filter are in force (`keeper.become`).
"""

from __future__ import annotations

import builtins
import os
import sys
import types
from functools import reduce
from typing import Any

from trainer.inside.plain import decode, encode
from trainer.inside.remote import Wire, serve

__all__ = ["call", "judge", "offer", "run"]

IN, OUT = 3, 4  # the pipes of a process that has any, besides its three streams


def run(source: str) -> None:
    """The program as a script: standard input is the test's, standard output is what is judged."""
    _execute(source, "__main__")


def call(source: str, name: str, arguments: str) -> None:
    """Define the program, call its function, write the result."""
    namespace = _execute(source, "solution")
    if name not in namespace and "Solution" in namespace:
        target = getattr(namespace["Solution"](), name)
    else:
        target = reduce(getattr, name.split(".")[1:], namespace[name.split(".")[0]])
    line = encode(target(*decode(arguments))).encode()
    with os.fdopen(OUT, "wb") as sink:
        sink.write(line)


def offer(source: str) -> None:
    """Define the program and answer the tests' process."""
    namespace = _execute(source, "solution")
    serve(os.fdopen(IN, "rb"), os.fdopen(OUT, "wb"), namespace)


def judge(script: str, names: list[str]) -> None:
    """Run a test; the process ends with 0 when it passes, and in no other way with 0."""
    code = 1
    try:
        wire = Wire(os.fdopen(IN, "rb"), os.fdopen(OUT, "wb"))
        namespace: dict[str, Any] = {name: wire.ask("name", name) for name in names}
        namespace.update(__name__="tests", __builtins__=builtins)
        exec(compile(script, "tests.py", "exec"), namespace)
        code = 0
    except BaseException:  # SystemExit too: a test that leaves has not passed
        code = 1
    finally:
        os._exit(code)


def _execute(source: str, name: str) -> dict[str, Any]:
    """Run the program's text as a module of this name."""
    module = types.ModuleType(name)
    module.__dict__["__builtins__"] = builtins
    sys.modules[name] = module
    sys.argv = ["solution.py"]
    sys.path.remove("/cell")
    exec(compile(source, "solution.py", "exec"), module.__dict__)
    return module.__dict__
