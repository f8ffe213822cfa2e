"""hvdrun's connection to a host moves to a second network when the first is lost.  The ranks exchange nothing."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from netns import fixtures, jobs
from netns.cluster import Cluster, children, wait_for
from netns.test_interfaces import add_interface, inside
from support import hvdrun
from support.forms import measured

LINES = 160  # at ten lines a second, longer than hvdrun needs to notice a loss
# Prints numbered lines, until all are printed or the host's file /tmp/over has an exit code.
PROGRAM = f"""
import os, sys, time
rank = os.environ["HVD_RANK"]
for i in range({LINES} if len(sys.argv) == 1 else 1000):
    print("ready" if i == 0 else f"rank {{rank}} line {{i}}", flush=True)
    time.sleep(0.1)
    if os.path.exists("/tmp/over"): sys.exit(int(open("/tmp/over").read()))
"""
MOVED = "does not answer any more through 10.77.0.1 (eth0 here); its connection uses 10.78.0.1 (eth1 here) now"
LOST = "no answer came through 10.77.0.1 (eth0 here) or 10.78.0.1 (eth1 here)"
REVERSED = "no answer came through 10.78.0.1 (eth1 here) or 10.77.0.1 (eth0 here)"  # both are lost within a second
EMPTY_LINK = ["root", "tbf", "rate", "8bit", "burst", "1", "latency", "1ms"]  # no packet fits

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def two_networks() -> Iterator[Cluster]:
    """Two hosts in two networks."""
    for cluster in fixtures.make(2):
        add_interface(cluster)
        for host in cluster.names:
            (cluster.tmp(host) / "lines.py").write_text(PROGRAM)
        yield cluster


@contextlib.contextmanager
def lost(cluster: Cluster, how: str) -> Iterator[None]:
    """The first network of beta is lost, and comes back at the end."""
    beta, switch = cluster.init_pid("beta"), cluster.switch_pid
    ends = [(beta, "eth0"), (switch, "p-beta")]
    if how == "filter":
        for pid, interface in ends:
            inside(pid, "tc", "qdisc", "add", "dev", interface, *EMPTY_LINK)
    else:
        pid, interface = ends[how == "cable"]
        inside(pid, "ip", "link", "set", interface, "down")
    try:
        yield
    finally:
        if how == "filter":
            for pid, interface in ends:
                inside(pid, "tc", "qdisc", "del", "dev", interface, "root")
        else:
            inside(pid, "ip", "link", "set", interface, "up")


@contextlib.contextmanager
def job_of(cluster: Cluster, hosts: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yields a job whose ranks have printed "ready", and their output until then. Words with a slash are the program's
    arguments."""
    for host in cluster.names:
        (cluster.tmp(host) / "over").unlink(missing_ok=True)
    argv = [hvdrun.program(), "-H", hosts, "--python", jobs.python(), *(w for w in words if "/" not in w)]
    argv += ["/tmp/lines.py", *(w for w in words if "/" in w)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with cluster.popen("alpha", argv, env=jobs.environment(), **pipes) as job:
        ranks = sum(int(part.partition(":")[2]) for part in hosts.split(","))
        early = ""
        while early.count("ready") < ranks:
            line = hvdrun.read_line(job.stdout)
            assert line, early + job.communicate(timeout=30)[1]
            early += line
        yield job, early


def wait_until_moved(job: subprocess.Popen[str]) -> str:
    """Returns hvdrun's messages up to the message that the connection has moved. AssertionError: hvdrun ended without it."""
    said = ""
    while line := hvdrun.read_line(job.stderr):
        said += line
        if MOVED in line:
            return said
    raise AssertionError(said)


def hvdrun_of(job: subprocess.Popen[str]) -> int:
    """The process id of hvdrun, which nsenter has started."""
    (pid,) = children(job.pid)
    return pid


def nothing_is_left(cluster: Cluster, seconds: float) -> None:
    """seconds: the limit on an idle machine."""
    limit = hvdrun.within(seconds)
    wait_for(lambda: not any(cluster.processes(host) for host in cluster.names), limit, "the end of all processes")


@pytest.mark.parametrize(
    ("hosts", "how"),
    [
        ("alpha:1,beta:2", "cable"),
        ("beta:2", "filter"),
        *(
            pytest.param(hosts, how, marks=pytest.mark.nightly)
            for hosts, how in (("alpha:1,beta:2", "interface"), ("alpha:1,beta:2", "filter"), ("beta:2", "cable"))
        ),
    ],
)
def test_the_job_goes_on(two_networks: Cluster, hosts: str, how: str) -> None:
    """All lines of all ranks come once, in order."""
    with job_of(two_networks, hosts) as (job, early), lost(two_networks, how):
        said = wait_until_moved(job)
        out, err = job.communicate(timeout=60)
        out = early + out
        assert job.returncode == 0, out + said + err
        nothing_is_left(two_networks, 3)
    assert (said + err).count(MOVED) == 1, said + err
    for rank in range(3 if "alpha" in hosts else 2):
        lines = [int(n) for n in re.findall(rf"rank {rank} line (\d+)", out)]
        assert lines == list(range(1, LINES)), lines


@pytest.mark.parametrize("how", ["cable", pytest.param("filter", marks=pytest.mark.nightly)])
def test_a_failure_after_the_move(two_networks: Cluster, how: str) -> None:
    with job_of(two_networks, "alpha:1,beta:1", "a/b") as (job, _), lost(two_networks, how):
        said = wait_until_moved(job)
        (two_networks.tmp("beta") / "over").write_text("7")
        out, err = job.communicate(timeout=30)
        assert job.returncode == 7, out + said + err
        assert "rank 1 on beta" in err and "exit code 7" in err, err
        nothing_is_left(two_networks, 3)


@pytest.mark.parametrize("hosts", ["alpha:1,beta:1", pytest.param("beta:1", marks=pytest.mark.nightly)])
@measured
def test_ctrl_c_after_the_move(two_networks: Cluster, hosts: str) -> None:
    with job_of(two_networks, hosts, "a/b") as (job, _), lost(two_networks, "cable"):
        said = wait_until_moved(job)
        begin = time.monotonic()
        os.kill(hvdrun_of(job), signal.SIGINT)
        out, err = job.communicate(timeout=30)
        assert job.returncode == 130, out + said + err
        nothing_is_left(two_networks, 1)
        # A lost report of leftovers would cost two seconds more.
        assert time.monotonic() - begin < 2 * hvdrun.patience()


@pytest.mark.parametrize("hosts", ["alpha:1,beta:2", pytest.param("beta:1", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("when", ["before", "after", "amid"])
def test_a_killed_hvdrun_leaves_nothing(two_networks: Cluster, hosts: str, when: str) -> None:
    """hvdrun is killed in three situations: without a loss, after the move, and before the loss is noticed."""
    with job_of(two_networks, hosts, "a/b") as (job, _), contextlib.ExitStack() as stack:
        if when != "before":
            stack.enter_context(lost(two_networks, "cable"))
        if when == "after":
            wait_until_moved(job)
        os.kill(hvdrun_of(job), signal.SIGKILL)
        nothing_is_left(two_networks, 15 if when == "amid" else 3)


def test_ssh_may_end_after_the_move(two_networks: Cluster) -> None:
    """After the move, ssh ends on both hosts. hvdrun must still end the job's daemon."""
    with job_of(two_networks, "beta:1", "a/b") as (job, _):
        with lost(two_networks, "cable"):
            said = wait_until_moved(job)
            for pid, line in two_networks.processes("alpha").items():
                if line.startswith("ssh "):
                    os.kill(pid, signal.SIGTERM)
        time.sleep(3)  # the network is back, and the daemon's standard output ends
        assert job.poll() is None, job.communicate()
        (two_networks.tmp("beta") / "over").write_text("0")
        out, err = job.communicate(timeout=30)
        assert job.returncode == 0, out + said + err
        nothing_is_left(two_networks, 3)


def test_an_elastic_job_goes_on(two_networks: Cluster) -> None:
    with job_of(two_networks, "alpha:1,beta:1", "--min-np", "2") as (job, _), lost(two_networks, "cable"):
        said = wait_until_moved(job)
        out, err = job.communicate(timeout=60)
        assert job.returncode == 0, out + said + err
        nothing_is_left(two_networks, 3)
    assert out.count(f"rank 1 line {LINES - 1}") == 1, out


@pytest.mark.parametrize("after_the_move", [False, True])
def test_both_networks_are_lost(two_networks: Cluster, after_the_move: bool) -> None:
    """The host counts as lost, as with one network.  The message names both networks."""

    def second(state: str) -> None:
        inside(two_networks.switch_pid, "ip", "link", "set", "q-beta", state)

    with job_of(two_networks, "alpha:1,beta:1", "a/b") as (job, _), lost(two_networks, "cable"):
        if after_the_move:
            wait_until_moved(job)
        begin = time.monotonic()
        second("down")
        try:
            out, err = job.communicate(timeout=40)
            assert job.returncode == 5, out + err
            assert "its host sends no messages any more" in err, err
            assert LOST in err or REVERSED in err, err
            assert time.monotonic() - begin < hvdrun.within(25)
            nothing_is_left(two_networks, 15)
        finally:
            second("up")


def test_named_interfaces_are_kept(two_networks: Cluster) -> None:
    """With --network-interfaces eth0 there is no second network."""
    with job_of(two_networks, "alpha:1,beta:1", "--network-interfaces", "eth0", "a/b") as (job, _), lost(two_networks, "cable"):
        out, err = job.communicate(timeout=40)
        assert job.returncode == 5, out + err
        assert MOVED not in err, err
        nothing_is_left(two_networks, 15)
