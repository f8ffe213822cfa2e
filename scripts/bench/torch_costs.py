"""What hvd.torch itself costs, beside the work: python scripts/bench/torch_costs.py (the package importable, an idle machine).

import   milliseconds that `import hvd.torch` adds to `import torch`; the least of several processes
call     microseconds of allreduce_async_ and synchronize of a small tensor in a world of one, from handle to handle
hooks    milliseconds of processor time that submitting 1 000 gradients takes, on rank 0 of two, by the optimizer's hooks
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from functools import partial

IMPORT = """
import time, torch
start = time.perf_counter()
import hvd.torch
print((time.perf_counter() - start) * 1e3)
"""
TENSORS = 1000


def cost_of_import() -> float:
    """In a process of its own each time; the first writes the byte code."""
    runs = [subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True) for _ in range(6)]
    return min(float(run.stdout) for run in runs)


def cost_of_a_call() -> None:
    """In a world of one."""
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


def cost_of_hooks() -> None:
    """On each of two ranks."""
    import torch

    import hvd.torch as hvd

    hvd.init()
    parameters = [torch.nn.Parameter(torch.ones(16, 16)) for _ in range(TENSORS)]
    optimizer = torch.optim.SGD(parameters, lr=0.0)
    optimizer = hvd.DistributedOptimizer(optimizer, [(f"layer{i}.weight", p) for i, p in enumerate(parameters)])
    for parameter in parameters:
        parameter.grad = torch.ones(16, 16)
    hooks = [partial(optimizer._hvd._ready, entry) for entry in optimizer._hvd.entries.values()]
    times = []
    for _ in range(30):
        hvd.barrier()
        start = time.thread_time()
        for hook in hooks:
            hook()
        times.append((time.thread_time() - start) * 1e3)
        optimizer.synchronize()
    if hvd.rank() == 0:
        print(
            f"hooks    {min(times):.2f} ms for {TENSORS} gradients (median {statistics.median(times):.2f}, target 5)",
            flush=True,
        )


def main() -> None:
    """All three, or the one that a child was started for."""
    if sys.argv[1:] == ["call"]:
        cost_of_a_call()
    elif sys.argv[1:] == ["hooks"]:
        cost_of_hooks()
    else:
        print(f"import   {cost_of_import():.1f} ms (target 30)", flush=True)
        subprocess.run([sys.executable, __file__, "call"], check=True)
        mpirun = shutil.which("mpirun")
        if mpirun is None:
            sys.exit("hooks    mpirun is not installed")
        start = [mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2"]
        subprocess.run([*start, sys.executable, __file__, "hooks"], check=True)


if __name__ == "__main__":
    main()
