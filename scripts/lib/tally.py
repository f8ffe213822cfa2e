"""Test results of several tools, counted alike."""

from __future__ import annotations

import functools
import pathlib
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Tally:
    """How many tests passed, and which failed or were skipped, each as "name: why"."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    again: dict[str, Callable[[], bool]] = field(default_factory=dict)  # of a failure: runs that test alone

    def __iadd__(self, other: Tally) -> Tally:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.again |= other.again
        return self

    def __str__(self) -> str:
        return f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"


def check(name: str, good: bool, why: str = "") -> Tally:
    """One test's result."""
    return Tally(passed=1) if good else Tally(failed=[f"{name}: {why}"])


def from_junit(path: pathlib.Path, exit_code: int, run_alone: Callable[[str], bool] | None = None) -> Tally:
    """What pytest's --junit-xml says; a crash of pytest itself counts as a failure.

    run_alone: whether the test of this id passes now.
    """
    tally = Tally()
    if not path.exists():
        return Tally(failed=[f"{path.stem}: pytest ended with exit code {exit_code} and no report"])
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname', '')}::{case.get('name', '')}"
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        skip = case.find("skipped")
        if bad is not None:
            failure = f"{name}: {first_line(bad.get('message'))}"
            tally.failed.append(failure)
            if run_alone is not None:
                tally.again[failure] = functools.partial(run_alone, pytest_id(case.get("classname", ""), case.get("name", "")))
        elif skip is not None:
            tally.skipped.append(f"{name}: {first_line(skip.get('message'))}")
        else:
            tally.passed += 1
    if exit_code not in (0, 1, 5):
        tally.failed.append(f"{path.stem}: pytest ended with exit code {exit_code}")
    return tally


def pytest_id(classname: str, name: str) -> str:
    """tests.rank.test_a.TestB and test_c: tests/rank/test_a.py::TestB::test_c."""
    parts = classname.split(".")
    for count in range(len(parts), 0, -1):
        file = pathlib.Path(*parts[:count]).with_suffix(".py")
        if file.is_file():
            return "::".join([str(file), *parts[count:], name])
    return f"{classname}::{name}"


def first_line(text: str | None) -> str:
    """The first line of a message, or a word for none."""
    return (text or "no message").strip().split("\n")[0][:300]


DOCTEST = re.compile(r"\[doctest\] test cases:\s*(\d+) \|\s*(\d+) passed \|\s*(\d+) failed \|\s*(\d+) skipped")


def from_meson(log: str, program: str, exit_code: int) -> Tally:
    """What one test program of ours said: doctest's cases where it is one, else one test."""
    found = DOCTEST.findall(log)
    if not found:
        return check(program, exit_code == 0, f"exit code {exit_code}")
    tally = Tally()
    for _, passed, failed, _ in found:  # "skipped" there means filtered out
        tally.passed += int(passed)
        tally.failed += [f"{program}: a test case failed"] * int(failed)
    if exit_code != 0 and not tally.failed:
        tally.failed.append(f"{program}: exit code {exit_code} (a sanitizer's finding, a crash or a time-out)")
    return tally
