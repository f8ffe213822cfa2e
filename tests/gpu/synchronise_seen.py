"""Prints, as JSON, the host's waits for the GPU during exchanges of gradients, from CUPTI by torch's profiler.

{"control": n, "exchange": {"Stream Sync": 2}}: control is a region with a wait of our own, which CUPTI must report.
"""

import collections
import json
import tempfile
from pathlib import Path
from typing import Any, Callable

import torch
from host_waits import waits
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

import hvd.torch as hvd

ROUNDS = 10


def waits_in(work: Callable[[], Any]) -> collections.Counter[str]:
    config = _ExperimentalConfig(enable_cuda_sync_events=True)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, experimental_config=config) as seen:
        work()
    with tempfile.TemporaryDirectory() as folder:  # leaving the profiler waits for the GPU, after the end of the trace
        seen.export_chrome_trace(f"{folder}/trace.json")
        events = json.loads(Path(folder, "trace.json").read_text())["traceEvents"]
    return waits(events)


def main() -> None:
    hvd.init()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    tensors = [torch.ones(1 << n, device="cuda") for n in range(4, 20)]

    def exchange() -> None:
        for _ in range(ROUNDS):
            hvd.grouped_allreduce_(tensors, op=hvd.Sum, name="group")
            handles = [hvd.allreduce_async_(t, op=hvd.Sum, name=f"tensor.{i}") for i, t in enumerate(tensors)]
            for handle in handles:
                hvd.synchronize(handle)

    exchange()  # NCCL's start and the first memory may wait
    idle = waits_in(lambda: None)  # the profiler's own waits
    control = waits_in(torch.cuda.synchronize) - idle
    print(json.dumps({"control": sum(control.values()), "exchange": waits_in(exchange) - idle}), flush=True)


if __name__ == "__main__":
    main()
