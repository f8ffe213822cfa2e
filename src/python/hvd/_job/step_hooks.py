"""Reports the training thread's activities to libhvd, for the report on steps: see hvd_part_begin in include/hvd/hvd.h.

Nothing here may harm a program: a framework without an expected function is left alone.
"""

from __future__ import annotations

import functools
import gc
import mmap
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Callable, TypeVar

if "_native" not in globals():  # hvdrank_steps.py sets another recorder, for programs that do not use hvd
    from hvd import _native

PART_INPUT, PART_INPUT_TENSORFLOW = _native.PART_INPUT, _native.PART_INPUT_TENSORFLOW
PART_INPUT_TORCH, PART_SAVE, PART_COMPILE = _native.PART_INPUT_TORCH, _native.PART_SAVE, _native.PART_COMPILE

T = TypeVar("T")
_begin, _end, _step_end = _native.part_begin, _native.part_end, _native.step_end

# Functions, and methods of classes, that are a part of a step: module, class, name. Modules that are not imported yet are
# tried again later. Where programs import a function by name, the function that it calls is listed here.
_PARTS: list[tuple[int, str, str | None, str]] = [
    (PART_INPUT_TORCH, "torch.utils.data.dataloader", "DataLoader", "__iter__"),
    (PART_INPUT_TORCH, "torch.utils.data.dataloader", "_BaseDataLoaderIter", "__next__"),
    (PART_SAVE, "torch.serialization", None, "_open_zipfile_writer"),
    (PART_SAVE, "torch.serialization", None, "_save"),
    (PART_SAVE, "torch.serialization", "_open_zipfile_writer_file", "__exit__"),
    (PART_SAVE, "torch.serialization", "_open_zipfile_writer_buffer", "__exit__"),
    (PART_SAVE, "torch.serialization", None, "_legacy_save"),
    (PART_SAVE, "torch.distributed.checkpoint.state_dict_saver", None, "_save_state_dict"),
    (PART_SAVE, "tensorflow.python.checkpoint.checkpoint", "TrackableSaver", "save"),
    (PART_SAVE, "tensorflow.python.saved_model.save", None, "save_and_return_nodes"),
    (PART_INPUT, "keras.src.trainers.epoch_iterator", "EpochIterator", "__next__"),
    (PART_SAVE, "keras.src.models.model", "Model", "save"),
    (PART_SAVE, "keras.src.models.model", "Model", "save_weights"),
    (PART_SAVE, "keras.src.saving.saving_lib", None, "save_model"),
    (PART_SAVE, "keras.src.saving.saving_lib", None, "save_weights_only"),
    (PART_SAVE, "numpy", None, "save"),
    (PART_SAVE, "numpy", None, "savez"),
    (PART_SAVE, "numpy", None, "savez_compressed"),
    (PART_COMPILE, "jax._src.compiler", None, "compile_or_get_cached"),
]

# Modules that a program imports late, during its training, and a hook of each.
_IMPORTED_LATE = [
    ("torch.distributed.checkpoint.state_dict_saver", "torch.distributed.checkpoint.state_dict_saver._save_state_dict"),
    ("torch._dynamo.callback", "torch._dynamo.callback"),
]

# Name of a hook → the function that removes it.
_installed: dict[str, Callable[[], None]] = {}
# [worker] Nanoseconds in which each DataLoader worker made batches, divided by the number of workers.  Forked workers share
# this memory.
_made = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")
_made_told = _most_workers = 0
_pipelines: Any = None  # tf_pipelines.Pipelines, once TensorFlow is imported
_stepping: Any = None  # the optimizer whose step() began last


class Watched(Iterator[T]):
    """An iterator over batches of any kind.  Its time counts as input in the report on steps.  Public as
    hvd.data.watched.

    for batch in hvd.data.watched(my_generator()): ...
    """

    def __init__(self, batches: Iterable[T]) -> None:
        self._next = iter(batches).__next__

    def __next__(self) -> T:
        _begin(PART_INPUT)
        try:
            return self._next()
        finally:
            _end(PART_INPUT)


