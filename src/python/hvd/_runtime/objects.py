# mypy: disable-error-code="arg-type"
"""Python objects between ranks: pickled, gathered as bytes.  No framework."""

from __future__ import annotations

import pickle
import struct
from functools import cache
from typing import Any

from hvd._runtime import world as _world
from hvd._runtime.requests import gather_bytes
from hvd.exceptions import HorovodInternalError
from hvd.process_sets import ProcessSet, global_process_set, number_of

_OBJECT, _FAILURE = b"\0", b"\1"
_HEADER = struct.Struct("<qq")  # rank, bytes


@cache
def _pickler() -> Any:
    """cloudpickle, which sends by value objects that pickle only names; pickle if it is not installed."""
    try:
        import cloudpickle  # imported on demand: it takes longer to load than all of hvd.torch
    except ImportError:
        return pickle
    return cloudpickle


def _packed(obj: Any) -> tuple[bytes, Exception | None]:
    """The bytes to send.  A rank that cannot pickle tells the others, so that they do not wait."""
    try:
        return _OBJECT + _pickler().dumps(obj), None
    except Exception as error:  # an object's own methods may raise anything
        text = f"rank {_world.rank()} could not pickle a {type(obj).__name__}: {error}"
        return _FAILURE + text.encode(), error


def _unpacked(rank: int, data: memoryview) -> Any:
    if bytes(data[:1]) == _FAILURE:
        raise ValueError(bytes(data[1:]).decode())
    try:
        return pickle.loads(data[1:])
    except Exception as error:  # an object's own methods may raise anything
        raise ValueError(
            f"the object of rank {rank} cannot be unpickled on rank {_world.rank()}: {type(error).__name__}: {error}"
        ) from error


def _by_rank(data: bytes, name: str | None, process_set: ProcessSet) -> dict[int, memoryview]:
    """Every member's bytes, by rank, in order.  A rank that has joined (hvd.join) has none."""
    header = _HEADER.pack(_world.rank(), len(data))
    everything = memoryview(gather_bytes(name, header + data, number_of(process_set)))
    parts, at = {}, 0
    while at < len(everything):
        rank, length = _HEADER.unpack_from(everything, at)
        at += _HEADER.size + length
        parts[rank] = everything[at - length : at]
    return parts


def _exchange(data: bytes, name: str | None, process_set: ProcessSet) -> list[memoryview]:
    return list(_by_rank(data, name, process_set).values())


def broadcast_object(
    obj: Any = None, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """root_rank's object, on every rank.  The others' argument is ignored; root gets its own object back.

    Errors: ValueError for a rank that does not exist, and on a rank that cannot unpickle the object.  ValueError on every rank
    when root cannot pickle its object.  HorovodInternalError when root has joined.
    """
    number_of(process_set)
    _world.need()
    me, ranks = _world.rank(), process_set.ranks or []
    if root_rank not in ranks:
        raise ValueError(f"broadcast_object: root_rank is {root_rank}, but the ranks are {ranks}")
    error: Exception | None = None
    data = b""
    if me == root_rank:
        data, error = _packed(obj)
    parts = _by_rank(data, name, process_set)
    if error:
        raise ValueError(f"broadcast_object: a {type(obj).__name__} cannot be pickled: {error}") from error
    if root_rank not in parts:
        raise HorovodInternalError(f"broadcast_object: rank {root_rank}, the root, has joined and has no object")
    return obj if me == root_rank else _unpacked(root_rank, parts[root_rank])


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """The objects of all ranks that have not joined, in rank order.

    Errors: ValueError on every rank when one cannot pickle its object, and on a rank that cannot unpickle one.
    """
    _world.need()
    data, error = _packed(obj)
    parts = _by_rank(data, name, process_set)
    if error:
        raise ValueError(f"allgather_object: a {type(obj).__name__} cannot be pickled: {error}") from error
    return [_unpacked(rank, part) for rank, part in parts.items()]
