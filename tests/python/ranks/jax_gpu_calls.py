"""JAX's handler for GPUs, called like XLA does: with a table of functions and call frames made by hand, on the fake driver.

No JAX is needed.  The handler must use the program's stream, pass device memory to the runtime without a copy to the host,
and make the stream wait, not the host.
"""

import ctypes
import os
from pathlib import Path
from typing import Any

import hvd.numpy as hvd
from hvd import _native
from hvd._native import ALLGATHER, ALLREDUCE, ALLTOALL, BARRIER, BROADCAST, REDUCESCATTER, Average, Sum

WORD = ctypes.c_void_p
F32, TOKEN = 11, 17
LATE_US = 20_000  # duration of the kernel that makes an operation's input


def struct(*fields: tuple[str, Any]) -> type:
    """A struct of XLA's interface: its size and a pointer to extensions first."""
    return type("Struct", (ctypes.Structure,), {"_fields_": [("size", ctypes.c_size_t), ("extensions", WORD), *fields]})


Buffer = struct(("dtype", ctypes.c_int), ("data", WORD), ("rank", ctypes.c_int64), ("dims", WORD))
Buffers = struct(("count", ctypes.c_int64), ("types", WORD), ("buffers", WORD))
Attributes = struct(("count", ctypes.c_int64), ("types", WORD), ("names", WORD), ("values", WORD))
Frame = struct(
    ("api", WORD),
    ("context", WORD),
    ("stage", ctypes.c_int),
    ("arguments", Buffers),
    ("results", Buffers),
    ("attributes", Attributes),
    ("future", WORD),
)
ErrorCreate = struct(("message", ctypes.c_char_p), ("code", ctypes.c_int))
StreamGet = struct(("context", WORD), ("stream", WORD))
Text = type("Text", (ctypes.Structure,), {"_fields_": [("data", ctypes.c_char_p), ("length", ctypes.c_size_t)]})
Function = ctypes.CFUNCTYPE(WORD, WORD)