def install() -> None:
    """After init(): hooks the garbage collector, and the frameworks that the program has imported."""
    other = sys.modules.get("hvdrank_steps")
    if other is not None and other.recorder is not _native:
        other.stop()
    if "gc" not in _installed:
        gc.callbacks.append(_native.collecting)
        _installed["gc"] = functools.partial(_remove_from, gc.callbacks, _native.collecting)
    _look()


def remove() -> None:
    """Removes all hooks.  Called after shutdown()."""
    while _installed:
        _installed.popitem()[1]()


def framework_is_there() -> None:
    """Called after the import of a framework: hooks it, if install() was called before."""
    if "gc" in _installed:
        _look()


def _look() -> None:
    """Hooks imported modules that are not hooked yet: optimizers' steps, data loaders, checkpoints."""
    if "torch.optim.optimizer" in sys.modules:
        _once("torch.optim", _watch_optimizers)
    if "torch._dynamo.callback" in sys.modules:
        _once("torch._dynamo.callback", _watch_compiler)
    for part, module, of, name in _PARTS:
        _watch(module, of, name, functools.partial(_part, part))
    # Backends differ: JAX's loop asks the epoch's iterator for batches, others ask the epoch.
    _watch("keras.src.backend.jax.trainer", "JAXEpochIterator", "_get_iterator", _watched_result)
    iterators = "tensorflow.python.data.ops.iterator_ops"
    if iterators in sys.modules and "hvdrank" not in __name__:  # that copy of this file must not import hvd
        _once("hvd._runtime.tf_pipelines", _watch_pipelines)
        _watch(iterators, "OwnedIterator", "_create_iterator", _iterator_made)
    _watch(iterators, "OwnedIterator", "_next_internal", _element_fetched)
    for fetcher in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        _watch("torch.utils.data._utils.fetch", fetcher, "fetch", _made_beside)
    _watch("torch.utils.data.dataloader", "_MultiProcessingDataLoaderIter", "_next_data", _tell_made_after)
    _watch("keras.src.callbacks.callback_list", "CallbackList", "on_train_batch_begin", _step_before)
    _watch("keras.src.callbacks.callback_list", "CallbackList", "on_train_batch_end", _step_after)


def _once(name: str, how: Callable[[], Callable[[], None]]) -> None:
    if name in _installed:
        return
    try:
        _installed[name] = how()
    except Exception:  # another version of the framework
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


def _watch_compiler() -> Callable[[], None]:
    handler = sys.modules["torch._dynamo.callback"].callback_handler
    # torch 2.8 and later pass an argument, earlier ones none.
    begins, ends = (lambda *_: _begin(PART_COMPILE)), (lambda *_: _end(PART_COMPILE))
    handler.register_start_callback(begins)
    handler.register_end_callback(ends)

    def remove() -> None:
        _remove_from(handler.start_callbacks, begins)
        _remove_from(handler.end_callbacks, ends)

    return remove


def _watch_pipelines() -> Callable[[], None]:
    from hvd._runtime import tf_pipelines

    global _pipelines
    _pipelines = tf_pipelines.Pipelines(_native.batches_made)
    return _forget_pipelines


def _forget_pipelines() -> None:
    global _pipelines
    _pipelines = None


def _iterator_made(create: Callable[..., Any]) -> Callable[..., Any]:
    def watched(iterator: Any, *args: Any, **kwargs: Any) -> Any:
        result = create(iterator, *args, **kwargs)
        if _pipelines is not None:
            _pipelines.made(iterator)
        return result

    return watched


def _element_fetched(fetch: Callable[..., Any]) -> Callable[..., Any]:
    fetch = _part(PART_INPUT_TENSORFLOW, fetch)

    def watched(iterator: Any) -> Any:
        element = fetch(iterator)
        if _pipelines is not None:
            _pipelines.fetched(iterator)
        return element

    return watched


def _step_begins(optimizer: Any, args: Any, kwargs: Any) -> None:
    global _stepping
    _stepping = optimizer


