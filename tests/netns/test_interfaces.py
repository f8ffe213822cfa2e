"""Two network interfaces between two hosts: their rates add up, and a job survives the loss of the second."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
from collections.abc import Iterator

import pytest

from netns import fixtures, jobs
from netns.cluster import Cluster
from support import hvdrun
from support.forms import measured

RATE = "400mbit"
# Sums of 64 MiB; prints the fastest time.  With a file name it continues until that file exists.
PROGRAM = """
import os, sys, time
import numpy as np
import hvd.numpy as hvd
hvd.init()
base = np.arange(16 << 20, dtype=np.float32) % 13
own = base * (hvd.rank() + 1)
def step():
    begin = time.monotonic()
    got = hvd.allreduce(own, op=hvd.Sum, name="large")
    took = time.monotonic() - begin
    assert np.array_equal(got, base * 3)
    return took
best, over = step(), False
print("ready", flush=True)
if len(sys.argv) == 1: best = min(step() for _ in range(3))
while len(sys.argv) > 1 and not over:
    step()
    over = hvd.broadcast(np.array([os.path.exists(sys.argv[1])]), 0, name="over")[0]
print(f"well {best:.3f}", flush=True)
"""


def inside(pid: int, *words: str) -> None:
    """Runs a program in a process's network namespace."""
    subprocess.run(["nsenter", f"--target={pid}", "--net", *words], check=True, timeout=10)


def add_interface(cluster: Cluster, number: int = 1) -> None:
    """Adds eth1 to each host, at 10.78.0.x, with a bridge of its own; or eth2 at 10.79.0.x."""
    switch, interface, network = f"switch{number}", f"eth{number}", 77 + number
    inside(cluster.switch_pid, "ip", "link", "add", switch, "type", "bridge", "stp_state", "0", "forward_delay", "0")
    inside(cluster.switch_pid, "ip", "link", "set", switch, "up")
    for index, host in enumerate(cluster.names):
        pid = cluster.init_pid(host)
        cable = "q" * number + f"-{host}"
        words = ["type", "veth", "peer", "name", interface, "netns", str(pid)]
        inside(cluster.switch_pid, "ip", "link", "add", cable, *words)
        inside(cluster.switch_pid, "ip", "link", "set", cable, "master", switch, "up")
        inside(pid, "ip", "addr", "add", f"10.{network}.0.{index + 1}/24", "dev", interface)
        inside(pid, "ip", "addr", "add", f"fd00:{network}::{index + 1}/64", "dev", interface, "nodad")
        inside(pid, "ip", "link", "set", interface, "up")


@pytest.fixture(scope="module")
def two_interfaces() -> Iterator[Cluster]:
    """Two hosts with two interfaces each, all limited to RATE."""
    for cluster in fixtures.make(2):
        add_interface(cluster)
        for host in cluster.names:
            (cluster.tmp(host) / "sums.py").write_text(PROGRAM)
            for interface in ("eth0", "eth1"):
                limit = ["rate", RATE, "burst", "256k", "latency", "50ms"]
                inside(cluster.init_pid(host), "tc", "qdisc", "add", "dev", interface, "root", "tbf", *limit)
        yield cluster


def start(cluster: Cluster, *words: str) -> subprocess.Popen[str]:
    """Starts the program on both hosts.  Words with a slash are its arguments, others hvdrun's."""
    argv = [hvdrun.program(), "-H", "alpha:1,beta:1", "--verbose", "--transport", "tcp", "--python", jobs.python()]
    argv += [word for word in words if not word.startswith("/")]
    argv += ["/tmp/sums.py", *(word for word in words if word.startswith("/"))]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return cluster.popen("alpha", argv, env=jobs.environment(), **pipes)


def seconds_of(cluster: Cluster, *words: str) -> tuple[float, str]:
    """The time of the fastest sum, and the output."""
    job = start(cluster, *words)
    out, err = job.communicate(timeout=120)
    assert job.returncode == 0, out + err
    return min(float(n) for n in re.findall(r"well ([\d.]+)", out)), out + err


def sent_by(cluster: Cluster) -> dict[str, int]:
    """Bytes that each interface of the first host has sent."""
    found = {}
    for line in pathlib.Path(f"/proc/{cluster.init_pid('alpha')}/net/dev").read_text().splitlines():
        interface, _, counts = line.partition(":")
        if interface.strip() in ("eth0", "eth1"):
            found[interface.strip()] = int(counts.split()[8])
    return found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", [[], ["--encrypt-tensors"]], ids=["plain", "encrypted"])
