"""Device tensors through a real MPI: which ways the ranks take, what they say about it, and what becomes of a lost peer.

The "device memory" is the fake driver's (tests/gpu/fakes), so that any MPI can send it; that it is asked, and what it
answers, is a preloaded function's doing (aware_mpi.c).
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import pytest

from failures.test_peers import SLACK, SOON, survivors
from python.harness import ROOT
from support.hvdrun import environment, mpiruns

BUILD = pathlib.Path(os.environ.get("HVD_BUILD_DIR", ROOT / "build")).absolute()
FAKES = BUILD / "tests" / "gpu" / "fakes"
FAKE = {
    "HVD_CUDA_LIBRARY": str(FAKES / "libfakecuda.so"),
    "HVD_NCCL_LIBRARY": "/nonexistent/libnccl.so.2",
    "FAKE_CUDA_DEVICES": "4",
}
AWARE = {"LD_PRELOAD": str(BUILD / "tests" / "gpu" / "libaware_mpi.so")}
MINDS = {"FAKE_MPI_MINDS": "1"}
ASKED = {"HOROVOD_GPU_OPERATIONS": "MPI"}
NODES = {"HVD_RANKS_PER_NODE": "2"}


def command(program: str, count: int, what: str, *options: str, **variables: str) -> list[str]:
    of_ranks = [f"{name}={value}" for name, value in {**FAKE, **variables}.items()]
    mpirun = [program, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(count), *options]
    rank = ["env", *of_ranks, str(BUILD / "tests" / "gpu" / "hvd_by_mpi"), what]
    return ["timeout", "-k", "5", "110", *mpirun, *rank]


def ranks(program: str, count: int, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(program, count, "all", **variables),
        env=environment(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"),
        capture_output=True,
        text=True,
        timeout=130,
        check=False,
    )


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("hvd: tensors")]


@pytest.mark.timeout(140)
@pytest.mark.parametrize("program", mpiruns())
@pytest.mark.parametrize(
    ("count", "variables", "said"),
    [
        pytest.param(
            2,
            {**AWARE, **ASKED, **MINDS, "HOROVOD_LOG_LEVEL": "info"},
            ["hvd: tensors on GPUs go through MPI, which takes device memory"],
            id="asked for",
        ),
        pytest.param(
            4,
            {**AWARE, **NODES, **MINDS},
            [r"hvd: tensors on GPUs go through MPI, which takes device memory: rank 0: .*"],
            id="several nodes",
        ),
        pytest.param(
            4,
            {**AWARE, **NODES, **ASKED, "FAKE_UNAWARE_RANK": "3"},
            [r"hvd: tensors on GPUs that were to .* go through host memory: the MPI of rank 3 does not .*"],
            id="one rank's MPI does not",
        ),
    ],
)
def test_every_operation(program: str, count: int, variables: dict[str, str], said: list[str]) -> None:
    done = ranks(program, count, **variables)
    assert sorted(line for line in done.stdout.splitlines() if "fine" in line) == [f"fine {r}" for r in range(count)], done
    assert done.returncode == 0, done
    found = lines(done.stderr)
    assert len(found) == len(said), done.stderr
    for line, pattern in zip(found, said):
        assert re.fullmatch(pattern, line), line


@pytest.mark.timeout(140)
@pytest.mark.parametrize("program", mpiruns()[:1])
def test_the_real_mpi_is_asked(program: str) -> None:
    """Debian's was built without CUDA; one with CUDA may have it switched off."""
    for variables in ({}, {**AWARE, "FAKE_SWITCHED_OFF": "1"}):
        done = ranks(program, 2, **variables, **ASKED)
        assert done.returncode == 0, done
        assert "the MPI of rank 0 does not take device memory" in done.stderr


@pytest.mark.timeout(140)
@pytest.mark.parametrize("program", mpiruns()[:1])
@pytest.mark.parametrize(
    "per_node", [pytest.param(0, marks=pytest.mark.nightly, id="one node"), pytest.param(2, id="two nodes")]
)
def test_all_survivors_hear_of_a_lost_peer(program: str, per_node: int, tmp_path: pathlib.Path) -> None:
    keep = ["--enable-recovery"]  # mpirun ends all ranks as soon as one has failed, else
    keep += ["--mca", "btl_vader_backing_directory", str(tmp_path)]  # a killed rank leaves Open MPI's segment behind
    heard = survivors(command(program, 3, "kill", *keep, **AWARE, **ASKED), 3, per_node)
    for rank, (seconds, text) in heard.items():
        assert seconds < SOON + SLACK, f"rank {rank} waited {seconds} s"
        assert "rank 2" in text, text
