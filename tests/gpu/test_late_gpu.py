"""hvdrun names the rank whose GPU is late: in a hang, and in the report on steps.  On the fake GPU, and on a real one."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import pathlib
import re
import subprocess
import tempfile

import pytest

from gpu.test_on_gpu import SHARED, why_not
from python.harness import environment, has, python
from python.test_torch_gpu import FAKE
from support import hvdrun
from support.forms import few, measured

PROGRAM = str(pathlib.Path(__file__).with_name("late_gpu.py"))
WARNING = ("--stall-check-warning-time-seconds", "2", "--grace", "1")
HANGS = {
    "kernel": r"hvdrun: rank 1 on \S+: its GPU is still computing allreduce.gradient.17, its main thread is in \S+ \(\S+\); "
    r"1 rank has waited \d+ s for allreduce.gradient.17\n",
    "nccl": r"hvdrun: 2 ranks have waited \d+ s for allreduce.gradient.17, and all have submitted it\n"
    r"\s+their GPUs have computed all tensors, and NCCL has begun the exchange but does not end it\n",
    "lost": r"hvdrun: rank 1 on \S+ ended with exit code 1\b.*Error: ",
}
HANGS["event"] = HANGS["kernel"]


def run(gpu: str, plant: str) -> tuple[int, str]:
    """The exit code of a job of two ranks, and the output of all."""
    # hvdrun needs time for its words: libhvd's own limit would end the job without them.
    limits = (*WARNING, "--stall-check-shutdown-time-seconds", str(round(hvdrun.within(2))))
    options = () if plant == "lost" else limits if plant in HANGS else ("--report",)
    env = environment(**(SHARED if gpu == "real" else FAKE))
    with tempfile.TemporaryDirectory(prefix="hvd-late-gpu-") as folder:
        command = [hvdrun.program(), "-np", "2", *options, "--share-gpus", "--python", python(), PROGRAM, plant, folder]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, env=env)
    return done.returncode, done.stderr + done.stdout


@functools.cache
def hangs_on_a_real_gpu() -> dict[str, tuple[int, str]]:
    """All at the same time: these jobs wait most of it."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = {plant: pool.submit(run, "real", plant) for plant in HANGS}
        return {plant: job.result() for plant, job in jobs.items()}


def skip_without(gpu: str) -> None:
    if gpu == "real" and (reason := why_not(2)):
        pytest.skip(reason)
    if not has("torch"):
        pytest.skip(f"{python()} lacks torch")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("gpu, plant", few([*(("fake", p) for p in HANGS if p != "event"), *(("real", p) for p in HANGS)]))
def test_a_hang_on_the_gpu(gpu: str, plant: str) -> None:
    skip_without(gpu)
    code, said = hangs_on_a_real_gpu()[plant] if gpu == "real" else run(gpu, plant)
    assert re.search(HANGS[plant], said), said
    assert code == (1 if plant == "lost" else 6), said
    if plant in ("kernel", "event"):
        assert re.search(r"for allreduce.gradient.17, which the GPU of rank 1 on \S+ has not computed; all", said), said


@pytest.mark.timeout(300)
@pytest.mark.parametrize("gpu, plant", few(itertools.product(("fake", "real"), ("longer", "sleep", "even"))))
@measured
def test_the_report_names_the_rank_whose_gpu_is_late(gpu: str, plant: str) -> None:
    skip_without(gpu)
    code, said = run(gpu, plant)
    assert code == 0, said
    late = re.search(r"STRAGGLER  rank 1 .*? (?:for )?([\d.]+) ms", said)
    if plant == "even":
        assert "STRAGGLER" not in said, said
    else:
        assert late and 15 <= float(late[1]) <= 40, said