def _step_ends(optimizer: Any, args: Any, kwargs: Any) -> None:
    global _stepping
    if _stepping is None:  # the inner optimizer's step() has already counted this step of a DistributedOptimizer
        return
    _stepping = None
    _step_end()
    if any(module in sys.modules and hook not in _installed for module, hook in _IMPORTED_LATE):
        _look()


def _part(part: int, function: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        _begin(part)
        try:
            return function(*args, **kwargs)
        finally:
            _end(part)

    return watched


def _step_before(function: Callable[..., Any]) -> Callable[..., Any]:
    """A step of Keras' fit() fetches its batches after its callbacks."""

    def watched(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if _pipelines is not None:
            _pipelines.step_begins()
        return result

    return watched


def _step_after(function: Callable[..., Any]) -> Callable[..., Any]:
    """Ends a step of Keras' fit() before its callbacks, because a checkpoint that they save belongs to the next step."""

    def watched(*args: Any, **kwargs: Any) -> Any:
        if _pipelines is not None:
            _pipelines.step_ends()
        _step_end()
        return function(*args, **kwargs)

    return watched


def _made_beside(fetch: Callable[..., Any]) -> Callable[..., Any]:
    """In a forked worker of a DataLoader: measures how long it makes batches."""
    # Not from torch.utils.data, whose import may be under way.
    from torch.utils.data._utils.worker import get_worker_info

    def watched(*args: Any, **kwargs: Any) -> Any:
        worker = get_worker_info()
        if worker is None:
            return fetch(*args, **kwargs)
        start = time.monotonic_ns()
        try:
            return fetch(*args, **kwargs)
        finally:
            _made[worker.id % len(_made)] += (time.monotonic_ns() - start) // worker.num_workers

    return watched


def _tell_made_after(function: Callable[..., Any]) -> Callable[..., Any]:
    def watched(loader: Any, *args: Any) -> Any:
        global _made_told, _most_workers
        try:
            result = function(loader, *args)
        except (OSError, EOFError) as error:
            _blame_killed_worker(loader, error)
            raise
        _most_workers = max(_most_workers, min(loader._num_workers, len(_made)))
        made = sum(_made[:_most_workers])
        _native.batches_made(made - _made_told)
        _made_told = made
        return result

    return watched


def _blame_killed_worker(loader: Any, error: Exception) -> None:
    """Raises RuntimeError if a signal has killed a worker of `loader`.  Returns if no worker is found dead within 0.2 s.

    A killed worker closes its sockets first, so the rank fails on a socket.  The kernel reports the death a moment later.
    """
    limit = time.monotonic() + 0.2
    while time.monotonic() < limit:
        for worker in getattr(loader, "_workers", ()):
            end = _end_of_child(worker.pid)
            if end is not None and end.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
                name = signal.Signals(end.si_status).name
                raise RuntimeError(
                    f"DataLoader worker (pid {worker.pid}) was killed by signal {end.si_status} ({name})"
                ) from error
        time.sleep(0.01)


def _end_of_child(pid: int | None) -> os.waitid_result | None:
    """Returns the exit state of a child without waiting or reaping.  None: the child runs, or has been reaped."""
    try:
        return None if pid is None else os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None


def _watched_result(function: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        return Watched(function(*args, **kwargs))

    return watched


def _watch(
    module_name: str, class_name: str | None, name: str, how: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """Replaces a function, or a class's method, by how(function), once its module is imported."""
    full_name = ".".join(filter(None, (module_name, class_name, name)))
    if full_name in _installed:
        return
    module = sys.modules.get(module_name)
    place = getattr(module, class_name, None) if class_name else module
    function = getattr(place, name, None)
    if place is None or not callable(function):  # the class may be missing, and None has attributes too
        return
    watched = functools.wraps(function)(how(function))

    def restore() -> None:
        if getattr(place, name, None) is watched:  # otherwise somebody has replaced it since
            setattr(place, name, function)

    def install() -> Callable[[], None]:
        setattr(place, name, watched)
        return restore

    _once(full_name, install)
