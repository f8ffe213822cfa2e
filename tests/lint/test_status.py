"""Records of test runs, and the tables that scripts/status makes of them."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import records
from context import Form
from tally import Cost, Failure, Tally
from trees import load

status = load("status")


@pytest.fixture
def written(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The record of a part with four tests."""
    names = [
        "tests/wheel/test_wheel.py::test_the_module_loads_in_every_python[3.9]",
        "tests/wheel/test_wheel.py::test_the_module_loads_in_every_python[3.13]",
        "tests/wheel/test_wheel.py::test_torch_2_0",
        "tests/wheel/test_emulated.py::test_a_job_of_two_ranks[embedded]",
    ]
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    tally = Tally(2, [Failure(names[1], "why")], [(names[3], "no emulator")], costs=[Cost(name, 1.0, 1.0) for name in names])
    records.write("wheel", Form.rest, tally, 61.2, 30.6)
    found: dict[str, Any] = json.loads((tmp_path / "wheel.rest.json").read_text())
    return found


def test_a_record_has_versions_of_passed_tests(written: dict[str, Any]) -> None:
    assert written["subjects"] == {
        "PyTorch": {"counts": [1, 0, 0], "versions": ["2.0"]},
        "CPython": {"counts": [1, 1, 0], "versions": ["3.9"]},
        "aarch64, under qemu": {"counts": [0, 0, 1], "versions": []},
    }
    assert (written["part"], written["form"], written["counts"]) == ("wheel", "rest", [2, 1, 1])
    assert len(written["commit"].rstrip("+")) >= 7


def test_the_tables(written: dict[str, Any]) -> None:
    rows = [status.Row(subject, [written]) for subject in records.SUBJECTS]
    table = status.short_table(rows)
    assert f"| PyTorch | 2.0 | {written['date']} | through NCCL |" in table
    assert "| Ray | not tested |  |" in table
    assert status.Row(records.SUBJECTS[10], [written]).versions_text() == "3.9; 1 of 2 tests failed"
    table = status.long_table(rows, [written])
    assert f"| CPython | 3.9 | 1 passed, 1 failed | {written['date']} |" in table
    assert "| aarch64, under qemu |  | 1 skipped |  |" in table
    row = f"2 passed, 1 failed, 1 skipped | 61 (31 of processor) | {written['date']} | {written['commit']} | 1 |"
    assert f"| wheel | rest | {row}" in table


def record(part: str, form: str, date: str) -> dict[str, Any]:
    return {"part": part, "form": form, "date": date, "commit": "0", "machine": "", "counts": [1, 0, 0], "subjects": {}}


def test_the_newest_run_of_a_test_counts() -> None:
    kept = [
        record("wheel", "rest", "2026-01-01"),
        record("python", "push", "2026-01-01"),
        record("python", "rest", "2026-01-01"),
    ]
    new = [record("python", "day", "2026-01-02"), record("gone", "push", "2026-01-02")]
    after = status.added(kept, new)
    assert [(r["part"], r["form"]) for r in after] == [("python", "day"), ("wheel", "rest")]
    after = status.added(after, [record("python", "push", "2026-01-03")])
    assert [(r["part"], r["form"]) for r in after] == [("python", "push"), ("wheel", "rest")]


def test_an_edited_table_is_found(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "docs").mkdir()
    for page in ("README.md", "docs/status.md"):
        (tmp_path / page).write_text(f"# A page\n{status.BEGIN}{status.END}The end.\n")
    monkeypatch.setattr(status, "ROOT", tmp_path)
    monkeypatch.setattr(status, "KEPT", tmp_path / "docs/status.json")

    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["status", *arguments])
        return int(status.main())

    assert (run("--check"), run("--tables"), run("--check")) == (1, 0, 0)
    page = tmp_path / "docs/status.md"
    page.write_text(page.read_text().replace("| Slurm", "| Slurm, everywhere"))
    capsys.readouterr()
    assert run("--check") == 1
    assert capsys.readouterr().err == "docs/status.md does not match docs/status.json: run scripts/status --tables\n"
