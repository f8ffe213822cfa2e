# mypy: disable-error-code="no-any-return, arg-type"
"""Submits tensors to the runtime and returns results: the base of hvd/_runtime/collectives.py.

All operations are asynchronous here; a blocking operation is one of these followed by synchronize().

Lifetime: the runtime reads and writes tensors' memory until an operation has ended.  So ``_pending`` owns the tensors from
submission to synchronize().
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Callable, Generic, Protocol, TypeVar

from hvd import _native
from hvd._runtime import world as _world
from hvd._runtime.arguments import split_rows
from hvd._runtime.requests import Device, Operation, Request, View, devices_of, gpu_of, item_bytes_of
from hvd.process_sets import ProcessSet, number_of, numbered

T = TypeVar("T")
Handle = int

# Objects that hold operations back: flush() submits them, drop() removes them. hand_over() removes the objects.
before_waiting: set[Any] = set()


def hand_over() -> None:
    """Submits all that this rank still holds back, so that no other rank waits for it."""
    while before_waiting:
        try:
            one = before_waiting.pop()
        except KeyError:  # another thread was faster
            return
        one.flush()


class Adapter(Protocol[T]):
    """A framework's functions on its tensors."""

    framework: str

    def view(self, tensor: T) -> View | None:
        """The tensor's memory if the runtime can use it in place (dense, row-major); else None.

        TypeError or ValueError for tensors that no operation accepts.
        """

    def pack(self, tensor: T) -> T:
        """A dense copy that view() accepts."""

    def like(self, tensor: T) -> T:
        """An uninitialised dense tensor of the same shape, dtype and device."""

    def assign(self, into: T, value: T) -> None:
        """Copies value into a tensor of the same shape.  Layouts and devices may differ."""

    def adopt(self, capsule: Any, shape: tuple[int, ...], like: T) -> T:
        """A tensor of that shape, with like's dtype and device, over the bytes of a DLPack capsule, which it owns."""

    def integers(self, values: tuple[int, ...], like: Any) -> T:
        """A one-dimensional tensor: int32, or with like's dtype if like is an integer tensor; torch: on like's device."""


def _nothing(_: Any) -> None:
    pass


def is_under_way(handle: int) -> bool:
    """Returns whether the operation is in progress: neither ended nor released.  An exception in its wait then came from a
    signal handler."""
    try:
        return not (_native.poll(handle) or _native.poll(handle))  # the first answer after a submission is always False
    except (ValueError, RuntimeError):  # it was released, or its world is gone
        return False


class _Pending:
    """One call in progress: its handles, the memory that the runtime uses, and the way to make its result.

    devices: the GPUs and streams of its tensors, each once.
    """

    __slots__ = ("devices", "handles", "owner", "result")

    def __init__(self, handles: list[int], owner: Any, result: Callable[[], Any], devices: Iterable[Device]) -> None:
        self.handles = handles
        self.owner = owner
        self.result = result
        self.devices = devices


