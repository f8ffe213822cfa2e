"""Elastic training with PyTorch on a fixed set of ranks, one of which leaves permanently."""

import shutil
from pathlib import Path

import pytest

from python.harness import has, run_ranks


def test_a_rank_that_does_not_come_back_ends_the_job():
    if not shutil.which("mpirun") or not has("torch"):
        pytest.skip("mpirun or torch is not installed")
    done = run_ranks(Path(__file__).parent / "elastic_left_alone.py", timeout=90, HOROVOD_ELASTIC_TIMEOUT="1")
    assert done.returncode == 1, done.stdout
    assert "a rank has not come back" in done.stdout
