"""torch.distributed over the runtime of hvd.

    torch.distributed.init_process_group("hvd")                   # all tensors
    torch.distributed.init_process_group("cpu:hvd,cuda:nccl")     # those on the host (torch 2.15)
    torch.distributed.init_process_group("hvd", init_method="hvd://")  # in an elastic job

torch 2.15 finds the backend through its entry point.  Older versions find it after ``import hvd.torch``.  The ranks are
hvdrun's.
"""

from __future__ import annotations

import secrets
import socket
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from hvd._runtime import environment as _environment
from hvd._runtime import world as _world
from hvd._runtime.objects import broadcast_object
from hvd.process_sets import ProcessSet, global_process_set
from hvd.torch._c10d.any_source import SentMessages
from hvd.torch._c10d.builtin_hooks import replace_builtin_hooks
from hvd.torch._c10d.group_operations import GroupOperations
from hvd.torch._c10d.group_profile import TITLES, profiled
from hvd.torch._c10d.group_sets import GroupSets
from hvd.torch._c10d.group_work import GroupState, GroupWork
from hvd.torch._c10d.point_to_point import PointToPoint
from hvd.torch._torch_compile import exclude_from_compile

__all__ = ["HvdBackend", "HvdProcessGroup", "create"]

_c10d: Any = torch._C._distributed_c10d
_CUSTOM = _c10d.ProcessGroup.BackendType.CUSTOM


def _text_of(ranks: tuple[int, ...]) -> str:
    """Ranks, in a few characters: 0-3, or 0,2,4."""
    if ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks[:4])) + (",…" if len(ranks) > 4 else "")


class _Common(GroupOperations):
    """The common base of both kinds of group."""

    def begin(self, options: Any, sets: GroupSets, sent: SentMessages, ranks: tuple[int, ...], process_set: ProcessSet) -> None:
        """ranks: of the world, in the group's order."""
        name = "world"
        if options.global_ranks_in_group:  # some names are long hashes
            name = f"{str(options.group_id)[:12]}[{_text_of(ranks)}]"
        label = f"c10d/{name}" if sets.world == 1 else f"c10d.{sets.world}/{name}"
        self.state = GroupState(label, options.timeout.total_seconds())
        self._set = process_set.process_set_id or 0
        self._ranks = ranks
        self._place = options.group_rank
        self._size = options.group_size
        self._sets = sets
        self._store = _c10d.PrefixStore(f"hvd/{sets.word}", options.store)
        self._is_world = not options.global_ranks_in_group
        self._by_set = sorted(range(len(ranks)), key=ranks.__getitem__)
        self._order = sorted(range(len(ranks)), key=self._by_set.__getitem__)
        self._in_order = self._by_set == list(range(len(ranks)))
        self._messages = PointToPoint(self.state, sets, sent, ranks, self._place)

    def shutdown(self) -> None:
        """Called by destroy_process_group, while the store exists."""
        if self._is_world:
            self._sets.close()

    def getBackendName(self) -> str:
        return "hvd"

    def name(self) -> str:
        return "hvd"


for _method, _title in TITLES.items():
    setattr(_Common, _method, profiled(getattr(GroupOperations, _method), f"hvd:{_title}"))

# torch itself calls them within compiled code, for example in DistributedDataParallel.
for _class in (*_Common.__mro__[:-1], GroupWork):
    exclude_from_compile(vars(_class).values())

replace_builtin_hooks()


class HvdBackend(_Common, _c10d.Backend):  # type: ignore[misc]
    """The part of a group for tensors of one kind of device: torch's own ProcessGroup calls it."""

    # torch's properties of these names read the object's attributes of the same names, and would call themselves.
    supports_coalescing = False
    supports_reconfigure = False
    supports_shrinking = False
    supports_splitting = False
    supports_window = False
    _supports_time_estimate = False

    def __init__(self, options: Any) -> None:
        _c10d.Backend.__init__(self, options.group_rank, options.group_size)
        self._options = _c10d.Backend.Options("hvd", options.timeout)

    @property
    def options(self) -> Any:
        return self._options


class HvdProcessGroup(_Common, _c10d.ProcessGroup):  # type: ignore[misc]
    """A whole group.  Calls from Python reach it directly, without torch's dispatcher: 20 us less."""

    def __init__(self, options: Any) -> None:
        try:
            _c10d.ProcessGroup.__init__(self, options.store, options.group_rank, options.group_size)
        except TypeError:  # torch before 2.6
            _c10d.ProcessGroup.__init__(self, options.group_rank, options.group_size)
        self._group_name = options.group_id

    @property
    def group_name(self) -> Any:
        # torch's own property asks a Backend, which this group lacks before torch 2.15.
        return self._group_name


