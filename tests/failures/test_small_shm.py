"""A job trains with a container's small /dev/shm (64 MiB by default, less with --shm-size)."""

from __future__ import annotations

import os
import pathlib
import resource
import shutil
import subprocess

import pytest

from support import hvdrun
from support.forms import few

TRAIN = """
import os

import numpy
import hvd.numpy as hvd
hvd.init()
total = hvd.allreduce(numpy.ones(1 << 20, "f4") * hvd.rank(), op=hvd.Sum, name="x")
assert total[0] == sum(range(hvd.size()))
evens = hvd.add_process_set([0, 2])
if hvd.rank() in (0, 2):
    assert hvd.allreduce(numpy.ones(3), op=hvd.Sum, name="y", process_set=evens)[0] == 2
if hvd.rank() == 0:
    print("left:", os.listdir("/dev/shm"))
hvd.shutdown()
"""


@pytest.mark.parametrize("mpirun", few(hvdrun.mpiruns()))
@pytest.mark.parametrize("size", ["64k", "8m"])
def test_a_job_runs_with_a_small_shm(mpirun: str, size: str, tmp_path: pathlib.Path, with_package: dict[str, str]) -> None:
    """Our files and Open MPI's go elsewhere, and are removed at the end."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("a small /dev/shm needs root and unshare")
    (tmp_path / "train.py").write_text(TRAIN)
    env = hvdrun.environment(**with_package)
    mount = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"'
    command = [hvdrun.program(), "-np", "4", "--mpirun", mpirun, *hvdrun.python_args(), "train.py"]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", *command],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0 localhost] left: []\n", done.stderr


def limited(blocks: int) -> None:
    """ulimit -f: in the child, before its exec."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (blocks * 1024, blocks * 1024))


def test_a_limit_on_the_size_of_files(tmp_path: pathlib.Path, with_package: dict[str, str]) -> None:
    """The message names the limit, not /dev/shm; a job without such files runs; no guard ends silently."""
    done = hvdrun.run("-np", "2", "--", "echo", "fine", preexec_fn=lambda: limited(100))
    assert (done.returncode, done.stderr, done.stdout.count("fine")) == (0, "", 2)
    done = hvdrun.run("-np", "1", "--", "true", preexec_fn=lambda: limited(1))
    assert done.returncode == 4
    assert "File too large (see ulimit -f)\n        raise the limit on the size of files: ulimit -f" in done.stderr
    (tmp_path / "train.py").write_text("import hvd.numpy as hvd\nhvd.init()\n")
    args = ["-np", "2", *hvdrun.python_args(), "train.py"]
    done = hvdrun.run(*args, cwd=tmp_path, env=with_package, preexec_fn=lambda: limited(4096))
    assert done.returncode == 1
    advice = "File too large (see ulimit -f) (raise the limit on the size of files: ulimit -f unlimited)"
    assert advice in done.stderr, done.stderr
    assert "shm-size" not in done.stderr


def test_what_mpi_says_is_shown(tmp_path: pathlib.Path, with_package: dict[str, str]) -> None:
    """MPI reports its errors to mpirun only: the rank itself wrote nothing."""
    (tmp_path / "train.py").write_text("import hvd.numpy as hvd\nhvd.init()\n")
    args = ["--launcher", "mpirun", "-np", "2", *hvdrun.python_args(), "train.py"]
    done = hvdrun.run(*args, cwd=tmp_path, env={**with_package, "OMPI_MCA_btl": "self"})
    assert done.returncode != 0
    assert "it wrote nothing, but mpirun said:" in done.stderr, done.stderr
