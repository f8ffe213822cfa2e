"""States to come back to, and training functions that go on after an error.  No framework.

    @hvd.elastic.run
    def train(state): ...

A state keeps a copy of what training must not lose.  commit() makes the copy, restore() goes back to it, sync() gives
every rank what rank 0 has.

In an elastic job (hvdrun --min-np, --max-np or --host-discovery-script) ranks come and go: run() restores the state, the
survivors keep their processes and meet again, and training goes on among those that there are.  In a job of fixed ranks
it goes on where all of them live (they disagreed, or one left the world by shutdown); where one is lost, run() restores
the state and raises.
"""

from __future__ import annotations

import copy
import functools
import mmap
import os
import queue
import struct
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, overload

from hvd import _environment, _holders, _native, _objects, _preemption, _shares, _state_file, _world
from hvd._global_batches import GlobalBatch, GlobalBatches
from hvd.exceptions import HorovodInternalError, HostsUpdatedInterrupt, carried_errors

__all__ = ["GlobalBatch", "GlobalBatches", "HostUpdateResult", "ObjectState", "State", "run", "run_fn"]

# The last commit in a file, where hvdrun --state-dir asks for it.
_file = _state_file.of_environment()
_FLUSH_SECONDS = 60.0  # hvdrun's grace is mostly shorter


def _flush() -> None:
    if _file:
        _file.flush(_FLUSH_SECONDS)


# An error that comes back this often without a commit in between will come back for ever.
_ATTEMPTS = 3


class HostUpdateResult:
    """What on_hosts_updated() is told; a sum where both happened."""

    no_update, removed, added, mixed = 0, 1, 2, 3


# The word of the status page (src/wire/shared/status_page.h) by which the guard tells that an elastic job's hosts have changed.
_PAGE_BYTES, _PAGE_MARK, _HOST_CHANGES_AT = 4096, 0x31796C6C61745648, 4088


_WORKERS_SECONDS, _LOOK_SECONDS = 60.0, 0.01


class _HostChanges:
    """What the guard has told of changed hosts since seen() was called last."""

    def __init__(self) -> None:
        self._page: mmap.mmap | None = None
        self._looked, self._seen = False, 0
        self._waited_for = -1

    def _word(self) -> int:
        if not self._looked:
            self._looked = True
            try:
                page = mmap.mmap(_environment.integer("HVD_STATUS_FD"), _PAGE_BYTES, prot=mmap.PROT_READ)
                self._page = page if struct.unpack_from("=Q", page)[0] == _PAGE_MARK else None
            except (OSError, ValueError):
                pass  # no guard
        return int(struct.unpack_from("=Q", self._page, _HOST_CHANGES_AT)[0]) if self._page is not None else 0

    def seen(self) -> None:
        self._seen = self._word() >> 3

    def next(self) -> int:
        """How they have changed, as HostUpdateResult; 0: not since the last call."""
        word = self._word()
        if word >> 3 == self._seen:
            return 0
        self._seen = word >> 3
        return word & 3

    def wait(self) -> None:
        """Where new workers are being started: until they are ready, 60 s at most, and once for each change."""
        limit = time.monotonic() + _WORKERS_SECONDS
        while self._word() & 4 and self._word() >> 3 == self._seen != self._waited_for and not _native.departed():
            if time.monotonic() > limit:
                self._waited_for = self._seen
            time.sleep(_LOOK_SECONDS)


_host_changes = _HostChanges()


class _HostMessages(queue.Queue[tuple[float, int]]):
    """What a state was told of hosts; whoever asks whether there is something hears of the guard's words, too.

    Ranks hear of new workers when these are ready, not when their hosts are found: training need not wait for their start.
    A script that looks here itself waits for news, with a limit that is for Horovod's early ones: it gets the late ones.
    """

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state

    def empty(self) -> bool:
        if self.look():
            _host_changes.wait()
        return self.look()

    def look(self) -> bool:
        """Whether it is empty now."""
        change = _host_changes.next()
        if change:  # later than what any rank 0 before has told, by whatever clock
            self.put((max(time.time(), self._state._last_updated_timestamp + 1), change))
        return super().empty()


