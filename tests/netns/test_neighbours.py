"""Another user on the hosts of a job; and the visibility of one host on the network."""

from __future__ import annotations

import json
import os
import pathlib
import secrets
import select
import signal
import subprocess
import time

import pytest

from netns import jobs, open_ports
from netns.cluster import Cluster, wait_for
from support import hvdrun

HERE = pathlib.Path(__file__).resolve().parent
UID = 54321
JOB = """
import os, sys, time
import numpy as np
import hvd.numpy as hvd
hvd.init()
assert os.environ["SECRET_OF_THE_USER"]
for step in range(20): hvd.allreduce(np.ones(1000), name="t")
print("up", flush=True)
HOLD
"""
# The job continues until the intruder has made some more rounds.
ROUNDS = """
looks = lambda: int(open("/tmp/lair/rounds").read() or 0)
enough, limit = looks() + 4, time.monotonic() + 60
while looks() < enough and time.monotonic() < limit: time.sleep(0.1)
"""
# Prints how a port treats a stranger: "ends" (closes the connection), "answers" or "stays". Fails if no connection is possible.
PROBE = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 1) as stranger:
    stranger.settimeout(1)
    try: print("ends" if stranger.recv(1) == b"" else "answers")
    except TimeoutError: print("stays")
    except OSError: print("ends")
"""
# Runs a program with the secret in its environment. No command line on the way contains the secret.
WITH_SECRET = ["sh", "-c", '. /tmp/secret.sh && exec "$@"', "sh"]
pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def clear(cluster: Cluster, host: str) -> None:
    """Removes the intruder's files, recognised by their owner, and our own.  No others: a checkout in /tmp is visible here."""
    theirs = ["find", "/tmp", "/dev/shm", "-xdev", "-mindepth", "1", "-maxdepth", "1", "-uid", str(UID)]
    cluster.run(host, [*theirs, "-exec", "rm", "-rf", "--one-file-system", "{}", "+"])
    cluster.run(host, ["rm", "-rf", "--one-file-system", "/tmp/output", "/tmp/job.py", "/tmp/secret.sh"])


@pytest.mark.parametrize("mpirun", hvdrun.mpiruns())
@pytest.mark.parametrize("where", ["two hosts", "one host"])
def test_another_user_reads_and_writes_nothing(two_hosts: Cluster, mpirun: str, where: str) -> None:
    """An intruder on each host tries files, shared memory, processes, sockets, names made beforehand, and every TCP and UDP
    port. The intruder runs from before the job's first process to the job's end."""
    secret = secrets.token_hex(20)
    alone = where == "one host"
    for host in two_hosts.names:
        (two_hosts.tmp(host) / "job.py").write_text(JOB.replace("HOLD", ROUNDS))
        (two_hosts.tmp(host) / "secret.sh").touch(mode=0o600)
        (two_hosts.tmp(host) / "secret.sh").write_text(f"export SECRET_OF_THE_USER={secret}\n")
    intruders = {
        host: two_hosts.popen(
            host,
            ["python3", str(HERE / "intruder.py"), str(UID), secret],
            stdin=subprocess.PIPE,
            **pipes,
        )
        for host in two_hosts.names[: 1 if alone else 2]
    }
    try:
        for process in intruders.values():
            assert hvdrun.read_line(process.stdout) == "ready\n"
        argv = [
            hvdrun.program(),
            "--mpirun",
            mpirun,
            "-H",
            "alpha:4" if alone else "alpha:2,beta:2",
            "--output-filename",
            "/tmp/output",
        ]
        done = two_hosts.run(
            "alpha",
            [*WITH_SECRET, *argv, "--python", jobs.python(), "/tmp/job.py"],
            env=jobs.environment(),
            timeout=90,
        )
        told = {host: json.loads(process.communicate("over", timeout=30)[0]) for host, process in intruders.items()}
    finally:
        for process in intruders.values():
            process.kill()
            process.wait(10)
        for host in two_hosts.names:
            clear(two_hosts, host)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" up\n") == 4
    for host, report in told.items():
        print(host, report)
        assert report["rounds"] > 3
        assert report["tries"] > 20
        assert report["knocks"] > 0
        for deed in ("read", "written", "listed", "spoke", "answered", "planted"):
            assert report[deed] == [], f"{host}: another user's {deed}: {report[deed]}"


