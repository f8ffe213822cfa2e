"""The state of one parameter in a reducer, the owner of the parameter's hooks, and the names of operations."""

from __future__ import annotations

import hashlib
from typing import Any, Callable
from weakref import WeakSet, WeakValueDictionary, ref

import torch

from hvd import _native
from hvd._runtime import world as _world
from hvd.torch._optimizer import second_passes
from hvd.torch._optimizer.registered_gradients import RegisteredGradient


class ParameterEntry(_native.Gradient):
    """One parameter: the number of passes that are still to come, and its operation in progress.

    Fields of the base (ext/native/gradients/gradient.h), which the hooks use without Python:
    name: of the parameter's operations, once the ranks have agreed on it; else "".
    order: see memory_order(); agreed together with the name.
    bytes: of the parameter, once it has a name.
    passes, passes_left: the backward passes of a step, and those to come.
    handle: of a dense gradient in progress.  work: the memory that the runtime reads and writes.  context: the compressor's.
    sparse: returns a sparse gradient in progress.
    gradient: parameter.grad at its submission; None: no operation is in progress.
    more: a pass has begun since then, so parameter.grad is a later gradient.  added: that pass has added to it.
    kept: with `more`, both gradients count; else the script has cleared the one in progress.
    both: the parameter also has the hook that runs before its gradient is added.
    waits: the gradient is complete and in the outbox, which has not read it.  Its flush() sets `gradient`.
    ordinary: the gradient in progress is dense and lies in parameter.grad; the hook has submitted it without Python.
    registered: the parameter's RegisteredGradient, or None.
    outbox: a weak reference to the reducer's outbox if hooks may submit without Python; else None.
    """

    __slots__ = ("_reducer", "base_name", "hooks", "number", "place", "process_set")

    def __init__(self, parameter: torch.Tensor, name: str, reducer: Any) -> None:
        self.parameter = parameter
        self.base_name = name  # the script's name
        self.process_set: int | None = reducer.settings.process_set.process_set_id
        self.name = ""
        self.number = 0  # a part of the name
        self.place = 0  # the index among the reducer's parameters, by name
        self._reducer = ref(reducer)
        self.passes = self.passes_left = reducer.settings.passes
        self.group: ParameterGroup | None = None
        self.hooks: list[Any] = []  # empty: it needed no gradient yet, or another reducer has its hooks
        self.registered: RegisteredGradient | None = None

    def measure(self) -> None:
        """Fills bytes."""
        parameter = self.parameter
        self.bytes = parameter.numel() * parameter.element_size() if is_made(parameter) else 0

    @property
    def reducer(self) -> Any:
        """The reducer of the parameter; None while the reducer is freed."""
        return self._reducer()

    def into(self) -> Any:
        """Returns the tensor for the result of the operation in progress; None: the result is not needed."""
        if not self.more:
            return self.parameter.grad
        if not self.kept or (self.added and self.parameter.grad is None):
            return None
        return self.gradient

    def give(self, gradient: torch.Tensor) -> None:
        """Replaces the tensor of into()."""
        if self.more:
            self.gradient = gradient
        else:
            self.parameter.grad = gradient

    def clear(self) -> None:
        """Marks the operation as ended."""
        self.handle = 0
        self.work = self.context = self.sparse = self.gradient = None
        self.more = self.added = self.kept = self.ordinary = False

    def hook(self, before: Callable[[ParameterEntry], None], after: Callable[[ParameterEntry], None]) -> None:
        """Calls after(entry) when backward() has added to the gradient, and before(entry) before that: see second_passes.py.

        The parameter must require a gradient.  torch does not see cycles through its hooks: they keep nothing alive.
        """
        self.before, self.after = before, after
        self.hooks = [after_accumulation(self.parameter, self.make_hooks()[1])]
        if second_passes.expected:
            self.hook_before()

    def hook_before(self) -> None:
        """From now on, before(entry) is called too."""
        if not self.both and self.parameter.requires_grad:  # torch refuses hooks of a frozen parameter
            parameter: Any = self.parameter  # register_hook has no types
            self.hooks.append(parameter.register_hook(self.make_hooks()[0]))
            self.both = True

    def unhook(self) -> None:
        """Removes the hooks."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
        self.both = False

    def __del__(self) -> None:
        self.unhook()


class ParameterGroup:
    """Parameters whose gradients run together."""

    __slots__ = ("entries", "ready")

    def __init__(self, entries: list[ParameterEntry]) -> None:
        self.entries = entries
        self.ready = 0


class _NodesHook:
    """Before torch 2.1: the hook of the graph node that adds to the gradient.  The node lives while this object refers
    to it."""

    def __init__(self, parameter: Any, hook: Callable[..., None]) -> None:
        with torch.enable_grad():
            self._node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        self._hook = self._node.register_hook(hook)

    def remove(self) -> None:
        self._hook.remove()


def after_accumulation(parameter: Any, hook: Callable[..., None]) -> Any:
    """Calls hook after backward() has added to parameter.grad.  Returns a handle that removes it; the caller keeps it."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):  # torch >= 2.1
        return parameter.register_post_accumulate_grad_hook(hook)
    return _NodesHook(parameter, hook)


