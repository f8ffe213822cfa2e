"""Pending operations of a process group: torch's Work over the runtime's handles."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Callable

import torch
import torch.distributed as dist

from hvd import _native
from hvd._runtime import mismatched_calls
from hvd._runtime import world as _world
from hvd.torch._adapter import TorchAdapter
from hvd.torch._c10d.call_names import CallNames
from hvd.torch._c10d.group_futures import Promise, caller, filler
from hvd.torch._c10d.late_calls import LateCalls, has_ended, is_under_way, release, wait_within
from hvd.torch.ops import collectives

_Work: Any = torch._C._distributed_c10d.Work
_LOOK_SECONDS = 0.5  # how often a wait checks whether its group was aborted
_LEFT_SECONDS = 5.0  # how long the next call waits for the end of a call that an exception has left
_MOST_CALLBACKS = 512
_MANY = 256  # beyond this number, works without a waiter are checked for their end

# By the first handle.  They own their tensors while the runtime uses them.
under_way: dict[int, GroupWork] = {}
names_of_new: dict[int, bytes] = {}  # names of calls that have no work yet
_world.tables_of_handles += under_way, names_of_new


def seconds_of(opts: Any) -> float | None:
    """The call's own time-out; None: the group's time-out applies."""
    timeout = getattr(opts, "timeout", None)
    return timeout.total_seconds() if timeout and timeout.days >= 0 else None


class GroupState:
    """The group's state that its works share.  seconds: limit of a wait."""

    def __init__(self, label: str, seconds: float) -> None:
        self.label = label
        self.seconds = seconds
        self.aborted = False
        self.left: GroupWork | None = None  # the pending call whose wait ended early
        self.timed_out = False  # at the group's own limit; otherwise by an exception of a signal handler
        self.late = LateCalls()
        self._names = CallNames(label)
        self._names_of_callbacks: dict[bytes, CallNames] = {}

    def refuse(self) -> None:
        """Refuses a call after left: it would be matched with another call of the other ranks.

        One case is allowed: a signal handler's exception has left that call, and the call ends within 5 s. All ranks have made
        the call then, so the group goes on.
        """
        left = self.left
        if left is None:
            return
        if not self.timed_out and left.ends_within(_LEFT_SECONDS):
            self.left = None
            return
        how = "timed out before" if self.timed_out else "was left by an exception before, some ranks have not called it,"
        raise dist.DistBackendError(
            f"{self.label}: {left.called()} {how}, and still owns its tensor.  End the program, or call "
            "destroy_process_group() and make the group again"
        )

    def names(self) -> CallNames:
        """The names of this thread's calls: those of its callback, or the program's."""
        name = caller()
        if not name:
            return self._names
        found = self._names_of_callbacks.get(name)
        if found is None:
            if len(self._names_of_callbacks) >= _MOST_CALLBACKS:
                self._names_of_callbacks.clear()
            found = self._names_of_callbacks[name] = CallNames(f"{self.label} in {name.decode()}")
        return found

    def restart_names(self) -> None:
        """Forgets earlier calls, after ranks have disagreed on one."""
        self._names.restart()
        self._names_of_callbacks.clear()


