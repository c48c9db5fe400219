"""What the process of one test does: run the program on an input, call it, serve it, or test it.

The functions here never return: how the process ends is the outcome. Streams and pipes have their
numbers by then, limits and filter are in force (`keeper.become`).
"""

from __future__ import annotations

import atexit
import builtins
import os
import sys

TYPE_CHECKING = False  # typing is slow to import, and nothing runs before this is imported
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["call", "judge", "load", "offer", "run"]

MAIN = "__main__"
IN, OUT = 3, 4  # the pipes of a process that has any, besides its three streams


def load() -> None:
    """Import what calls and scripts need, once for all of a program's tests."""
    import trainer.inside.remote  # noqa: F401


def run(source: str) -> None:
    """The program as a script: standard input is the test's, standard output is what is judged."""
    _end(lambda: _execute(source, MAIN))


def call(source: str, name: str, arguments: str) -> None:
    """Define the program, call its function, write the result."""
    _end(lambda: _answer(source, name, arguments))


def _answer(source: str, name: str, arguments: str) -> None:
    from trainer.inside.plain import decode, encode

    namespace = _execute(source, "solution")
    if name not in namespace and "Solution" in namespace:
        target = getattr(namespace["Solution"](), name)
    else:
        first, *rest = name.split(".")
        target = namespace[first]
        for part in rest:
            target = getattr(target, part)
    line = encode(target(*decode(arguments))).encode()
    with os.fdopen(OUT, "wb") as sink:
        sink.write(line)


def offer(source: str) -> None:
    """Define the program and answer the tests' process."""
    from trainer.inside.remote import serve

    _end(lambda: serve(os.fdopen(IN, "rb"), os.fdopen(OUT, "wb"), _execute(source, "solution")))


def judge(script: str, names: list[str]) -> None:
    """Run a test; the process ends with 0 when it passes, and in no other way with 0."""
    from trainer.inside.remote import Wire

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
    module = sys.modules[MAIN] = type(sys)(name)
    module.__dict__["__builtins__"] = builtins
    sys.modules[name] = module
    sys.argv = ["solution.py"]
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # else the site module's, not loaded here
    exec(compile(source, "solution.py", "exec"), module.__dict__)
    return module.__dict__


def _end(work: Callable[[], Any]) -> None:
    """Do the work and end as the interpreter would, but without tearing itself down: that is slow.

    Threads are waited for, functions of ``atexit`` run, standard output and open files are flushed.
    """
    code: object = 1
    try:
        work()
        code = 0
    except SystemExit as e:
        code = e.code
    finally:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        _flush(sys.stdout)
        vars(sys.modules[MAIN]).clear()  # closes what is open
        _flush(sys.__stdout__)
        os._exit(code if isinstance(code, int) else code is not None)


def _flush(stream: Any) -> None:
    if not getattr(stream, "closed", False):
        stream.flush()
