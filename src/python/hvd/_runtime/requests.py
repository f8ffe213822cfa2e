"""Arguments for the C module: a Request for each tensor, made of its Operation and a View of its memory.

The C module reads all three as tuples (ext/native/requests.c).  Kinds, reductions and dtypes are the lists of
include/hvd/hvd.h; the C module exports them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Union

from hvd import _native

U8 = _native.DTYPES["uint8"]
HOST = -1

# HOST, or the pair (GPU, stream on which the tensor is computed).
Device = Union[int, tuple[int, int]]


# A tensor's memory, dense and row-major: address (or the bytes or bytearray itself), dtype, shape, device.
View = tuple[Any, int, tuple[int, ...], Device]


def gpu_of(view: View) -> int:
    """The GPU of the memory, -1 for the host."""
    device = view[3]
    return device[0] if isinstance(device, tuple) else device


def devices_of(views: Iterable[View]) -> tuple[Device, ...]:
    """The GPUs and streams of the views, each once; empty for host memory."""
    devices = [view[3] for view in views if view[3] != HOST]
    return tuple(set(devices)) if len(devices) > 1 else tuple(devices)


def item_bytes_of(view: View) -> int:
    """The bytes of one element."""
    return _native.ITEM_BYTES[view[1]]


class Operation(NamedTuple):
    """The values that all tensors of a call share."""

    kind: int  # _native.ALLREDUCE and the others
    process_set: int | None  # its number; None means that the set does not exist, and is refused
    reduce: int = _native.Sum
    root: int = 0  # broadcast: the rank within the set
    prescale: float = 1.0
    postscale: float = 1.0


class Request(NamedTuple):
    """One tensor of one operation."""

    operation: Operation
    name: str | bytes | None  # None: derived from the order of the calls; bytes: used unchanged, without the kind as prefix
    view: View
    # allreduce, broadcast: the address of the result, or a bytearray.  It has view's shape and dtype, and may be view's memory
    # reducescatter, alltoall, and allgather on a GPU: address and bytes of memory on view's device.  A result of exactly this
    # size is written there, and is not taken
    out: int | bytearray | tuple[int, int] = 0
    splits: tuple[int, ...] | None = None  # alltoall: rows for each rank of the set; None: equal parts


def gather_bytes(name: str | None, data: bytes, process_set: int | None) -> bytes:
    """The bytes of all ranks of a set, one after the other.  Collective; blocks."""
    operation = Operation(_native.ALLGATHER, process_set)
    handle = _native.submit(Request(operation, name, (data, U8, (len(data),), HOST)))
    try:
        _native.wait(handle)
    except Exception:
        _native.release(handle)
        raise
    except BaseException:
        _native.leak(data)  # a signal handler raised; the runtime still reads data
        raise
    return _native.take_bytes(handle)


def join(process_set: int) -> int:
    """Declares that this rank has no more data.  Waits until all ranks of the set have done so.  Returns the last
    one."""
    handle = _native.submit(Request(Operation(_native.JOIN, process_set), None, (0, U8, (), HOST)))
    try:
        _native.wait(handle)
    except BaseException:
        _native.release(handle)
        raise
    return _native.join_result(handle)
