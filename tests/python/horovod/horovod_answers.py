"""hvdrun's answer for each public name of Horovod: names.txt has the names, answers.txt the differences.

horovod._missing refuses some modules as a whole; the reason is that of the import.
"""

from __future__ import annotations

import fnmatch
import importlib.util
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
OURS = Path(__file__).parents[3] / "src/python"


def _load_missing():  # type: ignore[no-untyped-def]
    """horovod._missing without its package, so that no built extension is needed."""
    spec = importlib.util.spec_from_file_location("horovod_missing", OURS / "horovod/_missing.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_missing = _load_missing()


@cache
def modules() -> dict[str, dict[str, str | None]]:
    """{module: {name: parameters, or None if it cannot be called}}, in the order of names.txt."""
    found: dict[str, dict[str, str | None]] = {}
    for line in (FOLDER / "names.txt").read_text().splitlines():
        module, _, signature = line.partition(" ")
        name, bracket, rest = signature.partition("(")
        listed = found.setdefault(module, {})
        if name != "-":
            listed[name] = rest[:-1] if bracket else None
    return found


@cache
def rules() -> list[tuple[str, str, str]]:
    """(pattern, kind, text) for each line of answers.txt."""
    lines = (line for line in (FOLDER / "answers.txt").read_text().splitlines() if line and not line.startswith("#"))
    return [tuple(part.strip() for part in line.split("|", 2)) for line in lines]  # type: ignore[misc]


def refusal(module: str) -> str | None:
    """Returns the reason for which hvdrun lacks the whole module; None: the module exists."""
    path = OURS / module.replace(".", "/")
    exists = path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
    return None if exists else _missing.advice_for(module)


def rule_for(module: str, name: str) -> tuple[str, str, str] | None:
    """Returns the first matching rule of answers.txt; None: the name works as in Horovod."""
    return next((rule for rule in rules() if fnmatch.fnmatchcase(f"{module} {name}", rule[0])), None)


def answer(module: str, name: str) -> tuple[str, str]:
    """("same", ""), or ("different" or "refused", the text)."""
    whole = refusal(module)
    if whole:
        return "refused", whole
    rule = rule_for(module, name)
    return rule[1:] if rule else ("same", "")
