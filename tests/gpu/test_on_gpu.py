"""On a real GPU; skipped, with the reason, where there is none.  tests/gpu/run brings these to a bare machine."""

from __future__ import annotations

import functools
import pathlib
import shutil
import subprocess

import pytest

from python.harness import environment, has, python, run_ranks

HERE = pathlib.Path(__file__).resolve().parent
CHECKS = 4
SHARED = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "HVD_SHARE_GPUS": "1"}


@functools.cache
def why_not(ranks: int) -> str:
    """Why this cannot run here; empty: it can."""
    if not has("torch"):
        return f"{python()} lacks torch"
    code = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0, *torch.cuda.nccl.version())"
    done = subprocess.run([python(), "-c", code], env=environment(), capture_output=True, text=True, timeout=120)
    if done.returncode != 0 or done.stdout.split()[0] == "0":
        return "torch sees no GPU"
    gpus, major, minor = (int(x) for x in done.stdout.split()[:3])
    if ranks > gpus and (major, minor) < (2, 30):
        return f"{ranks} ranks need {ranks} GPUs, or NCCL 2.30 that shares them; here {gpus} and NCCL {major}.{minor}"
    return "" if ranks == 1 or shutil.which("mpirun") else "mpirun is not installed"


def run(ranks: int, **env: str) -> str:
    if reason := why_not(ranks):
        pytest.skip(reason)
    done = run_ranks(HERE / "ranks_on_gpu.py", ranks=ranks, timeout=170, **env)
    assert done.stdout.count("PASSED") == CHECKS, done.stdout[-4000:]
    return done.stdout


@pytest.mark.timeout(200)
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_operations_and_training(ranks: int) -> None:
    assert "go through host memory" not in run(ranks, **SHARED)


@pytest.mark.timeout(200)
def test_through_host_memory() -> None:
    run(2, HOROVOD_GPU_OPERATIONS="MPI", **SHARED)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_compute_sanitizer(tool: str) -> None:
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if reason := why_not(1) or ("" if sanitizer else "compute-sanitizer is not installed"):
        pytest.skip(reason)
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9", python(), str(HERE / "ranks_on_gpu.py")]
    command += ["check_operations", "check_mixed_sizes_fuse"]
    done = subprocess.run(map(str, command), env=environment(**SHARED), capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
