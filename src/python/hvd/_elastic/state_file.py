"""The last commit of an elastic state in a file: hvdrun --state-dir.

Rank 0 of each world writes in a thread, from a copy that no longer changes.  state_folder.py has the file, its checks and
the lock that keeps other jobs out.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import sys
import threading
import time
from typing import Any

from hvd._elastic.state_folder import NAME, UNKNOWN, Call, StateFileError, StateFolder
from hvd._job.own_folder import RefusedPath
from hvd._runtime import environment as _environment
from hvd._runtime import objects as _objects
from hvd._runtime import world as _world

_LOCK_SECONDS = 5.0  # claim() waits this long for another job to release the lock
_END_SECONDS = 5.0  # finish() waits this long for the writing thread
_REST = 9  # pauses last 9 times as long as the work: the thread uses a tenth of a core at most ...
_MOST_REST_SECONDS = 30.0  # ... unless the work is long: the file should not become much older
_FUNCTION_BYTES = 100  # of a function's name in the file


def need_saved_copy(kind: type) -> None:
    """Raises NotImplementedError for a class that overrides save() without saved_copy()."""
    saves = next(i for i, base in enumerate(kind.__mro__) if "save" in base.__dict__)
    copies = next(i for i, base in enumerate(kind.__mro__) if "saved_copy" in base.__dict__)
    if copies > saves:
        raise NotImplementedError(
            f"{kind.__name__} has a save() of its own, so --state-dir and a new rank 0 need its own saved_copy() and "
            "use_saved_copy()"
        )


class StateFile:
    """The state file of one job, in a folder."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._job = _environment.text("HVD_JOB")  # without it rank 0 draws one
        self._folder: StateFolder | None = None
        self._opening = threading.Lock()
        self._changed = threading.Condition()
        self._next: tuple[int, Any, Call] | None = None  # the thread's next commit; a newer one replaces it
        self._busy = self._hurry = self._is_kept = False
        self._turn = 0  # _cancel() adds 1; the thread does not write commits of an earlier turn
        self._thread: threading.Thread | None = None
        self._complained = ""
        self.call = UNKNOWN  # the current one; in a world it is the same on all ranks
        self._calls: dict[str, int] = {}  # of each function, in this process

    def begin_call(self, function: str) -> None:
        """Must be called once in each call of a function that hvd.elastic.run decorates."""
        name = function.encode()[-_FUNCTION_BYTES:].decode(errors="ignore")
        self.take_call(Call(name, self._calls.get(name, 0) + 1))

    def take_call(self, call: Call) -> None:
        """Makes `call` the current call of this process.  A process that started late has counted fewer calls, so it takes this
        number."""
        self.call = call
        self._calls[call.function] = call.number

    def _open(self, make: bool) -> StateFolder:
        """The folder; the first use opens it.  Errors: OSError, RefusedPath; FileNotFoundError if missing, unless make."""
        with self._opening:
            if self._folder is None:
                self._folder = StateFolder(self.path, self._job, make)
            return self._folder

    def _close(self) -> None:
        """Closes the folder; the next use opens it again."""
        with self._opening:
            if self._folder is not None:
                self._folder.close()
            self._folder = None

    # ---- writing

    def begin_world(self) -> None:
        """Must be called in each new world.  Ranks other than 0 stop writing; each rank keeps other jobs out.

        A rank that started late has read nothing: it claims its host's folder here.
        """
        if _world.rank() != 0:
            self._cancel()
        with contextlib.suppress(OSError, RefusedPath):  # the first write reports it
            self._open(make=_world.rank() == 0).claim()

    def put(self, commits: int, copy: Any) -> None:
        """Queues this copy for writing, on rank 0.  Returns at once; the copy must not change any more."""
        if _world.rank() != 0 or self._is_kept:
            return
        with self._changed:
            self._next = (commits, copy, self.call)
            self._changed.notify_all()
            self._start()

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name="hvd state file", daemon=True)
            thread.start()
            self._thread = thread

    def flush(self, seconds: float) -> None:
        """Waits until the last queued commit is written, at most `seconds`.  A signal handler may call it."""
        with self._changed:
            self._hurry = True
            if self._next is not None:
                self._start()  # the signal may have interrupted put()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._next is None and not self._busy, seconds)
            self._hurry = False

    def keep(self, seconds: float) -> None:
        """The training stops before its end: writes the last commit as flush() does.  The file stays as it is then."""
        self.flush(seconds)
        self._is_kept = True

    def finish(self) -> None:
        """The training is done: removes the file, so that the next run starts from the beginning.

        A write in progress does not create the file again, even if it ends after this call.
        """
        if self._is_kept:
            return
        self._cancel()
        with contextlib.suppress(OSError, RefusedPath):
            self._open(make=False).remove()
        with self._changed:  # so that no partial file stays
            self._changed.wait_for(lambda: not self._busy, _END_SECONDS)

    def _cancel(self) -> None:
        """Cancels queued commits."""
        with self._changed:
            self._next = None
            self._turn += 1

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next is not None)
                assert self._next is not None
                (commits, copy, call), self._next, self._busy = self._next, None, True
                turn = self._turn
            begin = time.monotonic()
            try:
                self._write(commits, copy, turn, call)
                self._complained = ""
            except Exception as error:  # a full disk, or an object that cannot be pickled: training continues
                if turn == self._turn:
                    self._complain(error)
                if isinstance(error, FileNotFoundError):
                    self._close()
            del copy
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                rest = min(_REST * (time.monotonic() - begin), _MOST_REST_SECONDS)
                self._changed.wait_for(lambda: self._hurry, rest)

    def _write(self, commits: int, copy: Any, turn: int, call: Call) -> None:
        def is_wanted() -> bool:
            return turn == self._turn

        folder = self._open(make=True)
        folder.claim(_LOCK_SECONDS, is_wanted)
        folder.write(commits, _objects._pickler().dumps(copy), is_wanted, call)

    def _complain(self, error: Exception) -> None:
        text = f"{error}"
        if text != self._complained:
            print(
                f"hvd.elastic: the state is not written to {self.path}: {text}. Training goes on; the file stays as it was.",
                file=sys.stderr,
                flush=True,
            )
        self._complained = text

    # ---- reading

    def load(self, state: Any, held: int = -1) -> bool:
        """Loads the newest state that any rank finds into rank 0's state.  Returns False if there is none.  Collective.

        held: the number of commits of the state in this rank's memory; -1: it has no state.
        The folder of each rank belongs to this job afterwards.
        Errors: StateFileError on all ranks, if another job uses the folder, or a rank finds an unusable state.
        NotImplementedError for a state class that overrides save() without saved_copy().
        """
        need_saved_copy(type(state))
        _objects._pickler()  # imported now: the first commit should be written soon
        mine: tuple[int, Call] | str = (-1, UNKNOWN)
        if _world.rank() == 0:  # looks first: in a folder that all hosts share, the lock belongs to rank 0
            self._job = self._job or secrets.token_hex(4)
            mine = self._look(claims=True)
        is_noted = self._folder is not None and self._folder.is_noted
        self._job, is_noted = _objects.broadcast_object((self._job, is_noted), 0, "hvd.elastic.state_file.job")
        if _world.rank() != 0:
            mine = self._look(claims=is_noted)
        told = _objects.allgather_object((mine, held, self._calls), "hvd.elastic.state_file")
        answers, all_held, all_calls = zip(*told)
        for rank, answer in enumerate(answers):
            if isinstance(answer, str):
                raise StateFileError(f"rank {rank}: {answer}")
        all_commits = [commits for commits, _ in answers]
        commits = max(all_commits)
        if max(all_held) > commits + 1:  # a rank may hold one commit more than the file
            raise StateFileError(
                f"rank {all_held.index(max(all_held))} has commit {max(all_held)} in memory, but the state in {self.path} is "
                f"of commit {commits}: an older file has taken its place"
            )
        if commits < 0:
            return False
        holder = all_commits.index(commits)
        if not self._is_of_this_call(answers[holder][1], all_calls[0]):
            self.finish()
            return False
        self._take(state, holder, commits)
        state._commits = commits
        return True

    def _is_of_this_call(self, made_by: Call, calls: dict[str, int]) -> bool:
        """Returns whether the file belongs to this call.  False: an earlier call of this program has left it, by an error.

        calls: rank 0's.  Errors: StateFileError if it belongs to another call of an earlier program.
        """
        is_first = sum(calls.values()) == 1
        if made_by == self.call or (made_by == UNKNOWN and is_first):
            return True
        if 0 < made_by.number <= calls.get(made_by.function, 0):
            return False
        raise StateFileError(
            f"{os.path.join(self.path, NAME)} is of {made_by}, and this is "
            f"{self.call}: a restart cannot tell which calls are done. Train in one call, with the phase or fold in the "
            "state; move the file away to begin anew"
        )

    def _look(self, claims: bool) -> tuple[int, Call] | str:
        """The number of commits in the state of this rank's folder, and the call that made it.  -1: there is no state.
        A text: the reason why the state is refused.

        claims: takes the folder for this job.  If no lock can be made, the state can only be read.
        """
        try:
            folder = self._open(make=_world.rank() == 0)
            if claims:
                try:
                    folder.claim(_LOCK_SECONDS)
                except OSError as error:  # a full disk, or a read-only one
                    self._complain(error)
            commits = folder.commits()
            return commits, folder.call() if commits >= 0 else UNKNOWN
        except FileNotFoundError:
            return -1, UNKNOWN
        except (OSError, RefusedPath) as error:
            return str(error)

    def _take(self, state: Any, holder: int, commits: int) -> None:
        """Sends the state from the rank that holds it to rank 0, and restores it there."""
        answer: bytes | str = b""
        if _world.rank() == holder:
            try:
                answer = self._open(make=False).read(commits)
            except (OSError, RefusedPath) as error:
                answer = str(error)
        if holder != 0:
            answer = _objects.broadcast_object(answer, holder, "hvd.elastic.state_file.bytes")
        trouble = answer if isinstance(answer, str) else ""
        if _world.rank() == 0 and not trouble:
            assert isinstance(answer, bytes)
            try:
                state.use_saved_copy(pickle.loads(answer))
                state.restore()
            except Exception as error:
                trouble = f"{os.path.join(self.path, NAME)}: {type(error).__name__}: {error}"
        trouble = _objects.broadcast_object(trouble, 0, "hvd.elastic.state_file.trouble")
        if trouble:
            raise StateFileError(f"rank {holder}: {trouble}")
        if _world.rank() == 0:
            print(f"hvd.elastic: goes on from commit {commits} in {self.path}", file=sys.stderr, flush=True)


def of_environment() -> StateFile | None:
    """The state file of hvdrun --state-dir."""
    folder = _environment.text("HVD_STATE_DIR")
    return StateFile(os.path.join(os.getcwd(), folder)) if folder else None
