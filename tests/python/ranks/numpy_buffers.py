"""hvd.numpy on other buffers than arrays: buffers, DLPack tensors, and the dtypes that can only be moved."""

import array
import mmap
from unittest import SkipTest

import numpy as np
from refusals import raises

import hvd.numpy as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
TOTAL = SIZE * (SIZE - 1) // 2


def check_buffers():
    numbers = array.array("d", [RANK, 1.5])
    out = hvd.allreduce(numbers, op=hvd.Sum)
    assert isinstance(out, np.ndarray) and out.tolist() == [TOTAL, 1.5 * SIZE] and numbers[0] == RANK
    assert hvd.allreduce_(numbers, op=hvd.Sum) is numbers and numbers.tolist() == [TOTAL, 1.5 * SIZE]
    view = memoryview(np.full((2, 3), RANK, np.int32))
    assert hvd.allreduce_(view, op=hvd.Max) is view and view.tolist() == [[SIZE - 1] * 3] * 2
    data = bytearray([RANK, 7])
    assert hvd.synchronize(hvd.broadcast_async_(data, 1)) is data and list(data) == [1, 7]
    with mmap.mmap(-1, 8) as pages:
        pages[0] = RANK
        hvd.broadcast_(pages, 1)
        assert pages[0] == 1
    assert hvd.allgather(bytes([RANK, 9])).tolist() == [x for rank in range(SIZE) for x in (rank, 9)]
    assert hvd.grouped_allreduce([numbers, np.float32(RANK)], op=hvd.Sum)[1] == TOTAL


def check_read_only():
    raises(ValueError, lambda: hvd.allreduce_(bytes(3)), "bytes is read-only")
    frozen = np.full(3, float(RANK))
    frozen.flags.writeable = False
    raises(ValueError, lambda: hvd.broadcast_(frozen, 0), "read-only")
    raises(ValueError, lambda: hvd.grouped_allreduce_([np.ones(2), frozen]), "read-only")
    assert hvd.allreduce(frozen, op=hvd.Sum).tolist() == [TOTAL] * 3
    assert hvd.reducescatter(np.broadcast_to(np.float32(RANK), (SIZE,)), op=hvd.Sum).tolist() == [TOTAL]


def check_nothing_is_copied():
    from hvd._runtime import numpy_adapter as _numpy_adapter

    adapter = _numpy_adapter.NumpyAdapter()
    frozen = np.arange(6.0)
    frozen.flags.writeable = False
    assert adapter.view(frozen)[0] == frozen.ctypes.data
    numbers = array.array("i", [1, 2, 3])
    assert adapter.view(numbers)[0] == numbers.buffer_info()[0]
    assert adapter.like(np.ones(5, np.int16)).ctypes.data % 64 == 0


class Exporter:
    """A tensor of another framework."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


def check_dlpack():
    tensor = Exporter(np.full(4, float(RANK)))
    out = hvd.allreduce(tensor, op=hvd.Sum)
    assert isinstance(out, np.ndarray) and out.tolist() == [TOTAL] * 4
    assert hvd.allgather(tensor).shape == (4 * SIZE,)
    if np.from_dlpack(np.ones(1)).flags.writeable:  # NumPy 2.1 and later
        assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor and tensor.values.tolist() == [TOTAL] * 4
    try:
        import torch
    except ImportError as missing:
        raise SkipTest(str(missing)) from None
    weights = torch.full((3, 2), float(RANK))
    assert hvd.allreduce(weights, op=hvd.Max).tolist() == [[SIZE - 1.0] * 2] * 3
    raises(TypeError, lambda: hvd.allreduce(torch.ones(2, dtype=torch.bfloat16)), "array of its values")
    raises(TypeError, lambda: hvd.allreduce(torch.ones(2, requires_grad=True)), "array of its values")


def check_python_values():
    raises(TypeError, lambda: hvd.allreduce([1, 2]), "numpy.array(value, dtype)")
    raises(TypeError, lambda: hvd.allgather(1.5), "numpy.array(value, dtype)")
    raises(TypeError, lambda: hvd.broadcast("text", 0), "not a str")
    raises(TypeError, lambda: hvd.allreduce(None), "not a NoneType")


def check_rare_dtypes():
    for dtype in ("uint64", "complex64", "complex128", ">u4", "datetime64[s]", "timedelta64[ms]"):
        x = (np.arange(2 * SIZE) + RANK).astype(dtype)
        everyone = [(np.arange(2 * SIZE) + rank).astype(dtype) for rank in range(SIZE)]
        out = hvd.allgather(x)
        assert out.dtype == x.dtype.newbyteorder("=")
        np.testing.assert_array_equal(out, np.concatenate(everyone))
        np.testing.assert_array_equal(hvd.broadcast(x, 1), everyone[1])
        np.testing.assert_array_equal(hvd.broadcast_(x.copy(), 1), everyone[1])
        np.testing.assert_array_equal(hvd.alltoall(x), np.concatenate([y[2 * RANK : 2 * RANK + 2] for y in everyone]))
        if x.dtype.kind in "uc":
            np.testing.assert_array_equal(hvd.allreduce(x, op=hvd.Sum), np.sum(everyone, 0))
            assert hvd.reducescatter(x, op=hvd.Sum).dtype == x.dtype.newbyteorder("=")
        else:
            raises(ValueError, lambda x=x: hvd.allreduce(x, name="dates"), "dates", "opaque is not possible", "cast")
    x = np.array([1 + 2j, RANK + 1 - 1j], "complex64")
    np.testing.assert_array_equal(hvd.allreduce(x, op=hvd.Product), np.prod([[1 + 2j, r + 1 - 1j] for r in range(SIZE)], 0))
    huge = np.array([2**64 - 1 - RANK, 2**63 + RANK], "uint64")
    assert hvd.allreduce(huge, op=hvd.Max).tolist() == [2**64 - 1, 2**63 + SIZE - 1]
    assert hvd.allreduce(huge, op=hvd.Min, postscale_factor=0.5).tolist() == [2**63, 2**62]
    raises(ValueError, lambda: hvd.allgather(np.array(["a", "b"])), "cannot be exchanged")
    raises(ValueError, lambda: hvd.broadcast(np.array([{}]), 0), "cannot be exchanged")


def check_small_floats():
    try:
        import ml_dtypes
    except ImportError as missing:
        raise SkipTest(str(missing)) from None
    x = np.full(5, RANK + 0.5, ml_dtypes.bfloat16)
    out = hvd.allreduce(x, op=hvd.Sum)
    assert out.dtype == x.dtype and out.astype(float).tolist() == [TOTAL + 0.5 * SIZE] * 5
    assert hvd.allgather(x).dtype == x.dtype
    for kind in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        small = np.full(3, RANK + 1, kind)
        assert hvd.allgather(small).astype(float).tolist() == [rank + 1 for rank in range(SIZE) for _ in range(3)]
        out = hvd.allreduce(small, op=hvd.Sum)
        assert out.dtype == small.dtype and out.astype(float).tolist() == [TOTAL + SIZE] * 3
        small[:] = ml_dtypes.finfo(kind).max
        assert (hvd.allreduce(small) == small).all() and not np.isfinite(hvd.allreduce(small, op=hvd.Sum).astype(float)).any()
    rare = np.full(3, RANK, ml_dtypes.float8_e4m3fnuz)
    assert hvd.allgather(rare).astype(float).tolist() == [rank for rank in range(SIZE) for _ in range(3)]
    raises(ValueError, lambda: hvd.allreduce(rare), "opaque is not possible", "cast")
