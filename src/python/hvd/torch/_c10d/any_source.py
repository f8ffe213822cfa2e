"""recv from any source: finds a rank that has a message, by messages between ranks through torch's store.

A receive is matched with its send by the sender's name, so it waits until it knows one.  The receiver asks all ranks, and
says how many messages of that tag it has taken from each.  The first rank that has sent more answers, at once or when it
sends.  The receives of a group ask one after the other: the first receive in line gets the message.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Callable

from hvd.torch._c10d.group_sets import GroupSets

if TYPE_CHECKING:
    from hvd.torch._c10d.point_to_point import Message

_ASK, _ANSWER = "any", "have"  # kinds of messages
_Key = tuple[str, int, int]  # group's label, world rank of the receiver, tag


class SentMessages:
    """The numbers of messages that this rank has sent, and the receivers that wait for more.  One per world; any thread."""

    def __init__(self, sets: GroupSets, rank: int) -> None:
        """rank: of the world."""
        self._sets = sets
        self._rank = rank
        self._lock = threading.Lock()
        self._sent: dict[_Key, int] = {}
        self._asked: dict[_Key, tuple[str, int]] = {}  # → the question, and the number of messages that its receiver has taken
        self._receivers: dict[str, AnySource] = {}  # by group
        self._over: Exception | None = None
        self.readers: dict[str, Callable[..., None]] = {_ASK: self._asked_for, _ANSWER: self._answered}

    def add(self, group: str, receiver: int, tag: int, count: int) -> None:
        """Notes that this rank has sent `count` messages by now."""
        key = (group, receiver, tag)
        with self._lock:
            self._sent[key] = count
            question, taken = self._asked.get(key, ("", count))
            if count > taken:
                del self._asked[key]
        if count > taken:
            self._answer(group, receiver, question, count)

    def ask(self, receiver: AnySource, group: str, tag: int, number: int, taken: dict[int, int]) -> str:
        """Asks the ranks in taken; its values are the numbers of messages received from each.  Returns the question's name.

        Another thread calls receiver.answered(question, rank, number of sent messages), or receiver.end(error) if no answer
        can come any more.  Errors: that error.
        """
        self._receivers[group] = receiver
        if self._over is not None:
            raise self._over
        question = f"{self._rank}/{group}/{number}"
        self._sets.tell(_ASK, question, group, self._rank, tag, {str(rank): count for rank, count in taken.items()})
        return question

    def end(self, error: Exception) -> None:
        """Called when no further message can come."""
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

    taken(tag): number of messages received from each other rank.  place(message, source, tag, most): the message comes from
    that rank; returns False if `most` messages were received from it already.  Another thread calls place.  Ranks: of the
    world.
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
        """source has sent `count` messages."""
        # Placing may wait for earlier messages.  The present thread makes their process set, so it must not wait
        # itself.
        threading.Thread(target=self._settle, args=(question, source, count), name="hvd recv", daemon=True).start()

    def end(self, error: Exception) -> None:
        """No answer can come any more."""
        if self._line:
            threading.Thread(target=self._refuse, args=(error,), name="hvd recv", daemon=True).start()

    def _ask(self) -> None:
        """Asks for the first receive in line, with the lock held."""
        self._asked += 1
        tag = self._line[0][1]
        try:
            self._question = self._sent.ask(self, self._group, tag, self._asked, self._taken(tag))
        except RuntimeError as error:
            self._refuse_all(error)

    def _settle(self, question: str, source: int, count: int) -> None:
        with self._lock:
            if question != self._question or not self._line:
                return  # the answer to an earlier question
            message, tag = self._line[0]
            try:
                placed = self._place(message, source, tag, count)
            except Exception as error:
                message.refuse(error)
                placed = True
            if placed:  # otherwise a receive with this source got the message meanwhile
                self._line.popleft()
            if self._line:
                self._ask()

    def _refuse(self, error: Exception) -> None:
        with self._lock:
            self._refuse_all(error)

    def _refuse_all(self, error: Exception) -> None:
        while self._line:
            self._line.popleft()[0].refuse(error)
