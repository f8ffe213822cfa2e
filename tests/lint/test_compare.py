"""scripts/compare shows a job's figures at once, and ends in time."""

from __future__ import annotations

import argparse
import pathlib
import sys

import pytest
from trees import SCRIPTS, load

sys.path.insert(0, str(SCRIPTS / "bench"))
compare = load("compare")


@pytest.fixture
def made(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A comparison with two dummy jobs."""
    options = argparse.Namespace(horovod=None, minutes=1.0, build=None, python=None)
    made = compare.Compare(options, tmp_path)

    def quick() -> None:
        made.table.add("a row", "hvd", {"min": 1.5, "median": 2.0}, True)
        made.table.add("a row", "MPI", {"min": 3.0}, True)

    def broken() -> None:
        made.notes["exit code 1: a peer"] = None

    monkeypatch.setattr(made, "jobs", lambda: {"quick": quick, "broken": broken})
    return made


def test_a_round_shows_what_was_measured_and_what_failed(made: object, capsys: pytest.CaptureFixture[str]) -> None:
    made.round(0, 2, ["quick", "broken"])  # type: ignore[attr-defined]
    assert capsys.readouterr().err.splitlines() == [
        "round 1 of 2: quick",
        "    a row: hvd 1.5, MPI 3 µs",
        "round 1 of 2: broken",
        "    failed: exit code 1: a peer",
    ]


def test_a_later_round_leaves_out_what_would_take_too_long(made: object, capsys: pytest.CaptureFixture[str]) -> None:
    made.round(0, 2, ["quick", "broken"])  # type: ignore[attr-defined]
    made.took["quick"] = 3600.0  # type: ignore[attr-defined]
    capsys.readouterr()
    made.round(1, 2, ["quick", "broken"])  # type: ignore[attr-defined]
    assert "round 2 of 2: quick: left out, no time" in capsys.readouterr().err


def test_a_command_that_has_no_time_left_is_not_run(made: object) -> None:
    made.end = 0.0  # type: ignore[attr-defined]
    assert made.run(["false"])[1] == ""  # type: ignore[attr-defined]
    assert list(made.notes) == ["out of time: not run (again): false"]  # type: ignore[attr-defined]
