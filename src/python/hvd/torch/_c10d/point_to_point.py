"""send and recv: a broadcast in a process set of two ranks.

A pair's set is made at the first message of the two ranks.  Their calls wait in line meanwhile.  In a world of two, the
set is the world.  A receive from any source first learns which rank has sent (any_source.py).  A message to oneself is
copied when it is sent.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from math import prod

import torch

from hvd import _native
from hvd._native import BROADCAST, Sum
from hvd._runtime.requests import U8, Operation, Request
from hvd.torch._c10d.any_source import AnySource, SentMessages
from hvd.torch._c10d.group_sets import GroupSets
from hvd.torch._c10d.group_work import GroupState, GroupWork, under_way
from hvd.torch.ops import collectives

_NAMES = 64  # messages of one tag that can be pending at the same time


class Message(GroupWork):
    """A send or a receive.  It gets handles when the pair's process set exists and its turn has come."""

    # Set by the pair's line:
    root: int  # of the pair's two ranks
    name: bytes

    def __init__(self, group: GroupState, tensor: torch.Tensor, source: int) -> None:
        """source: the sender's rank in the group; -1: unknown yet."""
        work, (address, code, shape, device) = collectives.dense(tensor)
        super().__init__(group, (), [tensor], owner=([tensor], work))
        self.source = source
        self._view = (address, U8, (prod(shape) * _native.ITEM_BYTES[code],), device)
        self._ended = False
        self._begun = threading.Event()
        if work is not tensor:
            self._complete = self._put_back

    def begin(self, process_set: int) -> None:
        """Submits it to the runtime."""
        try:
            operation = Operation(BROADCAST, process_set, Sum, self.root)
            self._handles = (_native.submit(Request(operation, self.name, self._view, self._view[0])),)
            under_way[self._handles[0]] = self
        except Exception as error:
            self.refuse(error)
        self._begun.set()

    def refuse(self, error: Exception) -> None:
        """Ends it with this error."""
        self._error = error
        self._close()
        self._begun.set()

    def source_rank(self) -> int:
        """The sender's rank in the group.  For a receive from any source: valid after the wait."""
        return self.source

    _source_rank = source_rank

    def _put_back(self) -> None:
        _native.release(self._handles[0])
        with torch.no_grad():
            self._outputs[0].copy_(self._owner[1])

    def _has_arrived(self) -> bool:
        return self._begun.is_set() and super()._has_arrived()

    def _finish(self, seconds: float = 0.0, limit: float = 0.0) -> None:
        if not self._begun.wait(max(0.0, limit - time.monotonic())):
            raise self._late(seconds)
        if not self._ended:
            super()._finish(seconds, limit)

    def _disagreed(self) -> None:
        pass  # other ranks of the group take no part in it


class OwnMessage(GroupWork):
    """A receive from oneself."""

    _sent: torch.Tensor  # from give() to the end

    def __init__(self, group: GroupState, tensor: torch.Tensor, place: int) -> None:
        super().__init__(group, (), [tensor])
        self.source = place
        self._ended = False
        self._here = threading.Event()

    def give(self, sent: torch.Tensor) -> None:
        self._sent = sent
        self._here.set()

    def source_rank(self) -> int:
        return self.source

    _source_rank = source_rank

    def _has_arrived(self) -> bool:
        return self._here.is_set()

    def _finish(self, seconds: float = 0.0, limit: float = 0.0) -> None:
        if not self._here.wait(max(0.0, limit - time.monotonic())):
            raise self._late(seconds)
        sent, into = self._sent, self._outputs[0]
        if sent.dtype != into.dtype or sent.numel() != into.numel():
            self._error = ValueError(
                f"recv: {sent.numel()} elements of {sent.dtype} came, and there is room for {into.numel()} of {into.dtype}"
            )
        else:
            with torch.no_grad():
                into.copy_(sent.view(into.shape))
        del self._sent
        self._close()


class OwnLine:
    """The messages from this rank to itself, in order.  Any thread."""

    def __init__(self, group: GroupState, place: int) -> None:
        self._group = group
        self._place = place
        self._lock = threading.Lock()
        self._sent: dict[int, deque[torch.Tensor]] = {}  # by tag
        self._receives: dict[int, deque[OwnMessage]] = {}

    def send(self, tensor: torch.Tensor, tag: int) -> GroupWork:
        """Ends at once: it sends a copy."""
        copy = tensor.detach().clone(memory_format=torch.contiguous_format)
        if copy.is_cuda:
            torch.cuda.current_stream(copy.device).synchronize()  # the receiver's stream is unknown
        with self._lock:
            waiting = self._receives.get(tag)
            if waiting:
                waiting.popleft().give(copy)
            else:
                self._sent.setdefault(tag, deque()).append(copy)
        return GroupWork(self._group, (), [tensor])

    def recv(self, tensor: torch.Tensor, tag: int) -> OwnMessage:
        message = OwnMessage(self._group, tensor, self._place)
        with self._lock:
            if self.holds(tag):
                message.give(self._sent[tag].popleft())
            else:
                self._receives.setdefault(tag, deque()).append(message)
        return message

    def holds(self, tag: int) -> bool:
        """Returns whether a message waits for its receive."""
        return bool(self._sent.get(tag))


