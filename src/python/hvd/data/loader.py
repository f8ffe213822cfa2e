"""Horovod's interface for data loaders, and the mixin that reads ahead in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

from hvd._job.step_hooks import Watched

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]


class BaseDataLoader:
    """A loader is a subclass with __len__ and _iterate(); _process_batch() may be overridden too."""

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        raise NotImplementedError

    def _iterate(self) -> Iterator[Any]:
        """One epoch's batches."""
        raise NotImplementedError

    def _process_batch(self, batch: Any) -> Any:
        """Converts a batch before the caller gets it; runs in the training thread."""
        return batch

    def __iter__(self) -> Iterator[Any]:
        yield from Watched(map(self._process_batch, self._iterate()))


class _Ahead:
    """One epoch, which a thread reads into a queue with a fixed number of batches."""

    _END = object()

    def __init__(self, batches: Iterator[Any], size: int) -> None:
        self._batches = batches
        self._queue: queue.Queue[Any] = queue.Queue(size)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name="hvd data loader", daemon=True)
        self._thread.start()

    def _put(self, item: Any) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return True
            except queue.Full:
                pass
        return False

    def _read(self) -> None:
        try:
            for batch in self._batches:
                if not self._put((batch, None)):
                    return
            self._put((self._END, None))
        except BaseException as error:  # the training thread gets the loader's exception, SystemExit too
            self._put((self._END, error))
        finally:
            close = getattr(self._batches, "close", None)
            if close:
                close()

    def __iter__(self) -> Iterator[Any]:
        while True:
            batch, error = self._queue.get()
            if error is not None:
                raise error
            if batch is self._END:
                return
            yield batch

    def close(self) -> None:
        """Ends the thread; waits for the batch that it is reading.  A loop that goes on raises RuntimeError."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        while not self._queue.empty():
            self._queue.get()
        text = "this iteration has ended: another one has begun, or close_async_loader() was called"
        self._queue.put((self._END, RuntimeError(text)))


class AsyncDataLoaderMixin:
    """Reads batches ahead: class AsyncLoader(AsyncDataLoaderMixin, MyLoader), where MyLoader is a BaseDataLoader.

    async_loader_queue_size: number of batches to keep ready; 0 reads in the training thread.
    Each iteration is a separate epoch, and leaving it ends its thread.  A new iteration ends an earlier one.  An
    error in _iterate() is raised in the loop.
    debug_data_loader is accepted as in Horovod.
    """

    def __init__(self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any) -> None:
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._running: _Ahead | None = None
        super().__init__(*args, **kwargs)

    def close_async_loader(self) -> None:
        """Ends the reading.  The loader can be used again."""
        if self._running is not None:
            self._running.close()
            self._running = None

    def __iter__(self) -> Iterator[Any]:
        loader: Any = self
        if self.async_loader_queue_size <= 0:
            yield from super().__iter__()  # type: ignore[misc]
            return
        self.close_async_loader()
        self._running = ahead = _Ahead(loader._iterate(), self.async_loader_queue_size)
        try:
            yield from Watched(map(loader._process_batch, ahead))
        finally:
            ahead.close()
