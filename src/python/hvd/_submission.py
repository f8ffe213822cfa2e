# mypy: disable-error-code="no-any-return, arg-type"
"""How tensors get into the runtime and results out of it: what hvd/_collectives.py is written with.

Lifetime: the runtime reads and writes tensors' memory until an operation has
ended, so ``_pending`` owns them from submission to synchronize().
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any, Callable, Generic, Protocol, TypeVar, Union

from hvd import _native, _world
from hvd.exceptions import UnsupportedError
from hvd.process_sets import ProcessSet, number_of

T = TypeVar("T")
Handle = int

# hvd_kind
ALLREDUCE, ALLGATHER, BROADCAST, ALLTOALL, REDUCESCATTER, BARRIER, JOIN = range(7)

# hvd_reduce, Horovod's numbers
Average, Sum, Adasum, Min, Max, Product = range(6)

# hvd_dtype by name, and the bytes of one element
DTYPES = {
    "uint8": 0,
    "int8": 1,
    "uint16": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bool": 9,
    "bfloat16": 10,
    "float8_e4m3fn": 11,
    "float8_e5m2": 12,
}
ITEM_BYTES = (1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2, 1, 1)
_U8, _I32 = DTYPES["uint8"], DTYPES["int32"]
_HOST = -1

# address, dtype, shape, and the device: -1 for the host, or a GPU and the stream that the tensor comes from
Device = Union[int, tuple[int, int]]
View = tuple[int, int, tuple[int, ...], Device]


class Adapter(Protocol[T]):
    """What a framework must tell about its tensors."""

    framework: str

    def view(self, tensor: T) -> View | None:
        """The tensor's memory, when the runtime can use it where it lies (dense, row-major); else None.

        TypeError or ValueError for what no operation can take.
        """

    def pack(self, tensor: T) -> T:
        """A dense copy that view() accepts."""

    def like(self, tensor: T) -> T:
        """An uninitialised dense tensor of the same shape, dtype and device."""

    def assign(self, into: T, value: T) -> None:
        """Copies value into a tensor of the same shape, whatever its layout or device."""

    def adopt(self, capsule: Any, shape: tuple[int, ...], like: T) -> T:
        """A tensor of that shape, with like's dtype and device, over the bytes of a DLPack capsule, which it owns."""

    def integers(self, values: tuple[int, ...], like: Any) -> T:
        """A one-dimensional tensor on the host: like's dtype if like is a tensor of integers, else int32."""


def reduce_op(op: int | None, average: bool | None) -> int:
    """The reduce op of a call: op, or the older `average` flag, or Average.  ValueError when both are given."""
    if average is None:
        if op is None:
            return Average
        if op.__class__ is int and 0 <= op <= Product:
            return op
        raise ValueError(f"op is {op!r}: it must be one of Average, Sum, Adasum, Min, Max, Product")
    if op is not None:
        raise ValueError("op and average are both given: average is the older name of the same thing, leave it out")
    return Average if average else Sum


def scatter_op(op: int) -> int:
    """The reduce op of a reducescatter.  UnsupportedError for all but Average and Sum."""
    if op.__class__ is int and op in (Average, Sum):
        return op
    raise UnsupportedError(f"reducescatter with op {op!r}: it can be Average or Sum, not Adasum, Min, Max or Product")


def split_rows(splits: Any) -> tuple[int, ...] | None:
    """An alltoall's splits, a sequence or a one-dimensional tensor of integers, as the C module takes them."""
    if splits is None:
        return None
    rows = splits.tolist() if hasattr(splits, "tolist") else splits
    try:
        return tuple(map(operator.index, rows))
    except TypeError:
        raise ValueError("splits must be a one-dimensional sequence of integers, one for each rank") from None


def _nothing() -> None:
    pass


def gpu_of(device: Device) -> int:
    """The GPU of a view's device, -1 for the host."""
    return device[0] if isinstance(device, tuple) else device


