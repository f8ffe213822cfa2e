"""The tensors that hvd.agreement compares: their pieces, the windows of a step, and the hashes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from hvd._agreement.host_windows import HOST_PIECE, SEED, divided, ranges, window_bytes

__all__ = [
    "PIECE",
    "Piece",
    "divides_its_state",
    "flattened",
    "hash_of",
    "is_plain",
    "pieces_of",
    "place_of",
    "weights_on",
    "windows_of",
]

PIECE = 512 << 10  # bytes on a GPU that one hash covers; weights_on() has one number for each of its words
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

_weights_of: dict[torch.device, torch.Tensor] = {}


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
        numbers = torch.Generator().manual_seed(SEED)
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
    for begin, end in ranges(flat.numel(), flat.element_size(), most_bytes):
        yield Piece(name, parameter, key, begin, end, flat.element_size())


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


def flattened(tensor: torch.Tensor) -> torch.Tensor:
    real = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    return real.reshape(-1)


def windows_of(tensors: list[tuple[str, torch.Tensor, str | None, torch.Tensor]], steps: int) -> list[list[Piece]]:
    """Divides the tensors into about `steps` windows at most, of similar cost: bytes, and number of pieces.

    tensors: name, parameter, key, and the tensor itself.
    """
    budget = window_bytes(sum(tensor.numel() * tensor.element_size() for *_, tensor in tensors), steps)
    pieces = [piece for one in tensors for piece in pieces_of(*one, min(budget, HOST_PIECE if one[3].is_cpu else PIECE))]
    return divided(pieces, budget, steps)


def divides_its_state(optimizer: torch.optim.Optimizer) -> bool:
    """True for torch's ZeRO: after a checkpoint is loaded, its `state` has only this rank's part."""
    return any(base.__name__ == "ZeroRedundancyOptimizer" for base in type(optimizer).__mro__)


def is_plain(value: Any) -> bool:
    """Returns whether the value is a tensor that owns memory and is not a shard."""
    if not isinstance(value, torch.Tensor) or isinstance(value, UninitializedTensorMixin):
        return False
    if hasattr(value, "__tensor_flatten__") or getattr(value, "_is_flat_param", False):
        return False  # made of other tensors, as DTensor and quantized ones; a shard of FSDP's first version
    return value.layout == torch.strided and value.device.type != "meta" and value.numel() > 0
