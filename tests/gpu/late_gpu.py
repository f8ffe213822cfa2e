"""A rank for test_late_gpu.py: late_gpu.py PLANT FOLDER.  The GPU is the fake one if HVD_CUDA_LIBRARY names a fake.

Hangs: "kernel" and "event": rank 1's GPU never computes its tensor.  "nccl": all tensors are computed, and the exchange does
not end.  "lost": rank 1's GPU fails.  Speed: "sleep": rank 1 sleeps 20 ms in each step.  "longer": its GPU computes 20 ms
longer.  "even": neither.
"""

import ctypes
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

import hvd.torch as hvd

PLANT, FOLDER = sys.argv[1], Path(sys.argv[2])
STEPS, LATE = 80, 0.02
HANGS = 600.0
FAKE = "fakecuda" in os.environ.get("HVD_CUDA_LIBRARY", "")


class FakeGpu:
    def __init__(self) -> None:
        path = Path(__file__).parents[1] / "python" / "ranks" / "fake_gpu.py"
        self.driver: Any = runpy.run_path(str(path))["driver"]

    def tensor(self) -> torch.Tensor:
        return torch.ones(100)

    def compute(self, tensor: torch.Tensor, seconds: float) -> None:
        at = tensor.data_ptr()
        self.driver.fake_cuda_copy_later(at, at, tensor.nbytes, None, int(seconds * 1e6))

    def synchronize(self) -> None:
        self.driver.cuStreamSynchronize(None)

    def kernel(self, tensor: torch.Tensor) -> None:
        self.compute(tensor, HANGS)

    def nccl(self) -> None:
        os.environ["FAKE_NCCL_ENDLESS"] = "1"

    def lost(self, tensor: torch.Tensor) -> None:
        self.compute(tensor, 3)  # a lost GPU ends its kernels
        os.environ["FAKE_CUDA_FAIL"] = "cuEventQuery:1:719"


# spin ends when the word at its argument is not 0; delay ends after a number of nanoseconds.
KERNELS = rb"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 word) {
  .reg .pred %p<2>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [word];
again:
  ld.volatile.global.u32 %r1, [%rd1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}
.visible .entry delay(.param .u64 nanoseconds) {
  .reg .pred %p<2>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [nanoseconds];
  mov.u64 %rd2, %globaltimer;
  add.u64 %rd2, %rd2, %rd1;
again:
  mov.u64 %rd3, %globaltimer;
  setp.lt.u64 %p1, %rd3, %rd2;
  @%p1 bra again;
  ret;
}
"""


class RealGpu:
    def __init__(self) -> None:
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.word = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.stream = torch.cuda.Stream()
        module = ctypes.c_void_p()
        self.check(self.driver.cuModuleLoadData(ctypes.byref(module), KERNELS), "cuModuleLoadData")
        self.kernels = {}
        one = torch.ones(1, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        for name in (b"spin", b"delay"):  # loaded now: a first launch may wait for the device
            function = self.kernels[name] = ctypes.c_void_p()
            self.check(self.driver.cuModuleGetFunction(ctypes.byref(function), module, name), "cuModuleGetFunction")
            self.launch(name, 1, 1, one.data_ptr() if name == b"spin" else 1, self.stream.cuda_stream)
        torch.cuda.synchronize()

    def tensor(self) -> torch.Tensor:
        return torch.ones(1 << 20, device="cuda")

    def compute(self, tensor: torch.Tensor, seconds: float) -> None:
        self.launch(b"delay", 1, 1, int(seconds * 1e9), torch.cuda.current_stream().cuda_stream)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def check(self, code: int, what: str) -> None:
        assert code == 0, f"{what}: error {code}"

    def launch(self, name: bytes, blocks: int, threads: int, argument: int, stream: int) -> None:
        value = ctypes.c_uint64(argument)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        grid = map(ctypes.c_uint, (blocks, 1, 1, threads, 1, 1, 0))
        code = self.driver.cuLaunchKernel(self.kernels[name], *grid, ctypes.c_void_p(stream), arguments, None)
        self.check(code, "cuLaunchKernel")

    def kernel(self, tensor: torch.Tensor) -> None:
        self.launch(b"spin", 1, 1, self.word.data_ptr(), torch.cuda.current_stream().cuda_stream)

    def event(self, tensor: torch.Tensor) -> None:
        """The stream waits until the word is at least 1, as for an event that is never recorded."""
        wait, stream = self.driver.cuStreamWaitValue32_v2, torch.cuda.current_stream().cuda_stream
        code = wait(ctypes.c_void_p(stream), ctypes.c_uint64(self.word.data_ptr()), ctypes.c_uint32(1), ctypes.c_uint(0))
        self.check(code, "cuStreamWaitValue32")

    def nccl(self) -> None:
        """Blocks that never end fill rank 1's part of the GPU, so that NCCL's kernel does not run."""
        if hvd.rank() == 1:
            processors = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
            self.launch(b"spin", 2 * processors, 1024, self.word.data_ptr(), self.stream.cuda_stream)

    def lost(self, tensor: torch.Tensor) -> None:
        torch.zeros(1, device="cuda")[torch.tensor([1 << 20], device="cuda")]  # a failed assertion of the kernel


def backward(gpu: Any) -> None:
    """Submits the tensor, and waits for the GPU."""
    gradient = gpu.tensor()
    gpu.synchronize()
    if PLANT == "nccl":
        gpu.nccl()
    elif hvd.rank() == 1:
        getattr(gpu, PLANT)(gradient)
    handle = hvd.allreduce_async_(gradient, op=hvd.Sum, name="gradient.17")
    while PLANT == "lost" and not hvd.poll(handle):
        time.sleep(0.05)
    hvd.synchronize(handle)
    gpu.synchronize()


def train(gpu: Any) -> None:
    gradient, is_late = gpu.tensor(), hvd.rank() == 1
    for _ in range(STEPS):
        gpu.synchronize()
        if PLANT == "sleep" and is_late:
            time.sleep(LATE)
        gpu.synchronize()
        gpu.compute(gradient, 0.005 + (LATE if PLANT == "longer" and is_late else 0))
        hvd.synchronize(hvd.allreduce_async_(gradient, op=hvd.Sum, name="gradient"))
        gpu.synchronize()


def meet() -> None:
    """Waits for the other rank: the limits of the test are shorter than an import of torch on a busy machine."""
    (FOLDER / os.environ["HVD_RANK"]).touch()
    while len(list(FOLDER.iterdir())) < int(os.environ["HVD_SIZE"]):
        time.sleep(0.01)


signal.alarm(60)  # ends this rank if the test does not
gpu: Any = FakeGpu() if FAKE else None
meet()
hvd.init()
gpu = gpu or RealGpu()
for _ in range(3):  # a step is a repetition of "gradient"
    hvd.synchronize(hvd.allreduce_async_(gpu.tensor(), op=hvd.Sum, name="gradient"))
gpu.synchronize()
print("READY", flush=True)
if PLANT in ("sleep", "longer", "even"):
    train(gpu)
else:
    backward(gpu)
