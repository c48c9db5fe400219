"""Bring everything generated in the documentation up to date.

::

    python docs/update.py            rewrite what has changed
    python docs/update.py --check    list what says something else, and exit with 1 if anything does

Generated are the output under every ``$`` line of a ``console`` block, the whole of
``docs/cli-reference.md``, and the pictures of the README. The tests run ``--check``, all but the
pictures, whose bytes depend on matplotlib's version. A check lets numbers differ in their last
digits: another processor's matrix kernels round differently.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = {
    "docs/img/fig1a.svg": "fit-curve data/scalerl_fig1a.csv --until 50% --at 100000",
    "docs/img/train-rl.svg": "fit-curve data/train-rl/scalerl-seed0.jsonl --until 50%",
}
CONSOLE = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
RELATIVE, PERCENT = 0.05, 15.0  # how far a number, and a share in per cent, may be off
ELSEWHERE = ("multi-node.md",)  # its commands need torch; tests/trainer/test_multi_node.py has them
SHELL = 'fit-curve() { "$PYTHON" -m curvefit "$@"; }\n'


def run(command: str, folder: str) -> str:
    """Run a shell command in a folder that has the data; notes first, as a terminal shows them."""
    done = subprocess.run(
        ["bash", "-c", SHELL + command],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=folder,
        env={
            **os.environ,
            "PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "PYTHONIOENCODING": "utf-8",
        },
        check=False,
    )
    if "Traceback" in done.stderr:
        raise RuntimeError(f"{command}\n{done.stderr}")
    return done.stderr + done.stdout


def with_output(block: str, folder: str) -> str:
    """Return a console block with the output of its commands as it is now."""
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    return "\n".join(f"$ {c}\n{run(c, folder).rstrip()}".rstrip() + "\n" for c in commands)


def cli_reference(folder: str) -> str:
    """Return the page that holds the help text."""
    text = run("fit-curve --help", folder).rstrip()
    return (
        "# fit-curve: all options\n\nMade from `fit-curve --help` by `python docs/update.py`.\n\n"
        f"```text\n{text}\n```\n"
    )


def pages() -> Iterator[tuple[Path, str]]:
    """Yield every generated page and what it should hold."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "data").symlink_to(ROOT / "data")
        yield ROOT / "docs/cli-reference.md", cli_reference(folder)
        for page in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]):
            if page.name in ELSEWHERE:
                continue
            text = page.read_text(encoding="utf-8")
            yield page, CONSOLE.sub(lambda block: with_output(block[0], folder), text)


def alike(old: str, new: str) -> bool:
    """Tell whether two texts have the same words, and numbers that differ by rounding at most."""
    if " ".join(NUMBER.sub("#", old).split()) != " ".join(NUMBER.sub("#", new).split()):
        return False
    for before, after in zip(NUMBER.finditer(old), NUMBER.finditer(new), strict=True):
        a, b = (float(m[0].replace(",", "")) for m in (before, after))
        room = PERCENT if new[after.end() :].startswith(" %") else RELATIVE * abs(b)
        if abs(a - b) > room:
            return False
    return True


def draw() -> None:
    """Draw the pictures of the README."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "data").symlink_to(ROOT / "data")
        for picture, command in PICTURES.items():
            run(f"{command} --plot picture.svg", folder)
            (ROOT / picture).write_bytes(Path(folder, "picture.svg").read_bytes())


def main() -> int:
    """Rewrite or check; return the exit code."""
    check = "--check" in sys.argv[1:]
    changed = []
    for page, text in pages():
        old = page.read_text(encoding="utf-8") if page.exists() else ""
        if not alike(old, text) if check else old != text:
            changed.append(page)
            if not check:
                page.write_text(text, encoding="utf-8")
    for page in changed:
        print(page.relative_to(ROOT))
    if not check:
        draw()
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
