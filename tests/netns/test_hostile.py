"""Strangers on the network of a job: their data is dropped unread, and the job is not affected."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import time

import pytest

from netns import jobs, slowdown
from netns.capture import Capture
from netns.cluster import Cluster, wait_for
from support import hvdrun

HERE = pathlib.Path(__file__).resolve().parent
SEED = int(os.environ.get("HVD_TEST_SEED", str(time.time_ns() % 10**6)))
MOST_GROWTH_BYTES = 16 << 20

# Trains a number of steps, prints the results and the time; then continues until rank 0 sees the file.
TRAINING = """
import hashlib, os, sys, time
import numpy as np
import hvd.numpy as hvd
hvd.init()
weights, random = np.zeros(1 << 16, np.float32), np.random.default_rng(hvd.rank())
def step():
    global weights
    weights = weights + hvd.allreduce(random.standard_normal(1 << 16, np.float32), name="gradient")
for _ in range(20): step()
print("ready", hvd.rank(), flush=True)
time.sleep(float(sys.argv[2]))
begin = time.monotonic()
for _ in range(int(sys.argv[1])): step()
print("result", hashlib.sha256(weights.tobytes()).hexdigest(), f"{time.monotonic() - begin:.3f}", flush=True)
while not hvd.broadcast(np.array([os.path.exists("/tmp/over")]), 0, name="over")[0]: step()
"""


@dataclasses.dataclass
class Outcome:
    """The results of one run of TRAINING."""

    digests: set[str]
    seconds: float
    growth_bytes: dict[str, int]
    stranger: dict[str, object]


def train(cluster: Cluster, mpirun: str, steps: int, hostile: list[str] | None) -> Outcome:
    """Two ranks on alpha and beta; with `hostile`, gamma's stranger connects from the moment they are ready."""
    (cluster.tmp("alpha") / "over").unlink(missing_ok=True)
    for host in ("alpha", "beta"):
        (cluster.tmp(host) / "training.py").write_text(TRAINING)
    chosen = ["--mpirun", mpirun] if mpirun else []
    argv = [hvdrun.program(), *chosen, "-H", "alpha:1,beta:1", "--python", jobs.python(), "/tmp/training.py"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    job = cluster.popen("alpha", [*argv, str(steps), "1"], env=jobs.environment(), stdin=subprocess.DEVNULL, **pipes)
    try:
        begin: list[str] = []
        while sum(" ready " in line for line in begin) < 2:
            begin.append(hvdrun.read_line(job.stdout))
            assert begin[-1], "".join(begin) + job.communicate(timeout=30)[1]
        before = sizes(cluster)
        stranger = None
        if hostile is not None:
            ports = [f"{cluster.address(h)}:{port}" for h in ("alpha", "beta") for _, port in jobs.listening(cluster, h)]
            assert ports, "the job listens nowhere"
            command = ["python3", str(HERE / "hostile.py"), *hostile[:4], ",".join(sorted(set(ports))), *hostile[4:]]
            stranger = cluster.popen("gamma", command, **pipes)
            told, wrong = stranger.communicate(timeout=400)
            assert stranger.returncode == 0, wrong
        largest = sizes(cluster)
        (cluster.tmp("alpha") / "over").touch()
        out, err = job.communicate(timeout=100)
        assert job.returncode == 0, out + err
    finally:
        job.kill()
        job.wait(10)
    lines = re.findall(r"result (\w+) ([\d.]+)", out)
    assert len(lines) == 2, out + err
    growth = {name: largest[name] - size for name, size in before.items() if name in largest}
    return Outcome(
        {digest for digest, _ in lines}, max(float(s) for _, s in lines), growth, json.loads(told) if stranger else {}
    )


def sizes(cluster: Cluster) -> dict[str, int]:
    """The memory of each process of the job, by host, pid and name."""
    found = {}
    for host in ("alpha", "beta"):
        for pid, line in cluster.processes(host).items():
            if any(word in line for word in ("hvdrun", "hvdrank", "mpirun", "orted", "prte", "training.py")):
                found[f"{host} {pid} {line.split()[0].rpartition('/')[2]}"] = jobs.resident_bytes(pid)
    return found


def recorded(cluster: Cluster, mpirun: str, steps: int) -> tuple[Outcome, list[str]]:
    """An undisturbed job, and files on gamma with every stream of it except ssh's, in each direction."""
    with Capture(cluster) as wire:
        outcome = train(cluster, mpirun, steps, None)
    paths = []
    for number, (flow, data) in enumerate(sorted(wire.streams.items(), key=lambda item: str(item[0]))):
        if jobs.SSH_PORT not in (flow[1], flow[3]) and flow[1] and number < 20:
            (cluster.tmp("gamma") / f"stream{number}").write_bytes(data[: 1 << 16])
            paths.append(f"/tmp/stream{number}")
    assert paths, "nothing was recorded"
    return outcome, paths


def attack(cluster: Cluster, mpirun: str, count: int, seconds: int, steps: int) -> None:
    """Runs the same job with and without strangers."""
    print(f"seed {SEED}")
    canary = f"/tmp/canary-{SEED}"
    in_peace, recordings = recorded(cluster, mpirun, steps)
    attacked = train(cluster, mpirun, steps, [str(SEED), str(count), str(seconds), canary, *recordings])
    slower = attacked.seconds / in_peace.seconds - 1
    print(f"{attacked.stranger}\nsteps took {in_peace.seconds:.2f} s, under attack {attacked.seconds:.2f} s ({slower:+.1%})")
    print("growth in MiB:", {name: round(size / (1 << 20), 1) for name, size in attacked.growth_bytes.items()})
    assert attacked.digests == in_peace.digests
    assert len(attacked.digests) == 1
    assert attacked.stranger["attempts"] == count
    assert attacked.stranger["made"] == 0, "a port of the job answered a stranger"
    assert attacked.growth_bytes
    for name, size in attacked.growth_bytes.items():
        assert size < MOST_GROWTH_BYTES, f"{name} grew by {size >> 20} MiB"
    for host in cluster.names:
        assert not (cluster.tmp(host) / pathlib.Path(canary).name).exists(), f"{host} ran what a stranger sent"


def test_strangers_change_nothing(three_hosts: Cluster) -> None:
    """Some hundreds of connections to every port on which a process of the job listens, during the training."""
    attack(three_hosts, "", count=300, seconds=60, steps=60)


def test_strangers_at_the_door(three_hosts: Cluster) -> None:
    """hvdrun's port is open while hvdrun waits for a host. It accepts the host, and no peer without the job's key."""
    print(f"seed {SEED}")
    slowly = [
        "--ssh-program",
        "sh -c 'until [ -e /tmp/open ]; do sleep 0.1; done; exec ssh \"$@\"' --",
        "--start-timeout",
        "90",
    ]
    (three_hosts.tmp("alpha") / "open").unlink(missing_ok=True)
    argv = [hvdrun.program(), *slowly, "-H", "alpha:1,beta:1", "--", "hostname"]
    job = three_hosts.popen("alpha", argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: ours(three_hosts), 60, "hvdrun's port")
        target = "10.77.0.1:" + str(ours(three_hosts)[0])
        command = ["python3", str(HERE / "hostile.py"), str(SEED), "300", "60", "/tmp/canary-door", target]
        done = three_hosts.run("gamma", command)
        told = json.loads(done.stdout)
        print(told)
        assert told["made"] > 50, done.stderr
        (three_hosts.tmp("alpha") / "open").touch()
        out, err = job.communicate(timeout=60)
    finally:
        job.kill()
        job.wait(10)
    assert job.returncode == 0, err
    assert sorted(line.split("] ")[1] for line in out.splitlines()) == ["alpha", "beta"]
    assert not any((three_hosts.tmp(host) / "canary-door").exists() for host in three_hosts.names)


HOLD = """
import socket, sys
held = [socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) for _ in range(500)]
print("held", flush=True)
sys.stdin.read()
"""


def test_silent_connections_do_not_end_a_job(three_hosts: Cluster) -> None:
    """More of them than hvdrun has descriptors, while its guards connect: the guards are accepted, and hvdrun answers
    queries.
    """
    slowly = "sh -c 'until [ -e /tmp/open ]; do sleep 0.1; done; exec ssh \"$@\"' --"
    (three_hosts.tmp("alpha") / "open").unlink(missing_ok=True)
    argv = [hvdrun.program(), "--ssh-program", slowly, "--start-timeout", "90", "-H", "alpha:1,beta:1", "--", "hostname"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    few = ["sh", "-c", 'ulimit -n 400; exec "$@"', "--"]
    job = three_hosts.popen("alpha", [*few, *argv], env=jobs.environment(), stdin=subprocess.DEVNULL, **pipes)
    strangers = None
    try:
        wait_for(lambda: ours(three_hosts), 60, "hvdrun's port")
        command = ["python3", "-c", HOLD, "10.77.0.1", str(ours(three_hosts)[0])]
        strangers = three_hosts.popen("gamma", command, stdin=subprocess.PIPE, **pipes)
        assert strangers.stdout is not None
        assert strangers.stdout.readline() == "held\n"
        listed = three_hosts.run("alpha", [hvdrun.program(), "ps"], env=jobs.environment()).stdout
        assert "silent" not in listed, listed
        assert "hostname" in listed, listed
        (three_hosts.tmp("alpha") / "open").touch()
        out, err = job.communicate(timeout=90)
        assert strangers.poll() is None
    finally:
        for process in (job, *filter(None, [strangers])):
            process.kill()
            process.wait(10)
    assert job.returncode == 0, err
    assert sorted(line.split("] ")[1] for line in out.splitlines()) == ["alpha", "beta"]


def ours(cluster: Cluster) -> list[int]:
    """The ports on which hvdrun itself listens on alpha."""
    sockets = jobs.listening(cluster, "alpha").items()
    owners = {port: jobs.owners(cluster, "alpha", inode) for (_, port), inode in sockets}
    return [port for port, lines in owners.items() if any(pathlib.Path(line.split()[0]).name == "hvdrun" for line in lines)]


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mpirun", hvdrun.mpiruns())
def test_ten_thousand_strangers_change_nothing(three_hosts: Cluster, mpirun: str) -> None:
    attack(three_hosts, mpirun, count=10_000, seconds=360, steps=1000)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mpirun", hvdrun.mpiruns())
def test_strangers_slow_nothing(three_hosts: Cluster, mpirun: str) -> None:
    """200 calls a second to the job's ports cost it as much as calls to other ports of this machine, and none gets through."""
    found = slowdown.measure(three_hosts, mpirun, turns=20, seconds=1.5, rate=200)
    print(slowdown.text(found))
    assert sum(found["made"]) == 0
    assert statistics.median(found["listeners"]) > statistics.median(found["nobody"]) / 1.5  # it was a third
