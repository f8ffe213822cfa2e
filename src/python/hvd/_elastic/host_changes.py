"""The guard's reports to this rank that hosts of the elastic job have changed."""

from __future__ import annotations

import mmap
import struct
import time

from hvd import _native
from hvd._runtime import environment

__all__ = ["changes"]

# The guard writes this word of the status page (src/wire/shared/status_page.h).
_PAGE_BYTES, _PAGE_MARK, _HOST_CHANGES_AT = 4096, 0x31796C6C61745648, 4088
_WORKERS_SECONDS, _LOOK_SECONDS = 60.0, 0.01


class HostChanges:
    """The guard's reports of changed hosts since the last call of seen()."""

    def __init__(self) -> None:
        self._page: mmap.mmap | None = None
        self._looked, self._seen = False, 0
        self._waited_for = -1

    def _word(self) -> int:
        if not self._looked:
            self._looked = True
            try:
                page = mmap.mmap(environment.integer("HVD_STATUS_FD"), _PAGE_BYTES, prot=mmap.PROT_READ)
                self._page = page if struct.unpack_from("=Q", page)[0] == _PAGE_MARK else None
            except (OSError, ValueError):
                pass  # no guard
        return int(struct.unpack_from("=Q", self._page, _HOST_CHANGES_AT)[0]) if self._page is not None else 0

    def seen(self) -> None:
        self._seen = self._word() >> 3

    def next(self) -> int:
        """The kind of change, as hvd.elastic.HostUpdateResult; 0: no change since the last call."""
        word = self._word()
        if word >> 3 == self._seen:
            return 0
        self._seen = word >> 3
        return word & 3

    def wait(self) -> None:
        """Waits until starting workers are ready, 60 s at most, and once for each change."""
        limit = time.monotonic() + _WORKERS_SECONDS
        while self._word() & 4 and self._word() >> 3 == self._seen != self._waited_for and not _native.departed():
            if time.monotonic() > limit:
                self._waited_for = self._seen
            time.sleep(_LOOK_SECONDS)


changes = HostChanges()