class Program:
    """An imitation of XLA that runs one program on a stream of this rank's GPU."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL(os.environ["HVD_CUDA_LIBRARY"])
        self.driver.fake_cuda_copy_later.argtypes = [WORD, WORD, ctypes.c_size_t, WORD, ctypes.c_int]
        self.driver.cuMemAlloc_v2.argtypes = [WORD, ctypes.c_size_t]
        context, stream = WORD(), WORD()
        assert self.driver.cuInit(0) == 0
        assert self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), hvd.local_rank()) == 0
        assert self.driver.cuCtxPushCurrent_v2(context) == 0
        assert self.driver.cuStreamCreateWithPriority(ctypes.byref(stream), 0, 0) == 0
        self.stream = stream
        self.errors: list[tuple[int, str]] = []
        self.streams_asked = 0
        functions = (WORD * 3)()
        self._functions = [Function(self._error), Function(self._stream)]  # XLA's table refers to them
        for place, function in enumerate(self._functions, 1):
            functions[place] = ctypes.cast(function, WORD)
        self.api = functions
        self.library = ctypes.CDLL(str(Path(_native.__file__).parent / "libhvd_jax.so"))
        self.library.hvd_jax_configure.restype = ctypes.c_char_p
        self.library.hvd_jax_cuda_handler.argtypes, self.library.hvd_jax_cuda_handler.restype = [WORD], WORD
        layout = (ctypes.c_int32 * 8)(0, 1, 0, 8, 0, 0, 0, 16)  # hvd::jax::xla::Layout: no futures
        assert self.library.hvd_jax_configure(layout) == b""

    def _error(self, arguments: int) -> int:
        error = ErrorCreate.from_address(arguments)
        self.errors.append((error.code, error.message.decode()))
        return 1

    def _stream(self, arguments: int) -> None:
        self.streams_asked += 1
        StreamGet.from_address(arguments).stream = self.stream

    def floats(self, count: int, *values: float) -> "ctypes.Array[ctypes.c_float]":
        """Device memory, into which a kernel of the program writes these values after some time."""
        address = WORD()
        assert self.driver.cuMemAlloc_v2(ctypes.byref(address), 4 * max(count, 1)) == 0
        array = (ctypes.c_float * count).from_address(address.value or 0)
        if values:
            self.driver.fake_cuda_copy_later(array, (ctypes.c_float * count)(*values), 4 * count, self.stream, LATE_US)
        return array

    def call(self, operation: str, ins: list[Any], outs: list[Any]) -> bool:
        """Calls the handler, and returns whether it succeeded. XLA may free host memory once the handler has returned."""
        kept: list[Any] = []

        def address(thing: Any) -> int:
            kept.append(thing)
            return ctypes.addressof(thing)

        def buffers(arrays: list[Any]) -> Any:
            pointers = (WORD * (len(arrays) + 1))()
            pointers[0] = address(Buffer(0, None, TOKEN, None, 0, None))
            for i, array in enumerate(arrays, 1):
                dims = (ctypes.c_int64 * 1)(len(array))
                pointers[i] = address(Buffer(0, None, F32, ctypes.addressof(array), 1, address(dims)))
            return Buffers(0, None, len(arrays) + 1, None, address(pointers))

        text = operation.encode()
        names = (WORD * 1)(address(Text(b"operation", 9)))
        values = (WORD * 1)(address(Text(text, len(text))))
        types = (ctypes.c_int * 1)(4)
        attributes = Attributes(0, None, 1, address(types), address(names), address(values))
        frame = Frame(0, None, ctypes.addressof(self.api), None, 3, buffers(ins), buffers(outs), attributes, None)
        return not self.library.hvd_jax_cuda_handler(ctypes.addressof(frame))

    def end(self) -> None:
        assert self.driver.cuStreamSynchronize(self.stream) == 0


def operation(kind: int, name: str, op: int = Sum, root: int = 0, group: int = 0) -> str:
    return f"{kind} {op} {root} 0 {group} 1.0 1.0 {name}"


made: list[Program] = []


def program() -> Program:
    if not made:
        hvd.init()
        assert _native.built("cuda") == 13000
        made.append(Program())
    return made[0]


def check_sums_of_device_memory() -> None:
    p = program()
    rank, size = hvd.rank(), hvd.size()
    for step in range(3):
        a, b = p.floats(3, rank, 1, step), p.floats(2, 10 * rank, 4)
        x, y = p.floats(3), p.floats(2)
        assert p.call(operation(ALLREDUCE, "sum", Sum if step else Average, group=1), [a, b], [x, y]), p.errors
        p.end()
        ranks, divisor = sum(range(size)), 1 if step else size
        assert list(x) == [ranks / divisor, size / divisor, step * size / divisor]
        assert list(y) == [10 * ranks / divisor, 4 * size / divisor]
    assert p.streams_asked == 3 and not p.errors


def check_a_broadcast_into_its_own_memory() -> None:
    p = program()
    a = p.floats(2, hvd.rank() + 1, 7)
    assert p.call(operation(BROADCAST, "root", root=1), [a], [a]), p.errors
    p.end()
    assert list(a) == [2, 7]


def check_results_that_the_ranks_make_together() -> None:
    """Results come in the runtime's memory, and are copied to XLA's on the stream."""
    p = program()
    rank, size = hvd.rank(), hvd.size()
    for _ in range(20):
        a = p.floats(2, rank, rank + 0.5)
        gathered, exchanged, scattered = p.floats(2 * size), p.floats(2), p.floats(2 // size + (rank < 2 % size))
        assert p.call(operation(ALLGATHER, "gather"), [a], [gathered]), p.errors
        assert p.call(operation(ALLTOALL, "exchange"), [a], [exchanged]), p.errors
        assert p.call(operation(REDUCESCATTER, "scatter"), [a], [scattered]), p.errors
        p.end()
        assert list(gathered) == [r + half for r in range(size) for half in (0, 0.5)]
        assert list(exchanged) == [r + 0.5 * rank for r in range(size)]
        assert list(scattered) == [sum(r + 0.5 * rank for r in range(size))]


def check_a_barrier_and_nothing() -> None:
    p = program()
    assert p.call(operation(BARRIER, "all"), [], []), p.errors
    assert p.call(operation(ALLREDUCE, "nothing", group=1), [], []), p.errors


def check_what_goes_wrong_is_said() -> None:
    p = program()
    assert not p.call(operation(ALLGATHER, "wrong"), [p.floats(2, 1, 2)], [p.floats(1)])
    code, text = p.errors.pop()
    assert code == 9 and "but this program was compiled for [1]" in text
    assert not p.call(
        operation(ALLREDUCE, "other"), [p.floats(2 + hvd.rank(), *range(2 + hvd.rank()))], [p.floats(2 + hvd.rank())]
    )
    assert p.errors.pop()[0] == 9
    real, p.stream = p.stream, WORD(None)
    assert not p.call(operation(ALLREDUCE, "streamless"), [p.floats(2)], [p.floats(2)])
    p.stream = real
    assert "does not tell the stream" in p.errors.pop()[1]
    p.end()
