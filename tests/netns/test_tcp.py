"""Tensors over our own TCP connections: right sums over two and three hosts, without effect of strangers."""

from __future__ import annotations

import json
import re
import subprocess
import time

import pytest

from netns import bad_switch, jobs
from netns.bad_switch import Faults
from netns.cluster import Cluster
from support import hvdrun

# Sums that are exact in float32, with sizes for one message, for slices, and for several in one batch.  The argument is the
# number of rounds, or a file of rank 0's host that ends them.
PROGRAM = """
import itertools, os, sys, time
import numpy as np
import hvd.numpy as hvd
hvd.init()
total = hvd.size() * (hvd.size() + 1) // 2
def is_over(round):
    if sys.argv[1].isdigit(): return round == int(sys.argv[1])
    return hvd.broadcast(np.array([os.path.exists(sys.argv[1])]), 0, name="over")[0]
print("ready", flush=True)
for round in itertools.count():
    if is_over(round): break
    for elements in (1, 1000, 9000, 300_000, 3_000_001):
        base = np.arange(elements, dtype=np.float32) % 13
        got = hvd.allreduce(base * (hvd.rank() + 1), op=hvd.Sum, name=f"sum.{elements}")
        assert np.array_equal(got, base * total), elements
    many = [np.full(1000, i + hvd.rank(), np.float32) for i in range(50)]
    got = hvd.grouped_allreduce(many, op=hvd.Sum, name="many")
    assert all(np.all(t == i * hvd.size() + total - hvd.size()) for i, t in enumerate(got))
    rows = hvd.allgather(np.full((hvd.rank() + 1, 40_000), hvd.rank(), np.float32), name="rows")
    assert rows.shape == (total, 40_000) and rows[-1, -1] == hvd.size() - 1
    sent = hvd.broadcast(np.arange(200_000.0) if hvd.rank() == 1 else np.zeros(200_000), 1, name="sent")
    assert sent[-1] == 199_999
    time.sleep(0.02 * (round % 3))
print("well", flush=True)
"""
# Connects to all ports repeatedly: sends nothing, rubbish, or a TLS greeting without a key.
CALLER = """
import json, socket, ssl, sys, time
end, calls = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < end:
    for host, port in json.loads(sys.argv[2]):
        try:
            line = socket.create_connection((host, port), timeout=0.2)
            calls += 1
            if calls % 3 == 0: line.sendall(b"\\0" * 5000)
            if calls % 3 == 1:
                context = ssl._create_unverified_context()
                context.wrap_socket(line)
        except OSError: pass
    time.sleep(0.01)
print(calls)
"""
# alpha's rank waits for a file there: beta's port is open to all meanwhile.
LATE = """
import os, time
while os.uname().nodename == "alpha" and not os.path.exists("/tmp/open"): time.sleep(0.05)
"""
# Runs as the user "nobody": holds 300 silent connections, and opens further ones, until stdin is closed.
SILENT = """
import os, select, socket, sys
os.setuid(65534)
call = lambda: socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
held = [call() for _ in range(300)]
print("held", flush=True)
made = 0
while not select.select([0], [], [], 0.005)[0]:
    try: held[-1 - made % 50] = call()
    except OSError: pass
    made += 1
"""


def run(
    cluster: Cluster, hosts: str, rounds: int | str, *words: str, program: str = PROGRAM, **env: str
) -> subprocess.Popen[str]:
    """Starts the program on the hosts, with these words for hvdrun and variables for all."""
    (cluster.tmp("alpha") / "over").unlink(missing_ok=True)
    for host in cluster.names:
        (cluster.tmp(host) / "sums.py").write_text(program)
    argv = [hvdrun.program(), "-H", hosts, *words, "--verbose", "--python", jobs.python()]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return cluster.popen("alpha", [*argv, "/tmp/sums.py", str(rounds)], env=jobs.environment(**env), **pipes)


def check(out: str, err: str, code: int | None, ranks: int) -> None:
    """All ranks have found the right sums, over TCP."""
    assert code == 0, out + err
    assert out.count("well") == ranks, out + err
    assert re.search(r"tensors travel by TCP .*connections prove the job's key", out + err), out + err


@pytest.mark.parametrize("hosts", ["alpha:1,beta:1,gamma:1", "alpha:2,beta:2", "alpha:2,beta:1,gamma:1"])
@pytest.mark.timeout(180)
def test_sums_are_right(three_hosts: Cluster, hosts: str) -> None:
    job = run(three_hosts, hosts, 3, "--transport", "tcp")
    out, err = job.communicate(timeout=120)
    check(out, err, job.returncode, sum(int(n) for n in re.findall(r":(\d)", hosts)))


