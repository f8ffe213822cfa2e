"""Names for calls that torch matches by their order.

The runtime matches operations by name.  A call's name follows from the calls before it, never from the call itself. Ranks
that disagree on a call thus meet under one name, and each learns the other's call.  The calls of a loop get the same names in
every round.  So the runtime knows the names, and a timeline has one row for each.
"""

from __future__ import annotations

from typing import Any

_REMEMBERED = 4  # number of calls that determine the next one's place in a loop
_UNDER_WAY = 8  # calls of one place that can be pending at the same time
_UNDER_WAY_ALIKE = 32  # like _UNDER_WAY, if the last calls were all alike
_MOST_PLACES = 512


class CallName:
    """A name, and its last operation."""

    __slots__ = ("handle", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.handle = 0


class _Place:
    """A place in the program, identified by the last calls before it."""

    __slots__ = ("before", "following", "names", "uses", "width")

    def __init__(self, before: tuple[Any, ...]) -> None:
        self.before = before
        self.following: dict[Any, _Place] = {}  # by the call at this place
        self.names: list[CallName] = []  # used in turn
        self.width = _UNDER_WAY_ALIKE if len(before) == _REMEMBERED and len(set(before)) == 1 else _UNDER_WAY
        self.uses = 0


class CallNames:
    """The names of one group's calls.  One thread at a time; the same on all ranks that make the same calls."""

    def __init__(self, label: str) -> None:
        """label: the prefix of the names."""
        self._label = self._front = label.encode()
        self._restarts = -1
        self.restart()

    def restart(self) -> None:
        """Forgets earlier calls, after ranks have disagreed on one."""
        self._restarts += 1
        if self._restarts:
            self._front = b"%s.%d" % (self._label, self._restarts)
        self._count = 0
        self._place = _Place(())
        self._places = {(): self._place}

    def next(self, call: tuple[Any, ...]) -> CallName:
        """The name of the next call.  call: everything on which ranks must agree."""
        place = self._place
        index = place.uses % place.width
        place.uses += 1
        if index == len(place.names):
            self._count += 1
            place.names.append(CallName(b"%s #%d" % (self._front, self._count)))
        self._place = place.following.get(call) or self._learn(place, call)
        return place.names[index]

    def _learn(self, place: _Place, call: tuple[Any, ...]) -> _Place:
        before = (*place.before, call)[-_REMEMBERED:]
        if len(self._places) >= _MOST_PLACES and before not in self._places:
            self._places.clear()  # a program without a loop
        found = self._places.setdefault(before, _Place(before))
        place.following[call] = found
        return found
