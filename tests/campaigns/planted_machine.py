"""What planted_job.py does to the machine below one rank: processor limits, storage, memory."""

from __future__ import annotations

import contextlib
import mmap
import os
import pathlib
from collections.abc import Iterator

GROUPS = pathlib.Path("/sys/fs/cgroup")
PAGE = mmap.PAGESIZE
LEFT_OUT = 77  # exit code: this cannot be planted here


def limit_files(group: pathlib.Path, share: float) -> dict[pathlib.Path, str]:
    """What is to be written so that a cgroup's processes get so much of one core."""
    period = 20_000  # µs: several in a step would even out, fewer than one in some steps would be stops
    quota = int(share * period)
    if (GROUPS / "cpu").exists():
        return {group / "cpu.cfs_period_us": str(period), group / "cpu.cfs_quota_us": str(quota)}
    return {group / "cpu.max": f"{quota} {period}"}


@contextlib.contextmanager
def processor_limit(share: float) -> Iterator[None]:
    """This process, and what it starts, in a cgroup of their own."""
    mount = GROUPS / "cpu" if (GROUPS / "cpu").exists() else GROUPS
    group = mount / f"hvd-planted-{os.getpid()}"
    try:
        group.mkdir()
        for file, text in limit_files(group, share).items():
            file.write_text(text)
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as e:
        print(f"no processor limit can be set here: {e}", flush=True)
        os._exit(LEFT_OUT)
    try:
        yield
    finally:
        (mount / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


class Storage:
    """A file whose content has to come from the disk each time."""

    def __init__(self, folder: pathlib.Path, size: int) -> None:
        self._file = os.open(folder / "data", os.O_RDWR | os.O_CREAT)
        os.write(self._file, os.urandom(size))
        os.fsync(self._file)
        self._size = size
        self._memory = mmap.mmap(self._file, size)
        self._memory.madvise(mmap.MADV_RANDOM)  # else a page brings its neighbours along

    def forget(self) -> None:
        """Takes it out of the page cache, and out of this process's memory."""
        self._memory.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self) -> None:
        """Once through all of it, by read()."""
        self.forget()
        for at in range(0, self._size, 1 << 18):
            os.pread(self._file, 1 << 18, at)

    def touch(self, pages: int) -> None:
        """So many pages of it, by page faults."""
        self.forget()
        for i in range(pages):
            self._memory[i * PAGE]