def checked_name(name: Any) -> str | None:
    """A name for an operation.  TypeError for what is no string, ValueError where libhvd would read a part of it only."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name is {name!r}: it must be a string")
    if name and "\0" in name:
        raise ValueError(f"name is {name!r}: it must not contain a NUL character")
    return name


def member_name(name: str | None, index: int) -> str | None:
    """The name of one tensor of a group."""
    return None if name is None else f"{checked_name(name)}.{index}"


def checked_factor(factor: Any, what: str) -> float:
    """prescale_factor, postscale_factor.  TypeError for what is no number."""
    try:
        if not isinstance(factor, str):
            return float(factor)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{what} is {factor!r}: it must be a number")


def checked_predivide(factor: Any, op: int) -> float:
    """gradient_predivide_factor.  ValueError where it is no positive number, or the gradients are not averaged."""
    reduce_op(op, None)
    if not isinstance(factor, numbers.Real) or not 0 < float(factor) < math.inf:
        raise ValueError(f"gradient_predivide_factor is {factor!r}: it must be a number greater than 0")
    if factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor works with op=Average only")
    return float(factor)


class _Pending(Generic[T]):
    """One call under way: its handles, what it reads, and how its result is made."""

    __slots__ = ("handles", "owner", "result")

    def __init__(self, handles: list[int], owner: Any, result: Callable[[], Any]) -> None:
        self.handles = handles
        self.owner = owner
        self.result = result


class Submissions(Generic[T]):
    """Operations under way over one adapter.  Any thread; a handle is synchronised once."""

    def __init__(self, adapter: Adapter[T]) -> None:
        self._adapter = adapter
        self._view = adapter.view
        # For tensors on GPUs: what was waited for is done for whatever the framework computes from now on.
        self._settle: Callable[[], None] = getattr(adapter, "settle", _nothing)
        self._may_wait: Callable[[], None] = getattr(adapter, "may_wait", _nothing)
        # Either (owner, output), whose handle is the key, or a _Pending.
        self._pending: dict[Handle, Any] = {}
        _world.tables_of_handles.append(self._pending)

    # ---- handles

    def poll(self, handle: Any) -> bool:
        """Whether the operation has ended.  False right after the call: the first look at the newest handle is."""
        entry = self._pending.get(handle)
        if entry is None:
            raise ValueError(f"handle {handle!r} is unknown here, or was synchronised already")
        if entry.__class__ is tuple:
            return _native.poll(handle)
        return all(_native.poll(one) for one in entry.handles)

    def synchronize(self, handle: Any) -> Any:
        """Waits for the operation and returns its result: a tensor, or a list of them for a grouped one.

        A handle that was synchronised already gives None.
        """
        entry = self._pending.get(handle)
        if entry is None:
            return handle() if callable(handle) else None
        self._may_wait()
        try:
            if entry.__class__ is tuple:
                _native.finish(handle)
                self._settle()
                result = entry[1]
            else:
                result = entry.result()
        except KeyboardInterrupt:
            raise  # still under way: its tensors must stay
        except BaseException:
            del self._pending[handle]
            raise
        del self._pending[handle]
        return result

    # ---- how they are made

    def _staged(self, tensor: T) -> tuple[T, View]:
        work = self._adapter.pack(tensor)
        view = self._view(work)
        if view is None:
            raise ValueError(f"a {self._adapter.framework} tensor could not be made dense for the runtime")
        return work, view

    def _run_into_new(
        self,
        kind: int,
        tensor: T,
        name: str | None,
        reduce: int,
        root: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
    ) -> T:
        """A blocking operation: the wait follows the submission at once, so that this thread runs the engine itself."""
        view = self._view(tensor)
        if view is None:
            return self.synchronize(self._into_new(kind, tensor, name, reduce, root, prescale, postscale, process_set))
        out = self._adapter.like(tensor)
        target = self._view(out)[0]  # type: ignore[index]
        address, dtype, shape, device = view
        group = number_of(process_set)
        owner = (tensor, out)
        _native.run(kind, dtype, reduce, name, shape, root, group, device, prescale, postscale, address, target, owner)
        self._settle()
        return out

    def _into_new(
        self,
        kind: int,
        tensor: T,
        name: str | None,
        reduce: int,
        root: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
    ) -> Handle:
        view = self._view(tensor)
        out = self._adapter.like(tensor)
        work = tensor
        if view is None:
            work, view = self._staged(tensor)
            target = view[0]
        else:
            target = self._view(out)[0]  # type: ignore[index]
        address, dtype, shape, device = view
        group = number_of(process_set)
        handle = _native.submit(
            kind,
            dtype,
            reduce,
            name,
            shape,
            root,
            group,
            device,
            prescale,
            postscale,
            address,
            target,
        )
        self._pending[handle] = (tensor, out) if work is tensor else self._copying_back([handle], [work], [out], False)
        return handle

    def _group(
        self,
        kind: int,
        tensors: Sequence[T],
        in_place: bool,
        name: str | None,
        reduce: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
    ) -> Handle:
        group = number_of(process_set)
        works, outs, requests = [], [], []
        for index, tensor in enumerate(tensors):
            view = self._view(tensor)
            out = tensor if in_place else self._adapter.like(tensor)
            if view is None:
                work, view = self._staged(tensor)
                target = view[0]
            else:
                work = out
                target = view[0] if in_place else self._view(out)[0]  # type: ignore[index]
            address, dtype, shape, device = view
            works.append(work)
            outs.append(out)
            member = member_name(name, index)
            requests.append((kind, dtype, reduce, member, shape, 0, group, device, prescale, postscale, address, target))
        if not requests:
            raise ValueError("a grouped operation needs at least one tensor")
        handles = _native.submit_many(requests, _native.GROUP)
        entry = self._copying_back(handles, works, outs, True)
        entry.owner = (tensors, works)
        self._pending[handles[0]] = entry
        return handles[0]

    def _copying_back(self, handles: list[int], works: list[T], outs: Sequence[T], many: bool) -> _Pending[T]:
        def result() -> Any:
            _native.finish_many(handles)
            self._settle()
            for work, out in zip(works, outs):
                if work is not out:
                    self._adapter.assign(out, work)
            return list(outs) if many else outs[0]

        return _Pending(handles, works, result)

    def _gather(
        self,
        tensors: Sequence[T],
        names: Sequence[str | None],
        process_set: ProcessSet,
        many: bool,
        kind: int = ALLGATHER,
        reduce: int = Sum,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Handle:
        group = number_of(process_set)
        works, requests, sizes = [], [], []  # sizes: of an element, and the GPU that the result is on
        for tensor, name in zip(tensors, names):
            view = self._view(tensor)
            work = tensor
            if view is None:
                work, view = self._staged(tensor)
            address, dtype, shape, device = view
            works.append(work)
            sizes.append((ITEM_BYTES[dtype], gpu_of(device)))
            requests.append((kind, dtype, reduce, name, shape, 0, group, device, prescale, postscale, address, 0))
        if not requests:
            raise ValueError("a grouped operation needs at least one tensor")
        handles = _native.submit_many(requests, _native.GROUP if many else 0)

        def result() -> Any:
            outs = self._take_all(handles, sizes, tensors)
            return outs if many else outs[0]

        self._pending[handles[0]] = _Pending(handles, works, result)
        return handles[0]

    def _alltoall(self, tensor: T, splits: Any, name: str | None, process_set: ProcessSet) -> Handle:
        group, rows = number_of(process_set), split_rows(splits)
        view = self._view(tensor)
        work = tensor
        if view is None:
            work, view = self._staged(tensor)
        address, dtype, shape, device = view
        request = (ALLTOALL, dtype, Sum, name, shape, 0, group, device, 1.0, 1.0, address, 0, rows)
        handle = _native.submit_many([request], 0)[0]

        def result() -> Any:
            try:
                _native.wait(handle)
                received = _native.take_splits(handle, process_set.size() or 0)
            except Exception:
                _native.release(handle)
                raise
            self._settle()
            out = self._adapter.adopt(*_native.take(handle, ITEM_BYTES[dtype], gpu_of(device)), tensor)
            return out, self._adapter.integers(received, splits)

        self._pending[handle] = _Pending([handle], work, result)
        return handle

    def _take_all(self, handles: list[int], sizes: list[tuple[int, int]], tensors: Sequence[T]) -> list[T]:
        outs: list[T] = []
        error: Exception | None = None
        for handle, (item_bytes, gpu), tensor in zip(handles, sizes, tensors):
            try:
                _native.wait(handle)
            except Exception as failure:
                error = error or failure
                _native.release(handle)
                continue
            self._settle()
            outs.append(self._adapter.adopt(*_native.take(handle, item_bytes, gpu), tensor))
        if error:
            raise error
        return outs
