"""The reduced NCCL of tests/gpu/pack."""

from __future__ import annotations

import runpy
import struct
from pathlib import Path

import pytest

thin = runpy.run_path(str(Path(__file__).with_name("pack")))["thin"]


def container(*kernels: tuple[int, bytes]) -> bytes:
    """A fat binary of kernels, each for a kind of GPU."""
    entries = b"".join(struct.pack("<HHIQ12xI32x", 2, 1, 64, len(code), sm) + code for sm, code in kernels)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def test_only_kernels_of_one_gpu_are_left() -> None:
    def library(of_80: bytes, of_120: bytes) -> bytes:
        # Bytes that only look like a container are left alone.
        return b"code\x50\xed\x55\xba no" + container((80, of_80), (90, b"hopper")) + b"x" + container((120, of_120)) + b"end"

    assert thin(library(b"ampere", b"blackwell"), 90) == library(bytes(6), bytes(9))


def test_an_unknown_layout_is_refused() -> None:
    broken = bytearray(container((80, b"ampere")))
    struct.pack_into("<I", broken, 20, 1 << 20)  # the kernel's header
    with pytest.raises(SystemExit, match="not laid out"):
        thin(bytes(broken), 90)
