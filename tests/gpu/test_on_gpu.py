"""Tests on a real GPU; skipped, with the reason, without one.  tests/gpu/run brings them to a bare machine."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from python.harness import environment, has, python, run_ranks

HERE = pathlib.Path(__file__).resolve().parent
CHECKS, GRAPH_CHECKS = 10, 7
SHARED = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "HVD_SHARE_GPUS": "1"}


@functools.cache
def seen() -> tuple[int, int]:
    """The number of GPUs that torch can use, and NCCL's version."""
    code = "import torch, hvd.torch as h; print(torch.cuda.device_count() if torch.cuda.is_available() else 0, h.nccl_built())"
    done = subprocess.run([python(), "-c", code], env=environment(), capture_output=True, text=True, timeout=120)
    gpus, nccl = done.stdout.split()[:2] if done.returncode == 0 else (0, 0)
    return int(gpus), int(nccl)


def why_not(ranks: int) -> str:
    """The reason why this cannot run here; empty: it can."""
    if not has("torch"):
        return f"{python()} lacks torch"
    gpus, nccl = seen()
    if gpus == 0:
        return "torch sees no GPU"
    if ranks > gpus and nccl < 23000:
        return f"{ranks} ranks need {ranks} GPUs, or NCCL 2.30 that shares them; here {gpus} and NCCL {nccl}"
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
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_inside_of_cuda_graphs(ranks: int) -> None:
    if reason := why_not(ranks):
        pytest.skip(reason)
    done = run_ranks(HERE / "graphs_on_gpu.py", ranks=ranks, timeout=100, **SHARED)
    assert "FAILED" not in done.stdout and done.stdout.count("PASSED") == GRAPH_CHECKS, done.stdout[-8000:]


@pytest.mark.timeout(200)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_with_windows(ranks: int) -> None:
    assert "requires NCCL 2.27" not in run(ranks, HVD_NCCL_WINDOWS="1", **SHARED)


@pytest.mark.timeout(200)
def test_agreement_finds_no_difference() -> None:
    assert "agreement: " not in run(2, HVD_AGREEMENT="stop", HVD_AGREEMENT_STEPS="4", **SHARED)


@pytest.mark.timeout(200)
def test_through_host_memory() -> None:
    run(2, HOROVOD_GPU_OPERATIONS="MPI", **SHARED)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_compute_sanitizer(tool: str) -> None:
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if reason := why_not(1) or ("" if sanitizer else "compute-sanitizer is not installed"):
        pytest.skip(reason)
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9"]
    if tool == "memcheck" and os.environ.get("HVD_NCCL_LIBRARY"):
        command += ["--report-api-errors", "no"]  # an NCCL without some of its kernels (pack) asks for them, and continues
    command += [python(), str(HERE / "ranks_on_gpu.py"), "check_operations", "check_mixed_sizes_fuse"]
    done = subprocess.run(map(str, command), env=environment(**SHARED), capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.mark.timeout(200)
@pytest.mark.parametrize("ranks", [1, 2])
def test_jax_inside_jit(ranks: int) -> None:
    if reason := why_not(ranks):
        pytest.skip(reason)
    code = "import jax; print(len(jax.devices('gpu')))"
    if subprocess.run([python(), "-c", code], env=environment(), capture_output=True, timeout=120).returncode:
        pytest.skip(f"{python()} has no JAX that sees a GPU")
    done = run_ranks(HERE / "jax_on_gpu.py", ranks=ranks, timeout=170, XLA_PYTHON_CLIENT_PREALLOCATE="false", **SHARED)
    assert "PASSED" in done.stdout, done.stdout[-4000:]


@pytest.mark.timeout(200)
def test_the_host_does_not_wait() -> None:
    """CUPTI, through torch's profiler, sees no synchronisation in exchanges of gradients."""
    if reason := why_not(1):
        pytest.skip(reason)
    command = [python(), str(HERE / "synchronise_seen.py")]
    done = subprocess.run(command, env=environment(**SHARED), capture_output=True, text=True, timeout=170)
    if "enable_cuda_sync_events" in done.stderr or "_ExperimentalConfig" in done.stderr:
        pytest.skip("this torch's profiler does not tell of synchronisation")
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    if not seen["control"]:
        pytest.skip("CUPTI does not tell of synchronisation here")
    assert seen["exchange"] == {}
