"""The process sets of torch's groups, and the messages that ranks exchange about them through torch's store.

torch makes a group among its members, without the other ranks.  The runtime makes a process set with all ranks of the world.
So each rank has a thread that makes the sets which other ranks request through torch's store.  Every rank has a queue of
numbered keys there, and each message goes into all queues.
"""

from __future__ import annotations

import atexit
import json
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from hvd import process_sets
from hvd.process_sets import ProcessSet, global_process_set

_LONG = timedelta(days=30)
_LOOK_SECONDS = 0.05  # polling interval if torch's store has no wait
_END = "end"
_END_SECONDS = 2.0  # rank 0's limit for the other threads
_LIMIT_SECONDS = 60.0  # torch may need long to detect that its store has gone


class GroupSets:
    """The sets of one world.  Any thread."""

    def __init__(self, store: Any, rank: int, size: int, world: int, word: str) -> None:
        """store: of all ranks, without keys.  world: the number of worlds on rank 0 so far, including this one.  word: the same
        on all ranks, and new for each world.
        """
        self._store = store
        self._rank = rank
        self._size = size
        self._made: dict[tuple[int, ...], ProcessSet | Exception] = {tuple(range(size)): global_process_set}
        self._asked: set[tuple[int, ...]] = set()
        self._waiting: dict[tuple[int, ...], list[Callable[[], None]]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._read = 0  # number of messages read
        self.world = world
        self.word = word
        self._readers: dict[str, Callable[..., None]] = {}
        self._at_end: Callable[[Exception], None] | None = None
        self._over: Exception | None = None  # no further message will be read
        self.left = False  # the runtime has left the world of these sets

    def start(self, readers: dict[str, Callable[..., None]], at_end: Callable[[Exception], None]) -> None:
        """Starts to read messages.

        readers: kind → function that gets the arguments; at_end: called when no more messages can come.  This object's thread
        calls both.
        """
        self._readers, self._at_end = readers, at_end
        if self._size > 1:
            self._thread = threading.Thread(target=self._serve, name="hvd groups", daemon=True)
            self._thread.start()
            atexit.register(self.close)

    def ask(self, ranks: Sequence[int], then: Callable[[], None] | None = None) -> None:
        """Requests the set of these ranks.  All members request it.  then: any thread calls it when found() has an answer."""
        key = tuple(ranks)
        with self._changed:
            known = key in self._made or self._over is not None
            if not known and then:
                self._waiting.setdefault(key, []).append(then)
            first = not known and key not in self._asked and key[0] == self._rank
            self._asked.add(key)
        if first:
            self._post(json.dumps(key))
        if known and then:
            then()

    def found(self, ranks: Sequence[int]) -> ProcessSet | None:
        """The set, once it exists.  Errors: the error of its making."""
        made = self._made.get(tuple(ranks), self._over)
        if isinstance(made, Exception):
            raise made
        return made

    def wait_for(self, ranks: Sequence[int], seconds: float) -> ProcessSet:
        """ask(), and waits for the answer.  TimeoutError."""
        self.ask(ranks)
        key = tuple(ranks)
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._made or self._over is not None, seconds):
                raise TimeoutError(
                    f"a process set of ranks {list(ranks)} was not made within {seconds:.0f} s: all ranks of the job have a "
                    "part in it, so one of them has ended, or its process is stopped"
                )
        made = self.found(ranks)
        assert made is not None
        return made

    def tell(self, kind: str, *words: Any) -> None:
        """Calls every rank's reader of this kind, this rank's too, with these arguments.  JSON must be able to
        represent them."""
        self._post(json.dumps([kind, *words]))

    def first(self, name: str) -> bool:
        """Whether this rank is the first of all to claim this name."""
        return bool(self._store.add(f"first/{name}", 1) == 1)

    def close(self) -> None:
        """Ends the thread.  No set can be requested afterwards.

        The store usually is in rank 0's process.  So rank 0 ends all ranks' threads.  If a thread waits for a lost
        store, torch writes a page of warnings, which takes seconds.
        """
        if self._thread is None:
            return
        try:
            if self._rank or self.left:
                self._store.set(f"{self._rank}/{self._read + 1}", _END)
            else:
                self._post(_END)
                limit = time.monotonic() + _END_SECONDS
                while self._store.add("ended", 0) < self._size and time.monotonic() < limit:
                    time.sleep(0.002)
        except Exception:  # the store has gone, and the thread with it
            pass
        # Waits for the thread's end: at the interpreter's end it would end the process with an error.
        self._thread.join(_END_SECONDS if self.left else _LIMIT_SECONDS)
        self._thread = None
        atexit.unregister(self.close)

    def refuse_if_left(self, label: str) -> None:
        """RuntimeError for a call of a group whose world has ended."""
        if self.left:
            raise RuntimeError(
                f"{label}: this process group's world has ended; make it anew by init_process_group, in the function that "
                "hvd.elastic.run calls"
            )

    def _post(self, letter: str) -> None:
        number = self._store.add("letters", 1)
        self._store.multi_set([f"{rank}/{number}" for rank in range(self._size)], [letter] * self._size)

    def _serve(self) -> None:
        try:
            # A separate connection, so that others do not wait for this thread.
            mine = self._store.clone() if hasattr(self._store, "clone") else None
            while (letter := self._next_letter(mine)) != _END:
                words = json.loads(letter)
                if isinstance(words[0], str):
                    self._readers[words[0]](*words[1:])
                else:
                    self._make(tuple(words))
                self._read += 1
            self._store.add("ended", 1)
        except RuntimeError:  # the store ends with the job
            pass
        finally:
            self._end()

    def _end(self) -> None:
        over = RuntimeError(
            "hvd: rank 0 has left torch.distributed (destroy_process_group, or its end): no group can be made any more, and "
            "no message come from a source that is not named"
        )
        with self._changed:
            self._over = over
            waiting = [call for calls in self._waiting.values() for call in calls]
            self._waiting.clear()
            self._changed.notify_all()
        if self._at_end is not None:
            self._at_end(over)
        for call in waiting:
            call()

    def _next_letter(self, mine: Any) -> str:
        """Waits for the next message.  mine: this thread's connection to the store; None: the store has none."""
        key = f"{self._rank}/{self._read + 1}"
        if mine is not None:
            mine.wait([key], _LONG)
        else:
            while not self._store.check([key]):
                time.sleep(_LOOK_SECONDS)
        return str(self._store.get(key).decode())

    def _make(self, key: tuple[int, ...]) -> None:
        made: ProcessSet | Exception
        try:
            made = process_sets._added(ProcessSet(key), at_init=True)
        except Exception as error:
            made = error
        with self._changed:
            self._made[key] = made
            then = self._waiting.pop(key, [])
            self._changed.notify_all()
        for call in then:
            call()
