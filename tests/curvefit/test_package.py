"""The package from outside: its names, and what stays unloaded."""

import subprocess
import sys
from pathlib import Path

import pytest

import curvefit
from curvefit import cli
from curvefit.fit import METHODS
from curvefit.laws import LAWS

ROOT = Path(__file__).parents[2]
HEAVY = ["scipy", "pandas", "matplotlib", "lmfit", "torch", "trainer"]


def loaded_after(code, *args):
    """Return the top-level modules in a fresh interpreter after running some code."""
    script = f"{code}\nimport sys; print(*sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script, *args],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}


def test_all_is_sorted_complete_and_importable():
    assert sorted(curvefit.__all__) == sorted(set(curvefit.__all__))
    assert set(curvefit.__all__) == {*curvefit._HOME, "__version__"}
    for name in curvefit.__all__:
        assert getattr(curvefit, name) is not None
    assert set(curvefit.__all__) <= set(dir(curvefit))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        curvefit.nothing  # noqa: B018


def test_functions_stay_functions_when_their_modules_load():
    """`curvefit.fit` is a module too; importing it must not hide the function."""
    code = "import curvefit.fit, curvefit.plot, curvefit; curvefit.fit([1,2,3,4],[1,2,3,4])"
    loaded_after(code + "; assert callable(curvefit.plot)")


@pytest.mark.parametrize("package", ["curvefit", "trainer"])
def test_every_module_can_be_the_first_to_be_imported(package):
    """Imports go one way: none works only because another module was there before."""
    code = """
import importlib, pathlib, sys
paths = sorted(pathlib.Path(sys.argv[1]).rglob("*.py"))
for path in paths:
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    for loaded in [m for m in sys.modules if m.split(".")[0] == sys.argv[1]]:
        del sys.modules[loaded]
    if not name.endswith("__main__"):
        importlib.import_module(name)
assert len(paths) > 50
"""
    loaded_after(code, package)


def test_import_loads_nothing_heavy_not_even_numpy():
    assert not loaded_after("import curvefit") & {*HEAVY, "numpy", "argparse"}


def test_help_loads_argparse_and_little_else():
    code = "from curvefit.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert not loaded_after(code) & {*HEAVY, "numpy", "typing", "dataclasses", "json"}


def test_json_and_text_need_numpy_alone():
    code = "from curvefit.cli import main; main(['data/scalerl_fig1a.csv', *sys.argv[1:]])"
    for args in (["--json"], ["--until", "50%"]):
        seen = loaded_after("import sys\n" + code, *args)
        assert not seen & set(HEAVY)
        assert "numpy" in seen


def test_following_a_log_needs_numpy_alone():
    code = "from curvefit.cli import main; main(['data/train-rl/grpo-seed0.jsonl', '--follow'])"
    assert not loaded_after(code) & set(HEAVY)


def test_the_command_line_knows_every_law_and_method():
    assert cli.LAW_NAMES == ("average", *LAWS)
    assert cli.METHOD_NAMES == METHODS