@pytest.mark.timeout(180)
def test_who_calls_without_the_key_changes_nothing(three_hosts: Cluster) -> None:
    """A host of the job may connect to the ranks' ports; gamma, outside of the job, gets no answer."""
    job = run(three_hosts, "alpha:1,beta:1", "/tmp/over")  # auto
    try:
        lines = [hvdrun.read_line(job.stdout) for _ in range(2)]
        assert all("ready" in line for line in lines), "".join(lines) + job.communicate(timeout=30)[1]
        ports = [[three_hosts.address(h), port] for h in ("alpha", "beta") for _, port in jobs.listening(three_hosts, h)]
        made = {}
        for host in ("beta", "gamma"):
            told = three_hosts.run(host, ["python3", "-c", CALLER, "1.5", json.dumps(ports)], timeout=60)
            made[host] = int(told.stdout)
        (three_hosts.tmp("alpha") / "over").touch()
        out, err = job.communicate(timeout=120)
    finally:
        job.kill()
        job.wait(10)
    check(out, err, job.returncode, 2)
    assert made["beta"] > 0
    assert made["gamma"] == 0


def port_of_rank(cluster: Cluster, host: str) -> int:
    """The TCP port of the only rank there; 0 while there is none."""
    for (_, port), inode in jobs.listening(cluster, host).items():
        if any("sums.py" in line and "hvdrun" not in line.split()[0] for line in jobs.owners(cluster, host, inode)):
            return port
    return 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("way", [[], ["--encrypt-tensors"]], ids=["plain", "encrypted"])
def test_silent_connections_do_not_choose_what_tensors_travel_by(three_hosts: Cluster, way: list[str]) -> None:
    """A rank's port gets 900 silent connections before the ranks meet: from another host, and from other users of its hosts."""
    (three_hosts.tmp("alpha") / "open").unlink(missing_ok=True)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    job = run(three_hosts, "alpha:1,beta:1", 3, *way, program=LATE + PROGRAM)
    strangers = []
    try:
        port = hvdrun.wait_until(lambda: port_of_rank(three_hosts, "beta"), "the port of rank 1")
        for host in three_hosts.names:
            command = ["python3", "-c", SILENT, three_hosts.address("beta"), str(port)]
            strangers.append(three_hosts.popen(host, command, **pipes))
        assert all(hvdrun.next_line(stranger.stdout) == "held\n" for stranger in strangers)
        begin = time.monotonic()
        (three_hosts.tmp("alpha") / "open").touch()
        out, err = job.communicate(timeout=120)
        seconds = time.monotonic() - begin
    finally:
        for process in (job, *strangers):
            process.kill()
            process.wait(10)
    check(out, err, job.returncode, 2)
    assert seconds < hvdrun.within(20), out + err


@pytest.mark.timeout(180)
def test_a_link_that_is_gone_for_5_seconds(two_hosts: Cluster) -> None:
    """The job continues, and has named the silent rank within 3 s."""
    job = run(two_hosts, "alpha:1,beta:1", "/tmp/over")
    with jobs.pulled(job, lambda state: two_hosts.cable("beta", state), "has not answered") as (told, waited):
        time.sleep(max(0.0, 5 - waited))
        two_hosts.cable("beta", "up")
        (two_hosts.tmp("alpha") / "over").touch()
        out, err = job.communicate(timeout=120)
    assert job.returncode == 0, out + told + err
    assert out.count("well") == 2, out + told + err
    assert re.search(r"rank 1 \(10\.77\.0\.2\) has not answered for \d\.\d s", told), told
    assert waited < hvdrun.within(3), told


@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", [[], ["--encrypt-tensors"]], ids=["plain", "encrypted"])
@pytest.mark.parametrize(
    "faults", [Faults(delay=0.05), Faults(loss=0.01), Faults(delay=0.005, loss=0.01, swap=0.02)], ids=["far", "lossy", "both"]
)
def test_sums_are_right_over_a_bad_network(two_hosts: Cluster, faults: Faults, way: list[str]) -> None:
    """Delay, lost packets and overtaking packets slow the job down, but the sums are right, and no host is blamed."""
    with bad_switch.put_in(two_hosts, faults):
        job = run(two_hosts, "alpha:1,beta:1", 1, "--transport", "tcp", *way)
        out, err = job.communicate(timeout=200)
    check(out, err, job.returncode, 2)
    far = re.search(r"between hosts a round trip takes (\S+) ms: exchanges are planned for that", out + err)
    if faults.delay:
        assert far, out + err
        assert 2e3 * faults.delay <= float(far.group(1)), far.group(0)


@pytest.mark.timeout(180)
def test_no_mpi_is_needed(three_hosts: Cluster) -> None:
    """Jobs run on hosts on which neither Open MPI nor PMIx can be loaded."""
    for host in three_hosts.names:
        for name in ("libpmix.so.2", "libmpi.so.40"):
            (three_hosts.tmp(host) / name).touch()  # the loader finds it first
    try:
        for hosts in ("alpha:1,beta:1,gamma:1", "alpha:2,beta:2"):
            job = run(three_hosts, hosts, 2, LD_LIBRARY_PATH="/tmp", HVD_MPIRUN="")
            out, err = job.communicate(timeout=120)
            check(out, err, job.returncode, sum(int(n) for n in re.findall(r":(\d)", hosts)))
    finally:
        for host in three_hosts.names:
            for name in ("libpmix.so.2", "libmpi.so.40"):
                (three_hosts.tmp(host) / name).unlink()
