"""init, shutdown and this rank's place, the same for every framework.

The numbers are read once, at init.  So rank() and the related functions cost only a list look-up.  These functions also work in
forked children, such as DataLoader workers.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Callable, NamedTuple, TypeVar

from hvd import _native
from hvd import process_sets as _sets
from hvd._job import started_by_others as _started_by_others
from hvd._job import step_hooks as _step_hooks
from hvd._runtime import environment as _environment
from hvd._runtime import one_process as _one_process
from hvd.exceptions import HorovodInternalError
from hvd.process_sets import ProcessSet

# The names of this file that every framework's package offers, listed only here.
__all__ = [
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "sycl_built",
]


T = TypeVar("T")


class World(NamedTuple):
    """The result of hvd_get_world."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    homogeneous: int
    mpi_threads: int


_world: World | None = None
_entered_in = 0  # the process that is the rank
_at_exit = False
# A newcomer: a rank that an elastic job has started while others train (docs/decisions/63-elastic-jobs.md).
_expects = 0  # number of the process in which init() has returned expected numbers, while this rank is in no world
_told: World | None = None  # the expected world that init() returned; None: the rank was no newcomer
_has_joined = False  # a world, in this process
_admission = threading.RLock()
at_new_world: list[Callable[[World], None]] = []  # called when this rank has joined a world


def _joined() -> World:
    if _world is None:
        raise ValueError("hvd is not initialised: call hvd.init() first")
    return _world


