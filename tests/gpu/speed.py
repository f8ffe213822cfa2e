"""How fast tensors on a GPU are exchanged: the rows of the table, one line of JSON each.

speed.py [--rounds N] [--small] [ROW...]: alone, or on several ranks (hvdrun -np 2 tests/gpu/speed.py).  Rows: pack, allreduce,
cpu, ddp.  The tensors are the 161 gradients of ResNet-50 (25.6 million f32).  Every figure is the median of the rounds; device
times are taken by events, so the host's share does not show unless the device waits for it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable

import torch

import hvd.torch as hvd

DEVICE, BACKEND = "cuda", "nccl"  # test_speed.py puts others here
SMALLER = 1000  # by how much --small divides


def resnet50_shapes() -> list[tuple[int, ...]]:
    """Shapes of ResNet-50's 161 parameters, by its definition."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    inside = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shapes += [(width, inside, 1, 1), (width,), (width,), (width, width, 3, 3), (width,), (width,)]
            shapes += [(4 * width, width, 1, 1), (4 * width,), (4 * width,)]
            if block == 0:
                shapes += [(4 * width, inside, 1, 1), (4 * width,), (4 * width,)]
            inside = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


def device_ms(work: Callable[[], Any], rounds: int) -> float:
    """Median time on the device between events around one call of work."""
    times = []
    for _ in range(rounds + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[3:])


def say(row: str, **figures: Any) -> None:
    if hvd.rank() == 0:
        where = {"gpu": torch.cuda.get_device_name(), "ranks": hvd.size(), "nccl": hvd.nccl_built()}
        rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}
        print(json.dumps({"row": row, **rounded, **where}), flush=True)


def exchange(tensors: list[torch.Tensor]) -> None:
    handles = [hvd.allreduce_async_(t, op=hvd.Sum, name=f"gradient.{i}") for i, t in enumerate(tensors)]
    for handle in handles:
        hvd.synchronize(handle)


