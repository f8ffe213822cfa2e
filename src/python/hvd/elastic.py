"""States that survive an error, and training functions that resume after it.  No framework.

    @hvd.elastic.run
    def train(state): ...

A state keeps a copy of everything that training must not lose.  commit() makes the copy, restore() returns to it, sync()
gives every rank the state of rank 0.

In an elastic job (hvdrun --min-np, --max-np or --host-discovery-script) ranks join and leave.  run() restores the
state.  The survivors keep their processes and meet again, and training continues with the present ranks.  In a job of fixed
ranks, run() continues only if all ranks live.  The ranks have disagreed then, or one has left the world by shutdown.  If a rank
is lost, run() restores the state and raises.
"""

from __future__ import annotations

import copy
import functools
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, overload

from hvd import _native
from hvd._elastic import holders as _holders
from hvd._elastic import host_changes as _host_changes
from hvd._elastic import shares as _shares
from hvd._elastic import state_file as _state_file
from hvd._elastic.global_batches import GlobalBatch, GlobalBatches
from hvd._job import preemption as _preemption
from hvd._job import should_stop as _should_stop
from hvd._runtime import environment as _environment
from hvd._runtime import objects as _objects
from hvd._runtime import world as _world
from hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt, carried_errors

__all__ = ["GlobalBatch", "GlobalBatches", "HostUpdateResult", "ObjectState", "State", "run", "run_fn"]

# The last commit in a file, for hvdrun --state-dir.
_file = _state_file.of_environment()
_FLUSH_SECONDS = 60.0  # hvdrun's grace period is usually shorter


def _flush() -> None:
    if _file:
        _file.flush(_FLUSH_SECONDS)


# An error that returns this often without a commit in between is permanent.
_ATTEMPTS = 3


class HostUpdateResult:
    """The argument of on_hosts_updated(); a sum if both happened."""

    no_update, removed, added, mixed = 0, 1, 2, 3


class _HostMessages(queue.Queue[tuple[float, int]]):
    """The state's messages about hosts.  A check for messages includes the guard's reports.

    Ranks learn of new workers when these are ready, not when their hosts are found.  So training does not wait for their start.
    Horovod reports workers earlier, and its scripts poll empty().  So empty() waits for the late report, with a limit.
    """

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state

    def empty(self) -> bool:
        if self.look():
            _host_changes.changes.wait()
        return self.look()

    def look(self) -> bool:
        """Adds the guard's last report, if there is a new one.  Returns whether no message waits."""
        change = _host_changes.changes.next()
        if change:  # newer than the report of any earlier rank 0, by any clock
            self.put((max(time.time(), self._state._last_updated_timestamp + 1), change))
        return super().empty()


class State:
    """The base of training states.  Subclasses save and restore the state, and send it to all ranks.

    bcast_object: broadcasts an object from rank 0.  get_rank: this rank.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages = _HostMessages(self)
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], None]] = []
        self._commits = self._checks = 0

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Adds functions to call in each new world, before sync().  For example, they adapt the learning rate to its size."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """run() calls it in a new world."""
        self._host_messages = _HostMessages(self)
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Reports changed hosts to this rank; rank 0's report counts.  From any thread."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Keeps a copy of the current values, then calls check_host_updates().  Collective.

        A commit copies the whole state: do not commit at every step.
        """
        self.save()
        self._commits += 1
        if _file:
            _file.put(self._commits, self.saved_copy())
        checks = self._checks
        self.check_host_updates()  # returns after all ranks have kept their copies
        if self._checks == checks:  # the method is the script's own: the others will notice
            _preemption.leave_if_asked(_flush)

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt, on all ranks at the same call, if rank 0 has learned of changed hosts.  Collective.

        In an elastic job it also raises if SIGTERM has asked a rank to leave, which then leaves.
        """
        self._checks += 1
        before, latest, what = self._last_updated_timestamp, self._last_updated_timestamp, HostUpdateResult.no_update
        while not self._host_messages.look():
            timestamp, update = self._host_messages.get()
            if timestamp > latest:
                latest = timestamp
                what |= update
        hosts, leaves = (before, latest, what), False
        if _is_elastic() and _world.is_active():
            hosts, leaves = _preemption.agree(hosts)
        else:
            hosts = self._bcast_object(hosts)
        before, self._last_updated_timestamp, what = hosts
        changed = self._last_updated_timestamp > before
        if leaves or changed:
            raise HostsUpdatedInterrupt(not changed or what == HostUpdateResult.removed)

    def save(self) -> None:
        """Keeps a copy."""
        raise NotImplementedError

    def restore(self) -> None:
        """Returns to the copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives every rank the state of rank 0, and keeps a copy.  Collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """Hook for subclasses in a new world, before sync()."""

    def saved_copy(self) -> Any:
        """The copy that save() keeps: an object that can be pickled, and that does not change any more.

        Needed for --state-dir, and for a new rank 0.
        """
        raise NotImplementedError(f"{type(self).__name__} has no saved_copy() and use_saved_copy(): --state-dir needs them")

    def use_saved_copy(self, copy: Any) -> None:
        """Sets the copy from saved_copy() of an equal state in an earlier run; restore() returns to it."""
        raise NotImplementedError