class GroupWork(_Work):  # type: ignore[misc]
    """One call.  Any thread may wait for it; its result is put in place once.

    complete: makes the result, and forgets the handles, when all handles have ended without error.  None: there is no result to
    make.  owner: memory that the runtime uses meanwhile.  outputs: the value of result() and of the future.  opts: c10d's.
    """

    _owner: Any = None
    _complete: Callable[[], None] | None = None
    _seconds: float | None = None  # the group's limit
    _stack: mismatched_calls.Stack | None = None  # of an asynchronous collective, whose wait has another stack
    _error: BaseException | None = None
    _ended = False
    _ordered: tuple[tuple[int, int], ...] = ()  # GPUs, and the stream there that waits for the results
    _promise: Promise | None = None  # the promise of its future
    _record: Any = None
    _name = b""  # empty for a message, which is no call of all ranks
    _caller = b""  # name of the callback that has made it

    def __init__(
        self,
        group: GroupState,
        handles: Sequence[int],
        outputs: Any,
        owner: Any = None,
        complete: Callable[[], None] | None = None,
        opts: Any = None,
    ) -> None:
        _Work.__init__(self)
        self._group = group
        self._handles = handles
        self._outputs = outputs
        self._lock = threading.Lock()
        if owner is not None:
            self._owner = owner
        if complete is not None:
            self._complete = complete
        if opts is not None:
            self._seconds = seconds_of(opts)
            if getattr(opts, "asyncOp", False):
                self._stack = mismatched_calls.present_stack()
        if not handles:
            self._ended = True
            return
        self._name = names_of_new.pop(handles[0], b"")
        self._caller = caller()
        if handles[0] < 0:  # recorded in a CUDA graph
            self._settle(None)
            return
        if len(under_way) > _MANY:
            _forget_ended()
        under_way[handles[0]] = self

    # ---- torch's Work

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits for the operation's end.  On GPUs the current stream waits for the results, and the host does not.

        Errors: the operation's; DistBackendError after the time limit.  The operation stays pending then.  After its own
        timeout it can be waited for again; after the group's, the group refuses further calls.  After an exception of a signal
        handler, the group refuses further calls until the operation has ended.
        """
        if not self._ended:
            seconds = timeout.total_seconds() if timeout else 0.0
            if seconds > 0:
                self._end(seconds)
            else:
                self._end_or_break()
        if self._error is not None:
            raise copy.copy(self._error)  # the stored error has no traceback, which would keep the caller's variables alive
        if self._ordered:
            collectives._settle(self._ordered)  # for a caller on another stream than the first caller's
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if not self._ended and self._lock.acquire(blocking=False):  # otherwise another thread waits for it
            try:
                if not self._ended and self._has_arrived():
                    self._finish()
            finally:
                self._lock.release()
        return self._ended

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> Any:
        self.wait()
        return self._outputs

    def source_rank(self) -> int:
        raise RuntimeError("source_rank() is for a receive from any source, which this backend does not have")

    def get_future(self) -> Any:
        """A future of the outputs, which another thread completes."""
        with self._lock:
            fresh = self._promise is None
            if self._promise is None:
                self._promise = Promise(_gpus_of(self._outputs), self._name) if self._name else Promise()
            promise = self._promise
        if fresh:
            if self._ended:
                self.fill_future(self._error)
            else:
                _native.part_begin(_native.PART_FUTURE)
                filler.add(self, self._caller if self._name else self)
        return promise.future

    # ----

    def await_end(self) -> Exception | None:
        """Like wait(), but returns the error, for the future's waiters.  Ends the part PART_FUTURE."""
        error = None
        try:
            self.wait()
        except Exception as failure:
            error = failure
        _native.part_end(_native.PART_FUTURE)
        return error

    def fill_future(self, error: BaseException | None) -> None:
        """Completes the future, and runs its callbacks."""
        if filler.ending or self._promise is None:
            return
        if error is not None:
            self._promise.set_error(error)
        else:
            self._promise.set_result(self._outputs)

    def also(self, call: Callable[[], object]) -> None:
        """Adds call to the making of the result.  Must precede any wait."""
        if self._ended:  # recorded in a CUDA graph: call is too
            call()
            return
        before = self._complete

        def complete() -> None:
            if before is not None:
                before()
            else:
                for handle in self._handles:
                    _native.release(handle)
            call()

        self._complete = complete

    def end_record(self, record: Any) -> None:
        """Ends the profiler's record with the operation."""
        with self._lock:
            if not self._ended:
                self._record = record
                return
        record.__exit__(None, None, None)

    def has_arrived(self) -> bool:
        """Whether the runtime has ended the operation.  Unlike is_completed(), leaves an error to the program's own wait.  So
        names restart at the same call on all ranks.
        """
        try:
            return self._ended or self._has_arrived()
        except Exception:
            return True  # another thread has released it

    def await_arrival(self) -> None:
        """Waits until the runtime has ended the operation, without a limit.  Other threads can use this object meanwhile.

        RuntimeError if the group is aborted.
        """
        while not self._ended:
            try:
                if all(wait_within(handle, _LOOK_SECONDS) for handle in self._handles):
                    return
            except Exception:
                return  # it failed, or another thread has released it
            if self._group.aborted:
                raise RuntimeError(f"{self._group.label} was aborted, with this operation under way")

    def _has_arrived(self) -> bool:
        return all(has_ended(handle) for handle in self._handles)

    def _end_or_break(self) -> None:
        """Waits as long as the group allows."""
        seconds = self._seconds or self._group.seconds
        try:
            self._end(seconds)
        except BaseException as error:
            if not self._ended and not self._group.aborted and not self._group.timed_out:
                self._group.timed_out = isinstance(error, dist.DistBackendError)
                self._group.left = self
            raise

    def ends_within(self, seconds: float) -> bool:
        """Waits for its end, also if it fails."""
        try:
            self._end(seconds)
        except dist.DistBackendError:
            return False
        return True

    def called(self) -> str:
        """Its name, for messages."""
        return self._name.decode() or "a message"

    def _end(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        if not self._lock.acquire(timeout=seconds):
            raise self._late(seconds)
        try:
            if not self._ended:
                self._finish(seconds, limit)
        finally:
            self._lock.release()

    def _finish(self, seconds: float = 0.0, limit: float = 0.0) -> None:
        """seconds: time limit, for the error message.  limit: its end, by time.monotonic()."""
        failed = None
        for handle in self._handles:
            try:
                while not wait_within(handle, min(_LOOK_SECONDS, max(0.0, limit - time.monotonic()))):
                    if self._group.aborted:
                        raise dist.DistBackendError(f"{self._group.label} was aborted, with this operation under way")
                    if time.monotonic() >= limit:
                        raise self._late(seconds)
            except dist.DistBackendError:
                raise  # still pending: its tensors must stay
            except Exception as error:
                if is_under_way(handle):
                    raise  # an exception of a signal handler
                failed = failed or error
        if failed is not None:
            self._disagreed()
            if self._stack is not None and getattr(failed, "code", "") == "mismatch":
                mismatched_calls.tell(str(failed), self._stack)
        self._settle(failed)

    def _disagreed(self) -> None:
        self._group.restart_names()

    def _settle(self, failed: Exception | None) -> None:
        if failed is None and self._complete is not None:
            try:
                self._complete()
                self._ordered = tuple((gpu.index, TorchAdapter.stream_of(gpu.index)) for gpu in _gpus_of(self._outputs))
            except Exception as error:
                failed = error
        else:
            for handle in self._handles:
                release(handle)
        self._error = failed.with_traceback(None) if failed is not None else None
        under_way.pop(self._handles[0], None)
        self._owner = self._complete = None
        self._close()

    def _close(self) -> None:
        self._ended = True
        if self._record is not None:
            self._record.__exit__(None, None, None)
            self._record = None

    def _late(self, seconds: float) -> Exception:
        return dist.DistBackendError(
            f"{self._group.label}: Timed out waiting {seconds * 1000:.0f}ms for ranks that have not called this operation yet "
            "(hvdrun's report of hanging ranks says where they are)"
        )


def _gpus_of(outputs: Any) -> list[torch.device]:
    """The GPUs of tensors, in lists or not."""
    if isinstance(outputs, torch.Tensor):
        return [outputs.device] if outputs.is_cuda else []
    if outputs is None:
        return []
    return list(dict.fromkeys(device for part in outputs for device in _gpus_of(part)))


def _forget_ended() -> None:
    """Removes ended works without a waiter."""
    for work in list(under_way.values()):
        work.is_completed()