def copy_bandwidth(rounds: int, small: bool) -> float:
    """Bytes a second of a device-to-device copy of 256 MiB, read and written counted once."""
    a = torch.empty((64 << 20) // (SMALLER if small else 1), device=DEVICE)
    b = torch.empty_like(a)
    return a.numel() * 4 / device_ms(lambda: b.copy_(a), rounds) * 1e3


def row_pack(gradients: list[torch.Tensor], rounds: int, small: bool) -> None:
    """Gather and scatter of what fuses, against copies of as many bytes.  On one rank NCCL moves nothing in place."""
    fused = [t for t in gradients if t.numel() * 4 < 8 << 20]
    size = sum(t.numel() * 4 for t in fused)
    copies = 2 * size / copy_bandwidth(rounds, small) * 1e3
    ms = device_ms(lambda: hvd.grouped_allreduce_(fused, op=hvd.Sum, name="pack"), rounds)
    say("pack", tensors=len(fused), bytes=size, ms=ms, copies_ms=copies, of_copy_bandwidth=copies / ms)


def row_allreduce(gradients: list[torch.Tensor], rounds: int, small: bool) -> None:
    """All gradients in one group, against the bare NCCL call (torch's) on one flat tensor, and two copies of it."""
    flat = torch.cat([t.flatten() for t in gradients])
    fused = device_ms(lambda: hvd.grouped_allreduce_(gradients, op=hvd.Sum, name="all"), rounds)
    bare = device_ms(lambda: torch.distributed.all_reduce(flat), rounds)
    copies = 2 * flat.numel() * 4 / copy_bandwidth(rounds, small) * 1e3
    say("allreduce", ms=fused, bare_nccl_ms=bare, copies_ms=copies, ratio=fused / (bare + copies))


def row_cpu(gradients: list[torch.Tensor], rounds: int, small: bool) -> None:
    """Processor time of one step's exchange, all threads of this process, in microseconds."""
    times = []
    for _ in range(rounds + 3):
        torch.cuda.synchronize()
        begin = time.process_time()
        exchange(gradients)
        times.append((time.process_time() - begin) * 1e6)
    torch.cuda.synchronize()
    together = []
    for _ in range(rounds + 3):
        begin = time.process_time()
        hvd.grouped_allreduce_(gradients, op=hvd.Sum, name="together")
        together.append((time.process_time() - begin) * 1e6)
    say("cpu", tensors=len(gradients), us=statistics.median(times[3:]), grouped_us=statistics.median(together[3:]))


def step_ms(model: torch.nn.Module, optimizer: torch.optim.Optimizer, rounds: int, width: int) -> float:
    x = torch.randn(64, width, device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return device_ms(step, rounds)


def row_ddp(gradients: list[torch.Tensor], rounds: int, small: bool) -> None:
    """A step of a perceptron with 48 layers of 2048, against DistributedDataParallel's, alternating."""

    width = 32 if small else 2048

    def model() -> torch.nn.Module:
        layers = [m for _ in range(48) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())]
        return torch.nn.Sequential(*layers).to(DEVICE)

    ours, theirs = model(), torch.nn.parallel.DistributedDataParallel(model())
    sgd = torch.optim.SGD(ours.parameters(), lr=1e-6)
    wrapped = hvd.DistributedOptimizer(sgd, ours.named_parameters())
    plain = torch.optim.SGD(theirs.parameters(), lr=1e-6)
    pairs = [(step_ms(ours, wrapped, rounds, width), step_ms(theirs, plain, rounds, width)) for _ in range(5)]
    mine, ddp = (statistics.median(p[i] for p in pairs) for i in (0, 1))
    say("ddp", ms=mine, ddp_ms=ddp, ratio=mine / ddp)


# Of each row, what the table shows, its goal, and the ranks that the goal is for (0: any).
GOALS = {
    "pack": ("of_copy_bandwidth", "gather and scatter of 161 gradients, share of the copy bandwidth", ">=", 0.8, 1),
    "allreduce": ("ratio", "fused allreduce, against the bare NCCL call plus two copies", "<=", 1.1, 1),
    "cpu": ("us", "processor time of a step's exchange, 161 tensors, microseconds", "<=", 200.0, 0),
    "ddp": ("ratio", "step of 48 layers, against torch's DDP", "<=", 1.0, 0),
}


def table(lines: list[str]) -> str:
    """The rows that runs have printed, as a table with their goals.  Other lines are passed over."""
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    out = "| row | ranks | measured | goal | met | in milliseconds |\n|---|---|---|---|---|---|\n"
    for row in sorted(
        (row for row in rows if row.get("row") in GOALS), key=lambda row: (list(GOALS).index(row["row"]), row["ranks"])
    ):
        figure, what, relation, goal, ranks = GOALS[row["row"]]
        value = row[figure]
        met = value >= goal if relation == ">=" else value <= goal
        verdict = ("yes" if met else "NO") if ranks in (0, row["ranks"]) else f"for {ranks} only"
        times = ", ".join(f"{name} {row[name]}" for name in row if name == "ms" or name.endswith("_ms"))
        out += f"| {what} | {row['ranks']} | {value} | {relation} {goal:g} | {verdict} | {times} |\n"
    missing = [name for name in GOALS if not any(row.get("row") == name for row in rows)]
    return out + (f"\nnot measured: {', '.join(missing)}\n" if missing else "")


ROWS = {"pack": row_pack, "allreduce": row_allreduce, "cpu": row_cpu, "ddp": row_ddp}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="little of everything: to see that this program runs")
    parser.add_argument("--port", type=int, default=29517, help="of torch.distributed, on this host")
    parser.add_argument("rows", nargs="*", help="all, if none is named")
    parser.add_argument(
        "--table", metavar="FILE", help="show the rows that were printed into this file, with their goals; no more"
    )
    given = parser.parse_args()
    if given.table:
        print(table(Path(given.table).read_text().splitlines()), end="")
        return
    if not torch.cuda.is_available():
        raise SystemExit("speed.py: torch sees no GPU")
    hvd.init()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    torch.distributed.init_process_group(BACKEND, f"tcp://127.0.0.1:{given.port}", rank=hvd.rank(), world_size=hvd.size())
    gradients = [torch.randn(shape, device=DEVICE) for shape in resnet50_shapes()]
    assert len(gradients) == 161
    if given.small:
        gradients = [t.flatten()[: 1 + t.numel() // SMALLER].clone() for t in gradients]
    failed = []
    for row in given.rows or ROWS:
        try:
            ROWS[row](gradients, given.rounds, given.small)
        except RuntimeError as error:  # torch's NCCL may refuse what hvd's own can: ranks that share a GPU
            failed.append(row)
            print(f"speed.py: rank {hvd.rank()}: {row}: {error}", file=sys.stderr)
    torch.distributed.destroy_process_group()
    if failed:
        raise SystemExit(f"speed.py: without a figure: {', '.join(failed)}")


if __name__ == "__main__":
    main()
