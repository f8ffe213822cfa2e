"""Splits the host time of a gradient into pieces, in microseconds: the row "pieces" of speed.py.

Each piece is measured in a loop, with warm caches, and in steps that begin after a pause of 3 ms, as exchange_steps.costs()
does. The figures are processor time of the caller's thread and of autograd's threads.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from typing import Any, Callable

import torch
from exchange_steps import Pace, backward_of, optimizer_of, through_nccl
from gradients import Processor, engine_thread, resnet50_shapes

import hvd.torch as hvd
from hvd.torch.ops import collectives

TENSORS = 161
CAPSULE = b"dlpack_exchange_api"
VIEW, STREAM = 40, 48  # offsets of two functions in DLPackExchangeAPI


def _loop_us(call: Callable[[], Any], times: int = 2000) -> float:
    """The least of ten loops, for one call."""
    best = float("inf")
    for _ in range(10):
        begin = time.thread_time()
        for _ in range(times // 10):
            call()
        best = min(best, (time.thread_time() - begin) / (times // 10))
    return best * 1e6


def _of_torch(device: str) -> dict[str, Any]:
    """Torch's part: what _native asks about one tensor."""
    tensor = torch.ones(4, device=device)
    nothing = _loop_us(lambda: None)
    found: dict[str, Any] = {"is_neg_us": _loop_us(tensor.is_neg)}
    parameters = [torch.nn.Parameter(torch.ones(4, device=device)) for _ in range(TENSORS)]
    fresh = []
    for _ in range(10):
        for parameter in parameters:
            parameter.grad = None
        torch.stack([p.sum() for p in parameters]).sum().backward()  # type: ignore[no-untyped-call]
        begin = time.thread_time()
        kept = [p.grad for p in parameters]
        fresh.append((time.thread_time() - begin) / TENSORS * 1e6)
        del kept
    found["new_grad_us"] = min(fresh)
    found["grad_us"] = _loop_us(lambda: parameters[0].grad) - nothing
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    found["c_reads_tensors"] = bool(capsule is not None and collectives._direct)
    if capsule is None:
        return found
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = pointer_of(capsule, CAPSULE) or 0
    view = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(ctypes.c_void_p.from_address(table + VIEW).value)
    out = ctypes.create_string_buffer(256)
    address = ctypes.addressof(out)
    host = torch.ones(4)
    found["view_with_ctypes_us"] = _loop_us(lambda: view(tensor, address))
    found["view_of_host_with_ctypes_us"] = _loop_us(lambda: view(host, address))
    if device != "cpu":
        raw = ctypes.c_void_p.from_address(table + STREAM).value
        stream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)(raw)
        found["stream_with_ctypes_us"] = _loop_us(lambda: stream(2, 0, address))
        found["raw_stream_us"] = _loop_us(lambda: torch._C._cuda_getCurrentRawStream(0)) - nothing
    return found


def _parts(parts: list[Callable[[], Any]], pause_s: float, rounds: int, idle: Callable[[], None]) -> list[tuple[float, float]]:
    """Median and least processor time of each part, one after the other."""
    engine = engine_thread()
    found: list[list[float]] = [[] for _ in parts]
    for _ in range(rounds + 5):
        idle()
        time.sleep(pause_s)
        for part, times in zip(parts, found):
            begin = Processor.begin(engine)
            part()
            times.append(Processor.end(engine).since(begin).caller)
    return [(statistics.median(times[5:]), min(times[5:])) for times in found]


def _grouped(device: str) -> list[Callable[[], Any]]:
    tensors = [torch.zeros(shape, device=device) for shape in resnet50_shapes()]
    handles: list[Any] = []

    def submit() -> None:
        handles.append(hvd.grouped_allreduce_async_(tensors, op=hvd.Sum, name=f"pieces.{device}", **through_nccl()))

    return [submit, lambda: hvd.synchronize(handles.pop())]


def _hooked(device: str, exchanges: bool) -> list[Callable[[], Any]]:
    """Forward with backward, and the step."""
    parameters = [torch.nn.Parameter(torch.zeros(shape, device=device)) for shape in resnet50_shapes()]
    optimizer: Any = torch.optim.SGD(parameters, lr=0.0)
    if exchanges:
        optimizer = optimizer_of(optimizer, [(f"piece.{i}", p) for i, p in enumerate(parameters)])
    optimizer.step = optimizer.synchronize if exchanges else lambda: None

    def clear() -> None:
        for parameter in parameters:
            parameter.grad = None

    return [backward_of(parameters, device, Pace(False)), optimizer.step, clear]


def pieces(device: str, rounds: int, idle: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """The row."""
    row = _of_torch(device)
    for pause, label in ((0.0, "warm"), (0.003, "paused")):
        for where in dict.fromkeys((device, "cpu")):
            for name, (median, least) in zip(("submit", "wait"), _parts(_grouped(where), pause, rounds, idle)):
                row[f"grouped_{where}_{label}_{name}_us"] = (round(median, 1), round(least, 1))
        alone = _parts(_hooked(device, False), pause, rounds, idle)
        ours = _parts(_hooked(device, True), pause, rounds, idle)
        for name, a, b in zip(("backward", "step", "clear"), alone, ours):
            row[f"hooks_{label}_{name}_us"] = (round(b[0] - a[0], 1), round(b[1] - a[1], 1))
    return row
