"""--agreement finds a result that differs on one rank's GPU.  On the fake GPU, and on a real one."""

from __future__ import annotations

import itertools
import pathlib
import re
import subprocess

import pytest

from gpu.test_late_gpu import skip_without
from gpu.test_on_gpu import SHARED
from python.harness import environment, python
from python.test_torch_gpu import FAKE
from support import hvdrun
from support.forms import few

PROGRAM = str(pathlib.Path(__file__).with_name("agreement_on_gpu.py"))
OPTIONS = ("--agreement", "stop", "--agreement-steps", "1", "--grace", "5", "--share-gpus")
RANKS = {"fake": 3, "real": 2}  # more ranks that share one GPU wait longer for one another
BYTES = r"agreement: the result of 'allreduce\.weights' in step \d+, bytes 0-1048576 of 1048576, "
FOUND = {"fake": BYTES + "is not on rank 1 what it is on the others", "real": BYTES + "differs between rank 0 and rank 1,"}


@pytest.mark.timeout(200)
@pytest.mark.parametrize("gpu, plant", few(itertools.product(("fake", "real"), ("changed", "even"))))
def test_agreement(gpu: str, plant: str) -> None:
    skip_without(gpu)
    command = [hvdrun.program(), "-np", str(RANKS[gpu]), *OPTIONS, "--python", python(), PROGRAM, plant]
    env = environment(**(SHARED if gpu == "real" else FAKE))
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180, env=env)
    said = done.stdout + done.stderr
    if plant == "even":
        assert done.returncode == 0 and done.stdout.count("done") == RANKS[gpu] and "agreement: " not in said, said
    else:
        assert done.returncode != 0 and re.search(FOUND[gpu], said) and "DivergedError" in said, said
