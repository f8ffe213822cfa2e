"""Elastic jobs over hosts: a host dies, is added, or is removed from the list."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time
from typing import Any

import pytest

from netns import bad_switch, jobs
from netns.cluster import Cluster
from support import hvdrun

PROGRAM = """
import os, sys, time
import numpy as np
import hvd.numpy as hvd
from hvd.elastic import ObjectState, broadcast_from_rank_0, run
hvd.init()

@run
def train(state):
    while not os.path.exists("/tmp/enough") if hvd.rank() == 0 else True:
        total = hvd.allreduce(np.ones(5), op=hvd.Sum, name="sum")
        assert total[0] == hvd.size()
        state.step += 1
        if hvd.rank() == 0:
            with open("/tmp/steps", "a") as file:
                file.write(f"{state.step} {hvd.size()} {os.environ['HOROVOD_SIZE']}\\n")
        time.sleep(0.02)
        state.commit()
        if broadcast_from_rank_0(os.path.exists("/tmp/enough")):
            return

train(ObjectState(broadcast_from_rank_0, hvd.rank, step=0))
print("well", flush=True)
"""


class ElasticRun:
    """hvdrun on alpha, and the progress of its rank 0 there."""

    def __init__(self, cluster: Cluster, *words: str) -> None:
        self.cluster = cluster
        for host in cluster.names:
            (cluster.tmp(host) / "train.py").write_text(PROGRAM)
        for left in ("steps", "enough"):  # from an earlier job of this cluster
            (cluster.tmp("alpha") / left).unlink(missing_ok=True)
        pipes: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
        }
        argv = [hvdrun.program(), *words, "--python", jobs.python(), "/tmp/train.py"]
        self.process = cluster.popen("alpha", argv, env=jobs.environment(), **pipes)

    def steps(self) -> list[list[str]]:
        path = pathlib.Path(self.cluster.tmp("alpha")) / "steps"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_size(self, size: int) -> None:
        def is_there() -> bool:
            assert self.process.poll() is None, self.process.communicate()
            steps = self.steps()
            return bool(steps) and steps[-1][1:] == [str(size), str(size)]

        hvdrun.wait_until(is_there, f"a world of {size}", 90)

    def end(self) -> tuple[str, str]:
        (pathlib.Path(self.cluster.tmp("alpha")) / "enough").touch()
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, out + err
        numbers = [int(step) for step, *_ in self.steps()]
        assert max(b - a for a, b in zip(numbers, numbers[1:])) == 1, "a step is missing"
        return out, err


# A rank's file in shared memory, as a killed rank leaves it before all others have opened it: hvd.MAKER.RANDOM.
LEFTOVER = """
import os, pathlib
start = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
maker = f"{os.getpid()}.{start}.{os.stat('/proc/self/ns/pid').st_ino}"
pathlib.Path(f"/dev/shm/hvd.{maker}.0123456789abcdef").write_bytes(bytes(8))
"""


def kill_all_of_the_job(cluster: Cluster, host: str) -> None:
    """Kills its processes on that host, at once."""
    for pid, line in cluster.processes(host).items():
        if "hvdrank" in line or "train.py" in line:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(240)
def test_a_host_dies(three_hosts: Cluster) -> None:
    """The next daemon there removes its ranks' files in shared memory."""
    job = ElasticRun(three_hosts, "-H", "alpha:1,beta:1,gamma:1", "--min-np", "1", "--start-timeout", "20")
    job.wait_for_size(3)
    three_hosts.run("gamma", [jobs.python(), "-c", LEFTOVER])
    shared = pathlib.Path(f"/proc/{three_hosts.init_pid('gamma')}/root/dev/shm")
    assert list(shared.glob("hvd.*.0123456789abcdef"))
    kill_all_of_the_job(three_hosts, "gamma")
    told = jobs.line_with(job.process.stderr, "3 → ")
    if "3 → 3 ranks" not in told:  # else the survivors were slow, and a replacement came to the same meeting
        assert "3 → 2 ranks" in told
        hvdrun.wait_until(lambda: any(step[1] == "2" for step in job.steps()), "a world of 2", 60)
        job.wait_for_size(3)  # its daemon starts again
    job.end()
    assert not list(shared.glob("hvd.*.0123456789abcdef"))


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_host_dies_in_a_bad_network(three_hosts: Cluster) -> None:
    """The network has a round trip of 200 ms, and loses 1 % of the packets."""
    with bad_switch.put_in(three_hosts, bad_switch.Faults(delay=0.1, loss=0.01)):
        job = ElasticRun(three_hosts, "-H", "alpha:1,beta:1,gamma:1", "--min-np", "1", "--start-timeout", "60")
        job.wait_for_size(3)
        kill_all_of_the_job(three_hosts, "gamma")
        hvdrun.wait_until(lambda: any(step[1] == "2" for step in job.steps()), "a world of 2", 60)
        _, err = job.end()
    assert "3 → 2 ranks" in err, err