class PairLine:
    """The messages between this rank and another, in order."""

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
        self._behind: deque[tuple[Message, Message]] = deque()  # pending messages, and the later ones that need their names
        self._attended = False  # a thread begins them

    def count(self, source: int, tag: int) -> int:
        """The number of messages of this tag that world rank source has sent to the other rank."""
        return self._counts.get((source, tag), 0)

    def add(self, message: Message, source: int, tag: int, most: int | None = None) -> bool:
        """Adds the next message from world rank source to the other.  False: there are `most` messages already.  Any thread."""
        self._sets.refuse_if_left(self._group.label)
        if self._group.left is not None:
            self._group.refuse()
        with self._lock:
            use = self.count(source, tag)
            if most is not None and use >= most:
                return False
            self._counts[source, tag] = use + 1
            target = self._ranks[0] if source == self._ranks[1] else self._ranks[1]
            message.root = self._ranks.index(source)
            message.name = f"{self._group.label}/send {source} to {target} tag {tag} #{use % _NAMES + 1}".encode()
            earlier = self._last.get(message.name)
            self._last[message.name] = message
            if earlier is not None and not earlier.is_completed():
                self._behind.append((earlier, message))
                if not self._attended:
                    self._attended = True
                    threading.Thread(target=self._begin_later, name="hvd send", daemon=True).start()
                return True
            if self._number is not None:
                message.begin(self._number)
                return True
            self._line.append(message)
            ask, self._asked = not self._asked, True
        if ask:
            self._sets.ask(self._ranks, self._open)
        return True

    def _begin_later(self) -> None:
        """Begins each message behind another one of its name when that one has ended.  A thread of its own."""
        while True:
            with self._lock:
                self._attended = bool(self._behind)
                if not self._behind:
                    return
                earlier, message = self._behind[0]
            try:
                earlier.wait()
            except Exception as error:
                # After its time limit it is still pending.  The later message has its own limit, which its caller sees.
                if not (earlier.is_completed() or self._group.aborted or self._sets.left):
                    continue
                if self._number is None or not earlier.is_completed():
                    message.refuse(error)
            with self._lock:
                self._behind.popleft()
                if self._number is not None and not message.is_completed():
                    message.begin(self._number)

    def _open(self) -> None:
        """The pair's process set exists, or cannot be made."""
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


class PointToPoint:
    """The messages of one group on this rank.  ranks: of the world, in the group's order; place: this rank's place among
    them.
    """

    def __init__(self, group: GroupState, sets: GroupSets, sent: SentMessages, ranks: Sequence[int], place: int) -> None:
        self._group = group
        self._ranks = ranks
        self._place = place
        self._sent = sent
        self._sets = sets
        self._pairs: dict[int, PairLine] = {}  # by the other's rank in the world
        self._lock = threading.Lock()  # guards _pairs: a receive from any source takes its place in a thread of its own
        self._own = OwnLine(group, place)
        self._any = AnySource(sent, group.label, self._taken, self._place_message)

    def send(self, tensor: torch.Tensor, target: int, tag: int) -> GroupWork:
        """target: a rank of the group, like all ranks here."""
        if target == self._place:
            return self._own.send(tensor, tag)
        other, mine = self._other(target, "send"), self._ranks[self._place]
        message, pair = Message(self._group, tensor, self._place), self._pair(other)
        pair.add(message, mine, tag)
        self._sent.add(self._group.label, other, tag, pair.count(mine, tag))
        return message

    def recv(self, tensor: torch.Tensor, source: int, tag: int) -> GroupWork:
        if source == self._place:
            return self._own.recv(tensor, tag)
        other = self._other(source, "recv")
        message = Message(self._group, tensor, source)
        self._pair(other).add(message, other, tag)
        return message

    def recv_any(self, tensor: torch.Tensor, tag: int) -> GroupWork:
        if self._own.holds(tag):
            return self._own.recv(tensor, tag)
        if len(self._ranks) == 1:
            raise ValueError("recv: this group has no other rank")
        message = Message(self._group, tensor, -1)
        self._any.add(message, tag)
        return message

    def _other(self, rank: int, what: str) -> int:
        """The other rank's number in the world."""
        if not 0 <= rank < len(self._ranks):
            raise ValueError(f"{what}: rank {rank} is not in a group of {len(self._ranks)}")
        return self._ranks[rank]

    def _pair(self, other: int) -> PairLine:
        with self._lock:
            pair = self._pairs.get(other)
            if pair is None:
                mine = self._ranks[self._place]
                pair = self._pairs[other] = PairLine(self._group, self._sets, (min(mine, other), max(mine, other)))
            return pair

    def _taken(self, tag: int) -> dict[int, int]:
        """The number of messages that each other rank of the group has sent to this one."""
        taken = dict.fromkeys(self._ranks, 0)
        del taken[self._ranks[self._place]]
        with self._lock:
            pairs = list(self._pairs.items())
        for other, pair in pairs:
            taken[other] = pair.count(other, tag)
        return taken

    def _place_message(self, message: Message, source: int, tag: int, most: int) -> bool:
        message.source = self._ranks.index(source)
        return self._pair(source).add(message, source, tag, most)
