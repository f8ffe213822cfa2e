"""The flat buckets of ShardedOptimizer (sharded.py), and the summary of their state that ranks compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["Bucket", "summary"]


class Bucket:
    """Parameters of one dtype and device, stored consecutively in one flat tensor, [size * part]."""

    def __init__(self, name: str, parameters: list[torch.Tensor], ranks: int, rank: int) -> None:
        self.name = name
        self.parameters = parameters
        total = sum(p.numel() for p in parameters)
        part = -(-total // ranks)
        first = parameters[0]
        self.flat = torch.zeros(part * ranks, dtype=first.dtype, device=first.device)
        self.places: list[tuple[int, int]] = []
        at = 0
        with torch.no_grad():
            for p in parameters:
                self.places.append((at, at + p.numel()))
                self.flat[at : at + p.numel()].copy_(p.detach().reshape(-1))
                at += p.numel()
        self.place()
        self.mine = slice(rank * part, (rank + 1) * part)
        # Shares the bucket's memory, so the optimizer's changes reach the parameters.
        self.shard = torch.nn.Parameter(self.flat[self.mine])
        self.gradient: torch.Tensor | None = None
        self.handle: Any = None
        self.context: Any = None
        self.waits_for = len(parameters)

    def place(self) -> None:
        """Makes the parameters views of the bucket."""
        for p, (start, end) in zip(self.parameters, self.places):
            p.data = self.flat[start:end].view(p.shape)

    def move_in(self) -> None:
        """Moves parameters back into the bucket if they got other memory.  ValueError if model.to() has changed their dtype or
        device."""
        with torch.no_grad():
            for p, (start, end) in zip(self.parameters, self.places):
                here = self.flat[start:end]
                if (p.dtype, p.device) != (here.dtype, here.device):
                    raise ValueError(
                        f"a parameter was {here.dtype} on {here.device} when this ShardedOptimizer was made, and is {p.dtype} "
                        f"on {p.device} now: make it anew after model.to()"
                    )
                if p.data_ptr() != here.data_ptr():
                    here.copy_(p.detach().reshape(-1))
                    p.data = here.view(p.shape)

    def divided(self, flat: torch.Tensor) -> Iterator[torch.Tensor]:
        """Cuts a tensor with the bucket's layout into the parameters' parts.  Yields copies with their shapes."""
        for p, (start, end) in zip(self.parameters, self.places):
            yield flat[start:end].view(p.shape).clone()


def summary(state: dict[str, Any], shard: torch.Tensor) -> dict[str, str]:
    """The facts that must be equal on all ranks: the kinds of state, and numbers such as the step."""
    return {key: _described(value, shard) for key, value in state.items()}


def _described(value: Any, shard: torch.Tensor) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {'part' if value.shape == shard.shape else value.tolist()}"
    return repr(value) if isinstance(value, (bool, int, float, str, type(None))) else type(value).__name__
