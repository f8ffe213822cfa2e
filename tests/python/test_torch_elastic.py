"""Elastic states on two and three ranks, and a rank that does not come back."""

import shutil
from pathlib import Path

import pytest

from python.harness import checks_of, has, run_ranks

test_two_ranks = checks_of("torch_elastic.py", ranks=2, needs=("torch",))
test_three_ranks = checks_of("torch_elastic.py", ranks=3, needs=("torch",))


def test_a_rank_that_does_not_come_back_ends_the_job():
    if not shutil.which("mpirun") or not has("torch"):
        pytest.skip("mpirun or torch is not installed")
    done = run_ranks(Path(__file__).parent / "elastic_left_alone.py", timeout=90, HOROVOD_ELASTIC_TIMEOUT="1")
    assert done.returncode == 1, done.stdout
    assert "a rank has not come back" in done.stdout
