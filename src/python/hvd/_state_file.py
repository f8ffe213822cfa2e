"""The last commit of an elastic state in a file: hvdrun --state-dir.

Rank 0 of each world writes, in a thread; what it writes is a copy that nobody changes any more.  A file is replaced as a
whole.  It is read, replaced or removed only where it carries our mark, belongs to this user and nobody else can write it:
a pickle is a program.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import pickle
import re
import stat
import struct
import sys
import tempfile
import threading
import time
from typing import Any

from hvd import _environment, _objects, _world

NAME = "elastic-state"
_MARK = b"hvdrun elastic state 1\n\0"
_HEADER = struct.Struct("<24sQQ32s")  # mark, commits, bytes of what follows, their SHA-256
_LOCK = ".lock"  # behind NAME: held by the one rank that writes there
_LOCK_SECONDS = 5.0  # for the rank that wrote before
_REST = 9  # the thread rests so many times as long as it worked: it has a tenth of a core at most


class StateFileError(RuntimeError):
    """A state file that must not be used.  Says what to do."""


def _open_ours(path: str, flags: int) -> int:
    """Opens a file that is ours alone.  FileNotFoundError; StateFileError for anything else than such a file."""
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.strerror and not os.path.islink(path):
            raise StateFileError(f"{path}: {error.strerror}") from None
        raise StateFileError(f"{path} is a symbolic link: move it away, or give another --state-dir") from None
    about = os.fstat(fd)
    why = ""
    if not stat.S_ISREG(about.st_mode):
        why = "is no file"
    elif about.st_uid != os.geteuid():
        why = "belongs to another user"
    elif about.st_nlink != 1:
        why = "has a second name (a hard link)"
    elif about.st_mode & 0o022:
        why = "can be written by other users"
    elif about.st_size and os.pread(fd, len(_MARK), 0) != _MARK:
        why = "is no state of an elastic job"
    if why:
        os.close(fd)
        raise StateFileError(f"{path} {why}: move it away, or give another --state-dir")
    return fd


def _write(folder: str, commits: int, payload: bytes) -> None:
    """Replaces the file.  OSError, StateFileError: the older one is as it was."""
    path = os.path.join(folder, NAME)
    with contextlib.suppress(FileNotFoundError):
        os.close(_open_ours(path, os.O_RDONLY))  # nothing of somebody else is replaced
    fd, fresh = tempfile.mkstemp(".new", NAME + ".", folder)  # 0600, and new: nobody else's
    try:
        with open(fd, "wb", buffering=0) as file:
            header = _HEADER.pack(_MARK, commits, len(payload), hashlib.sha256(payload).digest())
            for part in (header, payload):
                view = memoryview(part)
                while view:
                    view = view[file.write(view) :]
            os.fsync(file.fileno())
        os.replace(fresh, path)
        _sync_folder(folder)
    except FileNotFoundError:
        raise  # the folder has gone
    except BaseException:
        os.unlink(fresh)
        raise


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot
            os.fsync(fd)
    finally:
        os.close(fd)


def _remove_leftovers(folder: str) -> None:
    """What writers that were killed have left.  To be called with the lock."""
    for name in os.listdir(folder):
        if re.fullmatch(re.escape(NAME) + r"\.[a-z0-9_]{8}\.new", name):
            with contextlib.suppress(OSError, StateFileError):
                path = os.path.join(folder, name)
                os.close(_open_ours(path, os.O_RDONLY))
                os.unlink(path)


def _lock(folder: str) -> int:
    """The descriptor that holds the lock.  StateFileError where another job, or a rank of this one, keeps it."""
    os.makedirs(folder, 0o700, exist_ok=True)
    path = os.path.join(folder, NAME + _LOCK)
    end = time.monotonic() + _LOCK_SECONDS
    while True:
        fd = _open_ours(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False)):
                    return fd
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                return fd  # a file system without locks
            if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                os.close(fd)
                raise
        os.close(fd)  # somebody has it, or has just removed it
        if time.monotonic() > end:
            raise StateFileError("another job writes there: give each job a --state-dir of its own")
        time.sleep(0.05)


def _commits_in(folder: str) -> int:
    """How many commits are behind the file's state; -1: there is none.  StateFileError."""
    path = os.path.join(folder, NAME)
    try:
        fd = _open_ours(path, os.O_RDONLY)
    except FileNotFoundError:
        return -1
    try:
        header = os.pread(fd, _HEADER.size, 0)
        if len(header) < _HEADER.size or os.fstat(fd).st_size != _HEADER.size + _HEADER.unpack(header)[2]:
            raise StateFileError(f"{path} is not whole: move it away to begin anew")
        return int(_HEADER.unpack(header)[1])
    finally:
        os.close(fd)


