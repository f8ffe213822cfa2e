"""The recorded session of the first page is what hvdrun says today."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import shutil
import sys
from types import ModuleType

import pytest

from support import hvdrun
from support.hvdrun import ROOT

PICTURES = ROOT / "docs/pictures"


def terminal() -> ModuleType:
    """scripts/lib/terminal.py."""
    spec = importlib.util.spec_from_file_location("terminal", ROOT / "scripts/lib/terminal.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules["terminal"] = found
    spec.loader.exec_module(found)
    return found


def without_numbers(text: str) -> list[str]:
    """The lines, without numbers and folders."""
    return [re.sub(r"\d[\d.]*", "N", re.sub(r'"/.*/', '"', line)) for line in text.splitlines()]


@pytest.mark.ci
def test_the_session(tmp_path: pathlib.Path) -> None:
    shutil.copy(PICTURES / "train.py", tmp_path)
    argv = [hvdrun.program(), "-np", "4", "--no-report", *hvdrun.python_args(), "train.py"]
    screen = terminal().Screen()
    for _, text in terminal().record(argv, tmp_path, hvdrun.environment(TERM="xterm"), 100):
        screen.feed(text)
    recorded = without_numbers((PICTURES / "session.txt").read_text())[1:]
    assert len(recorded) >= 10
    shown = iter(without_numbers(screen.text()))
    for line in recorded:  # in this order; a busy machine adds lines about waiting
        assert line in shown, (line, screen.text())


def test_what_a_terminal_shows() -> None:
    made = terminal()
    screen = made.Screen()
    screen.feed("one\ntwo\r\x1b[1mTW\x1b[0m\nthree")
    screen.feed("\r\x1b[1A\x1b[Jfour <\n")
    assert screen.text() == "one\nfour <\n"
    drawn = made.played([(0.5, "\x1b[31mhalf\x1b[0m\r"), (1.5, "full <")], "a label")
    assert '<set attributeName="visibility" to="visible" begin="0.50s" dur="1.00s"/><tspan fill="#f38ba8">half</tspan>' in drawn
    assert 'to="hidden" begin="0s" dur="1.50s"/>full &lt;</text>' in drawn
