"""The adapter for torch tensors.  No compiled code: data_ptr, shape and dtype suffice.

Works with torch 2.0.1 and later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

import torch

from hvd import _native
from hvd._native import DTYPES, OPAQUE
from hvd._runtime.requests import Device, View

# The function that torch.utils.dlpack.from_dlpack calls for a capsule.
_from_dlpack = getattr(torch._C, "_from_dlpack", torch.utils.dlpack.from_dlpack)
# 8-bit floats that DTYPES lacks can only be moved.  Before torch 2.3, torch has no unsigned integers but uint8.
_CODES = {dtype: OPAQUE for name, dtype in vars(torch).items() if name.startswith("float8_")}
_CODES |= {getattr(torch, name): code for name, code in DTYPES.items() if hasattr(torch, name)}

# In torch 2.10 and later C reads ordinary tensors.  TorchAdapter reads all other tensors, and every tensor of older torch.
_exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
_direct = _native.use_tensors(_exchange, torch.Tensor, torch.nn.Parameter, torch.Tensor.is_neg, torch.strided)


def _current_stream(gpu: int) -> int:
    return int(torch.cuda.current_stream(gpu).cuda_stream)


class TorchAdapter:
    """Adapter[torch.Tensor].

    CUDA tensors: an operation begins after the work that the current stream has at submission.  synchronize() makes that stream
    wait for the result.  The host waits for neither.  If libhvd finds no driver, this class copies tensors to host memory.
    """

    framework = "torch"
    direct = _direct
    # The address of a GPU's current stream.  torch's public function makes an object first, and takes 20 times as long.
    stream_of: Callable[[int], int] = staticmethod(getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream))

    def __init__(self) -> None:
        self._cuda: bool | None = None  # unknown until there is a tensor on a GPU

    def view(self, tensor: torch.Tensor) -> View | None:
        try:
            if tensor.is_cpu and tensor.is_contiguous():
                address = tensor.data_ptr()
                if tensor.is_neg() or tensor.is_conj() or (not address and tensor.numel()):
                    return None  # torch's lazy negatives, conjugates and zeros: their memory, if any, has other content
                return address, _CODES[tensor.dtype], tensor.shape, -1
            if tensor.is_cuda and tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj()) and self._has_cuda():
                gpu = tensor.get_device()
                return tensor.data_ptr(), _CODES[tensor.dtype], tensor.shape, (gpu, self.stream_of(gpu))
        except KeyError:
            raise ValueError(f"tensors of {tensor.dtype} cannot be exchanged (possible: {', '.join(DTYPES)})") from None
        except (AttributeError, RuntimeError):
            pass
        self._refuse(tensor)
        return None

    def _has_cuda(self) -> bool:
        if self._cuda is None:
            self._cuda = bool(_native.built("cuda"))
            if self._cuda:
                _native.use_memory("torch")  # uses torch's allocator if it is available, else the driver's
                _native.use_gpu_tensors()
        return self._cuda

    def may_wait(self, devices: Iterable[Device]) -> None:
        """Must be called before results on these devices are taken.  A stream that is being captured into a graph
        can wait for operations in the graph only: ValueError.  Other results stay, and can be taken after the capture."""
        for device in devices:
            # The default stream, 0, cannot be captured.
            if (
                device.__class__ is tuple
                and self.stream_of(device[0])
                and self.is_capturing()
                and not self._is_captured(*device)
            ):
                raise ValueError(
                    "hvd: the current stream is being captured into a CUDA graph, and cannot wait for an operation outside "
                    "of the graph (synchronize before or after the capture; the result is kept)"
                )

    @staticmethod
    def is_capturing() -> bool:
        """Returns whether the current stream is being captured into a CUDA graph."""
        cuda: Any = torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    def _is_captured(self, gpu: int, stream: int) -> bool:
        """Returns whether the operations submitted on this stream go into a CUDA graph."""
        if stream == 0 or self.stream_of(gpu) == stream:
            return stream != 0  # the default stream cannot be captured
        external: Any = torch.cuda.ExternalStream
        with torch.cuda.stream(external(stream, device=gpu)):
            return self.is_capturing()

    def settle(self, devices: Iterable[Device]) -> None:
        """Call it when operations on tensors of these devices have ended, and their streams wait for the results.  Makes the
        current stream of each GPU wait too, if the operations used another stream."""
        external: Any = torch.cuda.ExternalStream  # it has no type annotations
        for device in devices:
            if device.__class__ is tuple and self.stream_of(device[0]) != device[1]:
                gpu, stream = device
                torch.cuda.current_stream(gpu).wait_stream(external(stream, device=gpu))

    @staticmethod
    def _refuse(tensor: Any) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"a torch.Tensor is needed, not a {type(tensor).__name__}")
        if tensor.layout is not torch.strided:
            raise ValueError(f"a dense tensor is needed, not one of layout {tensor.layout} (see sparse_allreduce_async)")
        if tensor.device.type not in ("cpu", "cuda"):
            raise ValueError(f"tensors on {tensor.device} cannot be exchanged")

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
        if not dense.data_ptr() and dense.numel():
            dense = dense.clone()  # a ZeroTensor
        return dense if dense.is_cpu or self._has_cuda() else dense.cpu()

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)

    def rows(self, tensor: torch.Tensor, number: int) -> torch.Tensor:
        """An uninitialised dense tensor like this one, with another number of rows."""
        return tensor.new_empty((number, *tensor.shape[1:]))

    def assign(self, into: torch.Tensor, value: torch.Tensor) -> None:
        with torch.no_grad():
            into.copy_(value)

    def integers(self, values: tuple[int, ...], like: Any) -> torch.Tensor:
        if not isinstance(like, torch.Tensor):
            return torch.tensor(values, dtype=torch.int32)
        return torch.tensor(values, dtype=torch.int32 if like.dtype.is_floating_point else like.dtype, device=like.device)

    def adopt(self, capsule: Any, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        flat = _from_dlpack(capsule)
        tensor = flat.view(like.dtype).reshape(shape)
        return tensor if like.is_cpu else tensor.to(like.device)
