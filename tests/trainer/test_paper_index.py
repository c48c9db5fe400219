"""The paper index names settings and tests that exist, and explains every key of every recipe."""

import re
import tomllib
from dataclasses import fields
from pathlib import Path

from trainer.config import RECIPES
from trainer.settings import SECTIONS

HERE = Path(__file__).parent
TEXT = (HERE.parents[1] / "docs" / "paper-index.md").read_text()


def test_every_test_it_names_exists():
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", TEXT)
    assert len(named) > 60
    for file, name in named:
        assert f"def {name}(" in (HERE / file).read_text(), f"{file}::{name}"


def test_every_setting_it_names_exists():
    for section, key in re.findall(r"`(\w+)\.(\w+)`", TEXT):
        if section in SECTIONS:
            assert key in [f.name for f in fields(SECTIONS[section])], f"{section}.{key}"


def test_every_key_of_every_recipe_is_explained():
    for path in RECIPES.glob("*.toml"):
        for section, values in tomllib.loads(path.read_text()).items():
            for key in values:
                assert f"`{section}.{key}`" in TEXT, f"{path.name}: {section}.{key}"


def test_all_twenty_five_requirements_have_a_row():
    rows = re.findall(r"^\| (\d+) \|.*\|$", TEXT, re.MULTILINE)
    assert [int(n) for n in rows] == list(range(1, 26))
