"""A script of torch.distributed over several hosts."""

from __future__ import annotations

import pytest

from netns import jobs
from netns.cluster import Cluster
from support import hvdrun

SCRIPT = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
sum = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(sum)
print("sum", sum.tolist(), "group", os.environ["GROUP_RANK"], "meets at", os.environ["MASTER_ADDR"], flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("first", ["alpha", "beta"])
def test_ranks_of_two_hosts_meet(two_hosts: Cluster, first: str) -> None:
    """Where rank 0 is hvdrun's neighbour, and where it is on the other host."""
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
