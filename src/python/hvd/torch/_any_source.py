"""recv from any source: which rank has a message, asked by letters between ranks.

A receive meets its send by the sender's name, so it waits until it knows one.  The receiver asks all ranks and says how many
messages of that tag it has taken from each; the first rank that has sent more answers, at once or when it sends.  The
receives of a group ask one after the other: a message is given to the receive that was there first.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Callable

from hvd.torch._group_sets import GroupSets

if TYPE_CHECKING:
    from hvd.torch._point_to_point import Message

_ASK, _ANSWER = "any", "have"  # kinds of letters
_Key = tuple[str, int, int]  # group's label, world rank of the receiver, tag


class SentMessages:
    """What this rank has sent to whom, and who waits for what it will send.  One for each world; any thread."""

    def __init__(self, sets: GroupSets, rank: int) -> None:
        """rank: of the world."""
        self._sets = sets
        self._rank = rank
        self._lock = threading.Lock()
        self._sent: dict[_Key, int] = {}
        self._asked: dict[_Key, tuple[str, int]] = {}  # → the question, and how many messages its receiver has taken
        self._receivers: dict[str, AnySource] = {}  # by group
        self._over: Exception | None = None
        self.readers: dict[str, Callable[..., None]] = {_ASK: self._asked_for, _ANSWER: self._answered}

    def add(self, group: str, receiver: int, tag: int, count: int) -> None:
        """This rank has sent so many messages by now."""
        key = (group, receiver, tag)
        with self._lock:
            self._sent[key] = count
            question, taken = self._asked.get(key, ("", count))
            if count > taken:
                del self._asked[key]
        if count > taken:
            self._answer(group, receiver, question, count)

    def ask(self, receiver: AnySource, group: str, tag: int, number: int, taken: dict[int, int]) -> str:
        """Asks the ranks in taken, how many messages of each were received; the question's name is returned.

        receiver.answered(question, rank, how many it has sent) is called by another thread, receiver.end(error) where no
        answer can come any more.  Errors: that error.
        """
        self._receivers[group] = receiver
        if self._over is not None:
            raise self._over
        question = f"{self._rank}/{group}/{number}"
        self._sets.tell(_ASK, question, group, self._rank, tag, {str(rank): count for rank, count in taken.items()})
        return question

    def end(self, error: Exception) -> None:
        """Called when no letter will come any more."""
        self._over = error
        for receiver in list(self._receivers.values()):
            receiver.end(error)

    def _asked_for(self, question: str, group: str, receiver: int, tag: int, taken: dict[str, int]) -> None:
        if str(self._rank) not in taken:
            return
        key, had = (group, receiver, tag), taken[str(self._rank)]
        with self._lock:
            count = self._sent.get(key, 0)
            if count <= had:
                self._asked[key] = (question, had)
        if count > had:
            self._answer(group, receiver, question, count)

    def _answer(self, group: str, receiver: int, question: str, count: int) -> None:
        if self._sets.first(question):
            self._sets.tell(_ANSWER, question, group, receiver, self._rank, count)

    def _answered(self, question: str, group: str, receiver: int, source: int, count: int) -> None:
        if receiver == self._rank:
            self._receivers[group].answered(question, source, count)


class AnySource:
    """The receives from any source of one group, in order.

    taken(tag): how many messages of each other rank were received.  place(message, source, tag, most): the message comes from
    that rank; False where most messages were received from it already; called by another thread.  Ranks: of the world.
    """

    def __init__(
        self,
        sent: SentMessages,
        group: str,
        taken: Callable[[int], dict[int, int]],
        place: Callable[[Message, int, int, int], bool],
    ) -> None:
        self._sent = sent
        self._group = group
        self._taken = taken
        self._place = place
        self._lock = threading.Lock()
        self._line: deque[tuple[Message, int]] = deque()
        self._question = ""
        self._asked = 0

    def add(self, message: Message, tag: int) -> None:
        with self._lock:
            self._line.append((message, tag))
            if len(self._line) == 1:
                self._ask()

    def answered(self, question: str, source: int, count: int) -> None:
        """source has sent so many messages."""
        # Placing may have to wait for earlier messages, whose process set this very thread makes.
        threading.Thread(target=self._settle, args=(question, source, count), name="hvd recv", daemon=True).start()

    def end(self, error: Exception) -> None:
        """No answer will come any more."""
        if self._line:
            threading.Thread(target=self._refuse, args=(error,), name="hvd recv", daemon=True).start()

    def _ask(self) -> None:
        """With the lock held, for the first in line."""
        self._asked += 1
        tag = self._line[0][1]
        try:
            self._question = self._sent.ask(self, self._group, tag, self._asked, self._taken(tag))
        except RuntimeError as error:
            self._refuse_all(error)

    def _settle(self, question: str, source: int, count: int) -> None:
        with self._lock:
            if question != self._question or not self._line:
                return  # of an earlier one
            message, tag = self._line[0]
            try:
                placed = self._place(message, source, tag, count)
            except Exception as error:
                message.refuse(error)
                placed = True
            if placed:  # else a receive that named it was given the message meanwhile
                self._line.popleft()
            if self._line:
                self._ask()

    def _refuse(self, error: Exception) -> None:
        with self._lock:
            self._refuse_all(error)

    def _refuse_all(self, error: Exception) -> None:
        while self._line:
            self._line.popleft()[0].refuse(error)