_sets: GroupSets | None = None
_sent: SentMessages | None = None  # set whenever _sets is
_worlds = 0  # number of default groups that this rank has made
_former: list[GroupSets] = []  # the sets of the last world: rank 0 keeps its store, which other ranks may still use


def _world_left() -> None:
    """Ends the groups of the runtime's old world."""
    if _sets is not None:
        _sets.left = True


def _before_rejoin() -> None:
    """Called before hvd.elastic.run joins the next world, in which the script makes its groups again."""
    global _sets, _sent
    if _sets is None:
        return
    _sets.left = True
    _former[:] = [_sets]
    _sets.close()
    _sets = _sent = None
    default = dist.distributed_c10d._get_default_group() if dist.is_initialized() else None
    if default is not None and dist.get_backend(default) == "hvd":
        dist.destroy_process_group()


_world.when_left.append(_world_left)
_world.before_rejoin.append(_before_rejoin)


def rendezvous(timeout: timedelta) -> tuple[Any, int, int]:
    """A store of all ranks of the runtime's world, this rank and the number of ranks.  Collective.

    Rank 0 serves the store, on a new port for each world.  Other hosts use rank 0's HOROVOD_HOSTNAME, or its own host name.
    """
    if not _world.is_active():
        _world.init()
    _world.need()
    mine = None
    store: Any = None
    if _world.rank() == 0:
        store = _c10d.TCPStore("localhost", 0, _world.size(), True, timeout, wait_for_workers=False)
        name = _environment.text("HOROVOD_HOSTNAME") or "localhost"
        mine = (socket.gethostname() if name == "localhost" else name, store.port)
    host, port = broadcast_object(mine, 0, "c10d.store")
    if store is None:
        host = "localhost" if _world.size() == _world.local_size() else host
        store = _c10d.TCPStore(host, port, _world.size(), False, timeout)
    return store, _world.rank(), _world.size()


def _check_world(options: Any) -> None:
    """Raises RuntimeError if torch's rank and number of ranks differ from hvdrun's."""
    if not _world.is_active():
        _world.init()
    _world.need()
    if (_world.rank(), _world.size()) != (options.group_rank, options.group_size):
        how = (
            "hvdrun -np N script.py, in place of torchrun" if _world.size() == 1 else "its ranks and hvdrun's must be the same"
        )
        raise RuntimeError(
            f'init_process_group("hvd"): torch was told rank {options.group_rank} of {options.group_size}, but hvdrun started '
            f"rank {_world.rank()} of {_world.size()} ({how})"
        )


def create(options: Any, _: Any = None) -> Any:
    """Makes a group.  Called by torch, by all members; options: its _DistributedBackendOptions.

    Errors: RuntimeError if the ranks are not hvdrun's; TimeoutError if a rank of the world has ended already.
    """
    global _sets, _sent, _worlds
    ranks = tuple(options.global_ranks_in_group)
    if not ranks:
        _check_world(options)
        ranks = tuple(range(options.group_size))
        if _sets is not None:
            _sets.close()
        _worlds += 1
        # Rank 0 names the world.  After a time-out, an operation of an earlier world may still be pending.  No other operation
        # may have its name.  The store may have an earlier world's keys, because torch keeps one server for each address.
        world, word = broadcast_object((_worlds, secrets.token_hex(8)), 0, "c10d.world")
        store = _c10d.PrefixStore(f"sets/{word}", options.store)
        _sets = GroupSets(store, options.group_rank, options.group_size, world, word)
        _sent = SentMessages(_sets, options.group_rank)
        _sets.start(_sent.readers, _sent.end)
    if _sets is None or _sent is None:
        raise RuntimeError('hvd: a group needs a default group whose backend is "hvd"')
    seconds = options.timeout.total_seconds()
    process_set = global_process_set if len(ranks) == _world.size() else _sets.wait_for(sorted(ranks), seconds)
    backend = _backend(options)
    if backend is not None:
        backend.begin(options, _sets, _sent, ranks, process_set)
    # If the group also has other backends, torch's own ProcessGroup needs only our Backend.
    if getattr(options, "process_group", None) is not None and options.process_group.name() not in ("custom", "hvd"):
        if backend is None:
            raise RuntimeError('hvd beside another backend, as in "cpu:hvd,cuda:nccl", needs torch 2.15 (alone it does not)')
        return backend
    whole = HvdProcessGroup(options)
    whole.begin(options, _sets, _sent, ranks, process_set)
    if backend is not None:
        whole._set_default_backend(_CUSTOM)
        for device in ("cpu", "cuda"):
            whole._register_backend(torch.device(device), _CUSTOM, backend)
    return whole


def _backend(options: Any) -> HvdBackend | None:
    """None if torch's Backend cannot be made in Python: before 2.15."""
    try:
        return HvdBackend(options)
    except TypeError:
        return None
