"""A guard that a signal has stopped: the host daemon lets it go on, and hvdrun says so."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import time

import pytest

from netns.cluster import Cluster
from support import hvdrun
from support.forms import few

# The rank prints its number and its guard's process, and ends when the file is there.
RANK = 'echo $HVD_RANK $PPID; until [ -e "$0" ]; do sleep 0.05; done; exit $1'
SAID = r"hvdrun: the guard of rank 1 on \S+, process {}, was stopped by a signal for 5 s; it got SIGCONT, because the job waits"


def job_with_a_stopped_guard(folder: pathlib.Path, launcher: str, code: int) -> tuple[int, str, int]:
    """Stops rank 1's guard, then ends all ranks.  Returns hvdrun's exit code, its stderr, and the guard's process."""
    gate = folder / "gate"
    ranks = ["-np", "2", "--", "sh", "-c", RANK, str(gate), str(code)]
    with hvdrun.started("--launcher", launcher, *ranks) as job:
        lines = [hvdrun.next_line(job.stdout) for _ in range(2)]
        guard = next(int(line.split()[-1]) for line in lines if line.split()[-2] == "1")
        os.kill(guard, signal.SIGSTOP)
        gate.touch()
        _, errors = job.communicate(timeout=60)
        return job.returncode, errors, guard


@pytest.mark.parametrize("launcher", ["hvdrun", "mpirun"])
@pytest.mark.parametrize("code", few([0, 3]))
def test_a_job_ends_though_a_guard_is_stopped(tmp_path: pathlib.Path, launcher: str, code: int) -> None:
    """hvdrun waits for a stopped guard for a limited time. The job's exit code is that of its ranks."""
    returncode, errors, guard = job_with_a_stopped_guard(tmp_path, launcher, code)
    assert returncode == code, errors
    if launcher == "hvdrun" and code == 0:  # after a failure, hvdrun kills a guard that does not answer
        assert re.search(SAID.format(guard), errors), errors


def test_a_guard_on_another_host(two_hosts: Cluster) -> None:
    """A rank stops its guard by SIGSTOP and ends. hvdrun must end the job."""
    ranks = ["-np", "2", "-H", "alpha:1,beta:1", "--", "sh", "-c", '[ "$HVD_RANK" = 0 ] || kill -STOP $PPID']
    done = two_hosts.run("alpha", [hvdrun.program(), *ranks], timeout=90)
    assert done.returncode == 0, done.stderr
    assert re.search(SAID.format(r"\d+"), done.stderr), done.stderr


def test_a_daemon_on_another_host(two_hosts: Cluster) -> None:
    """A guard sends SIGCONT to a host daemon that was stopped for 5 s."""
    stop = '[ "$HVD_RANK" = 0 ] || { set -- $(cat /proc/$PPID/stat); kill -STOP $4; }'
    done = two_hosts.run("alpha", [hvdrun.program(), "-np", "2", "-H", "alpha:1,beta:1", "--", "sh", "-c", stop], timeout=90)
    assert done.returncode == 0, done.stderr
    said = r"hvdrun: the host daemon on beta, process \d+, was stopped by a signal for 5 s or more; it got SIGCONT, because"
    assert re.search(said, done.stderr), done.stderr


def test_a_job_ends_though_its_daemon_is_stopped(tmp_path: pathlib.Path) -> None:
    gate = tmp_path / "gate"
    with hvdrun.started("-np", "1", "--", "sh", "-c", RANK, str(gate), "0") as job:
        guard = int(hvdrun.next_line(job.stdout).split()[-1])
        daemon = int(pathlib.Path(f"/proc/{guard}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(daemon, signal.SIGSTOP)
        said = hvdrun.next_line(job.stderr)
        assert said == (
            f"hvdrun: hvdrank, which starts ranks, process {daemon}, was stopped by a signal for 5 s; it got SIGCONT, "
            "because the job waits for it\n"
        )
        gate.touch()
        assert job.wait(60) == 0


def test_a_short_stop_is_not_told(tmp_path: pathlib.Path) -> None:
    """Somebody who stops and continues a job's processes hears nothing."""
    gate = tmp_path / "gate"
    with hvdrun.started("-np", "1", "--", "sh", "-c", RANK, str(gate), "0") as job:
        guard = int(hvdrun.next_line(job.stdout).split()[-1])
        os.kill(guard, signal.SIGSTOP)
        time.sleep(1)
        os.kill(guard, signal.SIGCONT)
        gate.touch()
        _, errors = job.communicate(timeout=60)
    assert (job.returncode, hvdrun.said(errors)) == (0, "")
