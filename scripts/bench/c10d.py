"""Compares torch.distributed over "hvd" and over gloo: hvdrun -np 2 scripts/bench/c10d.py [--rounds N]; an idle machine.

Both are groups of one job and take turns, so that a busy moment affects both.  The table has the least and the median of the
rounds, and the ratio of the medians with its goal.  DDP's exposed time is a step less the same step without communication.  A
part of it, DDP's copies into and out of its buckets, is the same for all backends.  The rest is the exchange: a step less a
step whose hook returns the buckets unchanged.
HVD_LIBRARY names another libhvd.so, for a build of its own.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import hvd.torch  # noqa: F401 -- torch before 2.15 finds the backend by it

# Name of a difference → the two calls
DIFFERENCES = {
    "DDP, exposed": ("DDP, a step", "DDP, alone"),
    "DDP, the exchange": ("DDP, a step", "DDP, nothing exchanged"),
}
# Name of a measurement → (calls of one round, the wanted ratio)
GOALS = {
    "all_reduce of 4 B": (300, 1 / 8),
    "all_reduce of 1 MiB": (20, 1 / 2),
    "all_reduce of 64 MiB": (3, 1 / 4),
    "all_gather_into_tensor to 64 MiB": (3, None),
    "reduce_scatter_tensor of 64 MiB": (3, None),
    "all_to_all_single of 16 MiB": (3, None),
    "send and recv of 64 KiB": (50, None),
    "DDP, a step": (3, None),
    "DDP, exposed": (10, 1 / 4),
    "DDP, the exchange": (10, 1 / 4),
    "FSDP2, a step": (3, 1 / 2),
}


def model() -> nn.Sequential:
    """8.4 million parameters, in layers of 4 MiB."""
    torch.manual_seed(0)
    return nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.ReLU())))


def step_of(network: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """A training step."""
    data = torch.randn(16, 1024)

    def step() -> None:
        optimizer.zero_grad()
        network(data).pow(2).mean().backward()
        optimizer.step()

    return step


def given_back(_, bucket):  # type: ignore[no-untyped-def]  # torch wants the types themselves, not their names
    """A hook of DDP that exchanges nothing."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def operations(group: Any) -> dict[str, Callable[[], object]]:
    """Name of a measurement → its call."""
    size, rank = dist.get_world_size(), dist.get_rank()
    small, middle, large = torch.ones(1), torch.ones(1 << 18), torch.ones(1 << 24)
    part, block = torch.ones((1 << 24) // size), torch.ones(1 << 22)
    into, message = torch.empty_like(block), torch.ones(1 << 14)
    other = rank ^ 1

    def exchange() -> None:
        if rank % 2 == 0 and other < size:
            dist.send(message, other, group=group)
            dist.recv(message, other, group=group)
        elif rank % 2:
            dist.recv(message, other, group=group)
            dist.send(message, other, group=group)

    parallel = DistributedDataParallel(model(), process_group=group)
    with_all = step_of(parallel, torch.optim.SGD(parallel.parameters(), lr=1e-3))
    copying = DistributedDataParallel(model(), process_group=group)
    copying.register_comm_hook(None, given_back)
    sharded = model()
    for layer in [*sharded, sharded]:
        fully_shard(layer, mesh=DeviceMesh.from_group(group, "cpu"))

    def alone() -> None:
        with parallel.no_sync():
            with_all()

    return {
        "all_reduce of 4 B": lambda: dist.all_reduce(small, group=group),
        "all_reduce of 1 MiB": lambda: dist.all_reduce(middle, group=group),
        "all_reduce of 64 MiB": lambda: dist.all_reduce(large, group=group),
        "all_gather_into_tensor to 64 MiB": lambda: dist.all_gather_into_tensor(large, part, group=group),
        "reduce_scatter_tensor of 64 MiB": lambda: dist.reduce_scatter_tensor(part, large, group=group),
        "all_to_all_single of 16 MiB": lambda: dist.all_to_all_single(into, block, group=group),
        "send and recv of 64 KiB": exchange,
        "DDP, a step": with_all,
        "DDP, alone": alone,
        "DDP, nothing exchanged": step_of(copying, torch.optim.SGD(copying.parameters(), lr=1e-3)),
        "FSDP2, a step": step_of(sharded, torch.optim.SGD(sharded.parameters(), lr=1e-3)),
    }


def microseconds(call: Callable[[], object], calls: int) -> float:
    """The time of one call."""
    call()
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begun) / calls * 1e6


def measured(rounds: int) -> Iterator[tuple[str, list[float], list[float]]]:
    """(name, times over hvd, times over gloo), both in microseconds."""
    ours, gloos = operations(dist.group.WORLD), operations(dist.new_group(backend="gloo"))
    for what, (calls, _) in GOALS.items():
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            for found, calls_of in zip(times, (ours, gloos)):
                whole, less = DIFFERENCES.get(what, (what, ""))
                time_of_less = microseconds(calls_of[less], calls) if less else 0.0
                found.append(microseconds(calls_of[whole], calls) - time_of_less)
        yield what, *times


def main() -> None:
    """Prints the table, on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    dist.init_process_group("hvd")
    speaks = dist.get_rank() == 0
    if speaks:
        print(f"microseconds, {dist.get_world_size()} ranks, torch {torch.__version__}")
        print(f"{'':34}{'hvd':>20}{'gloo':>22}{'ratio':>8}  goal")
    for what, ours, gloos in measured(rounds):
        ratio, goal = statistics.median(ours) / statistics.median(gloos), GOALS[what][1]
        if speaks:
            texts = [f"{min(found):.0f} … {statistics.median(found):.0f}" for found in (ours, gloos)]
            print(f"{what:34}{texts[0]:>20}{texts[1]:>22}{ratio:8.2f}  {'' if goal is None else f'{goal:.2f}'}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
