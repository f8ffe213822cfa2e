"""Test results of several tools in one form."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Failure:
    """A test that failed: its name, and the first line of the reason."""

    name: str
    why: str
    run_alone: Callable[[], bool] | None = None  # runs that test alone; returns whether it passes

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


@dataclass
class Cost:
    """The cost of one test, in seconds. The processor time is None if the test tool does not report it."""

    name: str
    wall: float
    processor: float | None


@dataclass
class Tally:
    """The number of passed tests, and the failed and skipped tests, each as (name, reason)."""

    passed: int = 0
    failed: list[Failure] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    left: int = 0  # tests of the other form
    costs: list[Cost] = field(default_factory=list)

    def __iadd__(self, other: Tally) -> Tally:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.left += other.left
        self.costs += other.costs
        return self

    def __str__(self) -> str:
        return f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"


def failure(name: str, why: str) -> Tally:
    """One test that failed."""
    return Tally(failed=[Failure(name, why)])


def skip(name: str, why: str) -> Tally:
    """One test that did not run."""
    return Tally(skipped=[(name, why)])


def check(name: str, good: bool, why: str = "") -> Tally:
    """One test's result."""
    return Tally(passed=1) if good else failure(name, why)


def from_records(path: pathlib.Path, exit_code: int, run_alone: Callable[[str], bool] | None = None) -> Tally:
    """The results of one run of pytest, from tests/support/records.py; a crash of pytest itself counts as a failure.

    run_alone: returns whether the test of this id passes now.
    """
    tally = Tally()
    if not path.exists():
        return failure(path.stem, f"pytest ended with exit code {exit_code} and no records")
    begun = ""
    for record in map(json.loads, path.read_text().splitlines()):
        if "begun" in record:
            begun = record["begun"]
        elif "left" in record:
            tally.left += record["left"]
        elif "test" in record:
            begun = ""
            tally += from_record(record, run_alone)
    if begun:
        tally.failed.append(Failure(begun, "pytest ended within this test", alone(run_alone, begun)))
    if exit_code not in (0, 1, 5):
        tally.failed.append(Failure(path.stem, f"pytest ended with exit code {exit_code}"))
    return tally


def from_record(record: dict[str, str], run_alone: Callable[[str], bool] | None) -> Tally:
    """The result of one pytest test."""
    name, why = record["test"], first_line(record["why"])
    tally = Tally(costs=[Cost(name, float(record["wall"]), float(record["processor"]))])
    if record["outcome"] == "failed":
        tally.failed.append(Failure(name, why, alone(run_alone, name)))
    elif record["outcome"] == "skipped":
        tally.skipped.append((name, why))
    else:
        tally.passed += 1
    return tally


def alone(run_alone: Callable[[str], bool] | None, name: str) -> Callable[[], bool] | None:
    """run_alone bound to this test."""
    return None if run_alone is None else lambda: run_alone(name)


def first_line(text: str | None) -> str:
    """The first line of a message, or a placeholder without one."""
    return (text or "no message").strip().split("\n")[0][:300]


DOCTEST = re.compile(r"\[doctest\] test cases:\s*(\d+) \|\s*(\d+) passed \|\s*(\d+) failed \|\s*(\d+) skipped")


def from_meson(log: str, program: str, exit_code: int) -> Tally:
    """The results of one test program: doctest's cases if it is one, else one test."""
    found = DOCTEST.findall(log)
    if not found:
        return check(program, exit_code == 0, f"exit code {exit_code}")
    tally = Tally()
    for _, passed, failed, _ in found:  # there "skipped" means filtered out
        tally.passed += int(passed)
        tally.failed += [Failure(program, "a test case failed") for _ in range(int(failed))]
    if exit_code != 0 and not tally.failed:
        tally += failure(program, f"exit code {exit_code} (a sanitizer's finding, a crash or a time-out)")
    return tally
