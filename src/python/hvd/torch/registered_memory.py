"""Memory that the runtime and NCCL access directly, for tensors."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch

from hvd import _native
from hvd._runtime import environment as _environment
from hvd.torch._adapter import _from_dlpack

__all__ = ["alloc", "mem_pool"]

_CPU = torch.device("cpu")


def _libhvd() -> str:
    return _environment.text("HVD_LIBRARY") or str(Path(_native.__file__).with_name("libhvd.so"))


def _try(path: str, device: int) -> None:
    """Raises RuntimeError unless NCCL gives memory of this GPU."""
    library = ctypes.CDLL(path)
    library.hvd_gpu_alloc.restype, library.hvd_last_error.restype = ctypes.c_void_p, ctypes.c_char_p
    data = library.hvd_gpu_alloc(ctypes.c_size_t(1), device, None)
    if not data:
        raise RuntimeError(f"hvd.mem_pool: {library.hvd_last_error().decode()}")
    library.hvd_gpu_free(ctypes.c_void_p(data), ctypes.c_size_t(1), device, None)


@functools.cache
def mem_pool() -> Any:
    """The process's torch.cuda.MemPool, whose memory comes from ncclMemAlloc.

    `with torch.cuda.use_mem_pool(hvd.mem_pool()):` puts new tensors there.  The runtime registers this memory with NCCL when it
    sends a tensor alone.  The runtime sends a tensor alone if the tensor has 8 MiB or more, or is alone in its batch.  Then
    NCCL needs no copies through its own buffers where the hardware allows that.  On every rank, the tensors of one operation
    must come from this pool, or none.  The process keeps the memory.  RuntimeError: without a GPU, with torch before 2.5, or
    with NCCL before 2.19.
    """
    if not hasattr(torch.cuda, "MemPool"):
        raise RuntimeError(f"hvd.mem_pool requires torch 2.5, and this is {torch.__version__}")
    if not torch.cuda.is_available():
        raise RuntimeError("hvd.mem_pool: torch sees no GPU")
    torch.zeros(0, device="cuda")  # CUDA has started
    path = _libhvd()
    _try(path, torch.cuda.current_device())
    pluggable: Any = torch.cuda.memory.CUDAPluggableAllocator(path, "hvd_gpu_alloc", "hvd_gpu_free")
    return torch.cuda.MemPool(pluggable.allocator())


def alloc(*size: int, dtype: torch.dtype | None = None, device: torch.device | str | int | None = None) -> torch.Tensor:
    """A new tensor in memory that the runtime accesses directly.

    size: like torch.empty's.  On a CPU: zeros, in memory that all ranks of this host share.  If all ranks of the host have an
    allreduce's tensor in such memory, they reduce directly between their tensors.  On a GPU: undefined content, in the memory
    of mem_pool().  Each call with a CPU takes whole pages of 4 KiB.
    device: by default torch's default device.
    """
    dtype = dtype or torch.get_default_dtype()
    where = torch.device(device) if device is not None else torch.empty(0).device
    shape = torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
    if where.type == "cuda":
        with torch.cuda.use_mem_pool(mem_pool()):
            return torch.empty(shape, dtype=dtype, device=where)
    if where != _CPU:
        raise ValueError(f"alloc: device {where}: cpu and cuda are possible")
    count = shape.numel() * dtype.itemsize
    return _from_dlpack(_native.alloc(max(count, 1)))[:count].view(dtype).view(shape)
