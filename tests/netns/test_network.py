"""hvd.network: microseconds and Gbit/s between hosts, and the name of a slow host."""

from __future__ import annotations

import json
import subprocess

import pytest

from netns import jobs
from netns.cluster import Cluster
from support import hvdrun

pytestmark = pytest.mark.timeout(240)


def measure(cluster: Cluster, hosts: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [hvdrun.program(), "-H", hosts, "--python", jobs.python(), "-m", "hvd.network", "--megabytes", "2", *words]
    return cluster.run("alpha", argv, env=jobs.environment(), timeout=120)


def test_a_slow_host_is_named(three_hosts: Cluster) -> None:
    inside = ["nsenter", f"--target={three_hosts.init_pid('gamma')}", "--net", "tc", "qdisc"]
    limit = ["root", "tbf", "rate", "200mbit", "burst", "256kb", "latency", "50ms"]
    subprocess.run([*inside, "add", "dev", "eth0", *limit], check=True, timeout=10)
    try:
        done = measure(three_hosts, "alpha:2,beta:1,gamma:1", "--json", "/tmp/network.json")
    finally:
        subprocess.run([*inside, "del", "dev", "eth0", "root"], check=True, timeout=10)
    assert done.returncode == 0, done.stderr
    told = json.loads((three_hosts.tmp("alpha") / "network.json").read_text())
    assert "slow: gamma: " in done.stdout
    rates = {tuple(pair["hosts"]): pair["gbit_per_s"] for pair in told["pairs"]}
    assert list(rates) == [("alpha", "beta"), ("alpha", "gamma"), ("beta", "gamma")]
    assert rates["alpha", "gamma"] < 0.3 and rates["beta", "gamma"] < 0.3 < rates["alpha", "beta"], told
    assert [line.split(":")[0] for line in told["slow"]] == ["gamma"], told


def test_the_table(two_hosts: Cluster) -> None:
    done = measure(two_hosts, "alpha:1,beta:1")
    assert done.returncode == 0, done.stderr
    head, row = (line.removeprefix("[0 alpha] ") for line in done.stdout.splitlines())
    assert head.split() == ["hosts", "us,", "least", "us,", "median", "Gbit/s", "each", "way"]
    assert row.startswith("alpha - beta ") and all(float(word) > 0 for word in row.split()[3:])


def test_one_host_has_no_network(two_hosts: Cluster) -> None:
    done = measure(two_hosts, "alpha:2")
    assert done.returncode == 2 and "hvd.network: the job has one host" in done.stderr, done.stderr
