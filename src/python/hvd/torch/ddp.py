"""A communication hook for torch's DistributedDataParallel: its buckets are reduced by this package.

    model = DistributedDataParallel(model)
    model.register_comm_hook(None, hvd.ddp_comm_hook)

DDP then uses its process group, for example gloo's, only for the first broadcast of the parameters and for buffers.
"""

# No `from __future__ import annotations`: torch inspects this hook's annotations, and requires the types themselves.
import queue
import threading
from typing import Any

import torch
import torch.distributed as dist

from hvd._native import Average
from hvd.process_sets import ProcessSet, global_process_set
from hvd.torch._c10d.group_futures import Promise
from hvd.torch.compression import Compression
from hvd.torch.ops import collectives

__all__ = ["DDPSettings", "ddp_comm_hook"]


class DDPSettings:
    """State for register_comm_hook with other settings than the defaults.

    compression: Compression.none, .fp16 or .bf16.  name: distinguishes models that are trained at the same time.
    """

    def __init__(self, compression: Any = Compression.none, process_set: ProcessSet = global_process_set, name: str = "ddp"):
        self.compression = compression
        self.process_set = process_set
        self.name = name


class _Waiter:
    """Completes futures in the order in which their reductions were submitted, in one thread."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._started = False
        self._lock = threading.Lock()

    def add(self, handle: int, finish: Any, promise: Promise) -> None:
        with self._lock:
            if not self._started:
                threading.Thread(target=self._run, name="hvd ddp", daemon=True).start()
                self._started = True
        self._work.put((handle, finish, promise))

    def _run(self) -> None:
        while True:
            handle, finish, promise = self._work.get()
            try:
                result = finish(collectives.synchronize(handle))
            except Exception as error:  # the waiter for the future gets it
                promise.set_error(error)
            else:
                promise.set_result(result)


_waiter = _Waiter()


def ddp_comm_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """For DistributedDataParallel.register_comm_hook: averages a bucket of gradients over the ranks.

    state: None, a process set, or DDPSettings.  Returns a torch.futures.Future of the bucket's tensor.
    Errors: backward() raises the reduction's error (HorovodInternalError) in torch's form, as a RuntimeError.
    """
    settings = state if isinstance(state, DDPSettings) else DDPSettings(process_set=state or global_process_set)
    buffer = bucket.buffer()
    small, context = settings.compression.compress(buffer)
    name = f"{settings.name}.{bucket.index()}.{buffer.numel()}"
    handle = collectives.allreduce_async_(small, None, name, Average, process_set=settings.process_set)
    promise = Promise()
    _waiter.add(handle, lambda reduced: settings.compression.decompress(reduced, context), promise)
    return promise.future  # type: ignore[no-any-return]
