"""Changes of planted_job.py to the machine below one rank: processor limits, storage, memory."""

from __future__ import annotations

import contextlib
import mmap
import os
import pathlib
from collections.abc import Iterator

GROUPS = pathlib.Path("/sys/fs/cgroup")
PAGE = mmap.PAGESIZE
LEFT_OUT = 77  # exit code: this machine cannot host the cause


def limit_files(group: pathlib.Path, share: float) -> dict[pathlib.Path, str]:
    """The values to write, so that a cgroup's processes get this share of one core."""
    period = 20_000  # µs: several periods per step would even out, and less than one per step would be stops
    quota = int(share * period)
    if (GROUPS / "cpu").exists():
        return {group / "cpu.cfs_period_us": str(period), group / "cpu.cfs_quota_us": str(quota)}
    return {group / "cpu.max": f"{quota} {period}"}


@contextlib.contextmanager
def processor_limit(share: float) -> Iterator[None]:
    """Puts this process and its children into a cgroup of their own."""
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
    """A file whose content must come from the disk each time."""

    def __init__(self, folder: pathlib.Path, size: int) -> None:
        self._file = os.open(folder / "data", os.O_RDWR | os.O_CREAT)
        os.write(self._file, os.urandom(size))
        os.fsync(self._file)
        self._size = size
        self._memory = mmap.mmap(self._file, size)
        self._memory.madvise(mmap.MADV_RANDOM)  # otherwise a page fault also loads neighbouring pages

    def forget(self) -> None:
        """Removes it from the page cache, and from this process's memory."""
        self._memory.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self) -> None:
        """Reads all of it once, by read()."""
        self.forget()
        for at in range(0, self._size, 1 << 18):
            os.pread(self._file, 1 << 18, at)

    def touch(self, pages: int) -> None:
        """Touches this number of pages, by page faults."""
        self.forget()
        for i in range(pages):
            self._memory[i * PAGE]
