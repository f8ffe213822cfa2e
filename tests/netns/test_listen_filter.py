"""MPI's ports in the ranks: open to the job's hosts, from any of their addresses, and closed to others."""

from __future__ import annotations

import json
import subprocess

import pytest

from netns import jobs
from netns.cluster import Cluster
from support import hvdrun

JOB = """
import os, time
import numpy as np
import hvd.numpy as hvd
hvd.init()
print("ready", flush=True)
while not hvd.broadcast(np.array([os.path.exists("/tmp/over")]), 0, name="over")[0]: time.sleep(0.01)
assert hvd.allreduce(np.ones(1 << 18), op=hvd.Sum, name="sum")[0] == 2
"""
# Tries each given address and port, all at once; prints those that answer.
KNOCK = """
import asyncio, json, sys
async def knock(host, port):
    try:
        (await asyncio.wait_for(asyncio.open_connection(host, port), 0.5))[1].close()
    except (OSError, asyncio.TimeoutError): return []
    return [[host, port]]
async def main():
    print(json.dumps(sum(await asyncio.gather(*(knock(*door) for door in json.loads(sys.argv[1]))), [])))
asyncio.run(main())
"""
OTHER_ADDRESSES = {"alpha": ("10.78.0.1", "fd77::1"), "beta": ("10.78.0.2", "fd77::2"), "gamma": ("10.78.0.3", "fd77::3")}
PATHS = {
    "second network": {"OMPI_MCA_btl_tcp_if_include": "10.78.0.0/24"},
    "IPv6": {"OMPI_MCA_btl_tcp_disable_family": "4"},
}


@pytest.fixture(scope="module")
def hosts(three_hosts: Cluster) -> Cluster:
    """Each has a second IPv4 address, in a separate network, and one of IPv6."""
    for host, (four, six) in OTHER_ADDRESSES.items():
        three_hosts.run(host, ["ip", "addr", "add", f"{four}/24", "dev", "eth0"])
        three_hosts.run(host, ["ip", "addr", "add", f"{six}/64", "dev", "eth0", "nodad"])
    return three_hosts


def answering(hosts: Cluster, mpirun: str, **variables: str) -> list[list[object]]:
    """The ports of a job on alpha and beta on which gamma gets an answer."""
    (hosts.tmp("alpha") / "over").unlink(missing_ok=True)
    for host in ("alpha", "beta"):
        (hosts.tmp(host) / "job.py").write_text(JOB)
    argv = [hvdrun.program(), *(["--mpirun", mpirun] if mpirun else []), "-H", "alpha:1,beta:1"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    job = hosts.popen("alpha", [*argv, "--python", jobs.python(), "/tmp/job.py"], env=jobs.environment(**variables), **pipes)
    try:
        begin = [hvdrun.read_line(job.stdout) for _ in range(2)]
        assert all("ready" in line for line in begin), "".join(begin) + job.communicate(timeout=30)[1]
        targets = [
            (address, port)
            for host in ("alpha", "beta")
            for address in (hosts.address(host), *OTHER_ADDRESSES[host])
            for port in sorted({port for _, port in jobs.listening(hosts, host)})
        ]
        assert targets, "the job listens nowhere"
        told = hosts.run("gamma", ["python3", "-c", KNOCK, json.dumps(targets)])
        (hosts.tmp("alpha") / "over").touch()
        out, err = job.communicate(timeout=60)
        assert job.returncode == 0, out + err
    finally:
        job.kill()
        job.wait(10)
    return list(json.loads(told.stdout))


def test_hosts_meet_by_another_address(hosts: Cluster) -> None:
    """The tensors take IPv6; gamma's packets to the same ports are dropped."""
    assert answering(hosts, "", **PATHS["IPv6"]) == []


@pytest.mark.nightly
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("mpirun", hvdrun.mpiruns())
def test_hosts_meet_by_other_addresses_with_each_mpi(hosts: Cluster, mpirun: str, path: str) -> None:
    """No port answers a stranger when hosts meet over other addresses or a second network. With HVD_FILTER_PEERS=0 the ports
    answer."""
    assert answering(hosts, mpirun, **PATHS[path]) == []
    assert answering(hosts, mpirun, **PATHS[path], HVD_FILTER_PEERS="0") != []
