"""--encrypt-tensors: the bridge is recorded.  The tensors' content is found there without the option, and not with it.
If tensors could only travel in clear, the job is refused."""

from __future__ import annotations

import re
import secrets
import subprocess

import pytest

from netns import jobs
from netns.capture import Capture
from netns.cluster import Cluster
from netns.test_tcp import PROGRAM as SUMS
from support import hvdrun

# Each operation, small and large, carries its own mark: the bytes of eight integers, repeated.  Rank 0 adds zeros to them, so
# that partial and final sums are the marks too.
PROGRAM = """
import json, os, sys
import numpy as np, torch
import hvd.torch as hvd
hvd.init()
rank, marks = hvd.rank(), json.loads(os.environ["MARKS"])
def marked(what, times):
    mark = torch.from_numpy(np.frombuffer(bytes.fromhex(marks[what]), np.int64).copy()).repeat(times)
    return mark if rank == 1 else torch.zeros_like(mark)
for name, times in (("small", 1), ("middle", 500), ("large", 100_000)):
    sent = marked("allreduce", times)
    got = hvd.allreduce(sent, op=hvd.Sum, name="r." + name)
    assert rank == 0 or torch.equal(got, sent)
    got = hvd.allgather(marked("allgather", times), name="g." + name)
    assert len(got) == 16 * times
    got = hvd.broadcast(marked("broadcast", times), 1, name="b." + name)
    assert got.numpy().tobytes() == bytes.fromhex(marks["broadcast"]) * times
    hvd.alltoall(marked("alltoall", 2 * times), torch.tensor([8 * times, 8 * times], dtype=torch.int32), name="a." + name)
    hvd.reducescatter(marked("reducescatter", 2 * times), op=hvd.Sum, name="s." + name)
hvd.broadcast_object(marks["object"] if rank == 1 else None, 1)
# A gradient lies in registered memory, and is added up where it lies.
weight = torch.nn.Parameter(torch.zeros(800_000, dtype=torch.float64))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), named_parameters=[("w", weight)], op=hvd.Sum)
for step in range(2):
    optimizer.zero_grad()
    (weight * marked("gradient", 100_000).view(torch.float64)).sum().backward()
    optimizer.step()
assert weight.abs().max() > 0
print("well", flush=True)
"""
# Rank 1 sends, and then waits for nothing in which it takes part: rank 3 comes late to the sum.
ONE_BY_ONE = """
import time
import numpy as np
import hvd.numpy as hvd
hvd.init()
for round in range(20):
    sent = hvd.broadcast(np.full(200_000, hvd.rank(), np.float64), 1, name="sent")
    assert np.all(sent == 1)
    time.sleep(0.01)
    hvd.allreduce(np.ones(1, np.float32), op=hvd.Sum, name="sum")
print("well", flush=True)
"""
WORDS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "object", "gradient")


