"""The process sets that torch's groups run in.

torch makes a group where its members are, and tells the other ranks nothing; the runtime makes a process set with all
ranks of the world.  So each rank has a thread that makes the sets that others ask for, through torch's store: every
rank has a numbered letter box there, and all boxes get the same letters.
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
_LOOK_SECONDS = 0.05  # where torch's store cannot be waited for


class GroupSets:
    """The sets of one world.  Any thread."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        """store: torch's, of all ranks."""
        self._store = store
        self._rank = rank
        self._size = size
        self._made: dict[tuple[int, ...], ProcessSet | Exception] = {tuple(range(size)): global_process_set}
        self._asked: set[tuple[int, ...]] = set()
        self._waiting: dict[tuple[int, ...], list[Callable[[], None]]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._read = 0  # letters
        if size > 1:
            self._thread = threading.Thread(target=self._serve, name="hvd groups", daemon=True)
            self._thread.start()
            atexit.register(self.close)

    def ask(self, ranks: Sequence[int], then: Callable[[], None] | None = None) -> None:
        """Has the set of these ranks made.  All members ask.  then: called when found() has an answer, by any thread."""
        key = tuple(ranks)
        with self._changed:
            known = key in self._made
            if not known and then:
                self._waiting.setdefault(key, []).append(then)
            first = not known and key not in self._asked and key[0] == self._rank
            self._asked.add(key)
        if first:
            number = self._store.add("letters", 1)
            letter = json.dumps(key)
            self._store.multi_set([f"{rank}/{number}" for rank in range(self._size)], [letter] * self._size)
        if known and then:
            then()

    def found(self, ranks: Sequence[int]) -> ProcessSet | None:
        """The set, once it is made.  Errors: what its making ended with."""
        made = self._made.get(tuple(ranks))
        if isinstance(made, Exception):
            raise made
        return made

    def wait_for(self, ranks: Sequence[int], seconds: float) -> ProcessSet:
        """ask(), and the answer.  TimeoutError."""
        self.ask(ranks)
        key = tuple(ranks)
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._made, seconds):
                raise TimeoutError(
                    f"a process set of ranks {list(ranks)} was not made within {seconds:.0f} s: all ranks of the job have a "
                    "part in it, so one of them has ended, or its process is stopped"
                )
        made = self.found(ranks)
        assert made is not None
        return made

    def close(self) -> None:
        """Ends the thread.  Nothing can be asked for afterwards."""
        if self._thread is None:
            return
        try:
            self._store.set(f"{self._rank}/{self._read + 1}", "end")
        except Exception:  # the store has gone, and the thread with it
            pass
        self._thread.join(1.0)
        self._thread = None
        atexit.unregister(self.close)

    def _serve(self) -> None:
        try:
            # A connection of its own, so that others need not wait behind this one.
            mine = self._store.clone() if hasattr(self._store, "clone") else None
            while True:
                key = f"{self._rank}/{self._read + 1}"
                if mine is not None:
                    mine.wait([key], _LONG)
                else:
                    while not self._store.check([key]):
                        time.sleep(_LOOK_SECONDS)
                letter = self._store.get(key).decode()
                if letter == "end":
                    return
                self._make(tuple(json.loads(letter)))
                self._read += 1
        except Exception as error:  # the store ends with the job
            self._end = error

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
