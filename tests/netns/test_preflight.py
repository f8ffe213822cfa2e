"""A difference on one host is reported before the job runs, in a line with the host and the remedy."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import shutil
import stat
import subprocess

import pytest

from netns import jobs
from netns.cluster import Cluster
from support import hvdrun

RANK = jobs.BUILD / "src/rank/hvdrank"


def put(hosts: Cluster, host: str, name: str, text: str) -> None:
    """A program in the host's own /tmp."""
    path = hosts.tmp(host) / name
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(0o755)


def launch(hosts: Cluster, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    argv = [hvdrun.program(), "-H", "alpha:1,beta:1", *options]
    done = hosts.run("alpha", argv, env=jobs.environment(**variables), timeout=60)
    return subprocess.CompletedProcess(argv, done.returncode, done.stdout, hvdrun.said(done.stderr))


def problem(done: subprocess.CompletedProcess[str]) -> str:
    """The error and its hint; the exit code is 4."""
    assert done.returncode == 4, done.stdout + done.stderr
    assert done.stdout == ""
    return " / ".join(line.strip() for line in done.stderr.splitlines())


def test_another_hvdrank(two_hosts: Cluster) -> None:
    put(two_hosts, "alpha", "hvdrank", f'exec {RANK} "$@"')
    put(two_hosts, "beta", "hvdrank", "echo hvdrank 0.0.7")
    version = subprocess.run([RANK, "--version"], capture_output=True, text=True).stdout.split()[1]
    told = problem(launch(two_hosts, "--", "true", HVD_RANK_PROGRAM="/tmp/hvdrank"))
    assert told == f"hvdrun: beta has hvdrank 0.0.7, this is hvdrun {version} / install the same wheel on all hosts"
    (two_hosts.tmp("beta") / "hvdrank").unlink()
    told = problem(launch(two_hosts, "--", "true", HVD_RANK_PROGRAM="/tmp/hvdrank"))
    assert told == "hvdrun: beta has no /tmp/hvdrank / install hvdrun there, in the same folder"


def test_another_open_mpi(two_hosts: Cluster) -> None:
    real = pathlib.Path(shutil.which("mpirun", path="/usr/bin") or pytest.skip("mpirun is not installed")).resolve()
    for host in ("alpha", "beta"):
        (two_hosts.tmp(host) / "bin").mkdir(exist_ok=True)
    (two_hosts.tmp("alpha") / "bin/mpirun").symlink_to(real)
    put(two_hosts, "beta", "bin/mpirun", "echo 'mpirun (Open MPI) 4.0.3'")
    told = problem(launch(two_hosts, "--launcher", "mpirun", "--mpirun", "/tmp/bin/mpirun", "--", "true"))
    assert told.startswith("hvdrun: beta has mpirun (Open MPI) 4.0.3, this host has ")
    assert told.endswith(" / install the same Open MPI on all hosts, or name one with --mpirun PATH")


def test_another_python(two_hosts: Cluster) -> None:
    put(two_hosts, "alpha", "python", f'exec {jobs.python()} "$@"')
    (two_hosts.tmp("beta") / "python").unlink(missing_ok=True)
    (two_hosts.tmp("alpha") / "job.py").write_text("pass")
    told = problem(launch(two_hosts, "--python", "/tmp/python", "/tmp/job.py"))
    what, hint = told.split(" / ")
    assert what == "hvdrun: beta has no Python /tmp/python"
    assert hint == "install it there under the same path, or name one that all hosts have: --python PATH"
    (two_hosts.tmp("alpha") / "job.pkl").write_bytes(pickle.dumps(os.getcwd))
    put(two_hosts, "beta", "python", "echo 3.7")
    told = problem(launch(two_hosts, "--python", "/tmp/python", "/tmp/job.pkl"))
    assert told.startswith("hvdrun: beta has Python 3.7 under that path, this host has 3.")


def test_another_runtime(two_hosts: Cluster) -> None:
    """hvdrank is the same, but beta's Python finds another libhvd."""
    for host in ("alpha", "beta"):
        package = two_hosts.tmp(host) / "packages/hvd"
        shutil.copytree(jobs.BUILD / "src/python/hvd", package, ignore=shutil.ignore_patterns("*.p", "__pycache__"))
        (two_hosts.tmp(host) / "job.py").write_text("import hvd.numpy as hvd; hvd.init()")
    library = next((two_hosts.tmp("beta") / "packages").rglob("libhvd.so"))
    version = subprocess.run([RANK, "--version"], capture_output=True, text=True).stdout.split()[1].encode()
    library.chmod(library.stat().st_mode | stat.S_IWUSR)
    library.write_bytes(library.read_bytes().replace(version, version[:-1] + b"~"))
    env = {"PYTHONPATH": "/tmp/packages", "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [hvdrun.program(), "-H", "alpha:1,beta:1", "--python", jobs.python(), "/tmp/job.py"]
    done = two_hosts.run("alpha", argv, env={**os.environ, **jobs.environment(), **env}, timeout=60)
    assert done.returncode != 0
    assert "rank 1 has version " + version[:-1].decode() + "~, rank 0 has " + version.decode() in done.stderr, done.stderr
    assert "install the same wheel on all hosts" in done.stderr


def test_the_doctor_compares_hosts(two_hosts: Cluster) -> None:
    """Packages and builds that differ: one problem for each, with the remedy; in JSON, all of them."""
    packages = {"alpha": {"Demo_Pkg": "1.0"}, "beta": {"demo.pkg": "2.0", "extra": "1"}}
    for host, found in packages.items():
        put(two_hosts, host, "hvdrank", f'exec {RANK} "$@"')
        put(two_hosts, host, "hvdrun", f"echo 'hvdrun 0.1 (commit of {host})'")
        for name, version in found.items():
            folder = two_hosts.tmp(host) / f"site/{name}-{version}.dist-info"
            folder.mkdir(parents=True)
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (two_hosts.tmp("alpha") / "job.py").write_text("pass")
    path = f"{jobs.environment()['PYTHONPATH']}:/tmp/site"

    def doctor(*options: str, code: int = 0) -> str:
        argv = [hvdrun.program(), "doctor", *options, "-H", "alpha:1,beta:1", "--python", jobs.python(), "/tmp/job.py"]
        env = jobs.environment(HVD_RANK_PROGRAM="/tmp/hvdrank", PYTHONPATH=path)
        done = two_hosts.run("alpha", argv, env=env, timeout=60)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    text = doctor()
    remedy = f"        there: {jobs.python()} -m pip install demo-pkg==1.0\n"
    assert f"note    beta: 2 packages differ: demo-pkg 2.0 (others 1.0), extra 1 (others lack it)\n{remedy}" in text
    assert "note    beta: has hvdrun 0.1 (commit of beta), others have hvdrun 0.1 (commit of alpha)\n" in text
    assert text.count("note") == 2, text
    alpha, beta = json.loads(doctor("--json"))["hosts"]
    assert "packages_that_differ" not in alpha
    assert beta["packages_that_differ"] == [
        {"name": "demo-pkg", "version": "2.0", "others": "1.0"},
        {"name": "extra", "version": "1", "others": None},
    ]
    assert alpha["kernel"] == beta["kernel"] == f"{os.uname().release} {os.uname().machine}"
    assert alpha["interpreter"] == os.path.realpath(jobs.python())
    put(two_hosts, "beta", "hvdrun", "touch /tmp/ran")
    (two_hosts.tmp("beta") / "hvdrun").chmod(0o777)
    assert "problem beta: beta has a /tmp/hvdrun that others could have put there\n" in doctor(code=4)
    assert not (two_hosts.tmp("beta") / "ran").exists()
