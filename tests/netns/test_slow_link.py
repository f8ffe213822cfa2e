"""The report names a host with a slow network interface."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from netns import fixtures, jobs
from netns.cluster import Cluster
from support import hvdrun

PROGRAM = """
import numpy as np, time
import hvd.numpy as hvd
hvd.init()
gradient = np.ones(1 << 19, np.float32)
end = time.monotonic() + 8
while hvd.allreduce(np.float64(time.monotonic() < end), op=hvd.Min, name="goes on"):
    hvd.allreduce(gradient, name="gradient")
"""


@pytest.fixture(scope="module")
def limited() -> Iterator[Cluster]:
    """Three hosts, whose interfaces send at 400 Mbit/s, and the third's at 50."""
    for cluster in fixtures.make(3):
        for host in cluster.names:
            (cluster.tmp(host) / "sums.py").write_text(PROGRAM)
            rate = ["rate", "50mbit" if host == "gamma" else "400mbit", "burst", "256k", "latency", "50ms"]
            inside = ["nsenter", f"--target={cluster.init_pid(host)}", "--net"]
            tbf = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *rate]
            subprocess.run([*inside, *tbf], check=True, timeout=10)
        yield cluster


def report_of(cluster: Cluster, hosts: str) -> list[dict[str, object]]:
    """The report at the end of a job over these hosts."""
    argv = [hvdrun.program(), "-H", hosts, "--transport", "tcp", "--no-report", "--report-filename", "/tmp/report.json"]
    done = cluster.run("alpha", [*argv, "--python", jobs.python(), "/tmp/sums.py"], env=jobs.environment(), timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    findings = json.loads((cluster.tmp("alpha") / "report.json").read_text())["findings"]
    return list(findings)


@pytest.mark.timeout(240)
def test_a_slow_interface_is_named(limited: Cluster) -> None:
    first = report_of(limited, "alpha:1,beta:1,gamma:1")[0]
    assert (first["cause"], first["host"], first["ranks"]) == ("COMMUNICATION", "gamma", [2]), first
    assert "one link is slow: gamma sends" in str(first["what"]), first
    assert "ethtool" in str(first["advice"]), first


@pytest.mark.timeout(240)
def test_interfaces_that_are_alike_are_not_blamed(limited: Cluster) -> None:
    first = report_of(limited, "alpha:1,beta:1")[0]
    assert (first["cause"], first["host"], first["ranks"]) == ("COMMUNICATION", None, []), first
    assert ": rate, " in str(first["what"]), first
