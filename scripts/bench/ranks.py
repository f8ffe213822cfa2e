"""What each rank of scripts/compare does: ranks.py hvd|gloo allreduce|fused|idle.  Rank 0 prints one JSON line.

`hvd` imports horovod.torch, so that the same lines measure this project and Horovod. Every figure is that of one round: the
caller runs many, in turn with the others'.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

SMALL, LARGE = 1, (64 << 20) // 4  # float32 elements: 4 B and 64 MiB


def hvd_world() -> tuple[int, Callable[[torch.Tensor], Any]]:
    """(rank, blocking allreduce in place), by whatever answers to horovod.torch."""
    import horovod.torch as hvd

    hvd.init()
    return hvd.rank(), lambda tensor: hvd.allreduce_(tensor, op=hvd.Sum, name=f"t{tensor.numel()}")


def gloo_world() -> tuple[int, Callable[[torch.Tensor], Any]]:
    """The same by torch.distributed over gloo, started by mpirun."""
    import torch.distributed as dist

    rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{os.environ['COMPARE_MEETING']}", rank=rank, world_size=size)
    return rank, dist.all_reduce


def seconds_a_call(reduce: Callable[[torch.Tensor], Any], elements: int, calls: int) -> float:
    """Mean seconds of a blocking call, after a warm-up.  Two tensors take turns, so that no cache flatters."""
    tensors = [torch.zeros(elements), torch.zeros(elements)]
    for i in range(calls // 10 + 3):
        reduce(tensors[i % 2])
    start = time.perf_counter()
    for i in range(calls):
        reduce(tensors[i % 2])
    return (time.perf_counter() - start) / calls


def allreduce(who: str) -> tuple[int, dict[str, float]]:
    """Blocking calls from Python, best of three series each."""
    rank, reduce = hvd_world() if who == "hvd" else gloo_world()
    return rank, {
        "small_us": min(seconds_a_call(reduce, SMALL, 500) for _ in range(3)) * 1e6,
        "large_ms": min(seconds_a_call(reduce, LARGE, 5) for _ in range(3)) * 1e3,
    }


def fused(_: str) -> tuple[int, dict[str, float]]:
    """1000 tensors of 100 float32 each, submitted and then awaited: best and median of 100 steps."""
    import horovod.torch as hvd

    hvd.init()
    tensors = [torch.ones(100) for _ in range(1000)]
    times = []
    for _step in range(110):
        start = time.perf_counter()
        handles = [hvd.allreduce_async_(t, op=hvd.Average, name=f"t{i}") for i, t in enumerate(tensors)]
        for handle in handles:
            hvd.synchronize(handle)
        times.append(time.perf_counter() - start)
    times = sorted(times[10:])
    return hvd.rank(), {"best_ms": times[0] * 1e3, "median_ms": times[len(times) // 2] * 1e3}


def idle(_: str) -> tuple[int, dict[str, float]]:
    """Processor time of this rank, all threads, while it sleeps for three seconds after one operation."""
    rank, reduce = hvd_world()
    reduce(torch.zeros(4))
    time.sleep(0.5)
    before, start = time.process_time(), time.monotonic()
    time.sleep(3.0)
    return rank, {"idle_percent": 100 * (time.process_time() - before) / (time.monotonic() - start)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    whose_rank, figures = {"allreduce": allreduce, "fused": fused, "idle": idle}[sys.argv[2]](sys.argv[1])
    if whose_rank == 0:
        print("\nFIGURES " + json.dumps(figures), flush=True)