def run(cluster: Cluster, hosts: str, program: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    for host in cluster.names:
        (cluster.tmp(host) / "program.py").write_text(program)
    argv = [hvdrun.program(), "-H", hosts, *words, "--verbose", "--python", jobs.python(), "/tmp/program.py", "3"]
    return cluster.run("alpha", argv, env=jobs.environment(**env), timeout=150)


def numbers() -> bytes:
    """Eight numbers that are finite as doubles too, and that an addition of 0 does not change."""
    return b"".join(secrets.token_bytes(6) + b"\xe0\x3f" for _ in range(8))


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.timeout(240)
def test_tensors_on_the_wire(two_hosts: Cluster, encrypted: bool) -> None:
    marks = {word: numbers() for word in WORDS}
    texts = {word: mark.hex() for word, mark in marks.items()}
    told = "{" + ", ".join(f'"{word}": "{text}"' for word, text in texts.items()) + "}"
    with Capture(two_hosts) as wire:
        words = ["--encrypt-tensors"] if encrypted else []
        done = run(two_hosts, "alpha:1,beta:1", PROGRAM, *words, MARKS=told)
    assert done.returncode == 0 and done.stdout.count("well") == 2, done.stdout + done.stderr
    assert ("and all is encrypted" in done.stderr) == encrypted, done.stderr
    for word, mark in marks.items():
        found = wire.find(mark) or wire.find(texts[word].encode())
        assert bool(found) != encrypted, f"{word}: {found}"


@pytest.mark.parametrize("hosts", ["alpha:1,beta:1,gamma:1", "alpha:2,beta:2"])
@pytest.mark.timeout(180)
def test_sums_are_right(three_hosts: Cluster, hosts: str) -> None:
    done = run(three_hosts, hosts, SUMS, "--encrypt-tensors")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("well") == sum(int(n) for n in re.findall(r":(\d)", hosts)), done.stdout + done.stderr


@pytest.mark.timeout(240)
def test_the_end_of_a_message_leaves(two_hosts: Cluster) -> None:
    """If the kernel accepts few bytes at once, the end of an encrypted message still lies in the rank's buffer when its
    operation ends. The engine must send these bytes even if the rank has no further work and is not the leader of its node."""
    usual = two_hosts.run("alpha", ["sysctl", "-n", "net.ipv4.tcp_wmem"]).stdout.strip()
    for host in two_hosts.names:
        two_hosts.run(host, ["sysctl", "-qw", "net.ipv4.tcp_wmem=4096 16384 16384"])
    try:
        done = run(two_hosts, "alpha:2,beta:2", ONE_BY_ONE, "--encrypt-tensors")
    finally:
        for host in two_hosts.names:
            two_hosts.run(host, ["sysctl", "-qw", f"net.ipv4.tcp_wmem={usual}"])
    assert done.returncode == 0 and done.stdout.count("well") == 4, done.stdout + done.stderr


UNLIKE = "import os\nos.environ['HVD_ENCRYPT_TENSORS'] = os.environ['HOROVOD_RANK']\nimport hvd.numpy as hvd\nhvd.init()"


@pytest.mark.parametrize(
    ("program", "words", "env", "sentence"),
    [
        (SUMS, ["--transport", "mpi"], {}, r"MPI would carry tensors between hosts in clear \(--transport mpi\)"),
        (SUMS, [], {"HOROVOD_CPU_OPERATIONS": "MPI"}, r"in clear \(HOROVOD_CPU_OPERATIONS=MPI on rank 0\)"),
        (UNLIKE, [], {}, r"HVD_ENCRYPT_TENSORS: rank \d has '\d', rank \d has '\d' .set it alike"),
    ],
    ids=["--transport mpi", "HOROVOD_CPU_OPERATIONS", "ranks unlike"],
)
@pytest.mark.timeout(120)
def test_it_is_refused(two_hosts: Cluster, program: str, words: list[str], env: dict[str, str], sentence: str) -> None:
    done = run(two_hosts, "alpha:1,beta:1", program, "--encrypt-tensors", *words, **env)
    assert done.returncode != 0 and "well" not in done.stdout, done.stdout + done.stderr
    assert re.search(sentence, done.stdout + done.stderr), done.stdout + done.stderr


@pytest.mark.timeout(120)
def test_hosts_that_cannot_connect_get_no_mpi_in_its_place(two_hosts: Cluster) -> None:
    """auto would choose MPI, which carries tensors in clear."""
    done = run(two_hosts, "alpha:1,beta:1", SUMS, "--encrypt-tensors", "--network-interfaces", "lo")
    assert done.returncode != 0 and "well" not in done.stdout, done.stdout + done.stderr
    assert "hosts cannot connect to one another" in done.stderr and "MPI would carry" in done.stderr, done.stderr


@pytest.mark.timeout(120)
def test_a_job_that_hvdrun_has_not_started(two_hosts: Cluster) -> None:
    """MPI would carry its key in clear."""
    for host in two_hosts.names:
        (two_hosts.tmp(host) / "program.py").write_text(SUMS)
    argv = ["mpirun", "--allow-run-as-root", "-np", "2", "-H", "alpha:1,beta:1", "-x", "PYTHONPATH"]
    argv += ["-x", "HVD_ENCRYPT_TENSORS=1", jobs.python(), "/tmp/program.py", "3"]
    done = two_hosts.run("alpha", argv, env=jobs.environment(), timeout=100)
    assert done.returncode != 0 and "well" not in done.stdout, done.stdout + done.stderr
    assert "since hvdrun has not started this job" in done.stderr, done.stdout + done.stderr
    done = run(two_hosts, "alpha:2", SUMS, "--encrypt-tensors", "--transport", "mpi")
    assert done.returncode == 0 and done.stdout.count("well") == 2, done.stdout + done.stderr  # one host: no network