class State:
    """What training goes on from.  Subclasses say how it is saved, restored and given to all ranks.

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
        """Functions to call when the ranks have formed a new world, before sync(): to set a learning rate by its size."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called by run() in a new world."""
        self._host_messages = _HostMessages(self)
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Tells this rank that hosts came or went; rank 0's word counts.  From any thread."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Keeps what is there now, then check_host_updates().  Collective.  It copies everything: not at every step."""
        self.save()
        self._commits += 1
        if _file:
            _file.put(self._commits, self.saved_copy())
        checks = self._checks
        self.check_host_updates()  # behind it all ranks have kept theirs
        if self._checks == checks:  # it is the script's own: the others will find out
            _preemption.leave_if_asked(_flush)

    def check_host_updates(self) -> None:
        """HostsUpdatedInterrupt, on all ranks at the same call, when rank 0 has heard of other hosts.  Collective.

        In an elastic job also when SIGTERM has asked a rank to leave, which it then does.
        """
        self._checks += 1
        before, latest, what = self._last_updated_timestamp, self._last_updated_timestamp, HostUpdateResult.no_update
        while not self._host_messages.look():
            timestamp, update = self._host_messages.get()
            if timestamp > latest:
                latest = timestamp
                what |= update
        hosts, leaves = (before, latest, what), False
        if _is_elastic() and _world.is_initialized():
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
        """Goes back to the copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives every rank what rank 0 has, and keeps a copy.  Collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """What a subclass does in a new world, before sync()."""

    def saved_copy(self) -> Any:
        """What save() has kept: an object that can be pickled, and that nobody changes any more.

        For --state-dir, and for a rank 0 that is new.
        """
        raise NotImplementedError(f"{type(self).__name__} has no saved_copy() and use_saved_copy(): --state-dir needs them")

    def use_saved_copy(self, copy: Any) -> None:
        """Takes what saved_copy() of an equal state has given, in an earlier run; restore() goes back to it."""
        raise NotImplementedError


class ObjectState(State):
    """Objects that can be pickled, as attributes: ObjectState(bcast_object, get_rank, epoch=0, batch=0).

    What is kept is a deep copy, so that a list which grows after a commit comes back as it was.
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
        """See State.  ValueError where it is of a state with other names."""
        _need_names("values", self._saved_state, copy["values"])
        self._saved_state = copy["values"]

    def sync(self) -> None:
        """See State: the attributes as rank 0 has them now."""
        if self._saved_state:
            self._saved_state = self._bcast_object({name: getattr(self, name) for name in self._saved_state})
            self._set()


def check_results(copies: Any = None) -> None:
    """Waits until the GPUs have finished; call it between making copies and keeping them.

    An operation on GPUs is over when it is queued.  Where a rank dies after that, its result is cut off, and a copy holds
    the sum of some ranks.  Errors: HorovodInternalError then.
    """
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    if jax is not None and hasattr(jax, "block_until_ready"):
        jax.block_until_ready(copies)
    if _world.is_initialized():
        _native.check_world()


def _need_names(what: str, ours: Iterable[str], theirs: Iterable[str]) -> None:
    """ValueError where the state in a file is that of another program."""
    if sorted(ours) != sorted(theirs):
        raise ValueError(f"the {what} in it are {sorted(theirs)}, and those of this program {sorted(ours)}")


@contextmanager
def _at_most(what: str) -> Iterator[None]:
    """Ends this process, and a job of fixed ranks with it, when the block takes longer than the limit: a peer will not come."""
    limit = _environment.number("HOROVOD_ELASTIC_TIMEOUT")
    if _is_elastic():
        limit += 30  # hvdrun's own limit is the first, and its words say more
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
    """Leaves the world and joins the next one.  Collective; ends the process where the others do not come."""
    for leave in _world.before_rejoin:
        leave()
    _host_changes.seen()  # what is told from here on is of the next world, or of a later one
    with _at_most("joining the other ranks again"):
        _world.shutdown()
        _world.init()


