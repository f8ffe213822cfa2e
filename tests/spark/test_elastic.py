"""run_elastic: executors of a job are killed; it continues, and uses Spark's replacements."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from netns.cluster import Cluster, wait_for
from support.hvdrun import children

from . import session as s

REASON = s.why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s.Driver]:
    """A driver with three executors of one core."""
    folder = tmp_path_factory.mktemp("spark")
    driver = s.local_cluster(folder, executors=3)
    yield driver
    driver.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def here(three: s.Driver) -> s.Driver:
    three.good("executors_are_there", count=3)
    return three


def below(pid: int) -> list[int]:
    return [pid, *(deeper for child in children(pid) for deeper in below(child))]


def command(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def processes(driver: s.Driver) -> dict[int, str]:
    return {pid: command(pid) for pid in below(driver.process.pid)}


def executors(driver: s.Driver) -> list[int]:
    """The executors with a rank."""
    found = [pid for pid, line in processes(driver).items() if "CoarseGrainedExecutorBackend" in line]
    return [pid for pid in found if any("hvdrank" in command(deeper) for deeper in below(pid))]


def sizes(folder: pathlib.Path) -> list[int]:
    path = folder / "sizes"
    return [int(line.split()[1]) for line in path.read_text().splitlines() if " " in line] if path.exists() else []


def complete(results: list[Any], samples: int) -> None:
    """The results are in the order of ranks, and no sample is lost or seen twice."""
    assert [rank for rank, *_ in results] == list(range(len(results)))
    for _, size, seen, total in results:
        assert size == len(results)
        assert sorted(seen) == list(range(samples)) and total == sum(range(samples))


def test_nobody_is_lost(here: s.Driver, tmp_path: pathlib.Path) -> None:
    results = here.good("elastic", folder=str(tmp_path), samples=30, num_proc=2, min_num_proc=1)
    assert len(results) == 2
    complete(results, 30)
    s.wait_until_clean(lambda: processes(here))


def test_an_executor_is_killed(here: s.Driver, tmp_path: pathlib.Path) -> None:
    """The others continue; Spark starts a new executor, whose rank joins them."""
    numbers = {"num_proc": 3, "min_num_proc": 1, "samples": 600, "pause": 0.06, "whole": 3}
    here.send("elastic", folder=str(tmp_path), **numbers)
    wait_for(lambda: len(sizes(tmp_path)) > 5, 90.0, "steps")
    os.kill(executors(here)[1], signal.SIGKILL)
    answer = here.result(150.0)
    assert "value" in answer, answer["error"] + answer["err"]
    complete(answer["value"], 600)
    assert "3 → 2 ranks" in answer["err"] and "2 → 3 ranks" in answer["err"], answer["err"]
    assert sizes(tmp_path)[-1] == 3
    s.wait_until_clean(lambda: processes(here))


def test_it_is_cancelled(here: s.Driver, tmp_path: pathlib.Path) -> None:
    answer = here.ask("elastic_cancelled", folder=str(tmp_path))
    assert answer["kind"] == "JobCancelled" and "the Spark job was cancelled" in answer["error"], answer
    s.wait_until_clean(lambda: processes(here))


def test_ranks_that_fail(here: s.Driver) -> None:
    answer = here.ask("elastic_failing")
    assert answer["kind"] == "JobError" and "KeyError: 'no such layer'" in answer["error"], answer
    s.wait_until_clean(lambda: processes(here))


def test_wrong_numbers(here: s.Driver, tmp_path: pathlib.Path) -> None:
    answer = here.ask("elastic", folder=str(tmp_path), num_proc=1, min_num_proc=2)
    assert answer["kind"] == "ValueError" and "--min-np" in answer["error"], answer
    answer = here.ask("elastic", folder=str(tmp_path), num_proc=0)
    assert answer["kind"] == "ValueError" and "num_proc is 0" in answer["error"], answer


@pytest.mark.nightly
def test_on_three_hosts(driver: s.Driver, standalone: s.Standalone, three_hosts: Cluster) -> None:
    """Two slots on each; the executor of a host without the driver is killed."""
    folder = standalone.folder / "elastic"
    folder.mkdir()
    driver.send("elastic", folder=str(folder), num_proc=6, min_num_proc=2, samples=1200, pause=0.06, whole=6)
    wait_for(lambda: len(sizes(folder)) > 5, 90.0, "steps")
    for pid in standalone.executors("gamma"):
        os.kill(pid, signal.SIGKILL)
    answer = driver.result(150.0)
    assert "value" in answer, answer["error"] + answer["err"]
    complete(answer["value"], 1200)
    assert min(sizes(folder)[5:]) == 4 and sizes(folder)[-1] == 6, answer["err"]
    for host in three_hosts.names:
        s.wait_until_clean(lambda host=host: three_hosts.processes(host))
