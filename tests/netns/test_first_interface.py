"""The first network interface between two hosts is lost: a job continues over the second.

hvdrun's own connections use an interface that stays: the hosts' names stand for their addresses there.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator

import pytest

from netns import fixtures, jobs
from netns.cluster import Cluster, wait_for
from netns.test_interfaces import add_interface, inside
from support import hvdrun

MOVED = "carries the small messages now"
# Sums of several sizes until the file exists; prints the longest wait for one.
PROGRAM = """
import os, sys, time
import numpy as np
import hvd.numpy as hvd
hvd.init()
size = hvd.size()
def step(count, name):
    base = np.arange(count, dtype=np.float32) % 13
    begin = time.monotonic()
    got = hvd.allreduce(base * (hvd.rank() + 1), op=hvd.Sum, name=name)
    took = time.monotonic() - begin
    assert np.array_equal(got, base * (size * (size + 1) // 2)), name
    return took
counts = [int(n) for n in sys.argv[2].split(",")]
longest, over, steps = 0.0, False, 0
for count in counts: step(count, f"sum {count}")
print("ready", flush=True)
while not over:
    for count in counts: longest = max(longest, step(count, f"sum {count}"))
    gathered = hvd.allgather(np.full(500 * (hvd.rank() + 1), hvd.rank()), name="gather")
    assert len(gathered) == 500 * size * (size + 1) // 2
    over = hvd.broadcast(np.array([os.path.exists(sys.argv[1])]), 0, name="over")[0]
    steps += 1
print(f"well: {longest:.3f} s at most, {steps} steps", flush=True)
"""
SMALL, ALL = "1,8192,16384,40000", "1,8192,16384,16777216"
FILTER = ["root", "tbf", "rate", "8bit", "burst", "1", "latency", "1ms"]  # no packet fits


@pytest.fixture(scope="module")
def three_interfaces() -> Iterator[Cluster]:
    """Two hosts with three interfaces each. hvdrun uses eth2."""
    for cluster in fixtures.make(2):
        for number in (1, 2):
            add_interface(cluster, number)
        for host in cluster.names:
            (cluster.tmp(host) / "sums.py").write_text(PROGRAM)
            change = "sed s/10.77.0/10.79.0/ /etc/hosts > /tmp/hosts; cat /tmp/hosts > /etc/hosts"
            words = ["nsenter", f"--target={cluster.init_pid(host)}", "--mount", "sh", "-c", change]
            subprocess.run(words, check=True, timeout=10)
        yield cluster


def set_interface(cluster: Cluster, how: str, interface: str, state: str) -> None:
    """Takes an interface of beta down, or up again."""
    cable = interface.replace("eth0", "p").replace("eth1", "q") + "-beta"
    if how == "interface":
        inside(cluster.init_pid("beta"), "ip", "link", "set", interface, state)
    elif how == "cable":
        inside(cluster.switch_pid, "ip", "link", "set", cable, state)
    else:
        rule = ["add", "dev", cable, *FILTER] if state == "down" else ["del", "dev", cable, "root"]
        inside(cluster.switch_pid, "tc", "qdisc", *rule)


def wait_for_first_interface(cluster: Cluster) -> None:
    """Waits until beta answers over eth0, which a former test may have taken down."""
    connect = "import socket; socket.create_connection(('10.77.0.2', 22), timeout=1)"
    words = ["nsenter", f"--target={cluster.init_pid('alpha')}", "--net", "python3", "-c", connect]
    end = time.monotonic() + 30
    while subprocess.run(words, capture_output=True, check=False, timeout=10).returncode != 0:
        assert time.monotonic() < end, "eth0 does not come back"


def start(cluster: Cluster, slots: int, counts: str, *words: str) -> subprocess.Popen[str]:
    """Starts the program with two interfaces for the ranks."""
    wait_for_first_interface(cluster)
    (cluster.tmp("alpha") / "over").unlink(missing_ok=True)
    argv = [hvdrun.program(), "-H", f"alpha:{slots},beta:{slots}", "--verbose", "--transport", "tcp", "--no-bind"]
    argv += ["--network-interfaces", "eth0,eth1", "--python", jobs.python(), *words, "/tmp/sums.py", "/tmp/over", counts]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return cluster.popen("alpha", argv, env=jobs.environment(), **pipes)


def sent_by(cluster: Cluster, interface: str) -> int:
    """Bytes that an interface of alpha has sent."""
    path = f"/proc/{cluster.init_pid('alpha')}/net/dev"
    with open(path, encoding="ascii") as lines:
        return next(int(line.split()[9]) for line in lines if line.strip().startswith(interface + ":"))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["cable", "interface", "filter"])
@pytest.mark.parametrize("way", [[], ["--encrypt-tensors"]], ids=["plain", "encrypted"])
@pytest.mark.parametrize(("slots", "counts"), [(1, SMALL), (1, ALL), (2, ALL)], ids=["small", "all", "all-2+2"])
def test_the_first_interface_goes(three_interfaces: Cluster, how: str, way: list[str], slots: int, counts: str) -> None:
    """All sums are right, and the job ends well."""
    job = start(three_interfaces, slots, counts, *way)
    pull = lambda state: set_interface(three_interfaces, how, "eth0", state)  # noqa: E731
    with jobs.pulled(job, pull, MOVED, 2 * slots) as (told, waited):
        (three_interfaces.tmp("alpha") / "over").touch()
        out, err = job.communicate(timeout=60)
    said = out + told + err
    assert job.returncode == 0, said
    assert out.count("well") == 2 * slots, said
    assert re.search(r"interface eth1 \(10 Gbit/s\) to rank \d \(10\.\d+\.0\.\d\) " + MOVED, told), said
    longest = max(float(n) for n in re.findall(r"well: ([\d.]+) s", out))
    print(f"{how}: told after {waited:.1f} s, the longest sum took {longest:.1f} s")
    assert longest < hvdrun.within(6), said


@pytest.mark.timeout(240)
def test_the_first_interface_returns_and_the_second_goes(three_interfaces: Cluster) -> None:
    """Large messages use the first interface again. The small ones move back to it, when the second is lost."""
    job = start(three_interfaces, 1, ALL)

    def cable(interface: str, state: str) -> None:
        set_interface(three_interfaces, "cable", interface, state)

    try:
        assert all("ready" in hvdrun.read_line(job.stdout) for _ in range(2))
        cable("eth0", "down")
        # Waits for both messages. If a lane over eth0 survived, no message would later say that eth0 carries tensors again.
        awaited = {MOVED, "carries no tensors"}
        while awaited:
            line = hvdrun.read_line(job.stderr)
            assert line, job.communicate(timeout=30)
            awaited = {words for words in awaited if words not in line}
        cable("eth0", "up")
        jobs.line_with(job.stderr, "carries tensors again")
        before = sent_by(three_interfaces, "eth0")
        carries = lambda: sent_by(three_interfaces, "eth0") - before > 64 << 20  # noqa: E731
        wait_for(carries, hvdrun.within(10), "large messages over eth0")
        cable("eth1", "down")
        assert "eth0" in jobs.line_with(job.stderr, MOVED)
        (three_interfaces.tmp("alpha") / "over").touch()
        out, err = job.communicate(timeout=60)
    finally:
        cable("eth0", "up")
        cable("eth1", "up")
        job.kill()
        job.wait(10)
    assert job.returncode == 0, out + err
    assert out.count("well") == 2, out + err


@pytest.mark.timeout(240)
def test_both_interfaces_go(three_interfaces: Cluster) -> None:
    """The peer is lost within a bounded time, and the message says why."""
    job = start(three_interfaces, 1, SMALL)

    def pull(state: str) -> None:
        for interface in ("eth0", "eth1"):
            set_interface(three_interfaces, "cable", interface, state)

    with jobs.pulled(job, pull, "is gone: ") as (told, waited):
        out, err = job.communicate(timeout=60)
    said = out + told + err
    assert job.returncode != 0, said
    assert re.search(r"rank \d \(10\.\d+\.0\.\d\) is gone: its connection: .*, and rank \d .*cannot be reached: ", said), said
    assert waited < 15 + 15 * hvdrun.patience(), said
