"""Folders held by descriptors, in places where other users may write too: the Python of src/base/files/own_file.h.

A path is opened part by part.  A link is followed only if this user or root owns it, since another user's may lead anywhere.
"""

from __future__ import annotations

import errno
import os
import stat

_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40  # the kernel's own limit


class RefusedPath(RuntimeError):
    """A path, or a file, that must not be used.  The message says what to do."""


def open_own_folder(path: str, make: bool = False) -> int:
    """Returns a descriptor of the folder, which still names this folder if the path later leads elsewhere.  The caller closes
    the descriptor.

    make: creates missing folders, the last one for its owner only.
    Errors: RefusedPath for another user's link; OSError, including FileNotFoundError without make.
    """
    left, links = _parts(path), 0
    here = _root(path)
    try:
        while left:
            there = _entry(here, left.pop(), make, not left)
            about = os.fstat(there)
            if not stat.S_ISLNK(about.st_mode):
                here = _exchange(here, there)
                continue
            try:
                target = _target(there, about, path)
            finally:
                os.close(there)
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            left.extend(_parts(target))
            if target.startswith("/"):
                here = _exchange(here, _root(target))
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(here)


def _parts(path: str) -> list[str]:
    """The parts as a stack: the next part is the last."""
    return [part for part in path.split("/") if part][::-1]


def _root(path: str) -> int:
    return os.open("/" if path.startswith("/") else ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _exchange(old: int, new: int) -> int:
    os.close(old)
    return new


def _entry(folder: int, name: str, make: bool, is_last: bool) -> int:
    try:
        return os.open(name, _FLAGS, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    try:
        os.mkdir(name, 0o700 if is_last else 0o777, dir_fd=folder)
    except FileExistsError:
        pass  # another rank was faster
    return os.open(name, _FLAGS, dir_fd=folder)


def _target(link: int, about: os.stat_result, path: str) -> str:
    """The target of a link.  If a container has no name for root, the owner of / is root under another number."""
    if about.st_uid not in (os.geteuid(), 0, os.stat("/").st_uid):
        raise RefusedPath(
            f"{path} leads through a link of another user (uid {about.st_uid}): name the place that is meant, without the link"
        )
    return os.readlink("", dir_fd=link)