class Submissions(Generic[T]):
    """Operations in progress over one adapter.  Any thread may call it, but only one synchronises a handle."""

    def __init__(self, adapter: Adapter[T]) -> None:
        self._adapter = adapter
        self._view = adapter.view
        # C can read some of its tensors (_native.use_tensors).
        self._direct: bool = getattr(adapter, "direct", False)
        # The view of a tensor that gets a result: ValueError if it may only be read.
        self._view_to_write: Callable[[T], View | None] = getattr(adapter, "view_to_write", adapter.view)
        # For GPUs: makes the framework's current streams wait for the operation's results.
        self._settle: Callable[[Iterable[Device]], None] = getattr(adapter, "settle", _nothing)
        self._may_wait: Callable[[Iterable[Device]], None] = getattr(adapter, "may_wait", _nothing)
        # One dense tensor: (input tensor, output tensor, devices), by its handle. All others: a _Pending, by its first handle.
        self._pending: dict[Handle, Any] = {}
        _world.tables_of_handles.append(self._pending)

    # ---- handles

    def poll(self, handle: Any) -> bool:
        """Returns whether the operation has ended.  The first call within 10 ms of the newest submission returns False."""
        entry = self._pending.get(handle)
        if entry is None:
            raise ValueError(f"handle {handle!r} is unknown here, or was synchronised already")
        if entry.__class__ is tuple:
            return _native.poll(handle)
        return all(_native.poll(one) for one in entry.handles)

    def is_pending(self, handle: Any) -> bool:
        """Returns whether synchronize() must still return the operation's result or error."""
        return handle in self._pending

    def synchronize(self, handle: Any) -> Any:
        """Waits for the operation and returns its result: a tensor, or a list of them for a grouped operation.

        A handle that was already synchronised gives None.
        """
        if self._direct:
            result = _native.finish_tensor(self._pending, handle, before_waiting)
            if result is not None:
                return result
        entry = self._pending.get(handle)
        if entry is None:
            return handle() if callable(handle) else None
        hand_over()
        one = entry.__class__ is tuple
        devices = entry[2] if one else entry.devices
        if devices:
            self._may_wait(devices)
        try:
            if one:
                _native.finish(handle)
                if devices:
                    self._settle(devices)
                result = entry[1]
            else:
                result = entry.result()
        except BaseException:
            if not any(is_under_way(each) for each in ((handle,) if one else entry.handles)):
                del self._pending[handle]
            raise  # otherwise a signal handler's exception has ended the wait: the tensors must stay
        del self._pending[handle]
        return result

    # ---- how they are made

    def dense(self, tensor: T, writes: bool = False) -> tuple[T, View]:
        """The tensor, or a dense copy of it, and its memory.  writes: it gets the result."""
        view = self._view_to_write(tensor) if writes else self._view(tensor)
        if view is not None:
            return tensor, view
        copy = self._adapter.pack(tensor)
        view = self._view(copy)
        if view is None:
            raise ValueError(f"a {self._adapter.framework} tensor could not be made dense for the runtime")
        return copy, view

    def _submit(self, operation: Operation, tensor: T, name: str | None, in_place: bool) -> Handle:
        """Submits one tensor.  The result goes into it, or into a new one like it."""
        view = self._view_to_write(tensor) if in_place else self._view(tensor)
        if view is None:
            return self._submit_many(operation, [tensor], [name], in_place, many=False)
        out, address = tensor, view[0]
        if not in_place:
            out = self._adapter.like(tensor)
            address = self._view(out)[0]  # type: ignore[index]
        handle = _native.submit((operation, name, view, address, None))
        self._pending[handle] = (tensor, out, devices_of((view,)))
        return handle

    def _submit_many(
        self,
        operation: Operation,
        tensors: Sequence[T],
        names: Sequence[str | None],
        in_place: bool,
        together: bool = False,
        many: bool = True,
    ) -> Handle:
        """_submit of several, with one handle.  together: they run as one group. many: the result is a list."""
        works, outs, requests, views = [], [], [], []
        for tensor, name in zip(tensors, names):
            work, view = self.dense(tensor, in_place)
            address = view[0]
            out = tensor if in_place else self._adapter.like(tensor)
            if work is tensor and not in_place:
                work, address = out, self._view(out)[0]  # type: ignore[index]
            works.append(work)
            outs.append(out)
            views.append(view)
            requests.append(Request(operation, name, view, address))
        if not requests:
            raise ValueError("a grouped operation needs at least one tensor")
        handles = _native.submit_many(requests, together)

        devices = devices_of(views)

        def result() -> Any:
            _native.finish_many(handles)
            self._settle(devices)
            for work, out in zip(works, outs):
                if work is not out:
                    self._adapter.assign(out, work)
            return outs if many else outs[0]

        self._pending[handles[0]] = _Pending(handles, (tensors, works), result, devices)
        return handles[0]

    def _note_group(self, outs: list[T], handles: list[int], devices: Iterable[Device]) -> Handle:
        """Keeps the tensors of a group that C has submitted, in place."""

        def result() -> list[T]:
            _native.finish_many(handles)
            self._settle(devices)
            return outs

        self._pending[handles[0]] = _Pending(handles, outs, result, devices)
        return handles[0]

    def _gather(self, operation: Operation, tensors: Sequence[T], names: Sequence[str | None], many: bool) -> Handle:
        """Submits tensors for operations with results of sizes that depend on all ranks.  many: a group; its result is
        a list."""
        dense = [self.dense(tensor) for tensor in tensors]
        requests = [Request(operation, name, view) for (_, view), name in zip(dense, names)]
        if not requests:
            raise ValueError("a grouped operation needs at least one tensor")
        try:
            handles = _native.submit_many(requests, many)
        except _native.Capturing:
            return self._gather_in_graph(operation, tensors, requests, many)

        def result() -> Any:
            outs = self._take_all(handles, [view for _, view in dense], tensors)
            return outs if many else outs[0]

        self._pending[handles[0]] = _Pending(handles, dense, result, devices_of([view for _, view in dense]))
        return handles[0]

    def _gather_in_graph(self, operation: Operation, tensors: Sequence[T], requests: Sequence[Request], many: bool) -> Handle:
        """_gather into tensors of the framework, which belong to the CUDA graph.  All ranks have the same number of rows."""
        adapter: Any = self._adapter  # those without tensors on GPUs lack rows()
        process_set = numbered(operation.process_set)
        place, ranks = process_set.rank() or 0, process_set.size() or 1
        outs, given, views = [], [], [request.view for request in requests]
        for tensor, request in zip(tensors, requests):
            rows = request.view[2][0] if request.view[2] else 0
            out = adapter.rows(
                tensor, rows * ranks if operation.kind == _native.ALLGATHER else (rows + ranks - 1 - place) // ranks
            )
            view = self._view(out)
            assert view is not None
            outs.append(out)
            given.append(request._replace(out=(view[0], prod(view[2]) * item_bytes_of(view))))
        handles = _native.submit_many(given, many)
        devices = devices_of(views)

        def result() -> Any:
            _native.finish_many(handles)
            self._settle(devices)
            return outs if many else outs[0]

        self._pending[handles[0]] = _Pending(handles, tensors, result, devices)
        return handles[0]

    def _alltoall(self, tensor: T, splits: Any, name: str | None, process_set: ProcessSet) -> Handle:
        operation, rows = Operation(_native.ALLTOALL, number_of(process_set)), split_rows(splits)
        work, view = self.dense(tensor)
        handle = _native.submit(Request(operation, name, view, splits=rows))

        def result() -> Any:
            try:
                _native.wait(handle)
                received = _native.take_splits(handle, process_set.size() or 0)
            except Exception:
                if not is_under_way(handle):
                    _native.release(handle)
                raise
            self._settle(devices_of((view,)))
            out = self._adapter.adopt(*_native.take(handle, item_bytes_of(view), gpu_of(view)), tensor)
            return out, self._adapter.integers(received, splits)

        self._pending[handle] = _Pending([handle], work, result, devices_of((view,)))
        return handle

    def _take_all(self, handles: list[int], views: list[View], tensors: Sequence[T]) -> list[T]:
        error: Exception | None = None
        for handle in handles:
            try:
                _native.wait(handle)
            except Exception as failure:
                if is_under_way(handle):
                    raise  # all handles stay valid
                error = error or failure
        if error:
            for handle in handles:
                _native.release(handle)
            raise error
        outs: list[T] = []
        for handle, view, tensor in zip(handles, views, tensors):
            self._settle(devices_of((view,)))
            outs.append(self._adapter.adopt(*_native.take(handle, item_bytes_of(view), gpu_of(view)), tensor))
        return outs
