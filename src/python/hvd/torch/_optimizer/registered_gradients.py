"""Gradients in registered memory: the ranks of a node reduce them in place, without a copy through the rings.

By default, zero_grad() sets gradients to None, and backward() makes a new tensor for each.  A complete gradient is
moved to the parameter's registered memory at once, while it is in the caches.  Its former memory then serves the next
gradient.  So a step touches less fresh memory than without hvd.  A gradient that already lies in registered memory
stays there.

The script must not notice.  The memory is used only while it has no other reference than the parameter's.  A gradient that
the script keeps, or sees through a view, is thus never overwritten.  Such a gradient, and one that the script replaces,
travels from its own memory.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import torch

from hvd import _native
from hvd.torch._adapter import _from_dlpack

_LEAST_BYTES = 8 << 10  # smaller ones are copied when they are submitted, from any place
# Owners of a tensor's memory: Python objects, other tensors, views.  Since torch 2.1; without it nothing is moved.
_owners = getattr(torch._C, "_storage_Use_Count", None)


def _references_of_a_gradient() -> int:
    """sys.getrefcount() of a gradient to which only its parameter refers; the value differs between interpreters."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    return sys.getrefcount(parameter.grad)


_UNSHARED = _references_of_a_gradient()


def _references(tensor: torch.Tensor) -> int:
    return int(_owners(tensor.untyped_storage()._cdata)) if _owners else 0


_plain = torch.zeros(1)  # no other tensor shares its memory


@cache
def usable() -> bool:
    """Returns whether this torch allows moving gradients.  In some versions (2.5) torch holds a further reference to them
    during hooks."""
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
        """Moves the parameter's gradient here, if no other code can notice."""
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
            or _references(memory) != self._alone  # an older gradient is still referenced
            or _references(gradient) != _references(_plain)  # or this one is, by a view
        ):
            return
        here = memory.detach()  # a separate tensor: `memory` itself is never a gradient
        here.copy_(gradient)
        parameter.grad = here


def registered_gradient_for(parameter: torch.Tensor) -> RegisteredGradient | None:
    """Registered memory for the parameter's gradient; None if it would not be used."""
    size = parameter.numel() * parameter.element_size()
    if size <= _LEAST_BYTES or not parameter.is_cpu or not parameter.is_contiguous() or not usable():
        return None
    if parameter.layout is not torch.strided or type(parameter.data) is not torch.Tensor:
        return None
    return RegisteredGradient(parameter)