def is_made(parameter: torch.Tensor) -> bool:
    """Returns False for a lazy module's parameter that has no shape yet."""
    return not torch.nn.parameter.is_lazy(parameter)


def memory_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Returns the dimensions from the outermost to the innermost, if a dense tensor does not lie row by row.

    channels_last: (0, 2, 3, 1).  None: row by row, or not dense.
    """
    if not is_made(tensor) or tensor.layout is not torch.strided or tensor.is_contiguous():
        return None
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda dimension: -strides[dimension]))
    return order if tensor.permute(order).is_contiguous() else None


def inverse(order: tuple[int, ...]) -> list[int]:
    """The order that undoes permute(order)."""
    return sorted(range(len(order)), key=order.__getitem__)


def layout_number(entries: list[ParameterEntry]) -> int:
    """Returns a number that is equal on two ranks if their parameters have the same memory layout."""
    text = repr([(entry.base_name, memory_order(entry.parameter)) for entry in entries])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")


# By id of the parameter: the entry that has its hooks. Of several optimizers, it is the entry of the latest.
_hooked: WeakValueDictionary[int, ParameterEntry] = WeakValueDictionary()


def owner_of(parameter: torch.Tensor) -> ParameterEntry | None:
    """Returns the entry that has hooked the parameter."""
    entry = _hooked.get(id(parameter))
    return entry if entry is not None and entry.parameter is parameter else None


def own(entry: ParameterEntry) -> None:
    """Makes the entry's reducer the owner of its parameter's hooks.  Collective if a gradient is in progress."""
    before = owner_of(entry.parameter)
    if before is not None and before is not entry:
        before.reducer.hand_over(before)
    _hooked[id(entry.parameter)] = entry


# Entries whose operations have a name, by the script's name.
_named: dict[tuple[int | None, str], WeakSet[ParameterEntry]] = {}


def _forget_names() -> None:
    for entries in _named.values():
        for entry in entries:
            entry.name, entry.number, entry.order = "", 0, None
    _named.clear()


def _agree_again(process_set: int) -> None:
    for (group, _), entries in _named.items():
        if group == process_set:
            for entry in entries:
                entry.name, entry.order = "", None  # the number stays, if all ranks have it: number_before()


_world.when_left.append(_forget_names)
_world.when_joined.append(_agree_again)


def first_free(entries: list[ParameterEntry]) -> int:
    """Returns a number that is free on this rank: no name of these entries has it for another parameter."""
    others = [other for entry in entries for other in _named.get((entry.process_set, entry.base_name), ())]
    mine = {id(entry.parameter) for entry in entries}
    return max((other.number + 1 for other in others if id(other.parameter) not in mine), default=0)


def number_before(entries: list[ParameterEntry]) -> int:
    """Returns the number that the names of these entries had before a join; -1: they had none, or several."""
    numbers = {e.number if e in _named.get((e.process_set, e.base_name), ()) else -1 for e in entries}
    return numbers.pop() if len(numbers) == 1 else -1


def give_names(entries: list[ParameterEntry], number: int) -> None:
    """Names the operations of these entries.  Two models (a GAN's) may have equal layer names, and both may be in progress."""
    for entry in entries:
        entry.number = number
        entry.name = f"{entry.base_name} #{number + 1}" if number else entry.base_name
        _named.setdefault((entry.process_set, entry.base_name), WeakSet()).add(entry)
