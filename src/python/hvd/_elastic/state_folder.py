"""The folder of hvdrun --state-dir.  The folder has one file with the last commit, and a lock.  One job holds the lock and may
use the file.

`elastic-state` is replaced as a whole.  A job reads, replaces or removes the file only while it holds the lock.  A pickle is a
program.  So the file must have our mark and belong to this user.  No other user may be able to write it.

One rank of the job holds `elastic-state.lock`.  The lock file contains a note: the job, the rank's host and process, and the
last commit in this folder.  A state that is older than the note was restored by hand.  A killed job leaves the note.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from hvd._job.own_folder import RefusedPath, open_own_folder

NAME = "elastic-state"
LOCK = NAME + ".lock"
_MARKS = b"hvdrun elastic state "  # of every version
_MARK, _OLDER_MARK = _MARKS + b"3\n\0", _MARKS + b"2\n\0"
# After the mark: commits, bytes of the payload, number of the call, its function.  Older files have the first two.
_NUMBERS, _OLDER_NUMBERS = struct.Struct("<QQQ104s"), struct.Struct("<QQ")
_DIGEST_BYTES = 32  # after the numbers: SHA-256 of these and of the payload, which follows
_NOTE = b'{"job": '  # the beginning of a note
_PART_BYTES = 8 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_FILES = (errno.ELOOP, errno.EISDIR, errno.ENXIO)  # a symbolic link, a folder, a socket
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # a file system without them


class StateFileError(RefusedPath):
    """A state file, or its folder, that must not be used.  The message says what to do."""


class Note(NamedTuple):
    """The content of the lock file: the job that holds it, or held it last."""

    job: str = ""
    host: str = ""
    process: int = 0
    commits: int = -1  # of the last state written here; -1: none


class Call(NamedTuple):
    """A call of a function that hvd.elastic.run decorates.  UNKNOWN in older files."""

    function: str = ""
    number: int = 0  # counted for each function, from 1

    def __str__(self) -> str:
        return f"call {self.number} of {self.function}()" if self.number else "an unknown call"


UNKNOWN = Call()


class _Head(NamedTuple):
    """The beginning of a state file."""

    commits: int
    payload_bytes: int
    call: Call
    numbers: bytes
    digest: bytes
    size: int


def _head_in(data: bytes) -> _Head | None:
    """Parses the head of a state file; None: the data are incomplete."""
    layout = _OLDER_NUMBERS if data.startswith(_OLDER_MARK) else _NUMBERS
    begin, end = len(_MARK), len(_MARK) + layout.size
    if len(data) < end + _DIGEST_BYTES:
        return None
    commits, size, *call = layout.unpack_from(data, begin)
    made_by = Call(call[1].rstrip(b"\0").decode(errors="replace"), call[0]) if call else UNKNOWN
    return _Head(commits, size, made_by, data[begin:end], data[end : end + _DIGEST_BYTES], end + _DIGEST_BYTES)


_MOST_HEAD_BYTES = len(_MARK) + _NUMBERS.size + _DIGEST_BYTES


def _always() -> bool:
    return True


def _digest(numbers: bytes, payload: bytes) -> bytes:
    digest = hashlib.sha256(numbers)
    digest.update(payload)
    return digest.digest()


class StateFolder:
    """One folder, held by a descriptor.  Any thread.

    Errors of all methods: OSError, and StateFileError for files that are not ours.  FileNotFoundError: the folder has gone.
    is_noted: the lock file names its owner; False after a full disk.
    """

    def __init__(self, path: str, job: str, make: bool) -> None:
        """job: names this job, and no other living one.  make: creates a missing folder."""
        self.path = path
        self._mutex = threading.RLock()  # guards the lock, and each change of the file
        self.is_noted = True
        self._job = job
        self._lock = -1
        self._fresh = ""  # name of the file that is being written
        self._fd = open_own_folder(path, make)

    def close(self) -> None:
        """Releases the lock and leaves its file: the state stays, for the next job."""
        with self._mutex:
            if self._lock >= 0:
                os.close(self._lock)
            os.close(self._fd)
            self._lock = self._fd = -1

    def _open_ours(self, name: str, flags: int) -> int:
        """Opens a file that only this user can write."""
        path = os.path.join(self.path, name)
        try:
            fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=self._fd)
        except OSError as error:
            if error.errno not in _NO_FILES:
                error.filename = path
                raise
            why = "is a symbolic link" if error.errno == errno.ELOOP else "is no file"
            raise StateFileError(f"{path} {why}: move it away, or give another --state-dir") from None
        about = os.fstat(fd)
        why = ""
        if not stat.S_ISREG(about.st_mode):
            why = "is no file"
        elif about.st_uid != os.geteuid():
            why = "belongs to another user"
        elif about.st_nlink > 1:
            why = "has a second name (a hard link)"
        elif about.st_mode & 0o022:
            why = "can be written by other users"
        if why:
            os.close(fd)
            raise StateFileError(f"{path} {why}: move it away, or give another --state-dir")
        return fd

    # ---- the lock

    def claim(self, seconds: float = 0, is_wanted: Callable[[], bool] = _always) -> None:
        """Claims the folder for this job; waits `seconds` for another job's end.  StateFileError: that job still lives.

        is_wanted: called under the mutex; False: claims nothing.
        """
        end = time.monotonic() + seconds
        while True:
            with self._mutex:
                holder = self._claim_now(os.O_CREAT) if is_wanted() else None
            if holder is None or holder.job == self._job:
                return
            if time.monotonic() > end:
                where = f" (process {holder.process} on {holder.host})" if holder.process else ""
                raise StateFileError(
                    f"another job{where} uses {self.path}: wait for its end, or give each job a --state-dir of its own"
                )
            time.sleep(0.05)

    def _claim_now(self, create: int) -> Note | None:
        """Tries once to take the lock.  Returns None on success, else the note of the holder.  Raises FileNotFoundError if the
        lock file is missing and `create` is 0."""
        while not self._has_lock():
            # A record lock: children of fork() do not inherit it.  Closing any descriptor of the file releases it.
            fd = self._open_lock(os.O_RDWR | create)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    holder = _note_in(fd)
                    os.close(fd)
                    if error.errno not in (errno.EACCES, errno.EAGAIN):
                        raise
                    return holder
            self._lock = fd
            if self._has_lock():
                self._remove_leftovers()
                if create:
                    self._note(_note_in(fd).commits)
        return None

    def _open_lock(self, flags: int) -> int:
        fd = self._open_ours(LOCK, flags)
        text = os.pread(fd, len(_NOTE), 0).strip(b"\0")  # zeros: remains of a machine that crashed
        if not text or text == _NOTE:
            return fd
        os.close(fd)
        path = os.path.join(self.path, LOCK)
        raise StateFileError(f"{path} is no lock of an elastic job: move it away, or give another --state-dir")

    def _has_lock(self) -> bool:
        """Returns whether this rank holds the lock, and the lock file still has its name."""
        if self._lock < 0:
            return False
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._lock), os.stat(LOCK, dir_fd=self._fd, follow_symlinks=False)):
                return True
        os.close(self._lock)
        self._lock = -1
        return False

    def _note(self, commits: int) -> None:
        """Notes this job, and the last written commit.  If another rank of the job has the lock, in its name.

        On a full disk the note stays as it was.
        """
        fd = self._lock if self._lock >= 0 else self._open_lock(os.O_RDWR)
        try:
            note = _note_in(fd)
            if fd == self._lock:
                note = Note(self._job, socket.gethostname(), os.getpid())
            text = json.dumps(note._replace(commits=commits)._asdict()).encode()
            os.pwrite(fd, text.ljust(os.fstat(fd).st_size), 0)
            self.is_noted = True
        except OSError as error:
            self.is_noted = os.fstat(fd).st_size > 0
            if error.errno not in _FULL:
                raise
        finally:
            if fd != self._lock:
                os.close(fd)

    def _noted(self) -> int:
        if self._lock >= 0:
            return _note_in(self._lock).commits
        try:
            fd = self._open_lock(os.O_RDONLY)
        except FileNotFoundError:
            return -1
        try:
            return _note_in(fd).commits
        finally:
            os.close(fd)

    def _remove_leftovers(self) -> None:
        """Removes the files of killed writers.  Needs the lock."""
        for name in os.listdir(self._fd):
            if re.fullmatch(re.escape(NAME) + r"\.[a-z0-9_]{8}\.new", name) and name != self._fresh:
                with contextlib.suppress(OSError, StateFileError):
                    fd = self._open_ours(name, os.O_RDONLY)
                    is_ours = os.pread(fd, len(_MARKS), 0) in (_MARKS, b"")
                    os.close(fd)
                    if is_ours:
                        os.unlink(name, dir_fd=self._fd)

    # ---- the file

    def _open_state(self) -> int:
        """Opens the file, after a check of our mark."""
        fd = self._open_ours(NAME, os.O_RDONLY)
        mark = os.pread(fd, len(_MARK), 0)
        if mark in (_MARK, _OLDER_MARK, b""):
            return fd
        os.close(fd)
        why = "was written by another version of hvdrun" if mark.startswith(_MARKS) else "is no state of an elastic job"
        raise StateFileError(f"{os.path.join(self.path, NAME)} {why}: move it away, or give another --state-dir")

    def commits(self) -> int:
        """The number of commits in the file's state; -1: there is none.

        StateFileError: it is incomplete, or older than the last one written here.
        """
        path = os.path.join(self.path, NAME)
        with self._mutex:
            try:
                found = self._commits_now()
            except FileNotFoundError:
                return -1
            if found < 0:
                raise StateFileError(f"{path} is not whole: move it away to begin anew")
            noted = self._noted()
            if found < noted:
                raise StateFileError(
                    f"{path} is of commit {found}, but commit {noted} was written there: an older file has taken its place. "
                    f"Remove {LOCK} there to go on from the older one, or both to begin anew"
                )
            return found

    def call(self) -> Call:
        """The call that made the file's state."""
        fd = self._open_state()
        try:
            head = _head_in(os.pread(fd, _MOST_HEAD_BYTES, 0))
            return head.call if head else UNKNOWN
        finally:
            os.close(fd)

    def _commits_now(self) -> int:
        """-1: the file is incomplete."""
        fd = self._open_state()
        try:
            head = _head_in(os.pread(fd, _MOST_HEAD_BYTES, 0))
            return head.commits if head and os.fstat(fd).st_size == head.size + head.payload_bytes else -1
        finally:
            os.close(fd)

    def read(self, commits: int) -> bytes:
        """The payload of that commit.  StateFileError if the file has changed."""
        with open(self._open_state(), "rb", buffering=0) as file:
            head = _head_in(os.pread(file.fileno(), _MOST_HEAD_BYTES, 0))
            file.seek(head.size if head else 0)
            payload = file.readall() or b""
        if (
            head is None
            or (head.commits, head.payload_bytes) != (commits, len(payload))
            or head.digest != _digest(head.numbers, payload)
        ):
            path = os.path.join(self.path, NAME)
            raise StateFileError(f"{path} has changed since it was written: move it away to begin anew")
        return payload

    def write(self, commits: int, payload: bytes, is_wanted: Callable[[], bool], call: Call = UNKNOWN) -> None:
        """Replaces the file, for the job that owns the lock.  After an error the older one is unchanged.

        is_wanted: called under the mutex, right before; False: nothing is replaced.
        """
        with contextlib.suppress(FileNotFoundError):
            os.close(self._open_state())  # raises if the file is somebody else's
        fresh = f"{NAME}.{secrets.token_hex(4)}.new"
        self._fresh = fresh
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._fd)
        try:
            with open(fd, "wb", buffering=0) as file:
                numbers = _NUMBERS.pack(commits, len(payload), call.number, call.function.encode())
                for part in (_MARK + numbers + _digest(numbers, payload), payload):
                    view = memoryview(part)
                    while view and is_wanted():
                        view = view[file.write(view[:_PART_BYTES]) :]
                if is_wanted():
                    os.fsync(file.fileno())
            with self._mutex:
                if is_wanted():
                    self._replace(fresh, commits)
        finally:
            self._fresh = ""
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=self._fd)
        with contextlib.suppress(OSError):  # some file systems cannot
            os.fsync(self._fd)

    def _replace(self, fresh: str, commits: int) -> None:
        self.claim()
        with contextlib.suppress(FileNotFoundError):
            newer = self._commits_now()
            if newer > commits:
                raise StateFileError(f"it is of commit {newer} by now, and this rank's commit {commits} is older")
        os.replace(fresh, NAME, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        self._note(commits)

    def remove(self) -> None:
        """Removes this job's file, and releases the lock.  Another job's files stay.

        Each rank calls it: an earlier rank 0 may have written into a folder of its own host.
        """
        with self._mutex:
            is_holder = self._has_lock()
            try:
                holder = None if is_holder else self._claim_now(create=0)
                last = self._job if is_holder else (holder or _note_in(self._lock)).job
                if last != self._job:
                    return
                with contextlib.suppress(FileNotFoundError):
                    os.close(self._open_state())
                    os.unlink(NAME, dir_fd=self._fd)
                if self._lock >= 0:
                    os.unlink(LOCK, dir_fd=self._fd)
            except FileNotFoundError:
                pass  # another rank of this job has removed both
            finally:
                if self._lock >= 0:
                    os.close(self._lock)
                    self._lock = -1


def _note_in(lock: int) -> Note:
    """The note; empty if the file is new, or its writer was killed during a write."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        found = json.loads(os.pread(lock, 4096, 0))
        return Note(str(found["job"]), str(found["host"]), int(found["process"]), int(found["commits"]))
    return Note()
