"""What a reducer knows about one parameter, who has the parameter's hooks, and the names of operations."""

from __future__ import annotations

from typing import Any, Callable
from weakref import WeakSet, WeakValueDictionary, ref

import torch

from hvd.torch._registered import Home


class Slot:
    """One parameter: how many passes it still waits for, and what is under way."""

    __slots__ = (
        "__weakref__",
        "_reducer",
        "added",
        "base_name",
        "context",
        "gradient",
        "group",
        "handle",
        "home",
        "hooks",
        "kept",
        "more",
        "name",
        "number",
        "parameter",
        "passes_left",
        "process_set",
        "sparse",
        "work",
    )

    def __init__(self, parameter: torch.Tensor, name: str, reducer: Any) -> None:
        self.parameter = parameter
        self.base_name = name  # as the script has it
        self.process_set: int | None = reducer.settings.process_set.process_set_id
        self.name = ""  # of its operations, when the ranks have agreed on it
        self.number = 0  # which is part of it
        self._reducer = ref(reducer)
        self.passes_left: int = reducer.settings.passes
        self.handle = 0  # of a dense gradient under way
        self.work: Any = None  # what the runtime reads and writes
        self.context: Any = None  # the compressor's
        self.sparse: Callable[[], torch.Tensor] | None = None  # gives a sparse gradient under way
        self.gradient: Any = None  # parameter.grad when it was submitted; None: nothing is under way
        self.more = False  # a pass has begun since then: parameter.grad is what comes after
        self.added = False  # and something has come
        self.kept = False  # with `more`: both count; else the script has cleared what is under way
        self.group: Group | None = None
        self.hooks: list[Any] = []  # none: it needed no gradient yet, or another reducer has it
        self.home: Home | None = None

    @property
    def reducer(self) -> Any:
        """Whose it is; None while that one is freed."""
        return self._reducer()

    def into(self) -> Any:
        """Where the result of what is under way goes; None: nobody wants it."""
        if not self.more:
            return self.parameter.grad
        if not self.kept or (self.added and self.parameter.grad is None):
            return None
        return self.gradient

    def give(self, gradient: torch.Tensor) -> None:
        """Puts another tensor where into() was."""
        if self.more:
            self.gradient = gradient
        else:
            self.parameter.grad = gradient

    def clear(self) -> None:
        """Nothing is under way any more."""
        self.handle = 0
        self.work = self.context = self.sparse = self.gradient = None
        self.more = self.added = self.kept = False

    def hook(self, before: Callable[[Slot], None], after: Callable[[Slot], None]) -> None:
        """Calls before(slot) and after(slot) when backward() adds to the gradient.  The parameter must require one.

        torch does not see cycles through its hooks: they keep nothing alive.
        """
        weak = ref(self)

        def call(what: Callable[[Slot], None]) -> Callable[..., None]:
            def hook(*_: Any) -> None:
                slot = weak()
                if slot is not None:
                    what(slot)

            return hook

        parameter: Any = self.parameter  # register_hook has no types
        self.hooks = [parameter.register_hook(call(before)), after_accumulation(parameter, call(after))]

    def unhook(self) -> None:
        """Calls nobody any more."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def __del__(self) -> None:
        self.unhook()


class Group:
    """Parameters whose gradients run together."""

    __slots__ = ("ready", "slots")

    def __init__(self, slots: list[Slot]) -> None:
        self.slots = slots
        self.ready = 0


class _NodesHook:
    """Before torch 2.1: the hook of what adds to the gradient, which lives as long as somebody has it."""

    def __init__(self, parameter: Any, hook: Callable[..., None]) -> None:
        with torch.enable_grad():
            self._node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        self._hook = self._node.register_hook(hook)

    def remove(self) -> None:
        self._hook.remove()


def after_accumulation(parameter: Any, hook: Callable[..., None]) -> Any:
    """Calls hook after backward() has added to parameter.grad.  Returns what removes it, and must be kept."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):  # torch >= 2.1
        return parameter.register_post_accumulate_grad_hook(hook)
    return _NodesHook(parameter, hook)


# By id of the parameter, whose hooks it has: of several optimizers over it, the one that was made last.
_hooked: WeakValueDictionary[int, Slot] = WeakValueDictionary()


def owner_of(parameter: torch.Tensor) -> Slot | None:
    """The slot whose hooks the parameter has."""
    slot = _hooked.get(id(parameter))
    return slot if slot is not None and slot.parameter is parameter else None


def own(slot: Slot) -> None:
    """The slot's reducer is the one that hears of its parameter from now on.  Collective where a gradient is under way."""
    before = owner_of(slot.parameter)
    if before is not None and before is not slot:
        before.reducer.hand_over(before)
    _hooked[id(slot.parameter)] = slot


# Slots whose operations have a name, by what the script calls it.
_named: dict[tuple[int | None, str], WeakSet[Slot]] = {}


def first_free(slots: list[Slot]) -> int:
    """A number that none of these slots' names has here with another parameter."""
    others = [other for slot in slots for other in _named.get((slot.process_set, slot.base_name), ())]
    mine = {id(slot.parameter) for slot in slots}
    return max((other.number + 1 for other in others if id(other.parameter) not in mine), default=0)


def give_names(slots: list[Slot], number: int) -> None:
    """Names the operations of these slots.  Two models (a GAN's) have layers of the same names, and both may be under way."""
    for slot in slots:
        slot.number = number
        slot.name = f"{slot.base_name} #{number + 1}" if number else slot.base_name
        _named.setdefault((slot.process_set, slot.base_name), WeakSet()).add(slot)
