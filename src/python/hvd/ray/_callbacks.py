"""Passes the values of ray_logger.log() to callbacks while ranks run."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import ray

_POLL_SECONDS = 0.1
_END_SECONDS = 10.0  # until no worker uses the queue


@contextlib.contextmanager
def passing_values(callbacks: Sequence[Any] | None, workers: Sequence[Any] = ()) -> Iterator[Any]:
    """Gives the workers a queue for the values, and yields it; None without callbacks.  On exit, passes on all values."""
    if not callbacks:
        yield None
        return
    from ray.util.queue import Queue
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)  # lives as long as the driver
    queue, ended = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here}), threading.Event()
    errors: list[BaseException] = []

    def take() -> None:
        try:
            while True:
                last = ended.wait(_POLL_SECONDS)
                for value in queue.get_nowait_batch(queue.qsize()):
                    for callback in callbacks:
                        callback(value)
                if last:
                    return
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=take, daemon=True)
    try:
        ray.get([worker.set_queue.remote(queue) for worker in workers])
        thread.start()
        yield queue
    finally:
        ended.set()
        if thread.ident:
            thread.join()
        with contextlib.suppress(Exception):  # a worker is dead, or busy
            ray.get([worker.set_queue.remote(None) for worker in workers], timeout=_END_SECONDS)
        queue.shutdown(force=True)
    if errors:
        raise errors[0]
