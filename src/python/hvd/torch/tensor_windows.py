"""The tensors that hvd.agreement compares: their pieces, the windows of a step, and the hashes."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from hvd import _native

__all__ = [
    "PIECE",
    "Piece",
    "divides_its_state",
    "flattened",
    "hash_of",
    "host_digest",
    "host_hashes",
    "is_plain",
    "pieces_of",
    "place_of",
    "weights_on",
    "windows_of",
]

PIECE = 512 << 10  # bytes on a GPU that one hash covers; weights_on() has one number for each of its words
_HOST_PIECE = 2 << 20  # the same in the host's memory
_LEAST_SHARE = 4 << 20  # bytes in the host's memory that are worth a thread
_LEAST_WINDOW = 16 << 10  # bytes of a window of a small model
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_SEED = 0x48564441  # any number, the same on all ranks

_weights_of: dict[torch.device, torch.Tensor] = {}
_first_weights: list[int] = []  # of the host's


class Piece(NamedTuple):
    """A part of a parameter, or of the optimizer's state `key` for it.  begin, end: in elements; complex numbers are two."""

    name: str
    parameter: torch.Tensor
    key: str | None
    begin: int
    end: int
    element_bytes: int

    @property
    def bytes(self) -> int:
        return (self.end - self.begin) * self.element_bytes


def weights_on(device: torch.device) -> torch.Tensor:
    """Random odd numbers, the same on all ranks: [PIECE / 8], int64."""
    if device not in _weights_of:
        numbers = torch.Generator().manual_seed(_SEED)
        found = torch.randint(-(2**62), 2**62, (PIECE // 8,), generator=numbers, dtype=torch.int64)
        _weights_of[device] = found.mul_(2).add_(1).to(device)
    return _weights_of[device]


def hash_of(part: torch.Tensor) -> torch.Tensor:
    """The sum of weight times word, modulo 2^64: a scalar on the device of the tensor, [elements].  For tensors on GPUs.

    This is the multilinear hash of D. Lemire and O. Kaser, "Strongly universal string hashing is fast" (2014).  The
    weights are odd, so a change of one word always changes the hash.
    """
    size = part.element_size()
    if size < 8 and part.storage_offset() * size % 8 == 0 and part.numel() * size % 8 == 0:
        words = part.view(torch.int64)
    else:
        words = part.view(_INTEGERS[size]).to(torch.int64)
    weights = weights_on(words.device)[: len(words)]
    # dot() needs no memory for the products, but has no integers on GPUs.
    return torch.dot(words, weights) if words.device.type == "cpu" else (words * weights).sum()


def pieces_of(name: str, parameter: torch.Tensor, key: str | None, tensor: torch.Tensor, most_bytes: int) -> Iterator[Piece]:
    flat = flattened(tensor)
    each = most_bytes // 64 * 64 // flat.element_size()
    for at in range(0, flat.numel(), each):
        yield Piece(name, parameter, key, at, min(at + each, flat.numel()), flat.element_size())


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="hvd-hash")


def place_of(piece: Piece, tensor: torch.Tensor | None) -> tuple[int, int] | None:
    """The address and the bytes of the piece in the host's memory.  tensor: the present one.  None: that memory has gaps, is
    on a GPU, or is too small.
    """
    if (
        (type(tensor) is not torch.nn.Parameter and type(tensor) is not torch.Tensor)
        or not tensor.is_cpu
        or tensor.layout is not torch.strided
        or not tensor.is_contiguous()
        or tensor.element_size() != piece.element_bytes
        or tensor.numel() < piece.end
        or tensor.is_conj()
        or tensor.is_neg()
    ):
        return None
    return tensor.data_ptr() + piece.begin * piece.element_bytes, piece.bytes


def host_hashes(places: list[tuple[int, int]]) -> list[int]:
    """The hashes of memory of the host: address and bytes.  torch's other threads, idle now, take their shares."""
    total = sum(length for _, length in places)
    # The last tensors that the optimizer has changed may be in the cache, so they come first.
    spans = places[::-1]
    shares = min(torch.get_num_threads(), total // _LEAST_SHARE) or 1
    tasks = [_threads().submit(_native.hashes, spans[at::shares]) for at in range(1, shares)]
    found = [0] * len(spans)
    found[::shares] = _native.hashes(spans[::shares])
    for at, task in enumerate(tasks, 1):
        found[at::shares] = task.result()
    found.reverse()
    return found


def host_digest(hashes: list[int]) -> int:
    """The sum of hash times weight, modulo 2^64, signed: like weights_on()'s on a GPU."""
    if len(_first_weights) < min(len(hashes), PIECE // 8):
        count = min(PIECE // 8, 2 * len(hashes))
        _first_weights[:] = weights_on(torch.device("cpu"))[:count].tolist()
    total = sum(map(int.__mul__, hashes, _first_weights)) & (1 << 64) - 1
    return total - (total >> 63 << 64)


def flattened(tensor: torch.Tensor) -> torch.Tensor:
    real = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    return real.reshape(-1)


def windows_of(tensors: list[tuple[str, torch.Tensor, str | None, torch.Tensor]], steps: int) -> list[list[Piece]]:
    """Divides the tensors into about `steps` windows at most, of similar cost: bytes, and number of pieces.

    tensors: name, parameter, key, and the tensor itself.
    """
    total = sum(tensor.numel() * tensor.element_size() for *_, tensor in tensors)
    budget = max(_LEAST_WINDOW, 5 * total // (4 * steps))  # bytes end four fifths of the windows,
    pieces = [piece for one in tensors for piece in pieces_of(*one, min(budget, _HOST_PIECE if one[3].is_cpu else PIECE))]
    most_pieces = max(8, 5 * len(pieces) // steps)  # and the number of pieces the others
    windows: list[list[Piece]] = []
    left = 0
    for piece in pieces:
        if left <= 0 or len(windows[-1]) >= most_pieces:
            windows.append([])
            left = budget
        windows[-1].append(piece)
        left -= piece.bytes
    return windows


def divides_its_state(optimizer: torch.optim.Optimizer) -> bool:
    """torch's ZeRO keeps the state of this rank's part in `state` once a checkpoint is loaded."""
    return any(base.__name__ == "ZeroRedundancyOptimizer" for base in type(optimizer).__mro__)


def is_plain(value: Any) -> bool:
    """Whether the value is a tensor in memory of its own, and no shard."""
    if not isinstance(value, torch.Tensor) or isinstance(value, UninitializedTensorMixin):
        return False
    if hasattr(value, "__tensor_flatten__") or getattr(value, "_is_flat_param", False):
        return False  # made of other tensors, as DTensor and quantized ones; a shard of FSDP's first version
    return value.layout == torch.strided and value.device.type != "meta" and value.numel() > 0
