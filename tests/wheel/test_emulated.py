"""The wheel for aarch64, under qemu: scripts/test --nightly aarch64 makes the wheel and the small system for it."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

from support import environments

ROOT = pathlib.Path(__file__).resolve().parents[2]
START = ROOT / ".cache/aarch64/start"
JOB = """
import platform, sys
import numpy
import hvd.numpy as hvd

hvd.init()
total = hvd.allreduce(numpy.arange(300000.0), op=hvd.Sum)
assert (total == numpy.arange(300000.0) * hvd.size()).all()
half = hvd.allreduce(numpy.full(1000, hvd.rank() + 0.5, numpy.float16), op=hvd.Sum)
assert half.dtype == numpy.float16 and (half == 2.0).all()
rows = hvd.allgather(numpy.full((hvd.rank() + 1, 2), hvd.rank()))
assert rows[:, 0].tolist() == [0, 1, 1]
print(platform.machine(), "rank", hvd.rank())
"""


@pytest.fixture(scope="module")
def installed() -> pathlib.Path:
    """The wheel's files in pip's layout, in a folder that is visible inside too."""
    wheels = list((ROOT / "dist/aarch64").glob("*.whl"))
    if not wheels or "HVD_TEST_WHEELS" not in os.environ:
        pytest.skip("scripts/test --nightly aarch64 makes the wheel")
    if subprocess.run([START, "/usr/bin/env"], capture_output=True, timeout=60).returncode != 0:
        pytest.skip("no programs of aarch64 run here (Linux 6.7, user namespaces, qemu-user-static)")
    folder = ROOT / ".cache/aarch64/installed"
    shutil.rmtree(folder, ignore_errors=True)
    environments.laid_out(wheels[0], folder)
    return folder


@pytest.mark.parametrize("how", ["a program", "embedded"])
def test_a_job_of_two_ranks(how: str, installed: pathlib.Path) -> None:
    script = installed / "job.py"
    script.write_text(JOB)
    libraries = "/usr/lib/aarch64-linux-gnu"  # no package script has made the links to NumPy's libraries
    env = {
        "PATH": f"{installed}/bin:/usr/bin:/bin",
        "PYTHONPATH": str(installed / "lib/python"),
        "LD_LIBRARY_PATH": f"{libraries}/blas:{libraries}/lapack",
    }
    job = ["-np", "2", *(["--", "python3", str(script)] if how == "a program" else [str(script)])]
    command = [str(START), "/usr/bin/env", *(f"{name}={value}" for name, value in env.items()), "hvdrun", *job]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=installed)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(line.split("] ")[1] for line in done.stdout.splitlines()) == ["aarch64 rank 0", "aarch64 rank 1"]
