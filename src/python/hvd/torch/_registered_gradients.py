"""Gradients in registered memory: the ranks of a node reduce them in place, with no copy through the rings.

backward() makes a new tensor for a gradient that was None before, which is what zero_grad() leaves by default.  It is moved
to the parameter's registered memory as soon as it is complete, while it is still in the caches, and its own memory is used
again for the next gradient: a step then touches less fresh memory than without us.  What already lies there stays.

Nobody may notice.  The memory is used only while nobody but the parameter refers to it, so that a gradient that the script
keeps, or looks at through a view, is never overwritten; such a gradient, and one that the script replaces, travels from
where it is.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import torch

from hvd import _native
from hvd.torch._adapter import _from_dlpack

_LEAST_BYTES = 8 << 10  # smaller ones are copied when they are submitted, wherever they lie
# Owners of a tensor's memory: Python objects, other tensors, views.  Since torch 2.1; without it nothing is moved.
_owners = getattr(torch._C, "_storage_Use_Count", None)


def _references_of_a_gradient() -> int:
    """What sys.getrefcount() says when nobody but its parameter has a gradient: it differs between interpreters."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    return sys.getrefcount(parameter.grad)


_UNSHARED = _references_of_a_gradient()


def _references(tensor: torch.Tensor) -> int:
    return int(_owners(tensor.untyped_storage()._cdata)) if _owners else 0


_plain = torch.zeros(1)  # nobody else has its memory


@cache
def usable() -> bool:
    """Whether gradients can be moved at all: in some versions (2.5) torch itself still has them when hooks are called."""
    if _owners is None:
        return False
    seen = []
    weight: Any = torch.nn.Parameter(torch.ones(2, 2))
    weight.register_post_accumulate_grad_hook(lambda parameter: seen.append(_references(parameter.grad)))
    with torch.enable_grad():
        loss: Any = torch.nn.functional.linear(torch.ones(2, 2), weight).sum()
    loss.backward()
    return seen == [_references(_plain)]


class RegisteredGradient:
    """Registered memory for the gradient of one parameter."""

    __slots__ = ("_alone", "_memory")

    def __init__(self, parameter: torch.Tensor) -> None:
        size = parameter.numel() * parameter.element_size()
        flat = _from_dlpack(_native.alloc(size))
        self._memory = flat.view(parameter.dtype).view(parameter.shape)
        del flat
        self._alone = _references(self._memory)

    def move_in(self, parameter: torch.Tensor) -> None:
        """Moves the parameter's gradient here, if that changes nothing for anybody."""
        if parameter.grad is None or sys.getrefcount(parameter.grad) > _UNSHARED:
            return
        memory, gradient = self._memory, parameter.grad
        # Layout and type come first: a sparse gradient has no data_ptr().
        if (
            gradient.layout is not torch.strided
            or type(gradient) is not torch.Tensor
            or not gradient.is_cpu
            or not gradient.is_contiguous()
            or gradient.requires_grad
            or gradient.dtype != memory.dtype
            or gradient.shape != memory.shape
            or gradient.data_ptr() == memory.data_ptr()  # it is here already
            or _references(memory) != self._alone  # an older gradient is still looked at
            or _references(gradient) != _references(_plain)  # or this one is, through a view
        ):
            return
        here = memory.detach()  # a tensor of its own: `memory` itself is never anybody's gradient
        here.copy_(gradient)
        parameter.grad = here


def registered_gradient_for(parameter: torch.Tensor) -> RegisteredGradient | None:
    """Registered memory for the parameter's gradient; None where it would not be used."""
    size = parameter.numel() * parameter.element_size()
    if size <= _LEAST_BYTES or not parameter.is_cpu or not parameter.is_contiguous() or not usable():
        return None
    if parameter.layout is not torch.strided or type(parameter.data) is not torch.Tensor:
        return None
    return RegisteredGradient(parameter)
