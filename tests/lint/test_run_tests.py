"""scripts/test counts correctly: forms, records of pytest, failures that pass alone, the quarantine."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import cpp_tests
import pytest
import records
import report
import tally
from context import Context, Form, Part, When
from parts import PARTS

ROOT = pathlib.Path(__file__).resolve().parents[2]

SUITE = """
import pytest

def test_good(): pass
def test_bad(): assert 1 == 2
def test_absent(): pytest.skip("nothing here")
@pytest.fixture
def late():
    yield
    raise RuntimeError("too late")
def test_end(late): pass
@pytest.mark.ci
def test_of_ci(): pass
@pytest.mark.nightly
def test_of_the_night(): pass
@pytest.mark.ci
@pytest.mark.nightly
def test_of_both(): pass
"""


@pytest.fixture
def reported(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> report.Report:
    """A report with files in its own folder."""
    monkeypatch.setattr(report, "QUARANTINE", tmp_path / "quarantine.txt")
    monkeypatch.setattr(report, "PUSH_RESULT", tmp_path / "push.json")
    monkeypatch.setattr(records, "FOLDER", tmp_path / "status")
    (tmp_path / "quarantine.txt").write_text("# none\n")
    return report.Report(Form.push, 1, {})


def part(*failed: tally.Failure) -> Part:
    """A part in which these fail and one passes."""
    return Part("planted", "what a test plants", lambda _: tally.Tally(passed=1, failed=list(failed)))


def records_of(folder: pathlib.Path, suite: str, form: Form) -> tally.Tally:
    """The records of the suite as scripts/test would run it in that form."""
    (folder / "test_planted.py").write_text(suite)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  ci: a\n  nightly: b\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "support.records", "-m", form.value, "--records", "records.json"]
    env = {"PYTHONPATH": str(ROOT / "tests"), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    return tally.from_records(folder / "records.json", done.returncode)


def test_records_of_a_suite(tmp_path: pathlib.Path) -> None:
    found = records_of(tmp_path, SUITE, Form.push)
    assert found.passed == 1
    assert [str(failure) for failure in found.failed] == [
        "test_planted.py::test_bad: assert 1 == 2",
        "test_planted.py::test_end: RuntimeError: too late",
    ]
    assert found.skipped == [("test_planted.py::test_absent", "nothing here")]
    assert found.left == 1, "what is left to CI does not count what is left to the night"
    assert all(cost.processor is not None and cost.wall >= 0 for cost in found.costs)
    assert len(found.costs) == 4


def test_what_ci_runs_besides(tmp_path: pathlib.Path) -> None:
    assert (records_of(tmp_path, SUITE, Form.rest).passed, records_of(tmp_path, SUITE, Form.day).passed) == (1, 2)


@pytest.mark.parametrize(
    ("suite", "failed"),
    [
        ("import nothing_of_this_name", "test_planted.py: ModuleNotFoundError"),
        ("import os\ndef test_a(): os._exit(3)", "test_planted.py::test_a: pytest ended within this test"),
    ],
)
def test_a_suite_that_breaks_fails(tmp_path: pathlib.Path, suite: str, failed: str) -> None:
    found = records_of(tmp_path, suite, Form.day)
    assert any(failed in str(failure) for failure in found.failed), found


def test_each_form_has_its_parts() -> None:
    of = {form: {part.name for part in PARTS if form.has(part)} for form in Form}
    assert of[Form.push] | of[Form.rest] == of[Form.day]
    assert of[Form.push] & of[Form.rest] == {part.name for part in PARTS if part.when is When.split}
    assert of[Form.night] == {part.name for part in PARTS}


@pytest.mark.parametrize("passes", [True, False])
def test_what_passes_alone_has_failed(reported: report.Report, capsys: pytest.CaptureFixture[str], passes: bool) -> None:
    reported.run(part(tally.Failure("a test", "broken", lambda: passes)))
    reported.try_again()
    assert reported.end(0, False, add_push=False, keep=True) == 1
    out = capsys.readouterr().out
    assert "1 passed, 1 failed, 0 skipped" in out.splitlines()[-1]
    assert ("FAILED: a test: broken (passes alone: flaky" in out) == passes
    assert ("FAILED: a test: broken (fails alone too)" in out) != passes


def test_a_quarantined_test_is_reported_and_does_not_fail_the_run(
    reported: report.Report, capsys: pytest.CaptureFixture[str]
) -> None:
    report.QUARANTINE.write_text("a test  # issue 99: the clock of the other host\n")
    reported.run(part(tally.Failure("a test", "broken")))
    assert reported.end(0, False, add_push=False, keep=True) == 0
    out = capsys.readouterr().out
    assert "quarantined, fails: a test: broken [issue 99: the clock of the other host]" in out


def test_a_quarantine_needs_a_reason(reported: report.Report) -> None:
    report.QUARANTINE.write_text("a test\n")
    with pytest.raises(ValueError, match="a test has no reason"):
        report.quarantined()


def test_the_quarantine_is_empty() -> None:
    assert [line for line in (ROOT / "scripts/quarantine.txt").read_text().splitlines() if not line.startswith("#")] == []


def test_the_rest_adds_what_the_push_found(reported: report.Report, capsys: pytest.CaptureFixture[str]) -> None:
    reported.run(part(tally.Failure("a test", "broken")))
    reported.end(0, False, add_push=False, keep=True)
    rest = report.Report(Form.rest, 1, {})
    rest.run(part())
    assert rest.end(0, False, add_push=True, keep=False) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 1 failed, 0 skipped"


def test_skips_are_told_by_reason() -> None:
    skipped = [(f"test {n}", "no GPU here") for n in range(5)] + [("test 9", "no torch")]
    assert report.skip_lines(skipped) == [
        "skipped: test 0, test 1, test 2 and 2 more: no GPU here",
        "skipped: test 9: no torch",
    ]


def test_the_slowest_come_first() -> None:
    costs = [tally.Cost("waits", 9.0, 0.1), tally.Cost("computes", 3.0, 5.0), tally.Cost("unknown", 4.0, None)]
    lines = report.slowest_lines([report.Row("planted", 16.0, 9.1, tally.Tally(costs=costs))])
    assert [line.split()[-1] for line in lines if line.split()[-1:] in (["waits"], ["computes"], ["unknown"])] == [
        *("computes", "unknown", "waits")
    ]


@pytest.mark.parametrize(
    ("command", "code"), [("exit 3", 3), ("kill -TERM $$", -15), ("while [ $((n += 1)) -lt 99999 ]; do :; done", 0)]
)
def test_cost_ends_as_its_command(command: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/lib/cost.py"), "sh", "-c", command], capture_output=True, text=True
    )
    assert done.returncode == code
    cost = cpp_tests.cost_of("a test", {"stdout": "", "stderr": done.stderr, "duration": 2.0})
    assert cost.processor is not None and (cost.processor > 0.01) == (code == 0)


def test_ci_runs_its_own_parts_whole() -> None:
    whole = Part("planted", "", lambda _: tally.Tally(), When.ci)
    assert Context(whole, {}, Form.rest).marks == Form.day.value
    assert Context(part(), {}, Form.rest).marks == Form.rest.value


def test_a_context_is_long_by_night_only() -> None:
    assert [Context(part(), {}, form).nightly for form in Form] == [False, False, False, True]
