"""Loaded before a file of checks: torch's CPU tensors are treated as tensors on the fake GPU, whose memory is host memory.

The runtime's CUDA and NCCL paths thus run under the same checks as CPU tensors.  Each rank has the GPU of its number, and all
work uses the default stream.
"""

import ctypes
import os
from pathlib import Path
from typing import Any

import torch

import hvd.torch as hvd
from hvd import _native
from hvd._runtime import world as _world
from hvd.torch import _adapter, ops

driver = ctypes.CDLL(os.environ["HVD_CUDA_LIBRARY"])
if hasattr(driver, "fake_cuda_copy_later"):  # libfakenothing.so has none
    driver.fake_cuda_copy_later.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int]

# Tensors that C reads are on the fake GPU too.
exchange = ctypes.CDLL(str(Path(os.environ["HVD_CUDA_LIBRARY"]).with_name("libfakeexchange.so")))
exchange.fake_exchange.restype, exchange.fake_exchange.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]
capsule_of = ctypes.pythonapi.PyCapsule_New
capsule_of.restype, capsule_of.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
NAME = b"dlpack_exchange_api"
if (torchs := getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)) is not None:
    ours = exchange.fake_exchange(pointer_of(torchs, NAME), hasattr(driver, "fake_cuda_copy_later"))
    _native.use_tensors(capsule_of(ours, NAME, None), torch.Tensor, torch.nn.Parameter, torch.Tensor.is_neg, torch.strided)
    _native.use_gpu_tensors()
    _world.at_new_world.append(lambda world: exchange.fake_exchange_gpu(world.local_rank))

real = _adapter.TorchAdapter
seen = {"tensors": 0}


class FakeAdapter(real):
    driver, exchange = driver, exchange
    stream = 0  # the current stream; files after this one may set another
    stream_of = staticmethod(lambda gpu: FakeAdapter.stream)

    def view(self, tensor: Any) -> Any:
        view = super().view(tensor)
        if view is None or getattr(tensor, "in_host_memory", False):
            return view
        seen["tensors"] += 1
        return *view[:3], (hvd.local_rank(), self.stream)

    def settle(self, devices: Any) -> None:
        if not self.is_capturing():  # a real GPU's next kernel would be queued after the result
            driver.cuStreamSynchronize(ctypes.c_void_p(self.stream))

    def adopt(self, capsule: Any, shape: tuple[int, ...], like: Any) -> Any:
        managed = pointer_of(capsule, b"dltensor")
        data = ctypes.c_void_p.from_address(managed).value
        kind, gpu = (ctypes.c_int32.from_address(managed + at).value for at in (8, 12))
        assert (kind, gpu) == (2, hvd.local_rank()), "a result of device memory was expected"
        length = ctypes.c_int64.from_address(ctypes.c_void_p.from_address(managed + 24).value or 0).value
        flat = torch.frombuffer(bytearray(ctypes.string_at(data, length)), dtype=torch.uint8) if length else torch.empty(0)
        flat = flat.to(torch.uint8) if not length else flat
        return flat.view(like.dtype).reshape(shape)


adapter = FakeAdapter()
ops.collectives._adapter = adapter
ops.collectives._view = ops.collectives._view_to_write = adapter.view
ops.collectives._settle = adapter.settle
ops.collectives._may_wait = adapter.may_wait


def check_the_fake_gpu_is_used() -> None:
    assert _native.built("cuda") == 13000 and _native.built("nccl") == 23007
    hvd.init()
    total = hvd.allreduce(torch.ones(5), op=hvd.Sum, name="fake")
    assert total.tolist() == [hvd.size()] * 5
    assert seen["tensors"] > 0
    assert hvd.nccl_built() == 23007 and hvd.cuda_built()
