"""The Python job of each rank of scripts/compare: ranks.py WHO JOB [ARGUMENT …].  Rank 0 prints one line, FIGURES and JSON.

WHO is hvd (the installed horovod.torch: this project or Horovod), gloo (torch.distributed), ddp, or none.
JOB is one of
  sizes                      blocking allreduce of 4 B, 1 MiB, 8 MiB and 64 MiB, microseconds a call
  moves                      blocking broadcast, allgather, alltoall and reducescatter of 4 KiB and 16 MiB, microseconds a call
  fused COUNT BYTES STEPS    COUNT tensors submitted, then all awaited, microseconds a step
  train                      a step of 16.8 M parameters, microseconds
  idle                       processor time of a rank with nothing to do, percent
Figures are [min, median, p99, mean] by name. One call measures one round. The caller runs many rounds, in which contenders take
turns.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

Figures = dict[str, list[float]]
ROTATED_BYTES = 128 << 20  # tensors take turns, so that no size stays in the caches alone


def summary(seconds: list[float]) -> list[float]:
    """[min, median, p99, mean] in microseconds."""
    seconds = sorted(seconds)
    quantiles = [seconds[min(len(seconds) - 1, int(len(seconds) * q))] for q in (0.0, 0.5, 0.99)]
    return [value * 1e6 for value in (*quantiles, sum(seconds) / len(seconds))]


def timed(step: Callable[[int], Any], count: int, warm_up: int) -> list[float]:
    """[min, median, p99, mean] of count calls step(i)."""
    for i in range(warm_up):
        step(i)
    times = []
    for i in range(count):
        start = time.perf_counter()
        step(i)
        times.append(time.perf_counter() - start)
    return summary(times)


def hvd_world() -> tuple[int, Callable[[torch.Tensor], Any]]:
    """(rank, blocking allreduce in place), by the installed horovod.torch."""
    import horovod.torch as hvd

    hvd.init()
    return hvd.rank(), lambda tensor: hvd.allreduce_(tensor, op=hvd.Sum, name=f"t{tensor.numel()}")


def start_gloo() -> int:
    """Joins torch.distributed's world over gloo, started by mpirun; this rank."""
    import torch.distributed as dist

    rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    meeting = os.environ["COMPARE_MEETING"]  # a file, or an address
    meeting = meeting if "://" in meeting else f"file://{meeting}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
    return rank


def gloo_world() -> tuple[int, Callable[[torch.Tensor], Any]]:
    """Like hvd_world(), by torch.distributed."""
    rank = start_gloo()
    return rank, torch.distributed.all_reduce


def sizes(who: str) -> tuple[int, Figures]:
    """Blocking calls from Python."""
    rank, reduce = hvd_world() if who == "hvd" else gloo_world()
    figures = {}
    for name, size, count in (("4 B", 4, 1000), ("1 MiB", 1 << 20, 60), ("8 MiB", 8 << 20, 20), ("64 MiB", 64 << 20, 6)):
        tensors = [torch.zeros(size // 4) for _ in range(min(16, ROTATED_BYTES // size))]

        def one(i: int, tensors: list[torch.Tensor] = tensors) -> None:
            reduce(tensors[i % len(tensors)])

        figures[name] = timed(one, count, max(3, len(tensors)))
    return rank, figures


def hvd_moves() -> tuple[int, int, dict[str, Callable[[torch.Tensor], Any]]]:
    """(rank, size, operation → a blocking call with a tensor of floats) by the installed horovod.torch."""
    import horovod.torch as hvd

    hvd.init()
    return (
        hvd.rank(),
        hvd.size(),
        {
            "broadcast": lambda x: hvd.broadcast_(x, 0, name=f"b{x.numel()}"),
            "allgather": lambda x: hvd.allgather(x, name=f"g{x.numel()}"),
            "alltoall": lambda x: hvd.alltoall(x, name=f"a{x.numel()}"),
            "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Sum, name=f"r{x.numel()}"),
        },
    )


def gloo_moves() -> tuple[int, int, dict[str, Callable[[torch.Tensor], Any]]]:
    """Like hvd_moves(), by torch.distributed."""
    import torch.distributed as dist

    rank = start_gloo()
    size = dist.get_world_size()

    def reducescatter(x: torch.Tensor) -> None:
        dist.reduce_scatter_tensor(torch.empty(x.numel() // size), x)

    return (
        rank,
        size,
        {
            "broadcast": lambda x: dist.broadcast(x, 0),
            "allgather": lambda x: dist.all_gather_into_tensor(torch.empty(x.numel() * size), x),
            "alltoall": lambda x: dist.all_to_all_single(torch.empty_like(x), x),
            "reducescatter": reducescatter,
        },
    )


def moves(who: str) -> tuple[int, Figures]:
    """Each rank holds 4 KiB or 16 MiB, rounded down to a multiple of the ranks."""
    rank, size, calls = hvd_moves() if who == "hvd" else gloo_moves()
    figures = {}
    for name, elements, count in (("4 KiB", 1 << 10, 200), ("16 MiB", 1 << 22, 6)):
        tensor = torch.ones(elements // size * size)
        for operation, call in calls.items():
            figures[f"{operation} of {name}"] = timed(lambda _, call=call, tensor=tensor: call(tensor), count, 3)  # type: ignore[misc]
    return rank, figures


def fused(_: str, count: str, size: str, steps: str) -> tuple[int, Figures]:
    """All tensors submitted, then all awaited, as a training loop does it."""
    import horovod.torch as hvd

    hvd.init()
    tensors = [torch.ones(int(size) // 4) for _ in range(int(count))]

    def step(_: int) -> None:
        handles = [hvd.allreduce_async_(t, op=hvd.Average, name=f"t{i}") for i, t in enumerate(tensors)]
        for handle in handles:
            hvd.synchronize(handle)

    return hvd.rank(), {"step": timed(step, int(steps), 5)}


def train(who: str) -> tuple[int, Figures]:
    """A step heavy in communication: 17 layers, 16.8 M parameters, batch 16.  `none` exchanges nothing: the floor."""
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(16)], torch.nn.Linear(1024, 10))
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.01)
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
    if who == "hvd":
        import horovod.torch as hvd

        hvd.init()
        rank = hvd.rank()
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), 0)
    elif who == "ddp":
        rank = start_gloo()
        model = torch.nn.parallel.DistributedDataParallel(model)
    x, y, loss = torch.randn(16, 1024), torch.randint(0, 10, (16,)), torch.nn.CrossEntropyLoss()

    def step(_: int) -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    return rank, {"step": timed(step, 30, 5)}


def idle(_: str) -> tuple[int, Figures]:
    """Processor time of this rank, all threads, while it sleeps for three seconds after one operation."""
    rank, reduce = hvd_world()
    reduce(torch.zeros(4))
    time.sleep(0.5)
    before, start = time.process_time(), time.monotonic()
    time.sleep(3.0)
    percent = 100 * (time.process_time() - before) / (time.monotonic() - start)
    return rank, {"idle": [percent, percent, percent]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    jobs: dict[str, Callable[..., tuple[int, Figures]]] = {
        "sizes": sizes,
        "moves": moves,
        "fused": fused,
        "train": train,
        "idle": idle,
    }
    whose_rank, found = jobs[sys.argv[2]](sys.argv[1], *sys.argv[3:])
    if whose_rank == 0:
        print("\nFIGURES " + json.dumps(found), flush=True)
