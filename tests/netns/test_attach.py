"""hvdrun attach reaches ranks of other hosts, through the job's own encrypted connections."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from netns import jobs
from netns.cluster import Cluster
from support import hvdrun

# Rank 1 calls nothing in Python while it waits, so a console always stops in this file.
SCRIPT = """
import os, time
import hvd
secret, on = 'what only rank 1 knows', 0
first = os.environ['HVD_RANK'] == '0'
print('ready', flush=True)
while not on:
    time.sleep(0.01)
    if first:
        on = os.path.exists('/tmp/on')
print('went on', on, flush=True)
"""
NUMBERS = "' '.join(str(i) for i in range(200_000))"


@pytest.fixture(params=["hvdrun", "mpirun"])
def job(two_hosts: Cluster, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A rank on each host, ready."""
    for host in two_hosts.names:
        (two_hosts.tmp(host) / "wait.py").write_text(SCRIPT)
    argv = [hvdrun.program(), "-H", "alpha:1,beta:1", "--launcher", request.param, "--python", jobs.python(), "/tmp/wait.py"]
    with two_hosts.popen("alpha", argv, env=jobs.environment(), stdout=subprocess.PIPE, text=True) as running:
        try:
            for _ in range(2):
                assert "ready" in hvdrun.next_line(running.stdout)
            yield running
        finally:
            Cluster.signal(running, signal.SIGTERM)


def console(hosts: Cluster, rank: str) -> subprocess.Popen[Any]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return hosts.popen("alpha", [hvdrun.program(), "attach", rank], env=jobs.environment(), text=True, **pipes)


def attach(hosts: Cluster, rank: str, text: str) -> tuple[str, str]:
    """(stdout, stderr) for a user's input, and the end of the input."""
    with console(hosts, rank) as process:
        said: tuple[str, str] = process.communicate(text, timeout=60)
    return said


def test_another_host(two_hosts: Cluster, job: subprocess.Popen[str]) -> None:
    """A variable is shown; long output arrives whole and in order; after a killed console the rank continues and accepts
    another.
    """
    shown, said = attach(two_hosts, "1", "p secret\nquit\n")
    assert "what only rank 1 knows" in shown and "on beta; quit" in said, shown + said
    assert " ".join(str(i) for i in range(200_000)) in attach(two_hosts, "1", f"p {NUMBERS}\n")[0]
    with console(two_hosts, "1") as killed:
        assert "wait.py" in hvdrun.next_line(killed.stdout)
        assert "another debugger is attached" in attach(two_hosts, "1", "")[1]
        Cluster.signal(killed, signal.SIGKILL)
    attach(two_hosts, "1", "!on = 5\nquit\n")
    assert "went on 5" in hvdrun.next_line(job.stdout)
    hvdrun.wait_until(lambda: "does not run" in attach(two_hosts, "1", "")[1], "the end of its interpreter")


def test_rank_is_killed(two_hosts: Cluster, job: subprocess.Popen[str]) -> None:
    """The rank dies at the prompt: the console ends with it, and so does the job."""
    with console(two_hosts, "1") as open_one:
        assert "wait.py" in hvdrun.next_line(open_one.stdout)
        assert open_one.stdin
        open_one.stdin.write("import os; os.kill(os.getpid(), 9)\n")
        open_one.stdin.flush()
        open_one.communicate(timeout=30)
    assert job.wait(timeout=30) == 128 + signal.SIGKILL
