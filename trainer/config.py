"""Settings: one frozen dataclass a concern; recipes first, then a TOML file, then flags.

``load(["tiny"], file, ["--loss.is_cap", "4"])`` lays recipes over the defaults in order, then the
file, then the flags; an unknown section or key is refused with the nearest name; every value is
checked in one place before torch is imported; ``save`` writes the resolved settings beside the log.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from trainer.errors import ConfigError
from trainer.settings import SECTIONS, Config, check
from trainer.values import fitted

__all__ = ["RECIPES", "Config", "from_dict", "load", "recipe_names", "save"]

RECIPES = Path(__file__).parent / "recipes"


def recipe_names() -> list[str]:
    """Names of the recipes that ship."""
    return sorted(p.stem for p in RECIPES.glob("*.toml"))


def load(recipes: list[str], file: Path | None = None, flags: list[str] | None = None) -> Config:
    """Resolve recipes, file and flags, in that order of increasing precedence.

    Raises
    ------
    ConfigError
        Unknown recipe, section, key or choice; a value of the wrong type; a combination that
        cannot be right.
    """
    table: dict[str, dict[str, Any]] = {}
    for name in recipes:
        _merge(table, _read(_recipe_path(name)), f"recipe {name}")
    if file is not None:
        _merge(table, _read(file), str(file))
    _merge(table, _parse_flags(flags or []), "flag")
    config = from_dict(table)
    check(config)
    return config


def from_dict(table: dict[str, dict[str, Any]]) -> Config:
    """Build the dataclasses from nested tables, each value converted to its field's type."""
    parts = {}
    for section, values in table.items():
        cls = SECTIONS[section]
        known = {f.name: f for f in fields(cls)}
        parts[section] = cls(**{k: _convert(section, known[k], v) for k, v in values.items()})
    return Config(**parts)


def save(config: Config, path: Path) -> None:
    """Write the resolved settings as TOML that ``load`` reads back to the same Config."""
    lines = []
    for section, values in dataclasses.asdict(config).items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {_toml(value)}" for key, value in values.items()]
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")


def _recipe_path(name: str) -> Path:
    path = RECIPES / f"{name}.toml"
    if not path.is_file():
        raise ConfigError(
            f"unknown recipe {name!r}{_nearest(name, recipe_names())}; "
            f"there are {', '.join(recipe_names())}"
        )
    return path


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {e.strerror}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path} is not TOML: {e}") from e


def _merge(into: dict[str, dict[str, Any]], table: dict[str, Any], origin: str) -> None:
    for section, values in table.items():
        if section not in SECTIONS:
            raise ConfigError(
                f"{origin}: unknown section {section!r}{_nearest(section, list(SECTIONS))}; "
                f"there are {', '.join(SECTIONS)}"
            )
        if not isinstance(values, dict):
            raise ConfigError(f"{origin}: {section} is a section, write [{section}] and keys below")
        names = [f.name for f in fields(SECTIONS[section])]
        for key, value in values.items():
            if key not in names:
                raise ConfigError(
                    f"{origin}: unknown key {section}.{key}{_nearest(key, names, section)}; "
                    f"{section} has {', '.join(names)}"
                )
            if key in ("args", "tiny") and isinstance(value, dict):
                value = {**into.get(section, {}).get(key, {}), **value}
            into.setdefault(section, {})[key] = value


def _parse_flags(flags: list[str]) -> dict[str, dict[str, Any]]:
    """Turn ``--section.key value`` and ``--section.key=value`` into nested tables of strings."""
    table: dict[str, dict[str, Any]] = {}
    rest = list(flags)
    while rest:
        flag = rest.pop(0)
        name, eq, value = flag.partition("=")
        section, dot, key = name.removeprefix("--").partition(".")
        if not name.startswith("--") or not dot:
            raise ConfigError(f"cannot use {flag!r}; settings are written --section.key value")
        if not eq:
            if not rest:
                raise ConfigError(f"flag {name} needs a value")
            value = rest.pop(0)
        key, dot, inner = key.partition(".")
        values = table.setdefault(section, {})
        if dot:
            values.setdefault(key, {})[inner] = _literal(value)
        else:
            values[key] = _literal(value)
    return table


def _literal(text: str) -> Any:
    """Read a flag's value as TOML would; anything else is a plain string."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def _convert(section: str, f: dataclasses.Field[Any], value: Any) -> Any:
    """Check one value against its field: type, finiteness, choices."""
    where = f"{section}.{f.name}"
    value, wrong = fitted(str(f.type), value)
    if wrong:
        raise ConfigError(f"{where} = {value!r} {wrong}")
    choices = f.metadata["choices"]
    if choices and value not in choices:
        near = _nearest(value, list(choices))
        raise ConfigError(f"{where} = {value!r}{near}; choose from {', '.join(choices)}")
    return value


def _nearest(name: str, names: list[str], section: str = "") -> str:
    close = difflib.get_close_matches(name, names, n=1)
    prefix = f"{section}." if section else ""
    return f" (did you mean {prefix}{close[0]}?)" if close else ""


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(str(k))} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return repr(value)