def _read(folder: str) -> bytes:
    """The payload.  StateFileError where it is not what was written."""
    path = os.path.join(folder, NAME)
    with open(_open_ours(path, os.O_RDONLY), "rb", buffering=0) as file:
        header = file.read(_HEADER.size)
        payload = file.readall() or b""
    _, _, length, digest = _HEADER.unpack(header)
    if len(payload) != length or hashlib.sha256(payload).digest() != digest:
        raise StateFileError(f"{path} has changed since it was written: move it away to begin anew")
    return payload


def need_saved_copy(kind: type) -> None:
    """A class with a save() of its own keeps things of which an inherited saved_copy() does not know."""
    saves = next(i for i, base in enumerate(kind.__mro__) if "save" in base.__dict__)
    copies = next(i for i, base in enumerate(kind.__mro__) if "saved_copy" in base.__dict__)
    if copies > saves:
        raise NotImplementedError(
            f"{kind.__name__} has a save() of its own, so --state-dir and a new rank 0 need its own saved_copy() and "
            "use_saved_copy()"
        )


class StateFile:
    """Of one job, in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._changed = threading.Condition()
        self._next: tuple[int, Any] | None = None  # what the thread writes next; a newer commit takes its place
        self._busy = self._hurry = False
        self._thread: threading.Thread | None = None
        self._complained = ""
        self._locked = -1  # the descriptor, from the first write on

    # ---- writing

    def put(self, commits: int, copy: Any) -> None:
        """Has this copy written, on rank 0.  Returns at once; nobody may change the copy any more."""
        if _world.rank() != 0:
            return self._release()
        with self._changed:
            self._next = (commits, copy)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="hvd state file", daemon=True)
                self._thread.start()

    def flush(self, seconds: float) -> None:
        """Waits until what was put last is written, at most so long."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._next is None and not self._busy, seconds)
            self._hurry = False

    def finish(self) -> None:
        """The training is done: the file goes, so that the next run begins anew.

        Each rank removes what it finds: an earlier rank 0 may have written into a folder of its own host.
        """
        self._stop_writing()
        with contextlib.suppress(OSError, StateFileError):
            path = os.path.join(self._folder, NAME)
            os.close(_open_ours(path, os.O_RDONLY))
            os.unlink(path)
        self._release()

    def _stop_writing(self) -> None:
        with self._changed:
            self._next = None
            self._changed.wait_for(lambda: not self._busy, _LOCK_SECONDS)

    def _release(self) -> None:
        """This rank writes no more, or not for now."""
        if self._locked < 0:
            return
        self._stop_writing()
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._folder, NAME + _LOCK))
        os.close(self._locked)
        self._locked = -1

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next is not None)
                assert self._next is not None
                (commits, copy), self._next, self._busy = self._next, None, True
            begin = time.monotonic()
            try:
                if self._locked < 0:
                    self._locked = _lock(self._folder)
                    _remove_leftovers(self._folder)
                _write(self._folder, commits, _objects._pickler().dumps(copy))
                self._complained = ""
            except Exception as error:  # a full disk, or an object that cannot be pickled: training goes on
                self._complain(error)
            del copy
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._hurry, _REST * (time.monotonic() - begin))

    def _complain(self, error: Exception) -> None:
        text = f"{error}"
        if text != self._complained:
            print(
                f"hvd.elastic: the state is not written to {self._folder}: {text}. Training goes on; the file stays as it was.",
                file=sys.stderr,
                flush=True,
            )
        self._complained = text

    # ---- reading

    def load(self, state: Any) -> bool:
        """Has rank 0's state be the newest one that any rank finds; False: none does.  Collective.

        Errors: StateFileError, on all ranks, where a rank finds one that must not be used; NotImplementedError for a state
        that keeps more than it would write.
        """
        need_saved_copy(type(state))
        _objects._pickler()  # imported now: the first commit should be written soon
        try:
            mine: int | str = _commits_in(self._folder)
        except (OSError, StateFileError) as error:
            mine = str(error)
        found = _objects.allgather_object(mine, "hvd.elastic.state_file")
        for rank, answer in enumerate(found):
            if isinstance(answer, str):
                raise StateFileError(f"rank {rank}: {answer}")
        commits = max(found)
        if commits < 0:
            return False
        self._take(state, found.index(commits), commits)
        state._commits = commits
        return True

    def _take(self, state: Any, holder: int, commits: int) -> None:
        """From the rank that holds it to rank 0, and into its state."""
        answer: bytes | str = b""
        if _world.rank() == holder:
            try:
                answer = _read(self._folder)
            except (OSError, StateFileError) as error:
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
                trouble = f"{os.path.join(self._folder, NAME)}: {type(error).__name__}: {error}"
        trouble = _objects.broadcast_object(trouble, 0, "hvd.elastic.state_file.trouble")
        if trouble:
            raise StateFileError(f"rank {holder}: {trouble}")
        if _world.rank() == 0:
            print(f"hvd.elastic: goes on from commit {commits} in {self._folder}", file=sys.stderr, flush=True)


def of_environment() -> StateFile | None:
    """What hvdrun --state-dir asks for."""
    folder = _environment.text("HVD_STATE_DIR")
    return StateFile(os.path.abspath(folder)) if folder else None
