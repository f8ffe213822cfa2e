"""Files of another user on one of the job's hosts, under names that the job uses, are not run there."""

from __future__ import annotations

import os
import pathlib
import pickle
import shutil
import subprocess

import pytest

from netns import jobs
from netns.cluster import Cluster
from support import hvdrun

OTHER = 54321
WORK = "/tmp/work"
MINE = "import os; print('mine', flush=True)\n"


@pytest.fixture
def hosts(three_hosts: Cluster) -> Cluster:
    """The job's folder on alpha and beta is ours; gamma's belongs to another user, who made it first."""
    for host in three_hosts.names:
        folder = three_hosts.tmp(host) / "work"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "train.py").write_text(MINE)
    return three_hosts


def ran(hosts: Cluster) -> list[str]:
    """Hosts where the other user's code ran."""
    return [host for host in hosts.names if (hosts.tmp(host) / "work/ran").exists()]


def take_over(hosts: Cluster, host: str, name: str = "train.py", text: str = "") -> None:
    """The folder and a file in it become another user's, and the file leaves a mark when it is run."""
    folder = hosts.tmp(host) / "work"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or f"open('{WORK}/ran', 'w').close()\n")
    path.chmod(0o755)
    for taken in (folder, *folder.rglob("*")):
        os.chown(taken, OTHER, OTHER)


def launch(hosts: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [hvdrun.program(), "-H", "alpha:1,beta:1,gamma:1", *words]
    done = hosts.run("alpha", argv, env=jobs.environment(), cwd=WORK, timeout=60)
    done.stderr = hvdrun.said(done.stderr)
    return done


def test_another_users_script(hosts: Cluster) -> None:
    """A host does not run a script of another user. With --allow-writable the host runs it: the option reaches every host."""
    words = ["--python", jobs.python(), "train.py"]
    done = launch(hosts, *words)
    assert (done.returncode, done.stdout.count(" mine\n")) == (0, 3), done.stderr
    take_over(hosts, "gamma")
    done = launch(hosts, *words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"train.py: its folder {WORK} belongs to another user (user {OTHER}), who could change the job" in done.stderr
    assert "gamma" in done.stderr
    assert "--allow-writable" in done.stderr
    assert ran(hosts) == []
    launch(hosts, "--allow-writable", *words)
    assert ran(hosts) == ["gamma"]


def test_another_script_of_ours(hosts: Cluster) -> None:
    """A script that differs from hvdrun's is reported, and not run unless --allow-writable is given."""
    (hosts.tmp("gamma") / "work/train.py").write_text(MINE.replace("mine", "older"))
    for words in (["--python", jobs.python(), "train.py"], ["--", jobs.python(), "-u", "train.py"]):
        done = launch(hosts, *words)
        assert done.returncode == 2, done.stdout + done.stderr
        assert "train.py on gamma is not the script that hvdrun read: its SHA-256 is " in done.stderr
        assert "copy it to gamma, or use --allow-writable to run the copy there" in done.stderr
        done = launch(hosts, "--allow-writable", *words)
        assert (done.returncode, done.stdout.count("mine"), done.stdout.count("older")) == (0, 2, 1), done.stderr


def test_another_users_modules(hosts: Cluster) -> None:
    """Beside a .pkl, in a working folder that belongs to the other user on one host."""
    (hosts.tmp("alpha") / "job.pkl").write_bytes(pickle.dumps((exec, ("import calendar; print(calendar.isleap(2000))", {}))))
    take_over(hosts, "gamma", "calendar.py", f"open('{WORK}/ran', 'w').close()\n")
    done = launch(hosts, "--python", jobs.python(), "/tmp/job.pkl")
    assert (done.returncode, done.stdout.count(" True\n")) == (0, 3), done.stderr
    assert ran(hosts) == []
    done = hosts.run("alpha", [hvdrun.program(), "doctor", "-H", "alpha:1,gamma:1"], env=jobs.environment(), cwd=WORK)
    assert ran(hosts) == [], done.stdout


@pytest.mark.parametrize("what", ["python", "hvdrank", "command"])
def test_another_users_programs(hosts: Cluster, what: str) -> None:
    """Under a path that is ours on the other hosts: it is not run even for its version."""
    fake = f"#!/bin/sh\ntouch {WORK}/ran\n"
    real = {"python": jobs.python(), "hvdrank": str(jobs.BUILD / "src/rank/hvdrank"), "command": "/bin/true"}[what]
    for host in ("alpha", "beta"):
        program = hosts.tmp(host) / "work/bin" / what
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
        program.chmod(0o755)
    take_over(hosts, "gamma", f"bin/{what}", fake)
    program_path = f"{WORK}/bin/{what}"
    (hosts.tmp("alpha") / "train.py").write_text(MINE)
    words = {
        "python": ["--python", program_path, "-m", "json.tool", "--help"],
        "hvdrank": ["--", "/bin/true"],
        "command": ["--", program_path],
    }[what]
    env = jobs.environment(**({"HVD_RANK_PROGRAM": program_path} if what == "hvdrank" else {}))
    argv = [hvdrun.program(), "-H", "alpha:1,beta:1,gamma:1", *words]
    done = hosts.run("alpha", argv, env=env, cwd="/tmp", timeout=60)
    assert done.returncode == (2 if what == "command" else 4), done.stdout + done.stderr
    assert "gamma" in done.stderr
    assert "--allow-writable" in done.stderr
    assert ran(hosts) == [], done.stderr


def test_the_way_to_it(hosts: Cluster) -> None:
    """The folder is ours, but one above it is open to everybody, who could replace it."""
    parent = pathlib.Path(hosts.tmp("gamma")) / "work"
    parent.chmod(0o777)
    done = launch(hosts, "--python", jobs.python(), "train.py")
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"train.py: everybody may write to its folder {WORK}, so anybody could change the job" in done.stderr
    assert f"chmod o-w {WORK}, or --allow-writable" in done.stderr
