"""A pytest plugin for scripts/test: --records FILE gets one JSON line for each test as it ends.

First comes {"count": tests that run, "left": tests that -m leaves out}.  Each test then has {"begun": id}, and later
{"test": id, "outcome": "passed", "failed" or "skipped", "why": text, "wall": seconds, "processor": seconds}.
The processor seconds are those of pytest and of all children that the test has waited for.
"""

from __future__ import annotations

import json
import pathlib
import resource
import time
from collections.abc import Generator, Sequence
from typing import Any

import pytest


def processor_seconds() -> float:
    """The processor seconds of this process and of its waited-for children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The reason why a test failed or was skipped."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message)
    lines = report.longreprtext.splitlines()
    return next((line[1:].strip() for line in reversed(lines) if line.startswith("E ")), report.longreprtext)


class Records:
    """Writes the file.  pytest calls the hooks in order, in one thread."""

    def __init__(self, path: pathlib.Path) -> None:
        self._file = path.open("w", buffering=1)
        self._left = 0
        self._outcome, self._why = "passed", ""

    def _write(self, **record: object) -> None:
        self._file.write(json.dumps(record) + "\n")

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._left += len([item for item in items if item.get_closest_marker("nightly") is None])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._write(count=len(session.items), left=self._left)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            outcome = report.outcome
            self._write(test=report.nodeid, outcome=outcome, why=reason_of(report), wall=0.0, processor=0.0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._outcome, self._why = "passed", ""
        self._write(begun=item.nodeid)
        begin, used = time.monotonic(), processor_seconds()
        try:
            return (yield)
        finally:
            wall, processor = round(time.monotonic() - begin, 3), round(processor_seconds() - used, 3)
            self._write(test=item.nodeid, outcome=self._outcome, why=self._why, wall=wall, processor=processor)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        worse = report.failed or (report.skipped and self._outcome == "passed")
        if worse and self._outcome != "failed":
            self._outcome, self._why = report.outcome, reason_of(report)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--records", type=pathlib.Path, metavar="FILE", help="a JSON line for each test as it ends")


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("--records"):
        config.pluginmanager.register(Records(path), "records")