@pytest.mark.parametrize("launcher", ["hvdrun", "mpirun"])
@pytest.mark.parametrize("mpirun", hvdrun.mpiruns())
def test_one_host_shows_nothing_to_the_network(two_hosts: Cluster, mpirun: str, launcher: str) -> None:
    """mpirun's ports accept this host only; the PMIx port of our daemon, on loopback, accepts nobody; ranks have no port."""
    (two_hosts.tmp("alpha") / "job.py").write_text(JOB.replace("HOLD", "time.sleep(100)"))
    argv = [hvdrun.program(), "--launcher", launcher, "--mpirun", mpirun, "-np", "2", "--python", jobs.python(), "/tmp/job.py"]
    job = two_hosts.popen("alpha", argv, env=jobs.environment(SECRET_OF_THE_USER="x"), stdin=subprocess.DEVNULL, **pipes)
    try:
        lines = [hvdrun.read_line(job.stdout) for _ in range(2)]
        assert [line.endswith("up\n") for line in lines] == [True, True], lines
        for (address, port), inode in jobs.listening(two_hosts, "alpha").items():
            holders = [line.split()[0].rpartition("/")[2] for line in jobs.owners(two_hosts, "alpha", inode)]
            expected = {"hvdrank"} if launcher == "hvdrun" else {"mpirun", "prterun", "prte"}
            assert set(holders) <= expected, f"{holders} listen on {address}:{port}"
            from_beta = two_hosts.run("beta", ["python3", "-c", PROBE, "10.77.0.1", str(port)])
            assert from_beta.returncode != 0, f"beta reaches {holders} at {address}:{port}"
            inside = two_hosts.run("alpha", ["python3", "-c", PROBE, "localhost", str(port)])
            assert (inside.stdout.strip() == "stays") == (launcher == "mpirun"), inside.stdout + inside.stderr
    finally:
        two_hosts.signal(job, signal.SIGTERM)
        job.communicate(timeout=30)
    wait_for(lambda: not two_hosts.processes("alpha"), 60, "the end of the job")


@pytest.mark.parametrize("mpirun", hvdrun.mpiruns())
def test_a_host_outside_the_job_is_not_heard(three_hosts: Cluster, mpirun: str) -> None:
    """gamma sends to every TCP and UDP port of a job on alpha and beta, as often as it can, from the job's first process to
    its last: none answers, and once all ranks have started, none accepts it."""
    job_hosts = ("alpha", "beta")
    for host in job_hosts:
        (three_hosts.tmp(host) / "job.py").write_text(
            JOB.replace("HOLD", "while not os.path.exists('/tmp/enough'): time.sleep(0.1)")
        )
        (three_hosts.tmp(host) / "enough").unlink(missing_ok=True)
    before = {host: {port[:3] for port in open_ports.of_process(str(three_hosts.init_pid(host)))} for host in job_hosts}
    argv = [hvdrun.program(), "--mpirun", mpirun, "-H", "alpha:2,beta:2", "--python", jobs.python(), "/tmp/job.py"]
    stranger = three_hosts.popen("gamma", ["python3", str(HERE / "open_ports.py")], stdin=subprocess.PIPE, **pipes)
    job = three_hosts.popen("alpha", argv, env=jobs.environment(SECRET_OF_THE_USER="x"), stdin=subprocess.DEVNULL, **pipes)
    told: dict[str, set[str]] = {"while it starts": set(), "while it runs": set()}
    try:
        asks, answers = stranger.stdin, stranger.stdout
        assert asks is not None and answers is not None and job.stdout is not None

        def shout(when: str) -> None:
            for host in job_hosts:
                for kind, address, port, _ in open_ports.of_process(str(three_hosts.init_pid(host))):
                    if (kind, address, port) in before[host]:
                        continue
                    where = address if address.startswith("10.") else three_hosts.address(host)
                    asks.write(f"{kind} {where} {port}\n")
                    asks.flush()
                    told[when].add(answers.readline().strip())

        up, limit = 0, time.monotonic() + 60
        while up < 4 and time.monotonic() < limit:
            shout("while it starts")
            if select.select([job.stdout], [], [], 0.01)[0]:
                up += os.read(job.stdout.fileno(), 4096).count(b" up\n")
        assert up == 4
        for _ in range(2):
            shout("while it runs")
    finally:
        for host in job_hosts:
            (three_hosts.tmp(host) / "enough").touch()
        _, errors = job.communicate(timeout=60)
        stranger.kill()
        stranger.wait(10)
    assert job.returncode == 0, errors
    print(told)
    assert len(told["while it starts"]) >= 2, "hvdrun's port and a rank's were there to be tried"
    assert not [line for lines in told.values() for line in lines if line.endswith(" answers")], told
    assert [line for line in told["while it runs"] if not line.startswith("udp")]
    assert all(line.endswith("is shut") for line in told["while it runs"] if line.startswith("tcp")), told