@pytest.mark.timeout(240)
def test_a_host_is_unplugged_and_comes_back(three_hosts: Cluster) -> None:
    """While beta is unplugged, no process of the job stays there, and ssh starts none.  Then beta has ranks again."""
    again = ["--blacklist-cooldown-range", "1", "1"]
    job = ElasticRun(three_hosts, "-H", "alpha:1,beta:1", "--min-np", "1", "--start-timeout", "10", *again)
    job.wait_for_size(2)
    begun = time.monotonic()
    three_hosts.cable("beta", "down")
    try:
        job.wait_for_size(1)
        noticed = time.monotonic() - begun
        hvdrun.wait_until(lambda: not three_hosts.processes("beta"), "the end of daemon and shell", 30 * hvdrun.patience())
        said = ""
        while "has failed again" not in said:  # two attempts
            line = hvdrun.read_line(job.process.stderr)
            assert line, said
            said += line
        listed = json.loads(three_hosts.run("alpha", [hvdrun.program(), "ps", "--json"]).stdout)
        assert [(one["np"], one["hosts"]) for one in listed] == [(1, ["alpha"])], listed
    finally:
        three_hosts.cable("beta", "up")
    job.wait_for_size(2)
    err = said + job.end()[1]
    assert re.search(r"rank 1 \(10\.77\.0\.2\) has not answered for \d\.\d s", err), err
    told = re.search(r"epoch \d: 2 → 1 ranks \(alpha 1\), ([\d.]+) s after: rank 1 on beta is lost", err)
    assert told and abs(float(told[1]) - noticed) < hvdrun.within(5), (noticed, err)
    assert err.count("hvdrun: no worker comes up on beta: ") == 1, err
    why = r"did not come up within 10 s: (beta does not answer|there is no route to beta) \(ssh: "
    assert re.search(rf"slot 0 of beta has failed again: it is left alone for 1 s; the worker there is lost: {why}", err), err


@pytest.mark.timeout(240)
def test_hosts_are_added_and_removed(three_hosts: Cluster) -> None:
    tmp = pathlib.Path(three_hosts.tmp("alpha"))
    (tmp / "hosts").write_text("alpha:1\n")
    (tmp / "discover").write_text("#!/bin/sh\ncat /tmp/hosts\n")
    (tmp / "discover").chmod(0o755)
    job = ElasticRun(three_hosts, "-np", "1", "--min-np", "1", "--host-discovery-script", "/tmp/discover")
    job.wait_for_size(1)
    (tmp / "hosts").write_text("alpha:1\nbeta:2\n")
    job.wait_for_size(3)
    for nonsense in ("", "be ta:x:y\n"):
        (tmp / "hosts").write_text(nonsense)
    (tmp / "hosts").write_text("alpha:1\n")
    job.wait_for_size(1)
    _, err = job.end()
    assert "1 → 3 ranks (alpha 1, beta 2)" in err, err
    assert "3 → 1 ranks (alpha 1)" in err, err