class ObjectState(State):
    """Objects that can be pickled, as attributes: ObjectState(bcast_object, get_rank, epoch=0, batch=0).

    The copy is deep, so a list that grows after a commit is restored completely.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state = copy.deepcopy(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)

    def _set(self) -> None:
        for name, value in copy.deepcopy(self._saved_state).items():
            setattr(self, name, value)

    def save(self) -> None:
        """See State."""
        values = copy.deepcopy({name: getattr(self, name) for name in self._saved_state})
        check_results(values)
        self._saved_state = values

    def restore(self) -> None:
        """See State."""
        self._set()

    def saved_copy(self) -> dict[str, Any]:
        """See State."""
        return {"values": self._saved_state}

    def use_saved_copy(self, copy: Any) -> None:
        """See State.  ValueError if the copy belongs to a state with other names."""
        _need_names("values", self._saved_state, copy["values"])
        self._saved_state = copy["values"]

    def sync(self) -> None:
        """See State: sends rank 0's current attributes."""
        if self._saved_state:
            self._saved_state = self._bcast_object({name: getattr(self, name) for name in self._saved_state})
            self._set()


def check_results(copies: Any = None) -> None:
    """Waits until the GPUs have finished; call it after making copies and before keeping them.

    An operation on GPUs ends when it is queued.  If a rank dies after that, the result is cut off.  A copy may then
    hold the sum of only some ranks.  Errors: HorovodInternalError in that case.
    """
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    if jax is not None and hasattr(jax, "block_until_ready"):
        jax.block_until_ready(copies)
    if _world.is_active():
        _native.check_world()


def _need_names(what: str, ours: Iterable[str], theirs: Iterable[str]) -> None:
    """ValueError if the state in a file is that of another program."""
    if sorted(ours) != sorted(theirs):
        raise ValueError(f"the {what} in it are {sorted(theirs)}, and those of this program {sorted(ours)}")


