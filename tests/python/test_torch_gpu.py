"""hvd.torch on simulated GPUs: a fake driver and a fake NCCL under the real runtime (tests/gpu/fakes)."""

import os
from pathlib import Path

import pytest

from python.harness import ROOT, checks_of

FAKES = Path(os.environ.get("HVD_BUILD_DIR", ROOT / "build")).absolute() / "tests" / "gpu" / "fakes"
FAKE = {
    "HVD_CUDA_LIBRARY": str(FAKES / "libfakecuda.so"),
    "HVD_NCCL_LIBRARY": str(FAKES / "libfakenccl.so"),
    "FAKE_CUDA_DEVICES": "4",
    "FAKE_CUDA_DELAY_US": "50",
}
FILES = ("fake_gpu.py", "torch_operations.py", "torch_outbox.py", "torch_gpu.py", "torch_group_memory.py", "torch_graphs.py")

test_two_ranks = checks_of(*FILES, ranks=2, needs=("torch",), **FAKE)
test_through_host_memory = pytest.mark.ci(checks_of(*FILES, ranks=2, needs=("torch",), HOROVOD_GPU_OPERATIONS="MPI", **FAKE))
test_agreement = pytest.mark.ci(
    checks_of(*FILES, ranks=2, needs=("torch",), HVD_AGREEMENT="stop", HVD_AGREEMENT_STEPS="4", **FAKE)
)
test_several_nodes = pytest.mark.ci(
    checks_of("fake_gpu.py", "torch_gpu.py", ranks=4, needs=("torch",), HVD_RANKS_PER_NODE="2", **FAKE)
)