def test_rates_add_up(two_interfaces: Cluster, way: list[str]) -> None:
    """Checks the bytes that each interface carries; the times are for the reader."""
    one, said_of_one = seconds_of(two_interfaces, "--network-interfaces", "eth0", *way)
    before = sent_by(two_interfaces)
    both, said = seconds_of(two_interfaces, *way)
    sent = {interface: count - before[interface] for interface, count in sent_by(two_interfaces).items()}
    print(f"64 MiB over one interface {one:.3f} s, over two {both:.3f} s: {one / both:.2f} times as fast")
    assert "all network interfaces at once" not in said_of_one, said_of_one
    assert re.search(r"by all network interfaces at once: eth\d \(10 Gbit/s\) and eth\d", said), said
    assert min(sent.values()) > 0.3 * sum(sent.values()) > 64 << 20, sent


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["cable", "interface"])
def test_an_interface_that_goes_amid_the_job(two_interfaces: Cluster, how: str) -> None:
    """The second interface's cable is pulled, or the interface is taken down: the job continues over the first."""
    over = two_interfaces.tmp("alpha") / "over"
    over.unlink(missing_ok=True)
    where = (two_interfaces.switch_pid, "q-beta") if how == "cable" else (two_interfaces.init_pid("beta"), "eth1")
    job = start(two_interfaces, "/tmp/over")
    pull = lambda state: inside(where[0], "ip", "link", "set", where[1], state)  # noqa: E731
    with jobs.pulled(job, pull, "carries no tensors") as (told, waited):
        over.touch()
        out, err = job.communicate(timeout=60)
    assert job.returncode == 0, out + told + err
    assert out.count("well") == 2, out + told + err
    assert re.search(r"interface eth1 \(10 Gbit/s\) to rank \d \(10\.\d+\.0\.\d\) carries no tensors", told), told
    assert waited < hvdrun.within(6), told


@pytest.mark.timeout(240)
def test_an_interface_that_is_filtered(two_interfaces: Cluster) -> None:
    """No packet gets through the second interface: the first carries everything."""
    link = ["qdisc", "replace", "dev", "q-beta", "root", "tbf", "rate", "8bit", "burst", "1", "latency", "1ms"]
    inside(two_interfaces.switch_pid, "tc", *link)  # no packet fits
    try:
        took, said = seconds_of(two_interfaces)
    finally:
        inside(two_interfaces.switch_pid, "tc", "qdisc", "del", "dev", "q-beta", "root")
    assert took < hvdrun.within(10), said


@pytest.mark.timeout(240)
@measured
def test_hvd_network_names_a_slow_interface(two_interfaces: Cluster) -> None:
    """The output names the slow interface, and has the send rate of each interface of both hosts."""
    change = ["tc", "qdisc", "change", "dev", "eth1", "root", "tbf", "burst", "256k", "latency", "50ms", "rate"]
    inside(two_interfaces.init_pid("beta"), *change, "80mbit")
    try:
        argv = [hvdrun.program(), "-H", "alpha:1,beta:1", "--transport", "tcp", "--python", jobs.python()]
        argv += ["-m", "hvd.network", "--json", "/tmp/network.json"]
        done = two_interfaces.run("alpha", argv, env=jobs.environment(), timeout=120)
    finally:
        inside(two_interfaces.init_pid("beta"), *change, RATE)
    assert done.returncode == 0, done.stderr
    (pair,) = json.loads((two_interfaces.tmp("alpha") / "network.json").read_text())["pairs"]
    rates = pair["gbit_per_s_by_interface"]
    assert list(rates) == ["alpha eth0", "alpha eth1", "beta eth0", "beta eth1"], rates
    assert 0 < rates["beta eth1"] < 0.15 < 0.2 < rates["beta eth0"], rates
    assert re.findall("slow: (.*?): 0.0", done.stdout) == ["beta eth1"], done.stdout
    rows = [line.removeprefix("[0 alpha]").split()[:2] for line in done.stdout.splitlines()]
    assert rows[2:6] == [name.split() for name in rates], done.stdout
