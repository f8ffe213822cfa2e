"""After any end of a job no rank, daemon, mpirun or file stays, and the error comes at once."""

from __future__ import annotations

import os
import signal
import time

import pytest

from netns.cluster import Cluster, wait_for

from . import session as s

REASON = s.why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.timeout(300)]
MARKER = "/var/tmp/hvd-spark-marker"


@pytest.fixture
def marker(standalone: s.Standalone) -> str:
    """Ranks of checks.slow_main touch MARKER.RANK when they have started."""
    return str(standalone.folder / f"ranks-{time.monotonic_ns()}")


def wait_for_ranks(driver: s.Driver, marker: str, np: int, limit: float = 90.0) -> None:
    """Waits until every rank works.  A driver that answers before has failed."""

    def all_work() -> bool:
        assert driver.answers.empty(), driver.result()
        return all(os.path.exists(f"{marker}.{rank}") for rank in range(np))

    wait_for(all_work, limit, "the ranks")


def nothing_left(cluster: Cluster) -> None:
    """No process of the job is left on any host."""
    for host in cluster.names:
        s.wait_until_clean(lambda host=host: cluster.processes(host))
        wait_for(lambda host=host: s.files_left(cluster, host) == [], 60.0, f"the end of {s.files_left(cluster, host)}")


@pytest.mark.nightly
def test_cancelled_from_another_thread(driver: s.Driver, three_hosts: Cluster, marker: str) -> None:
    """Another thread cancels the Spark job, like the stop button of a notebook or of Spark's web page."""
    answer = driver.ask("cancelled", np=6, after=0.2, marker=marker)
    assert answer["kind"] == "JobCancelled" and "the Spark job was cancelled" in answer["error"], answer
    nothing_left(three_hosts)


def test_ctrl_c(driver: s.Driver, three_hosts: Cluster, marker: str) -> None:
    """KeyboardInterrupt in the cell, and the session continues."""
    driver.send("slow", np=6, marker=marker)
    wait_for_ranks(driver, marker, 6)
    s.interrupt_on(three_hosts, "alpha")
    answer = driver.result()
    assert answer["kind"] == "KeyboardInterrupt", answer
    nothing_left(three_hosts)
    assert driver.good("runner", np=3)["size"] == 3


@pytest.mark.parametrize("victim", [pytest.param("with hvdrun", marks=pytest.mark.nightly), "without"])
def test_executor_killed(driver: s.Driver, standalone: s.Standalone, three_hosts: Cluster, marker: str, victim: str) -> None:
    """An error within ten seconds that says so; the ranks of all hosts end."""
    driver.send("slow", np=6, marker=marker)
    wait_for_ranks(driver, marker, 6)
    launching = {host for host in three_hosts.names if any("--manifest" in x for x in three_hosts.processes(host).values())}
    assert len(launching) == 1
    host = launching.pop() if victim == "with hvdrun" else next(h for h in three_hosts.names if h not in launching)
    began = time.monotonic()
    for pid in standalone.executors(host):
        os.kill(pid, signal.SIGKILL)
    answer = driver.result()
    seconds = time.monotonic() - began
    assert answer["kind"] == "RuntimeError", answer
    assert "an executor was lost" in answer["error"] or "gone with its host" in answer["error"], answer["error"]
    print(f"executor {victim} hvdrun killed: error after {seconds:.1f} s at load {os.getloadavg()[0]:.1f}")
    assert seconds < 10.0 * s.patience(), f"{seconds:.1f} s: {answer['error']}"
    nothing_left(three_hosts)


@pytest.mark.nightly
def test_driver_killed(standalone: s.Standalone, driver: s.Driver, three_hosts: Cluster, marker: str) -> None:
    """The executors and all their processes end with the driver. (The last test of this file: the driver is gone.)"""
    driver.send("slow", np=6, marker=marker)
    wait_for_ranks(driver, marker, 6)
    for pid, line in three_hosts.processes("alpha").items():
        if "driver.py" in line or "SparkSubmit" in line:
            os.kill(pid, signal.SIGKILL)
    nothing_left(three_hosts)
