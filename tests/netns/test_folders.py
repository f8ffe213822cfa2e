"""A job's folders on its hosts: no other folder is removed, and no folder of a job stays for ever."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator

import pytest

from netns import jobs
from netns.cluster import Cluster, wait_for
from support import hvdrun

UID = 54321
LOOK_ALIKES = ("hvdrank-results", "hvdrank-abcdefgh", "hvdrun-0.1.0", "hvdrun-abcdefgh")


@pytest.fixture
def look_alikes(three_hosts: Cluster) -> Iterator[list[pathlib.Path]]:
    """Makes look-alikes on each host: the user's folders with names like a job's, and another user's folder with a valid mark
    of a dead process."""
    kept = []
    for host in three_hosts.names:
        for name in LOOK_ALIKES:
            folder = three_hosts.tmp(host) / name
            folder.mkdir()
            (folder / "thesis.tex").write_text("precious")
            kept.append(folder / "thesis.tex")
        made = three_hosts.run(host, ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "sh", "-c", FORGED])
        assert made.returncode == 0, made.stderr
        kept.append(three_hosts.tmp(host) / "hvdrank-zzzzzzzz/theirs")
    yield kept
    for host in three_hosts.names:
        for name in (*LOOK_ALIKES, "hvdrank-zzzzzzzz"):
            three_hosts.run(host, ["rm", "-rf", "--one-file-system", f"/tmp/{name}"])


FORGED = """
mkdir -m 777 /tmp/hvdrank-zzzzzzzz && cd /tmp/hvdrank-zzzzzzzz && echo theirs >theirs &&
ln -s "4000000.1.$(stat -Lc %i /proc/self/ns/pid) $(stat -c %i .) $(cat /proc/sys/kernel/random/boot_id) $(hostname)" .owner
"""


def of_jobs(hosts: Cluster) -> dict[str, list[str]]:
    """Folders of jobs by host, without those that only look like them."""
    return {
        host: [
            path.name
            for path in hosts.tmp(host).glob("hvdr*-*")
            if path.name not in LOOK_ALIKES and path.name != "hvdrank-zzzzzzzz"
        ]
        for host in hosts.names
    }


@pytest.mark.parametrize("mpirun", hvdrun.nightly_for_openmpi5())
def test_on_three_hosts(three_hosts: Cluster, look_alikes: list[pathlib.Path], mpirun: str) -> None:
    """Folders are made and removed with a job; those of killed shells and hvdruns are removed by the next job; others stay."""
    argv = [hvdrun.program(), "--mpirun", mpirun, "-H", "alpha:1,beta:1,gamma:1", "--grace", "1"]
    env = jobs.environment(XDG_RUNTIME_DIR="")
    job = three_hosts.popen(
        "alpha", [*argv, "--", "sh", "-c", "echo up; sleep 100"], env=env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert [hvdrun.read_line(job.stdout)[-3:] for _ in range(3)] == ["up\n"] * 3
        found = of_jobs(three_hosts)
        assert [len(found[host]) for host in three_hosts.names] == [1, 1, 1], found
        three_hosts.signal(job, signal.SIGSTOP)
        for host in ("beta", "gamma"):  # the shells, which would remove their folders
            for pid, command in three_hosts.processes(host).items():
                if command == "/bin/sh":
                    os.kill(pid, signal.SIGKILL)
        three_hosts.signal(job, signal.SIGKILL)
    finally:
        three_hosts.signal(job, signal.SIGKILL)
        job.send_signal(signal.SIGCONT)  # nsenter stops when its child does
        job.communicate(timeout=30)
    for host in three_hosts.names:
        wait_for(lambda host=host: "sleep 100" not in str(three_hosts.processes(host)), 30, "the job's end")
    left = of_jobs(three_hosts)
    assert all(left.values()), left
    done = three_hosts.run("alpha", [*argv, "--", "true"], env=env, timeout=60)
    assert done.returncode == 0, done.stderr
    # A remote shell removes its folder once its daemon has ended; hvdrun does not wait for that.
    wait_for(lambda: not any(of_jobs(three_hosts).values()), 20, "the end of all folders")
    assert [path for path in look_alikes if not path.exists()] == []


@pytest.mark.parametrize("launcher", ["hvdrun", "mpirun"])
def test_a_variables_name_is_no_shell_text(two_hosts: Cluster, launcher: str) -> None:
    """Scripts for other hosts export Open MPI's parameters: a name that no shell accepts is left out, and runs nothing."""
    strange = {"OMPI_MCA_a-b": "1", "OMPI_MCA_x$(touch /tmp/hvd-ran)": "1", "OMPI_MCA_y;touch /tmp/hvd-ran;": "1"}
    argv = [hvdrun.program(), "--launcher", launcher, "-H", "alpha:1,beta:1", "--", "true"]
    done = two_hosts.run("alpha", argv, env=jobs.environment(**strange), timeout=90)
    assert done.returncode == 0, done.stderr
    assert not any((two_hosts.tmp(host) / "hvd-ran").exists() for host in two_hosts.names)
