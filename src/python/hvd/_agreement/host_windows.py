"""The windows of tensors that are compared, one in each step, and hashes in the host's memory.  No framework."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from hvd import _native

__all__ = ["HOST_PIECE", "SEED", "divided", "host_digest", "host_hashes", "ranges", "window_bytes"]

HOST_PIECE = 2 << 20  # most bytes of a piece in the host's memory
SEED = 0x48564441  # of weights: any number, the same on all ranks
_LEAST_SHARE = 4 << 20  # bytes in the host's memory that are worth a thread
_LEAST_WINDOW = 16 << 10  # bytes of a window of a small model

_first_weights: list[int] = []


class Sized(Protocol):
    """A piece of a tensor."""

    @property
    def bytes(self) -> int: ...


P = TypeVar("P", bound=Sized)


def window_bytes(total: int, steps: int) -> int:
    """Bytes after which a window ends, for `total` bytes in about `steps` windows."""
    return max(_LEAST_WINDOW, 5 * total // (4 * steps))  # bytes end four fifths of the windows, see divided()


def ranges(elements: int, element_bytes: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Begin and end of the pieces of a tensor, in elements.  A piece has `most_bytes` at most, and whole words."""
    each = max(1, most_bytes // 64 * 64 // element_bytes)
    for at in range(0, elements, each):
        yield at, min(at + each, elements)


def divided(pieces: Sequence[P], budget: int, steps: int) -> list[list[P]]:
    """Divides the pieces into `steps` windows at most, of similar cost: `budget` bytes, and number of pieces."""
    most_pieces = max(8, 5 * len(pieces) // steps)  # ends a fifth of the windows
    windows: list[list[P]] = []
    left = 0
    for piece in pieces:
        if left <= 0 or len(windows[-1]) >= most_pieces:
            windows.append([])
            left = budget
        windows[-1].append(piece)
        left -= piece.bytes
    return windows


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="hvd-hash")


def host_hashes(places: list[tuple[int, int]], threads: int) -> list[int]:
    """Returns the hash of each piece of host memory (address, bytes). threads: the most threads that share the work, including
    this one."""
    total = sum(length for _, length in places)
    # The last tensors that the optimizer has changed may be in the cache, so they come first.
    spans = places[::-1]
    shares = min(threads, total // _LEAST_SHARE) or 1
    tasks = [_threads().submit(_native.hashes, spans[at::shares]) for at in range(1, shares)]
    found = [0] * len(spans)
    found[::shares] = _native.hashes(spans[::shares])
    for at, task in enumerate(tasks, 1):
        found[at::shares] = task.result()
    found.reverse()
    return found


def host_digest(hashes: list[int]) -> int:
    """The sum of hash times weight, modulo 2^64, signed.  The weights are odd, so one other hash gives another digest."""
    if len(_first_weights) < len(hashes):
        numbers = random.Random(SEED)
        _first_weights[:] = [numbers.getrandbits(64) | 1 for _ in range(2 * len(hashes))]
    total = sum(map(int.__mul__, hashes, _first_weights)) & (1 << 64) - 1
    return total - (total >> 63 << 64)
