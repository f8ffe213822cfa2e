"""TensorBoard's event files with numbers only, written without TensorBoard, in any store.

A file is a row of records: length (8 bytes), its CRC, the data, its CRC.  The data is a protocol buffer `Event`
(tensorflow/core/util/event.proto); the CRC is Castagnoli's, masked as tensorflow/core/lib/hash/crc32c.h does.
"""

from __future__ import annotations

import struct
import time
from functools import cache
from typing import Any


@cache
def _table() -> list[int]:
    found = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        found.append(value)
    return found


def _masked_crc(data: bytes) -> bytes:
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _masked_crc(length) + data + _masked_crc(data)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _text(field: int, data: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(data)) + data


def _event(body: bytes) -> bytes:
    return _record(b"\x09" + struct.pack("<d", time.time()) + body)  # wall_time = 1


def _scalar(tag: str, value: float) -> bytes:
    return _text(
        1, _text(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
    )  # Summary.value = 1 {tag = 1, simple_value = 2}


class EventFile:
    """One file in a folder of a store, written whole at each add()."""

    def __init__(self, store: Any, folder: str) -> None:
        self.store, self.path = store, f"{folder}/events.out.tfevents.{time.time_ns()}.hvd"
        self.data = _event(_text(3, b"brain.Event:2"))  # file_version = 3

    def add(self, step: int, values: dict[str, float]) -> None:
        """Adds numbers by tag."""
        summary = b"".join(_scalar(tag, value) for tag, value in values.items())
        self.data += _event(b"\x10" + _varint(step) + _text(5, summary))  # step = 2, summary = 5
        self.store.write(self.path, self.data)
