"""The steps that a rank has recorded for its guard, as the rank itself reads them (src/wire/shared/recorder_memory.h)."""

from __future__ import annotations

import mmap
import os
import struct
from typing import NamedTuple

_RING_AT, _SLOTS, _SLOT_BYTES = 64, 1024, 216


class Step(NamedTuple):
    """src/wire/shared/step_record.h"""

    number: int
    epoch: int
    end_ns: int
    step_ns: int
    input_ns: int
    waited_ns: int
    moved_ns: int
    collect_ns: int
    save_ns: int
    cpu_ns: int
    run_delay_ns: int
    read_bytes: int
    written_bytes: int
    operation_bytes: int
    resident_bytes: int
    throttled_ns: int
    made_ns: int
    link_bytes: int
    link_busy_ns: int
    link_round_trip_ns: int
    compile_ns: int
    operation_delay_ns: int
    device_wait_ns: int
    longest_ns: int
    operations: int
    major_faults: int
    link_peer: int
    core: int
    loader: int


def own_steps() -> list[Step]:
    """The steps of this process, which is a rank of hvdrun; at most the last 1024."""
    fd = int(os.environ["HVD_RECORDER_FD"])
    with mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ) as memory:
        (written,) = struct.unpack_from("<Q", memory, _RING_AT)
        first = max(written - _SLOTS, 0)
        return [
            Step(*struct.unpack_from("<24q3i2h", memory, _RING_AT + 8 + _SLOT_BYTES * (number % _SLOTS) + 8))
            for number in range(first, written)
        ]
