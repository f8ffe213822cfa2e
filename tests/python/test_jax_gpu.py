"""hvd.jax's handler on a simulated GPU: a fake driver and a fake NCCL under the real runtime (tests/gpu/fakes)."""

from python.harness import checks_of
from python.test_torch_gpu import FAKE

test_two_ranks = checks_of("jax_gpu_calls.py", ranks=2, needs=("numpy",), **FAKE)
test_through_host_memory = checks_of("jax_gpu_calls.py", ranks=2, needs=("numpy",), HOROVOD_GPU_OPERATIONS="MPI", **FAKE)
