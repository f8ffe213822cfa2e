"""send and recv: a broadcast in a process set of two ranks.

A pair's set is made when the two first talk, while their calls wait in line; in a world of two it is the world.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

import torch

from hvd import _native
from hvd._native import BROADCAST, Sum
from hvd._requests import U8, Operation, Request
from hvd.torch._group_sets import GroupSets
from hvd.torch._group_work import GroupState, GroupWork, under_way
from hvd.torch.ops import moving

_NAMES = 64  # messages of one tag that can be under way at the same time


class Message(GroupWork):
    """A send or a receive.  handles come when the pair's process set is there, and its turn has come."""

    def __init__(self, group: GroupState, tensors: list[torch.Tensor], work: torch.Tensor, request: tuple[Any, ...]) -> None:
        super().__init__(group, (), tensors, owner=(tensors, work))
        self.request = request
        self._ended = False
        self._begun = threading.Event()
        if work is not tensors[0]:
            self._complete = self._put_back

    def begin(self, process_set: int) -> None:
        """Hands it to the runtime."""
        root, name, view = self.request
        try:
            operation = Operation(BROADCAST, process_set, Sum, root)
            self._handles = (_native.submit(Request(operation, name, view, view[0])),)
            under_way[self._handles[0]] = self
        except Exception as error:
            self.refuse(error)
        self._begun.set()

    def refuse(self, error: Exception) -> None:
        """It ends with this error."""
        self._error = error
        self._close()
        self._begun.set()

    def source_rank(self) -> int:
        return int(self.request[0])

    def _put_back(self) -> None:
        _native.release(self._handles[0])
        with torch.no_grad():
            self._outputs[0].copy_(self._owner[1])

    def _has_arrived(self) -> bool:
        return self._begun.is_set() and super()._has_arrived()

    def _finish(self, seconds: float = 0.0) -> None:
        before = time.monotonic()
        if not self._begun.wait(seconds):
            raise self._late(seconds)
        if not self._ended:
            super()._finish(max(0.001, seconds - (time.monotonic() - before)))

    def _disagreed(self) -> None:
        pass  # the others of the group have nothing to do with it


class PairLine:
    """The messages between this rank and one other, in order."""

    def __init__(self, group: GroupState, sets: GroupSets, ranks: tuple[int, int]) -> None:
        """ranks: of the world, the lower one first."""
        self._group = group
        self._sets = sets
        self._ranks = ranks
        self._lock = threading.Lock()
        self._line: deque[Message] = deque()
        self._number: int | None = None
        self._asked = False
        self._counts: dict[tuple[int, int], int] = {}
        self._last: dict[bytes, Message] = {}

    def add(self, tensor: torch.Tensor, source: int, tag: int) -> Message:
        """A message from world rank source to the other one."""
        work, (address, code, shape, device) = moving.dense(tensor)
        count = 1
        for size in shape:
            count *= size
        view = (address, U8, (count * _native.ITEM_BYTES[code],), device)
        use = self._counts.get((source, tag), 0)
        self._counts[source, tag] = use + 1
        target = self._ranks[0] if source == self._ranks[1] else self._ranks[1]
        name = f"{self._group.label}/send {source} to {target} tag {tag} #{use % _NAMES + 1}".encode()
        earlier = self._last.get(name)
        if earlier is not None and not earlier.is_completed():
            earlier.wait()
        message = Message(self._group, [tensor], work, (self._ranks.index(source), name, view))
        self._last[name] = message
        with self._lock:
            if self._number is not None:
                message.begin(self._number)
                return message
            self._line.append(message)
            ask, self._asked = not self._asked, True
        if ask:
            self._sets.ask(self._ranks, self._open)
        return message

    def _open(self) -> None:
        """The pair's process set is there, or it cannot be made."""
        with self._lock:
            try:
                found = self._sets.found(self._ranks)
                number = found.process_set_id if found else None
                if number is None:
                    raise RuntimeError(f"the process set of ranks {self._ranks} is gone")
            except Exception as error:
                while self._line:
                    self._line.popleft().refuse(error)
                return
            self._number = number
            while self._line:
                self._line.popleft().begin(number)
