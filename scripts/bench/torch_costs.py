"""Measures hvd.torch's own costs: python scripts/bench/torch_costs.py (the package importable, an idle machine).

import   milliseconds that `import hvd.torch` adds to `import torch`; the least of several processes
call     microseconds of allreduce_async_ and synchronize of a small tensor in a world of one, from handle to handle
hooks    microseconds of processor time that the optimizer's hooks add to a gradient, on rank 0 of two, for 1 000 of 1 KB
empty    the same for two hooks that do nothing
recorder microseconds of processor time of the recorder in a step of 12 ms: its calls for a batch, and the record
watched  percent that a training step of 16.8 M parameters takes longer with the recorder, which feeds the report, and
         percent that this step, and 1 000 tensors of 400 B, take longer with the timeline.  Two ranks take turns with and
         without: the median of the pairs, and their quartiles
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

IMPORT = """
import time, torch
start = time.perf_counter()
import hvd.torch
print((time.perf_counter() - start) * 1e3)
"""
TENSORS = 1000


def cost_of_import() -> float:
    """Each import runs in a process of its own; the first writes the byte code."""
    runs = [subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True) for _ in range(6)]
    return min(float(run.stdout) for run in runs)


def cost_of_a_call() -> None:
    """Measures in a world of one."""
    import torch

    import hvd.torch as hvd

    hvd.init()
    tensor = torch.ones(16)
    times = []
    for _ in range(30):
        start = time.perf_counter()
        for _ in range(200):
            hvd.synchronize(hvd.allreduce_async_(tensor, name="t"))
        times.append((time.perf_counter() - start) / 200 * 1e6)
    print(f"call     {min(times):.1f} us (median {statistics.median(times):.1f}, target 15)", flush=True)


def backward_of(parameters: Sequence[Any]) -> Callable[[], None]:
    """A backward pass that makes an uninitialised gradient for each parameter, and does nothing else."""
    import torch

    class Layer(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, parameter: Any) -> Any:  # type: ignore[override]
            ctx.shape = parameter.shape
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
            return grad, torch.empty(ctx.shape)

    def backward() -> None:
        x = torch.zeros(1, requires_grad=True)
        for parameter in parameters:
            x = Layer.apply(x, parameter)
        begin = time.thread_time()
        x.backward(torch.ones(1))  # type: ignore[no-untyped-call]
        taken.append(time.thread_time() - begin)

    taken: list[float] = []
    backward.taken = taken  # type: ignore[attr-defined]
    return backward


def cost_of_hooks() -> None:
    """On each of two ranks: what hooks add to a backward pass, beside two empty functions."""
    import torch

    import hvd.torch as hvd

    hvd.init()
    passes: dict[str, Any] = {}
    for kind in ("none", "empty", "ours"):
        parameters = [torch.nn.Parameter(torch.ones(256)) for _ in range(TENSORS)]
        optimizer: Any = torch.optim.SGD(parameters, lr=0.0)
        if kind == "ours":
            optimizer = hvd.DistributedOptimizer(optimizer, [(f"layer{i}.weight", p) for i, p in enumerate(parameters)])
        for parameter in parameters if kind == "empty" else ():
            hooked: Any = parameter
            hooked.register_hook(lambda gradient: None)
            hooked.register_post_accumulate_grad_hook(lambda parameter: None)
        passes[kind] = backward_of(parameters), optimizer
    for _ in range(40):
        for backward, optimizer in passes.values():
            optimizer.zero_grad()
            hvd.barrier()
            backward()
            optimizer.step()
    if hvd.rank() == 0:
        taken = {kind: backward.taken[5:] for kind, (backward, _) in passes.items()}
        for kind, title, target in (("empty", "empty", ""), ("ours", "hooks", ", target 1.5")):
            least, median = ((of(taken[kind]) - of(taken["none"])) / TENSORS * 1e6 for of in (min, statistics.median))
            print(f"{title:8} {least:.2f} us a gradient (median {median:.2f}{target})", flush=True)


def training() -> Callable[[], object]:
    """A step of 16.8 M parameters."""
    import torch

    import hvd.torch as hvd

    torch.manual_seed(1)
    model = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(2048, 2048), torch.nn.ReLU())])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    batch = torch.randn(16, 2048)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()

    return step


def small_tensors() -> Callable[[], object]:
    """1 000 tensors of 400 B, awaited together."""
    import torch

    import hvd.torch as hvd

    tensors = [torch.ones(100) for _ in range(TENSORS)]

    def step() -> None:
        for handle in [hvd.allreduce_async_(t, op=hvd.Sum, name=f"small.{i}") for i, t in enumerate(tensors)]:
            hvd.synchronize(handle)

    return step


def seconds_a_step(make: Callable[[], Callable[[], object]], recorder: str, timeline: str, steps: int) -> float:
    """The median, in a new world."""
    import hvd.torch as hvd

    os.environ["HVD_RECORDER_FD"] = recorder
    hvd.init()
    step = make()
    for _ in range(3):
        step()
    if timeline:
        hvd.start_timeline(timeline)
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    if timeline:
        hvd.stop_timeline()
    hvd.shutdown()
    return statistics.median(times)


def cost_of_a_record(recorder: str) -> float:
    """The median, in seconds; of the calls alone if there is no recorder."""
    import hvd.torch as hvd
    from hvd import _native

    os.environ["HVD_RECORDER_FD"] = recorder
    hvd.init()
    times = []
    for _ in range(100):
        start = time.thread_time()
        _native.part_begin(_native.PART_INPUT)
        _native.part_end(_native.PART_INPUT)
        _native.step_end()
        times.append(time.thread_time() - start)
        time.sleep(0.012)
    hvd.shutdown()
    return statistics.median(times)


def cost_of_watching() -> None:
    """Measures on each of two ranks, under hvdrun."""
    import torch

    torch.set_num_threads(1)
    recorder, rank = os.environ["HVD_RECORDER_FD"], os.environ["HOROVOD_RANK"]
    record = (cost_of_a_record(recorder) - cost_of_a_record("-1")) * 1e6
    if rank == "0":
        print(f"recorder {record:.1f} us (target 60, 0.5 % of a step of 12 ms)", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/t{rank}.pftrace"
        for name, make, steps, without, with_it, target in (
            ("recorder, of a step", training, 8, ("-1", ""), (recorder, ""), 0.5),
            ("timeline, of a step", training, 8, (recorder, ""), (recorder, file), 0.5),
            ("timeline, 1000 x 400 B", small_tensors, 20, (recorder, ""), (recorder, file), 2.0),
        ):
            more = []
            for _ in range(8):
                first = seconds_a_step(make, *without, steps)
                middle = seconds_a_step(make, *with_it, steps)
                last = seconds_a_step(make, *without, steps)
                more.append(100 * (2 * middle / (first + last) - 1))
            low, median, high = statistics.quantiles(more, n=4)
            if rank == "0":
                print(f"watched  {name:22} {median:+.2f} % ({low:+.2f} to {high:+.2f}, target {target})", flush=True)


def main() -> None:
    """Runs all measurements, or in a child process the one that its arguments name."""
    if sys.argv[1:] == ["call"]:
        cost_of_a_call()
    elif sys.argv[1:] == ["hooks"]:
        cost_of_hooks()
    elif sys.argv[1:] == ["watching"]:
        cost_of_watching()
    elif sys.argv[1:] == ["watched"]:
        hvdrun = os.path.join(os.path.dirname(sys.executable), "hvdrun")
        subprocess.run([hvdrun, "-np", "2", "--no-report", sys.executable, __file__, "watching"], check=True)
    else:
        print(f"import   {cost_of_import():.1f} ms (target 30)", flush=True)
        subprocess.run([sys.executable, __file__, "call"], check=True)
        mpirun = shutil.which("mpirun")
        if mpirun is None:
            sys.exit("hooks    mpirun is not installed")
        start = [mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2"]
        subprocess.run([*start, sys.executable, __file__, "hooks"], check=True)
        subprocess.run([sys.executable, __file__, "watched"], check=True)


if __name__ == "__main__":
    main()
