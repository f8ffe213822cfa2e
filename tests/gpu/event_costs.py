"""Nanoseconds of the driver's calls about events on a real GPU: what timed events cost more than untimed ones."""

import ctypes
import json
import time
from collections.abc import Callable

import torch

driver = ctypes.CDLL("libcuda.so.1")
torch.zeros(1, device="cuda")
stream = ctypes.c_void_p(torch.cuda.Stream().cuda_stream)
CALLS, ROUNDS = 2000, 7


def event(flags: int) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    assert driver.cuEventCreate(ctypes.byref(made), flags) == 0
    return made


def least_ns(call: Callable[[], int]) -> int:
    """Returns the least mean of several rounds, in ns; Python's own part, about 300 ns, is included."""
    means = []
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        means.append((time.perf_counter_ns() - begin) // CALLS)
        torch.cuda.synchronize()
    return min(means)


timed, before, untimed = event(0), event(0), event(2)
elapsed = ctypes.c_float()
costs = {
    "record untimed": least_ns(lambda: driver.cuEventRecord(untimed, stream)),
    "record timed": least_ns(lambda: driver.cuEventRecord(timed, stream)),
    "query untimed": least_ns(lambda: driver.cuEventQuery(untimed)),
    "query timed": least_ns(lambda: driver.cuEventQuery(timed)),
}
driver.cuEventRecord(before, stream)
driver.cuEventRecord(timed, stream)
torch.cuda.synchronize()
costs["elapsed"] = least_ns(lambda: driver.cuEventElapsedTime(ctypes.byref(elapsed), before, timed))
print(json.dumps(costs))
