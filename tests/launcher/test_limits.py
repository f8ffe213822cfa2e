"""hvdrun with tight limits on its processes (ulimit): the job runs, or one message says what to raise."""

from __future__ import annotations

import json
import os
import pathlib
import resource
import subprocess

import pytest

from support import hvdrun


@pytest.mark.parametrize("kibibytes", [64, 128])
def test_a_small_stack(kibibytes: int) -> None:
    """hvdrun, its daemon and its guards need little stack."""
    done = hvdrun.run(
        *("-np", "2", "--", "sh", "-c", "ulimit -s"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (kibibytes << 10, kibibytes << 10)),
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[-1] for line in done.stdout.splitlines()] == [str(kibibytes)] * 2


def with_files(files: int, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [hvdrun.program(), *args],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
        capture_output=True,
        text=True,
        env=hvdrun.environment(),
        timeout=60,
    )


@pytest.mark.parametrize("files", [4, 5, 6, 7, 8, 20, 33])
def test_few_open_files(files: int) -> None:
    done = with_files(files, "-np", "1", "--", "true")
    assert (done.returncode, done.stderr) == (
        4,
        f"hvdrun: a process may open only {files} files here, too few for 1 rank\n"
        "        raise the hard limit to 516 or more (ulimit -Hn, or nofile in limits.conf)\n",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_system_without_proc() -> None:
    """/proc is empty, as in a chroot without mounts: hvdrun must say so and end."""
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$0" -np 1 -- true', hvdrun.program()],
        capture_output=True,
        text=True,
        env=hvdrun.environment(),
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (
        4,
        "hvdrun: /proc: cannot be read: No such file or directory\n        mount it: mount -t proc proc /proc\n",
    )


def test_the_verdict_on_a_job_without_its_folder(tmp_path: pathlib.Path) -> None:
    """The job's folder needs a file of 4 KiB, and the limit is 4000 bytes. The verdict file must say that no rank started."""
    verdict = tmp_path / "verdict.json"
    done = hvdrun.run(
        *("-np", "1", "--verdict-filename", str(verdict), "--", "true"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000)),
    )
    assert done.returncode == 4, done.stderr
    assert "no folder for the job can be made" in json.loads(verdict.read_text())["headline"]
