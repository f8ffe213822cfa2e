"""Shows a group's operations in torch.profiler: hvd:all_reduce and others, from the call to the end of the wait."""

from __future__ import annotations

from typing import Any, Callable

from torch.autograd import profiler

# c10d's methods → the names that torch's own backends record
TITLES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_single_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all_single": "all_to_all",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "send": "send",
    "recv": "recv",
}


def profiled(method: Callable[..., Any], title: str) -> Callable[..., Any]:
    """The method, which makes a record while a profiler is active."""
    if not hasattr(profiler, "_is_profiler_enabled"):  # torch 2.0 has no such query
        return method

    def call(self: Any, *args: Any, **options: Any) -> Any:
        if not profiler._is_profiler_enabled:
            return method(self, *args, **options)
        record: Any = profiler.record_function(title)
        record.__enter__()
        try:
            work = method(self, *args, **options)
        except BaseException:
            record.__exit__(None, None, None)
            raise
        work.end_record(record)
        return work

    return call
