"""Measures the exchange of tensors on a GPU, and its cost on the host: rows of figures, one line of JSON each.

speed.py [--rounds N] [--small] [ROW...]: alone, or on several ranks (hvdrun -np 2 tests/gpu/speed.py).  Rows: pack,
allreduce, cpu, pieces, group, resnet50, transformer, captured.  Ranks that share a GPU take turns at it, so that only group is
measured.  On a single rank the exchange is forced.  A row that fails does not affect the others.

The tensors are the 161 gradients of ResNet-50 (25.6 million f32).  Device times come from events after a kernel that sleeps,
so that the host is ahead and its latency is hidden.  COUNTED names a folder made by counted.py; without it gcc makes one.
Calls of the driver and of NCCL are counted.  speed_table.py makes a table of the rows.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable

import torch
from exchange_steps import through_nccl

import hvd.torch as hvd

DEVICE, BACKEND = "cuda", "nccl"  # speed_on_fakes.py sets others
SMALLER = 1000  # divisor of --small
SLEEP_CYCLES = 10_000_000  # some 5 ms: longer than the host needs for the measured work after it


class Setting:
    """The settings of a measurement."""

    def __init__(self, rounds: int, small: bool, port: int, counted: dict[str, Any]) -> None:
        self.rounds, self.small, self.port, self.counted = rounds, small, port, counted

    def gradients(self) -> list[torch.Tensor]:
        from gradients import resnet50_shapes

        whole = [torch.randn(shape, device=DEVICE) for shape in resnet50_shapes()]
        return [t.flatten()[: 1 + t.numel() // SMALLER].clone() for t in whole] if self.small else whole

    def calls(self) -> Counter[str]:
        """Returns the number of calls of each function since the start, and of NCCL's groups."""
        found: Counter[str] = Counter()
        for library in self.counted.values():
            found += library.now()
        found["groups"] = found["ncclGroupEnd"]
        return found

    def start_torchs(self) -> None:
        """Starts torch.distributed, for comparisons."""
        if not torch.distributed.is_initialized():
            address = f"tcp://127.0.0.1:{self.port}"
            torch.distributed.init_process_group(BACKEND, address, rank=hvd.rank(), world_size=hvd.size())


def device_ms(work: Callable[[], Any], rounds: int) -> float:
    """Median time on the device of one call of work, which the host has queued before the device reaches it."""
    times = []
    for _ in range(rounds + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(SLEEP_CYCLES)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[3:])


def copy_bandwidth(setting: Setting) -> float:
    """Bytes a second of a device-to-device copy of 256 MiB, read and written counted once."""
    a = torch.empty((64 << 20) // (SMALLER if setting.small else 1), device=DEVICE)
    b = torch.empty_like(a)
    return a.numel() * 4 / device_ms(lambda: b.copy_(a), setting.rounds) * 1e3


def row_pack(setting: Setting) -> dict[str, Any]:
    """Gather and scatter for fusion, compared with copies of the same size.  On one rank NCCL moves nothing in place."""
    fused = [t for t in setting.gradients() if t.numel() * 4 < 8 << 20]
    size = sum(t.numel() * 4 for t in fused)
    copies = 2 * size / copy_bandwidth(setting) * 1e3
    ms = device_ms(lambda: hvd.grouped_allreduce_(fused, op=hvd.Sum, name="pack", **through_nccl()), setting.rounds)
    return {"tensors": len(fused), "bytes": size, "ms": ms, "copies_ms": copies, "of_copy_bandwidth": copies / ms}


def row_allreduce(setting: Setting) -> dict[str, Any]:
    """All gradients in one group, compared with the bare NCCL call (torch's) on one flat tensor, and two copies of it."""
    setting.start_torchs()
    gradients = setting.gradients()
    flat = torch.cat([t.flatten() for t in gradients])
    fused = device_ms(lambda: hvd.grouped_allreduce_(gradients, op=hvd.Sum, name="all", **through_nccl()), setting.rounds)
    bare = device_ms(lambda: torch.distributed.all_reduce(flat), setting.rounds)
    copies = 2 * flat.numel() * 4 / copy_bandwidth(setting) * 1e3
    return {"ms": fused, "bare_nccl_ms": bare, "copies_ms": copies, "ratio": fused / (bare + copies)}


def row_cpu(setting: Setting) -> dict[str, Any]:
    """Processor time, calls and groups of one step's exchange: as hooks, grouped and single, at once and paced."""
    import exchange_steps

    row: dict[str, Any] = {"tensors": exchange_steps.TENSORS}
    rounds = 2 if setting.small else setting.rounds
    for way in exchange_steps.WAYS:
        found = exchange_steps.costs(way, rounds, DEVICE, setting.calls, torch.cuda.synchronize, setting.small)
        name = way.replace("-", "_")
        row |= {f"{name}_{figure}": value for figure, value in found.items() if figure not in ("row", "kinds", "torch_us")}
        if way in ("hooks", "single"):
            row[f"{name}_kinds"] = found["kinds"]
    return row


def row_pieces(setting: Setting) -> dict[str, Any]:
    """Splits the caller's time for one gradient into its pieces."""
    from call_pieces import pieces

    return pieces(DEVICE, 3 if setting.small else setting.rounds, torch.cuda.synchronize)


def row_group(setting: Setting) -> dict[str, Any]:
    """The host's time for one NCCL group: ncclGroupEnd, until the operation is queued, and the processor's."""
    tensor = torch.ones(1000, device=DEVICE)
    queued, cpu, ends = [], [], []
    library = setting.counted.get("nccl")
    for at in range(-3, 5 if setting.small else 20):
        torch.cuda.synchronize()
        hvd.barrier()
        time.sleep(0.01)  # NCCL's own threads sleep by now
        end, begin, used = library.timed_us() if library else 0.0, time.perf_counter(), time.process_time()
        handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="group", **through_nccl())
        while not hvd.poll(handle):
            pass
        took, burnt = time.perf_counter() - begin, time.process_time() - used
        end = (library.timed_us() if library else 0.0) - end
        hvd.synchronize(handle)
        if at >= 0:
            queued.append(took * 1e6)
            cpu.append(burnt * 1e6)
            ends.append(end)
    names = ("queued_us", "cpu_us", "group_end_us")
    return {name: statistics.median(values) for name, values in zip(names, (queued, cpu, ends))}


