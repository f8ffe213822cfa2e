"""A rank for test_agreement_on_gpu.py: agreement_on_gpu.py PLANT.  The GPU is the fake one if HVD_CUDA_LIBRARY names a fake.

"changed": the first number of a result changes on rank 1's GPU.  "even": all ranks keep their results.
"""

import ctypes
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch

import hvd.torch as hvd

PLANT = sys.argv[1]
STEPS = 2000 if PLANT == "changed" else 100
NUMBERS = 1 << 18


class FakeGpu:
    def __init__(self) -> None:
        path = Path(__file__).parents[1] / "python" / "ranks" / "fake_gpu.py"
        self.driver: Any = runpy.run_path(str(path))["driver"]

    def tensor(self) -> torch.Tensor:
        return torch.ones(NUMBERS)

    def change(self, tensor: torch.Tensor) -> None:
        self.driver.fake_cuda_flip(ctypes.c_void_p(tensor.data_ptr() + 2))

    def leave_alone(self) -> None:
        pass


# Writes 77 to `number`, again and again, until the word at `word` is not 0.
KERNEL = rb"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry scribble(.param .u64 number, .param .u64 word) {
  .reg .pred %p<2>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [number];
  ld.param.u64 %rd2, [word];
  mov.u32 %r2, 0x429a0000;
again:
  st.volatile.global.u32 [%rd1], %r2;
  ld.volatile.global.u32 %r1, [%rd2];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}
"""


class RealGpu:
    def __init__(self) -> None:
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.stream, self.other = torch.cuda.Stream(), torch.cuda.Stream()
        self.word = torch.ones(1, dtype=torch.int32, device="cuda")
        self.free = torch.zeros(1, device="cuda")
        module, self.kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.driver.cuModuleLoadData(ctypes.byref(module), KERNEL), "cuModuleLoadData")
        self.check(self.driver.cuModuleGetFunction(ctypes.byref(self.kernel), module, b"scribble"), "cuModuleGetFunction")
        torch.cuda.synchronize()
        self.launch(self.free)  # loaded now: a first launch may wait for the device
        torch.cuda.synchronize()
        self.writes = False

    def check(self, code: int, what: str) -> None:
        assert code == 0, f"{what}: error {code}"

    def tensor(self) -> torch.Tensor:
        return torch.ones(NUMBERS, device="cuda")

    def launch(self, tensor: torch.Tensor) -> None:
        values = [ctypes.c_uint64(one.data_ptr()) for one in (tensor, self.word)]
        arguments = (ctypes.c_void_p * 2)(*map(ctypes.addressof, values))
        grid = map(ctypes.c_uint, (1, 1, 1, 1, 1, 1, 0))
        stream = ctypes.c_void_p(self.stream.cuda_stream)
        self.check(self.driver.cuLaunchKernel(self.kernel, *grid, stream, arguments, None), "cuLaunchKernel")

    def change(self, tensor: torch.Tensor) -> None:
        if not self.writes:
            self.word.zero_()
            torch.cuda.synchronize()
            self.launch(tensor)
        self.writes = True

    def leave_alone(self) -> None:
        with torch.cuda.stream(self.other):
            self.word.fill_(1)


# The fake one before hvd.init(): it then learns the rank's number.
fake = FakeGpu() if "fakecuda" in os.environ.get("HVD_CUDA_LIBRARY", "") else None
hvd.init()
gpu = fake or RealGpu()
tensor = gpu.tensor()
try:
    for step in range(STEPS):
        hvd.allreduce_(tensor, op=hvd.Min, name="weights")
        if step >= 3 and PLANT == "changed" and hvd.rank() == 1:
            gpu.change(tensor)
finally:
    gpu.leave_alone()
print("done", flush=True)