@contextmanager
def _at_most(what: str) -> Iterator[None]:
    """Ends this process if the block exceeds the limit, because a peer will not come.  A job of fixed ranks ends with
    it."""
    limit = _environment.number("HOROVOD_ELASTIC_TIMEOUT")
    if _is_elastic():
        limit += 30  # hvdrun's own limit comes first, and its message says more
    done = threading.Event()

    def watch() -> None:
        if not done.wait(limit):
            print(
                f"hvd.elastic: {what} took more than {limit:g} s (HOROVOD_ELASTIC_TIMEOUT): a rank has not come back; "
                "this rank ends. Start the job again from its last checkpoint.",
                file=sys.stderr,
                flush=True,
            )
            os._exit(1)

    thread = threading.Thread(target=watch, name="hvd elastic limit", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()


def rejoin() -> None:
    """Leaves the world and joins the next one.  Collective; ends the process if the others do not come."""
    for leave in _world.before_rejoin:
        leave()
    _host_changes.changes.seen()  # later reports concern the next world, or a later one
    with _at_most("joining the other ranks again"):
        _world.shutdown()
        _world.init()


def _is_elastic() -> bool:
    """Returns whether this job's ranks may change."""
    return _environment.flag("HOROVOD_ELASTIC")


def _can_go_on(error: HorovodInternalError) -> bool:
    """Returns whether all ranks live after the error: the ranks disagreed, or a rank has left the world and will return."""
    return error.code != "peer_lost" or _native.departed()


def _unrecoverable(error: HorovodInternalError, why: str) -> HorovodInternalError:
    told = HorovodInternalError(f"{error}. The state is as it was at its last commit, but {why}")
    told.code = error.code
    return told


def run_fn(func: Callable[..., Any], reset: Callable[[], None], keep_global_batch: bool = False) -> Callable[..., Any]:
    """Returns a function that calls func(state, ...) again after an error; reset() joins a new world.  See run."""

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        if not _file:
            return train(state, *args, **kwargs)
        _file.begin_call(getattr(func, "__qualname__", type(func).__name__))
        is_writer = _world.is_active() and _world.rank() == 0
        with _preemption.finishes_writing(_flush, is_writer or _is_elastic()):
            return train(state, *args, **kwargs)

    def train(state: State, *args: Any, **kwargs: Any) -> Any:
        synchronized = resetting = failed = False
        _shares.enable(keep_global_batch)
        failures, commits = 0, -1
        elastic = _is_elastic()
        has_state = not _environment.flag("HVD_ELASTIC_LATE")  # a late rank has none at first
        is_trained = False  # the state is newer than the program's initial state
        with _preemption.ends_in_native_code():
            _world.admit()
        if _world.takes_another_place():
            state.on_reset()
        while True:
            try:
                if resetting:
                    with _preemption.ends_in_native_code():
                        reset()
                    if failed and elastic:
                        # until now, peers may have written parts of the failed operation into memory of other objects
                        state.restore()
                    failed = False
                    state.on_reset()
                    resetting = False
                if elastic:
                    had_state = has_state
                    has_state, synchronized = _holders.give_to_rank_0(state, has_state, synchronized)
                    is_trained = is_trained or has_state != had_state
                if not synchronized:
                    if _file:
                        held = state._commits if is_trained else -1
                        mine = (is_trained, state._commits, _file.call)
                        told = _objects.allgather_object(mine, "hvd.elastic.commits")
                        known, state._commits, call = told[0]
                        _file.take_call(next((call for trained, _, call in told if trained), call))
                        has_state = (not known and _file.load(state, held)) or has_state
                    if not has_state and _world.is_active() and _world.rank() == 0:
                        lacks = f", and {_file.path} has no commit yet" if _file else ""
                        raise RuntimeError(f"all ranks that had the training's state are gone{lacks}; start from a checkpoint")
                    _shares.agree()
                    state.sync()
                    has_state = is_trained = True
                if _file:
                    _file.begin_world()
                with _preemption.waits_for_commit(_flush) if elastic else nullcontext(), carried_errors():
                    result = func(state, *args, **kwargs)
                if _file and _should_stop.told:
                    _file.keep(_FLUSH_SECONDS)
                elif _file:
                    _file.finish()
                return result
            except HorovodInternalError as error:
                if resetting and not elastic:
                    raise
                state.restore()
                synchronized, resetting, failed = False, True, True
                if elastic and error.code != "mismatch":
                    continue  # hvdrun decides when to give up
                if not elastic and not _can_go_on(error):
                    why = "the job has a fixed number of ranks (hvdrun --min-np): start it again from its last checkpoint"
                    raise _unrecoverable(error, why) from error
                failures = failures + 1 if state._commits == commits else 1
                commits = state._commits
                if failures == _ATTEMPTS:
                    raise _unrecoverable(error, f"the same place has failed {_ATTEMPTS} times") from error
            except HostsUpdatedInterrupt as interrupt:
                synchronized, resetting = interrupt.skip_sync, True

    return wrapper


@overload
def run(func: Callable[..., Any], *, keep_global_batch: bool = ...) -> Callable[..., Any]: ...
@overload
def run(*, keep_global_batch: bool = ...) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
def run(func: Callable[..., Any] | None = None, *, keep_global_batch: bool = False) -> Any:
    """Decorates a training function; its first argument is a State.  Works with and without arguments.

    The function is called after state.sync().  After a HorovodInternalError the state is restored, the ranks join
    again, and the function is called again.  After a HostsUpdatedInterrupt nothing is restored, so no work is lost.  In
    an elastic job, a rank that is not in the next world exits with code 0 inside this call.  A rank that gets SIGTERM,
    and has no handler for it, leaves at its next commit() or check_host_updates().  The other ranks are interrupted
    there too.

    keep_global_batch: the global batch keeps its size from the first world.  The batch has one share for each rank of that
    world. The present ranks divide all shares, so that training takes the same course as without losses.  See
    hvd.torch.elastic.GlobalBatchLoader for PyTorch, GlobalBatches for JAX, TensorFlow, Keras and NumPy. Errors:
    HorovodInternalError if the same place fails three times without a commit in between.  In a job of fixed ranks, also if a
    rank is lost.
    """
    if func is None:
        return functools.partial(run, keep_global_batch=keep_global_batch)
    return run_fn(func, rejoin, keep_global_batch)


def translating(
    func: Callable[..., Any],
    errors: tuple[type[Exception], ...],
    ours_of: Callable[[Any], HorovodInternalError | None],
    afterwards: Callable[[], None] = lambda: None,
) -> Callable[..., Any]:
    """A function that calls func.  If a framework's error reports one of our errors, it raises our error instead.

    errors: the framework's types; ours_of(error): our error, or None for any other error; afterwards: called after each call.
    """

    @functools.wraps(func)
    def translated(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except errors as error:
            ours = ours_of(error)
            if ours is None:
                raise
            raise ours from error
        finally:
            afterwards()

    return translated


def broadcast_from_rank_0(obj: Any) -> Any:
    """The bcast_object of all frameworks' states; in a world of one it returns the object."""
    _world.need()
    return obj if _world.size() == 1 else _objects.broadcast_object(obj, 0, "hvd.elastic.state")