def _is_elastic() -> bool:
    """Whether ranks of this job come and go."""
    return _environment.flag("HOROVOD_ELASTIC")


def _can_go_on(error: HorovodInternalError) -> bool:
    """Whether every rank still lives: they disagreed, or one has left the world and will come back."""
    return error.code != "peer_lost" or _native.departed()


def _unrecoverable(error: HorovodInternalError, why: str) -> HorovodInternalError:
    told = HorovodInternalError(f"{error}. The state is as it was at its last commit, but {why}")
    told.code = error.code
    return told


def run_fn(func: Callable[..., Any], reset: Callable[[], None], keep_global_batch: bool = False) -> Callable[..., Any]:
    """func(state, ...) that is called again after an error; reset() joins a new world.  See run."""

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        synchronized = resetting = failed = False
        _shares.enable(keep_global_batch)
        failures, commits = 0, -1
        elastic = _is_elastic()
        has_state = not _environment.flag("HVD_ELASTIC_LATE")  # of who began later, once it has got it
        is_trained = False  # it is more than what the program began with
        _world.admit()
        if _world.takes_another_place():
            state.on_reset()
        while True:
            try:
                if resetting:
                    reset()
                    if failed and elastic:  # until then peers may have written their parts of what has failed into memory
                        state.restore()  # that is another object's by now
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
                        known, state._commits = _objects.broadcast_object(
                            (is_trained, state._commits), 0, "hvd.elastic.commits"
                        )
                        has_state = (not known and _file.load(state, held)) or has_state
                    if not has_state and _world.is_initialized() and _world.rank() == 0:
                        raise RuntimeError("all ranks that had the training's state are gone; start from a checkpoint")
                    _shares.agree()
                    state.sync()
                    has_state = is_trained = True
                if _file:
                    _file.begin_world()
                with _preemption.waits_for_commit(_flush) if elastic else nullcontext(), carried_errors():
                    result = func(state, *args, **kwargs)
                if _file:
                    _file.finish()
                return result
            except HorovodInternalError as error:
                if resetting and not elastic:
                    raise
                state.restore()
                synchronized, resetting, failed = False, True, True
                if elastic and error.code != "mismatch":
                    continue  # hvdrun knows when to give up
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
    """Decorates a training function whose first argument is a State, and gives its result; with and without arguments.

    It is called after state.sync().  HorovodInternalError: the state is restored, the ranks join again, and it is called
    again.  HostsUpdatedInterrupt: the same, but nothing is restored, so no work is lost.
    In an elastic job a rank that is not in the next world exits with code 0 in here, and one that gets SIGTERM leaves at
    its next commit() or check_host_updates(), where it has no handler of its own: the others are interrupted there too.

    keep_global_batch: the batch of all ranks stays what it was in the first world.  Its shares, one for each rank of that,
    are dealt to the ranks that there are, so that training takes the same course as if nobody had been lost.  See
    hvd.torch.elastic.GlobalBatchLoader for PyTorch, GlobalBatches for JAX, TensorFlow, Keras and NumPy.
    Errors: HorovodInternalError when the same place fails three times without a commit in between; in a job of fixed
    ranks also when a rank is lost.
    """
    if func is None:
        return functools.partial(run, keep_global_batch=keep_global_batch)
    return run_fn(func, rejoin, keep_global_batch)


def broadcast_from_rank_0(obj: Any) -> Any:
    """The bcast_object of all frameworks' states; in a world of one the object itself."""
    _world.need()
    return obj if _world.size() == 1 else _objects.broadcast_object(obj, 0, "hvd.elastic.state")
