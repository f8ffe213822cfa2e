"""Programs that a rank starts."""

from __future__ import annotations

import pathlib

import pytest

from support import hvdrun
from support.forms import few

RANK = """
import os, subprocess, sys
import hvd.numpy as hvd

hvd.init()
own = {name: os.environ[name] for name in ("HVD_STATE_DIR", "HOROVOD_TIMELINE")}  # of this job, not of the nested one
child = subprocess.run([sys.executable, "-c", INNER], capture_output=True, text=True, timeout=60)
assert child.returncode == 1 and "was started by it and is no rank" in child.stderr, child.stderr
job = [HVDRUN, "-np", "2", "--mpirun", MPIRUN, "--python", sys.executable, "--", sys.executable, "-c", INNER]
nested = subprocess.run(job, capture_output=True, text=True, timeout=90)
assert (nested.returncode, nested.stdout.count("inner 2")) == (0, 2), nested.stdout + nested.stderr
print("both")
"""
INNER = """
import os
import hvd.numpy as hvd
hvd.init()
assert not {"HVD_STATE_DIR", "HOROVOD_TIMELINE"} & os.environ.keys(), os.environ
print("inner", hvd.size())
"""


@pytest.mark.parametrize("mpirun", few(hvdrun.mpiruns()))
def test_what_a_rank_starts(mpirun: str, tmp_path: pathlib.Path, with_package: dict[str, str]) -> None:
    """A program that calls init() gets an error that it is no rank; otherwise it and its parent would wait.  A nested job
    runs.
    """
    constants = f"INNER, HVDRUN, MPIRUN = {INNER!r}, {hvdrun.program()!r}, {mpirun!r}\n"
    (tmp_path / "rank.py").write_text(constants + RANK)
    own = ["--state-dir", "commits", "--timeline-filename", "t.json"]
    args = ["-np", "2", *own, "--mpirun", mpirun, *hvdrun.python_args(), "rank.py"]
    done = hvdrun.run(*args, cwd=tmp_path, env=with_package, timeout=150)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("both") == 2
