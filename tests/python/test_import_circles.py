"""The packages' modules have no import cycle."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src" / "python"


def modules() -> dict[str, Path]:
    found = {}
    for package in ("hvd", "horovod", "sparkdl"):
        for file in (SOURCES / package).rglob("*.py"):
            found[".".join(file.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")] = file
    return found


def imported(file: Path, known: dict[str, Path]) -> set[str]:
    """The modules that a file imports outside of functions."""
    names: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in known else node.module for name in inner}
    return names & known.keys()


def test_imports_make_no_circle() -> None:
    known = modules()
    arrows = {name: imported(file, known) - {name} for name, file in known.items()}
    assert len(arrows) > 100 and sum(map(len, arrows.values())) > 200
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as circle:
        pytest.fail(f"a circle of imports: {' -> '.join(reversed(circle.args[1]))}")
