"""Tells libhvd what the thread that trains does, for the report on steps: see hvd_part_begin in include/hvd/hvd.h.

Nothing here may harm a program: a framework that lacks what is looked for is left alone.
"""

from __future__ import annotations

import functools
import gc
import sys
from typing import Any, Callable

from hvd import _native
from hvd._native import PART_INPUT, PART_SAVE

_begin, _end, _step_end = _native.part_begin, _native.part_end, _native.step_end

# How to take each of them out again, by its name.
_installed: dict[str, Callable[[], None]] = {}
_stepping: Any = None  # the optimizer whose step() has begun last


def install() -> None:
    """After init(): the garbage collector, and the frameworks that the program has imported."""
    if "gc" not in _installed:
        gc.callbacks.append(_native.collecting)
        _installed["gc"] = functools.partial(_remove_from, gc.callbacks, _native.collecting)
    if "torch" in sys.modules:
        watch_torch()


def remove() -> None:
    """After shutdown()."""
    while _installed:
        _installed.popitem()[1]()


def torch_is_there() -> None:
    """It was imported just now; after init() perhaps, which could not know of it."""
    if "gc" in _installed:
        watch_torch()


def watch_torch() -> None:
    """Its optimizers' steps, its data loaders and its checkpoints."""
    _once("torch.optim", _watch_optimizers)
    _watch(PART_INPUT, "torch.utils.data.dataloader", "DataLoader", "__iter__")
    _watch(PART_INPUT, "torch.utils.data.dataloader", "_BaseDataLoaderIter", "__next__")
    for name in ("_save", "_legacy_save"):  # what torch.save calls, under whatever name a program imported that
        _watch(PART_SAVE, "torch.serialization", None, name)
    _watch_torch_checkpoints()


def _watch_torch_checkpoints() -> None:
    _watch(PART_SAVE, "torch.distributed.checkpoint.state_dict_saver", None, "_save_state_dict")


def _once(name: str, how: Callable[[], Callable[[], None]]) -> None:
    if name in _installed:
        return
    try:
        _installed[name] = how()
    except Exception:  # another version of it
        _installed[name] = _nothing


def _nothing() -> None:
    pass


def _remove_from(callbacks: list[Any], one: Any) -> None:
    if one in callbacks:
        callbacks.remove(one)


def _watch_optimizers() -> Callable[[], None]:
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    handles = [register_optimizer_step_pre_hook(_step_begins), register_optimizer_step_post_hook(_step_ends)]

    def remove() -> None:
        for handle in handles:
            handle.remove()

    return remove


def _step_begins(optimizer: Any, args: Any, kwargs: Any) -> None:
    global _stepping
    _stepping = optimizer


def _step_ends(optimizer: Any, args: Any, kwargs: Any) -> None:
    global _stepping
    if _stepping is None:  # the outer one of two: DistributedOptimizer.step() calls that of its optimizer
        return
    _stepping = None
    _step_end()
    if "torch.distributed.checkpoint.state_dict_saver._save_state_dict" not in _installed:
        _watch_torch_checkpoints()


def _watch(part: int, module_name: str, class_name: str | None, name: str) -> None:
    """Has a function, or a class's method, tell when it begins and ends, once its module is imported."""
    full_name = ".".join(filter(None, (module_name, class_name, name)))
    module = sys.modules.get(module_name)
    place = getattr(module, class_name, None) if class_name else module
    function = getattr(place, name, None)
    if full_name in _installed or not callable(function):
        return

    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        _begin(part)
        try:
            return function(*args, **kwargs)
        finally:
            _end(part)

    def restore() -> None:
        if getattr(place, name, None) is watched:  # else somebody has put something of his own there
            setattr(place, name, function)

    def install() -> Callable[[], None]:
        setattr(place, name, watched)
        return restore

    _once(full_name, install)
