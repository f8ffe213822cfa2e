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


SIBLINGS = """
import multiprocessing, sys
import numpy as np
import hvd.numpy as hvd

def train():
    try:
        hvd.init()
        print("trains", hvd.size(), float(hvd.allreduce(np.ones(1), op=hvd.Sum)[0]), flush=True)
        hvd.shutdown()
        hvd.init()  # again, by the process that is the rank
        print("again", hvd.size(), flush=True)
    except RuntimeError as error:
        assert "which is this rank" in str(error) and "hvdrun -np N" in str(error), error
        print("refused", flush=True)
    met.wait()  # both run at the same time

def start(barrier):
    global met
    met = barrier
    train()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    barrier = context.Barrier(2)
    workers = [context.Process(target=start, args=(barrier,)) for _ in range(2)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
"""
ONE_AFTER_THE_OTHER = """
import subprocess, sys
program = "import hvd.numpy as hvd; hvd.init(); print('trains', hvd.size())"
for _ in range(2): subprocess.run([sys.executable, "-c", program], check=True, close_fds=False)
"""


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_only_one_of_a_ranks_processes_is_the_rank(
    method: str, ranks: int, tmp_path: pathlib.Path, with_package: dict[str, str]
) -> None:
    """The first one trains; another one gets an error.  Before, MPI ended the job, or ranks waited for ever."""
    (tmp_path / "siblings.py").write_text(SIBLINGS)
    done = hvdrun.run(
        "-np", str(ranks), *hvdrun.python_args(), "siblings.py", method, cwd=tmp_path, env=with_package, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"trains {ranks} {ranks}.0") == ranks, done.stdout + done.stderr
    assert done.stdout.count("refused") == done.stdout.count(f"again {ranks}") == ranks, done.stdout


def test_programs_one_after_the_other_may_each_be_the_rank(tmp_path: pathlib.Path, with_package: dict[str, str]) -> None:
    (tmp_path / "both.py").write_text(ONE_AFTER_THE_OTHER)
    done = hvdrun.run("-np", "2", *hvdrun.python_args(), "both.py", cwd=tmp_path, env=with_package, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trains 2") == 4, done.stdout
