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

from hvd._elastic.state_folder import NAME, StateFileError, StateFolder
from hvd._job.own_folder import RefusedPath
from hvd._runtime import environment as _environment
from hvd._runtime import objects as _objects
from hvd._runtime import world as _world

_LOCK_SECONDS = 5.0  # claim() waits this long for another job to release the lock
_END_SECONDS = 5.0  # finish() waits this long for the writing thread
_REST = 9  # pauses last 9 times as long as the work: the thread uses a tenth of a core at most


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
        self._path = path
        self._job = _environment.text("HVD_JOB")  # without it rank 0 draws one
        self._folder: StateFolder | None = None
        self._opening = threading.Lock()
        self._changed = threading.Condition()
        self._next: tuple[int, Any] | None = None  # the thread's next commit; a newer one replaces it
        self._busy = self._hurry = False
        self._turn = 0  # _cancel() adds 1; the thread does not write commits of an earlier turn
        self._thread: threading.Thread | None = None
        self._complained = ""

    def _open(self, make: bool) -> StateFolder:
        """The folder, held from the first use on.  FileNotFoundError without make; OSError, RefusedPath."""
        with self._opening:
            if self._folder is None:
                self._folder = StateFolder(self._path, self._job, make)
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
        if _world.rank() != 0:
            return
        with self._changed:
            self._next = (commits, copy)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="hvd state file", daemon=True)
                self._thread.start()

    def flush(self, seconds: float) -> None:
        """Waits until the last queued commit is written, at most `seconds`."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._next is None and not self._busy, seconds)
            self._hurry = False

    def finish(self) -> None:
        """The training is done: removes the file, so that the next run starts from the beginning.

        A write in progress does not create the file again, even if it ends after this call.
        """
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
                (commits, copy), self._next, self._busy = self._next, None, True
                turn = self._turn
            begin = time.monotonic()
            try:
                self._write(commits, copy, turn)
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
                self._changed.wait_for(lambda: self._hurry, _REST * (time.monotonic() - begin))

    def _write(self, commits: int, copy: Any, turn: int) -> None:
        def is_wanted() -> bool:
            return turn == self._turn

        folder = self._open(make=True)
        folder.claim(_LOCK_SECONDS, is_wanted)
        folder.write(commits, _objects._pickler().dumps(copy), is_wanted)

    def _complain(self, error: Exception) -> None:
        text = f"{error}"
        if text != self._complained:
            print(
                f"hvd.elastic: the state is not written to {self._path}: {text}. Training goes on; the file stays as it was.",
                file=sys.stderr,
                flush=True,
            )
        self._complained = text

    # ---- reading

    def load(self, state: Any, held: int = -1) -> bool:
        """Loads the newest state that any rank finds into rank 0's state.  Returns False if there is none.  Collective.

        held: the number of commits of the state in this rank's memory; -1: it has no state.
        The folder of each rank belongs to this job afterwards.
        Errors: StateFileError, on all ranks, if another job uses the folder, or a rank finds a state that must not be used;
        NotImplementedError for a state that keeps more than it would write.
        """
        need_saved_copy(type(state))
        _objects._pickler()  # imported now: the first commit should be written soon
        mine: int | str = -1
        if _world.rank() == 0:  # looks first: in a folder that all hosts share, the lock belongs to rank 0
            self._job = self._job or secrets.token_hex(4)
            mine = self._look(claims=True)
        is_noted = self._folder is not None and self._folder.is_noted
        self._job, is_noted = _objects.broadcast_object((self._job, is_noted), 0, "hvd.elastic.state_file.job")
        if _world.rank() != 0:
            mine = self._look(claims=is_noted)
        answers, all_held = zip(*_objects.allgather_object((mine, held), "hvd.elastic.state_file"))
        for rank, answer in enumerate(answers):
            if isinstance(answer, str):
                raise StateFileError(f"rank {rank}: {answer}")
        commits = max(answers)
        if max(all_held) > commits + 1:  # a rank may hold one commit more than the file
            raise StateFileError(
                f"rank {all_held.index(max(all_held))} has commit {max(all_held)} in memory, but the state in {self._path} is "
                f"of commit {commits}: an older file has taken its place"
            )
        if commits < 0:
            return False
        self._take(state, answers.index(commits), commits)
        state._commits = commits
        return True

    def _look(self, claims: bool) -> int | str:
        """The number of commits in the state of this rank's folder; -1: none; a text: the reason for a refusal.

        claims: takes the folder for this job.  If no lock can be made, the state can only be read.
        """
        try:
            folder = self._open(make=_world.rank() == 0)
            if claims:
                try:
                    folder.claim(_LOCK_SECONDS)
                except OSError as error:  # a full disk, or a read-only one
                    self._complain(error)
            return folder.commits()
        except FileNotFoundError:
            return -1
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
                trouble = f"{os.path.join(self._path, NAME)}: {type(error).__name__}: {error}"
        trouble = _objects.broadcast_object(trouble, 0, "hvd.elastic.state_file.trouble")
        if trouble:
            raise StateFileError(f"rank {holder}: {trouble}")
        if _world.rank() == 0:
            print(f"hvd.elastic: goes on from commit {commits} in {self._path}", file=sys.stderr, flush=True)


def of_environment() -> StateFile | None:
    """The state file of hvdrun --state-dir."""
    folder = _environment.text("HVD_STATE_DIR")
    return StateFile(os.path.join(os.getcwd(), folder)) if folder else None
