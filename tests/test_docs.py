"""The documentation is true: commands print what it shows, examples run, links lead somewhere."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)\)")
CODE = re.compile(r'Doubt\(\s*"([a-z0-9-]+)"')


def names(paths):
    return [str(path.relative_to(ROOT)) for path in paths]


def test_generated_pages_and_outputs_are_up_to_date():
    done = subprocess.run(
        [sys.executable, "docs/update.py", "--check"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"run python docs/update.py: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", [p for p in names(PAGES) if ">>> " in (ROOT / p).read_text()])
def test_python_examples_run(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    blocks = "\n".join(PYTHON.findall((ROOT / page).read_text(encoding="utf-8")))
    example = doctest.DocTestParser().get_doctest(blocks, {}, page, page, 0)
    results = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example)
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize("page", names(PAGES))
def test_links_lead_to_files_that_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in LINK.findall(text):
        if "://" not in target:
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page}: {target}"


def test_every_doubt_is_in_the_reference_and_no_other():
    source = "".join(path.read_text("utf-8") for path in (ROOT / "curvefit").glob("*.py"))
    page = (ROOT / "docs/reference.md").read_text("utf-8")
    section = page.partition("## Doubts")[2].partition("\n## ")[0]
    table = re.findall(r"^\| `([a-z0-9-]+)` \|", section, re.MULTILINE)
    assert sorted(table) == sorted(set(CODE.findall(source)))


def test_the_readme_names_both_commands_of_the_set_up():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in (
        "python3 -m venv .venv && . .venv/bin/activate && pip install . && "
        "fit-curve data/scalerl_fig1a.csv --at 100000",
        "./test",
    ):
        assert f"```sh\n{command}\n```" in text
    assert (ROOT / "test").stat().st_mode & 0o111