def init(comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Joins the world that the launcher made; without a launcher, a world of one.  Collective.

    Launchers: hvdrun, Open MPI's mpirun, torchrun (and others that set its variables), srun for a step on one host.

    process_sets: sets to make now, in addition to the global one.  Or "dynamic": add_process_set will make them (always
    allowed).
    A further call only makes process_sets that do not exist yet.
    An elastic job may start a rank while others train.  There the call returns at once, with the expected rank and size.  The
    rank joins the world in hvd.elastic.run, or in the first call that needs the world.  There it may get other numbers.
    Errors: ValueError for ranks that do not exist, and for a repeated set.  The world and the other sets then exist.
    RuntimeError if a required MPI is missing.
    """
    global _at_exit
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError(f'process_sets is {process_sets!r}: it must be a list of ProcessSet, or "dynamic"')
        _environment.whole["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
        process_sets = None
    fresh = not is_active()
    if fresh:
        ranks = _ranks_of(comm)
        _refuse_a_second_process()
        _started_by_others.begin()
        if not (ranks is None and _expect()):
            _join(ranks)
            if ranks is None:
                _started_by_others.check(_joined().size)
        _step_hooks.install()
        _sets.global_process_set.mpi_comm = comm if hasattr(comm, "Get_group") else None
        if not _at_exit:
            atexit.register(_keep_at_exit)
            _at_exit = True
    if process_sets:
        admit()
        _sets.add_at_init(process_sets, fresh)


def _expect() -> bool:
    """On a newcomer, uses the rank numbers that hvdrun expects for the next world.  Returns False if this rank is not a
    newcomer."""
    global _expects, _told
    if _has_joined or not (_environment.flag("HOROVOD_ELASTIC") and _environment.flag("HVD_ELASTIC_LATE")):
        return False
    try:
        _told = World(*_unless_dismissed(_native.expect))
    except RuntimeError:
        return False  # hvdrun is gone: _join() reports it
    _expects = os.getpid()
    _native.before_use(admit)
    _enter(_told, None)
    return True


def admit() -> None:
    """On a newcomer, joins the other ranks: rank and size are final afterwards.  Does nothing on other ranks."""
    global _expects
    if not _expects:
        return
    if _expects != os.getpid():
        raise ValueError("this process was forked after hvd.init(), and only its parent is a rank: call hvd there alone")
    with _admission:
        if not _expects:
            return  # another thread has joined meanwhile
        _join(None)
        _expects = 0
        _native.before_use(None)


def need() -> None:
    """Calls that need the world call this before they ask for rank or size.  ValueError before init()."""
    admit()
    _joined()


def takes_another_place() -> bool:
    """Returns whether this rank was a newcomer whose place in its world differs from init()'s answer.  Returns True only
    once."""
    global _told
    told, _told = _told, None
    return told is not None and told != _world


def _join(ranks: list[int] | None) -> None:
    global _has_joined
    _meet(ranks)
    _has_joined = True
    _enter(World(*_native.world()), ranks)


def _enter(world: World, ranks: list[int] | None) -> None:
    global _world, _entered_in
    _world, _entered_in = world, os.getpid()
    if _environment.flag("HOROVOD_ELASTIC"):
        _show_place(world)
    _sets.world_changed(world.rank, world.size, ranks)
    for call in at_new_world:
        call(world)


def _unless_dismissed(call: Callable[[], T]) -> T:
    """The result of the call.  Exits with success if this rank's slot is gone, or the others have finished."""
    try:
        return call()
    except RuntimeError as error:
        if isinstance(error, HorovodInternalError) or "this rank is needed no more" not in str(error):
            raise
        raise SystemExit(0) from None


def _meet(ranks: list[int] | None) -> None:
    """Joins the world.  In an elastic job, the death of a rank in its init() ends the others' init() too.  The other ranks then
    meet again (wire/messages/meeting_message.h).
    """
    elastic = _environment.flag("HOROVOD_ELASTIC")
    limit = _environment.number("HOROVOD_ELASTIC_TIMEOUT") + 30  # hvdrun's own limit comes first
    end = time.monotonic() + limit
    while True:
        begun = time.monotonic()
        try:
            return _unless_dismissed(lambda: _native.init(ranks))
        except HorovodInternalError as error:
            if not elastic or error.code != "peer_lost" or begun > end:
                raise
        if time.monotonic() - begun > 1:
            end = time.monotonic() + limit  # the rank was waiting, perhaps for hours as a spare, and was not refused repeatedly
        time.sleep(0.02)  # hvdrun may not have noticed the death yet


def _show_place(world: World) -> None:
    """Sets the variables with the rank's place: in an elastic job each world changes them."""
    for prefix in ("HVD", "HOROVOD"):
        for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
            if prefix == "HOROVOD" or f"HVD_{name.upper()}" in _environment.whole:
                _environment.whole[f"{prefix}_{name.upper()}"] = str(getattr(world, name))
    torchrun = {"RANK": world.rank, "WORLD_SIZE": world.size, "LOCAL_RANK": world.local_rank}
    torchrun |= {"LOCAL_WORLD_SIZE": world.local_size, "GROUP_RANK": world.cross_rank, "ROLE_RANK": world.rank}
    for name, value in torchrun.items():
        if name in _environment.whole:
            _environment.whole[name] = str(value)


def _refuse_a_second_process() -> None:
    # MPI and torchrun allow one process per rank; a second one under the same name would break both, or wait.  Programs that
    # this one starts inherit HVD_INIT, which names the rank, its mpirun and its process.
    place = f"{_environment.whole.get('PMIX_NAMESPACE', '')}.{_environment.whole.get('PMIX_RANK', '')}"
    place = _started_by_others.place() if place == "." else place
    if not place:
        return
    begun, _, pid = _environment.text("HVD_INIT").rpartition(":")
    if begun == place and pid != str(os.getpid()):
        raise RuntimeError(
            f"hvd.init() was called in process {pid}, which is this rank; this process, {os.getpid()}, was started by it and"
            " is no rank. Call init() only in the script itself (under if __name__ == '__main__': where workers are"
            " spawned), or give this program a job of its own: hvdrun -np 1"
        )
    if (folder := _environment.whole.get("PMIX_SERVER_TMPDIR")) and _environment.given("HVD_JOB"):
        _one_process.claim(f"{folder}/rank-{place}")
    _environment.whole["HVD_INIT"] = f"{place}:{os.getpid()}"


def _ranks_of(comm: Any) -> list[int] | None:
    if comm is None:
        return None
    if hasattr(comm, "Get_group"):  # mpi4py
        return _sets.ranks_of_communicator(comm)
    if not isinstance(comm, Iterable):
        raise ValueError(f"comm must be a list of ranks or an mpi4py communicator, not {type(comm).__name__}")
    return _sets.checked_ranks(comm, "comm") or None


def shutdown() -> None:
    """Leaves the world; pending operations end with HorovodInternalError.  Collective.  init() works again afterwards."""
    global _world, _expects
    if _world is None:
        return
    _expects = 0
    _native.before_use(None)
    _step_hooks.remove()
    _native.shutdown()
    _world = None
    _sets.world_changed(-1, 0)
    for table in tables_of_handles:
        table.clear()
    for forget in when_left:
        forget()


# Called at the end of a world.  hvd.elastic.run's function makes the objects behind these callbacks again in the next
# one.
before_rejoin: list[Callable[[], None]] = []

# Called at the end of a world.  Each forgets agreements of the world's ranks, because the next one may have other
# ranks.
when_left: list[Callable[[], None]] = []

# Called with the number of a process set when all its ranks have joined (hvd.join).  The ranks may have made different numbers
# of steps.  So each rank forgets the agreements of a first step.
when_joined: list[Callable[[int], None]] = []

# Called at the end of a world: owners of pending operations' tensors, since handles do not survive a world.
tables_of_handles: list[dict[int, Any]] = []


def _keep_at_exit() -> None:
    # libhvd leaves the world by itself when the process exits, after the interpreter is gone.  With an exit code other
    # than 0 it does not wait for peers.  So a failed rank is seen to fail first.  Until then the runtime's thread may
    # write to its tensors.
    for table in tables_of_handles:
        _native.leak(table)


def is_initialized() -> bool:
    """Returns whether init() was called without a later shutdown().  A forked child, such as a DataLoader worker, inherits the
    answer."""
    return _world is not None and (is_active() or _entered_in != os.getpid())


def is_active() -> bool:
    """is_initialized(), and this process is the rank itself, not a forked child: it can call the operations."""
    return _world is not None and (_expects == os.getpid() or _native.is_initialized())


def rank() -> int:
    """This rank, from 0.  ValueError before init(), as for the functions below."""
    return _joined().rank


def size() -> int:
    """The number of ranks."""
    return _joined().size


def local_rank() -> int:
    """Returns this rank's number among the ranks of its host, from 0."""
    return _joined().local_rank


def local_size() -> int:
    """The number of ranks on this host."""
    return _joined().local_size


def cross_rank() -> int:
    """Index of this host among the hosts that have this local_rank."""
    return _joined().cross_rank


def cross_size() -> int:
    """The number of hosts that have this local_rank."""
    return _joined().cross_size


def is_homogeneous() -> bool:
    """Returns whether every host has the same number of ranks."""
    return bool(_joined().homogeneous)


def mpi_threads_supported() -> bool:
    """Returns whether other threads may call MPI while hvd works.

    True if hvd does not use MPI itself, as usual under hvdrun.  Otherwise True if MPI was started for several threads.  False
    with HOROVOD_MPI_THREADS_DISABLE.
    """
    return bool(_joined().mpi_threads)


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Starts the timeline.  Rank 0 writes file_path, the others files beside it, unless a launcher collects."""
    _joined()
    _native.timeline_start(os.fspath(file_path), mark_cycles)


def stop_timeline() -> None:
    """Stops the timeline."""
    _joined()
    _native.timeline_stop()


def mpi_enabled() -> bool:
    """True: the ranks of a job can use MPI, even if hvd itself does not."""
    return True


def mpi_built(verbose: bool = False) -> bool:
    """True: scripts ask before they use an MPI launcher."""
    return True


def gloo_enabled() -> bool:
    """Returns whether hvdrun was started with --gloo."""
    return _environment.text("HOROVOD_CONTROLLER") == "gloo"


def gloo_built(verbose: bool = False) -> bool:
    """See gloo_enabled."""
    return gloo_enabled()


def nccl_built(verbose: bool = False) -> int:
    """NCCL's version as an integer; 0 without NCCL."""
    return _native.built("nccl")


def ddl_built(verbose: bool = False) -> bool:
    """False."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """False."""
    return False


def cuda_built(verbose: bool = False) -> bool:
    """Returns whether libhvd can use tensors in CUDA memory directly."""
    return bool(_native.built("cuda"))


def rocm_built(verbose: bool = False) -> bool:
    """False."""
    return False


def sycl_built(verbose: bool = False) -> bool:
    """False.  Horovod's newer examples ask for it."""
    return False
