"""A script of torch.distributed over several hosts."""

from __future__ import annotations

import subprocess

import pytest

from netns import jobs
from netns.cluster import Cluster
from support import hvdrun

SCRIPT = """
import os, socket, torch, torch.distributed as dist
port = int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    try:  # a program that does not share ports
        socket.socket().bind(("", port))
        print("the port is free", flush=True)
    except OSError:
        print("the port is held", flush=True)
dist.init_process_group("gloo")
sum = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(sum)
print("sum", sum.tolist(), "group", os.environ["GROUP_RANK"], "meets at", os.environ["MASTER_ADDR"], flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("first", ["alpha", "beta"])
def test_ranks_of_two_hosts_meet(two_hosts: Cluster, first: str) -> None:
    """Rank 0 is on hvdrun's own host, or on the other one."""
    pytest.importorskip("torch")
    second = {"alpha": "beta", "beta": "alpha"}[first]
    script = two_hosts.tmp("alpha") / "job.py"
    for host in (first, second):
        (two_hosts.tmp(host) / "job.py").write_text(SCRIPT)
    argv = [hvdrun.program(), "-H", f"{first}:1,{second}:1", *hvdrun.python_args(), "/tmp/job.py"]
    done = two_hosts.run("alpha", argv, env=jobs.environment(), timeout=120)
    script.unlink()
    (two_hosts.tmp("beta") / "job.py").unlink()
    assert done.returncode == 0, done.stderr
    address = {"alpha": "10.77.0.1", "beta": "10.77.0.2"}[first]
    for rank, host in enumerate((first, second)):
        assert f"[{rank} {host}] sum [3.0, 3.0, 3.0] group {rank} meets at {address}" in done.stdout, done.stdout
    assert f"[0 {first}] the port is held" in done.stdout, done.stdout


MISMATCH = """
import torch, torch.distributed as dist, hvd.torch
dist.init_process_group("hvd")
if dist.get_rank():
    dist.barrier()
else:
    dist.all_reduce(torch.ones(3))
"""


def test_ranks_of_two_hosts_disagree(two_hosts: Cluster) -> None:
    """Each host's guard tells its rank's call."""
    pytest.importorskip("torch")
    scripts = [two_hosts.tmp(host) / "job.py" for host in ("alpha", "beta")]
    begin = (hvdrun.ROOT / "tests/support/fails_together.py").read_text()
    for script in scripts:
        script.write_text(begin + MISMATCH)
    argv = [hvdrun.program(), "-H", "alpha:1,beta:1", *hvdrun.python_args(), "/tmp/job.py"]
    done = two_hosts.run("alpha", argv, env=jobs.environment(), timeout=120)
    for script in scripts:
        script.unlink()
    assert done.returncode == 1, done.stderr
    line = begin.count("\n")
    assert f"        rank 0 called torch.distributed.all_reduce at job.py:{line + 7}\n" in done.stderr, done.stderr
    assert f"        rank 1 called torch.distributed.barrier at job.py:{line + 5}\n" in done.stderr, done.stderr


HVD_SCRIPT = """
import numpy as np, hvd.numpy as hvd
hvd.init()
print("rank", hvd.rank(), "of", hvd.size(), hvd.local_size(), hvd.cross_size(), hvd.allreduce(np.ones(2**20), op=hvd.Sum)[-1])
"""


def torchrun(hosts: Cluster, host: str, node: int, **env: str) -> subprocess.Popen[str]:
    """torchrun's process on one host, with one rank of HVD_SCRIPT."""
    (hosts.tmp(host) / "job.py").write_text(HVD_SCRIPT)
    options = ["--nnodes=2", f"--node-rank={node}", "--nproc-per-node=1", "--master-addr=10.77.0.1", "--master-port=29511"]
    argv = [jobs.python(), "-m", "torch.distributed.run", *options, "/tmp/job.py"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process: subprocess.Popen[str] = hosts.popen(host, argv, env=jobs.environment(**env), **pipes)
    return process


def test_torchrun_on_two_hosts_starts_one_world_of_hvd(two_hosts: Cluster) -> None:
    """Without hvdrun, the key that authenticates ranks comes from torchrun's store. Encryption with such a key is refused."""
    pytest.importorskip("torch")
    for variables in ({}, {"HVD_ENCRYPT_TENSORS": "1"}):
        nodes = [torchrun(two_hosts, host, node, **variables) for node, host in enumerate(("alpha", "beta"))]
        said = [node.communicate(timeout=150) for node in nodes]
        if variables:
            assert all("starts with" not in out and "hvdrun --encrypt-tensors" in errors for out, errors in said), said
        else:
            assert [out for out, _ in said] == [f"rank {rank} of 2 1 2 2.0\n" for rank in range(2)], said