def row_resnet50(setting: Setting) -> dict[str, Any]:
    from training_rows import training

    setting.start_torchs()
    return training("resnet50", DEVICE, setting.small)


def row_transformer(setting: Setting) -> dict[str, Any]:
    from training_rows import training

    setting.start_torchs()
    return training("transformer", DEVICE, setting.small)


def row_captured(setting: Setting) -> dict[str, Any]:
    from training_rows import captured

    if DEVICE == "cpu":
        raise RuntimeError("CUDA graphs need a GPU")
    setting.start_torchs()
    return captured(setting.small)


ROWS = {
    "pack": row_pack,
    "allreduce": row_allreduce,
    "cpu": row_cpu,
    "pieces": row_pieces,
    "group": row_group,
    "resnet50": row_resnet50,
    "transformer": row_transformer,
    "captured": row_captured,
}
WHERE_RANKS_SHARE = ("group",)  # there an operation waits milliseconds for its turn


def rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def counted_libraries() -> dict[str, Any]:
    """Puts counters between libhvd and the driver and NCCL.  Before hvd.init(); {}: not possible here."""
    import counted

    folder = Path(os.environ.get("COUNTED") or tempfile.mkdtemp(prefix="hvd-counted-"))
    if "COUNTED" not in os.environ:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        made = {library: folder / f"lib{library}_counted.so" for library in ("cuda", "nccl")}
        if not all(file.exists() for file in made.values()):
            made = counted.build(folder)
        found = {}
        for library, file in made.items():
            variable = f"HVD_{library.upper()}_LIBRARY"
            if variable in os.environ:
                os.environ[f"COUNTED_{library.upper()}"] = os.environ[variable]
            found[library] = counted.Counted(file)
            os.environ[variable] = str(file)
        return found
    except OSError as why:
        print(f"speed.py: calls are not counted: {why}", file=sys.stderr)
        return {}


def measure(rows: list[str], setting: Setting) -> list[str]:
    """Prints each row as soon as it is measured.  Returns the rows without figures."""
    gpu = torch.cuda.get_device_name()
    failed = []
    for row in rows:
        begin = time.monotonic()
        try:
            figures = ROWS[row](setting)
        except Exception as error:  # torch's NCCL may refuse what hvd's own can do: ranks that share a GPU
            failed.append(row)
            print(f"speed.py: rank {hvd.rank()}: {row}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            continue
        if hvd.rank() == 0:
            where = {"gpu": gpu, "ranks": hvd.size(), "nccl": hvd.nccl_built(), "seconds": time.monotonic() - begin}
            line = {"row": row, **figures, **where}
            print(json.dumps({name: rounded(value) for name, value in line.items()}), flush=True)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="little of everything: to see that this program runs")
    parser.add_argument("--port", type=int, default=29517, help="of torch.distributed, on this host")
    parser.add_argument("rows", nargs="*", help="all, if none is named")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("speed.py: torch sees no GPU")
    setting = Setting(given.rounds, given.small, given.port, counted_libraries())
    hvd.init()
    gpus = torch.cuda.device_count()
    torch.cuda.set_device(hvd.local_rank() % gpus)
    shared = hvd.local_size() > gpus
    failed = measure(given.rows or [row for row in ROWS if not shared or row in WHERE_RANKS_SHARE], setting)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    if failed:
        raise SystemExit(f"speed.py: without a figure: {', '.join(failed)}")


if __name__ == "__main__":
    main()
