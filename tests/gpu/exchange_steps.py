"""One step's exchange of ResNet-50's gradients, in three ways, and its cost on the host.

For costs_on_fakes.py and speed.py: in a rank, after hvd.init().
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from typing import Any, Callable

import torch
from gradients import Processor, engine_thread, resnet50_shapes

import hvd.torch as hvd

WAYS = ("hooks", "grouped", "single", "hooks-paced", "single-paced")
PACE_US = 100.0  # of a real backward pass: a gradient each
TENSORS = 161
Shapes = list[tuple[int, ...]]


class Pace:
    """Waits until the next gradient is due.  The processor time of this wait is not counted."""

    def __init__(self, paced: bool) -> None:
        self.paced = paced
        self.begin()

    def begin(self) -> None:
        self.due, self.waited_us = time.perf_counter(), 0.0

    def wait(self) -> None:
        if not self.paced:
            return
        begin = time.thread_time()
        self.due += PACE_US * 1e-6
        while time.perf_counter() < self.due:
            pass
        self.waited_us += (time.thread_time() - begin) * 1e6


class NoUpdate(torch.optim.Optimizer):
    """An optimizer with an empty step(), which adds nothing to the measured time."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        pass


# The runtime skips fusion buffer and NCCL for a sum over one rank, except with scale factors. The factors 0.5 and 2 cancel
# exactly.
HALF, DOUBLE = 0.5, 2.0
THROUGH_NCCL: dict[str, Any] = {"prescale_factor": HALF, "postscale_factor": DOUBLE}


def through_nccl() -> dict[str, Any]:
    """Arguments with which an allreduce uses the buffer and NCCL on a single rank too."""
    return THROUGH_NCCL if hvd.size() == 1 else {}


def optimizer_of(optimizer: torch.optim.Optimizer, named: Any, **settings: Any) -> Any:
    """A DistributedOptimizer that exchanges on a single rank too, through the buffer and NCCL."""
    if hvd.size() == 1:
        settings.setdefault("gradient_predivide_factor", DOUBLE)
    os.environ["HOROVOD_ELASTIC"] = "1"  # other ranks may join; otherwise one rank alone exchanges nothing
    try:
        return hvd.DistributedOptimizer(optimizer, named, **settings)
    finally:
        del os.environ["HOROVOD_ELASTIC"]


def step_of(way: str, pace: Pace, device: str, shapes: Shapes, exchanges: bool = True) -> Callable[[], None]:
    """One step's exchange, as in a training script."""
    if way.startswith("hooks"):
        return _step_of_hooks(pace, device, shapes, exchanges)
    gradients = [torch.empty(shape, device=device) for shape in shapes]
    if device != "cpu":
        for gradient in gradients:
            gradient.zero_()

    def grouped() -> None:
        hvd.grouped_allreduce_(gradients, op=hvd.Sum, name="all", **through_nccl())

    def single() -> None:
        handles = []
        for i, gradient in enumerate(gradients):
            pace.wait()
            handles.append(hvd.allreduce_async_(gradient, op=hvd.Sum, name=f"gradient.{i}", **through_nccl()))
        for handle in handles:
            hvd.synchronize(handle)

    return grouped if way == "grouped" else single


def backward_of(parameters: list[torch.nn.Parameter], device: str, pace: Pace) -> Callable[[], None]:
    """A backward pass that makes a gradient for each parameter, at this pace.  No code writes to the gradients."""

    class Layer(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, parameter: Any) -> Any:  # type: ignore[override]
            ctx.shape = parameter.shape
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
            pace.wait()
            return grad, torch.empty(ctx.shape, device=device)

    def backward() -> None:
        x = torch.zeros(1, device=device, requires_grad=True)
        for parameter in parameters:
            x = Layer.apply(x, parameter)
        x.backward(torch.ones(1, device=device))  # type: ignore[no-untyped-call]

    return backward


def _step_of_hooks(pace: Pace, device: str, shapes: Shapes, exchanges: bool) -> Callable[[], None]:
    parameters = [torch.nn.Parameter(torch.empty(shape, device=device)) for shape in shapes]
    optimizer: Any = NoUpdate(parameters)
    if exchanges:
        optimizer = optimizer_of(optimizer, [(f"p.{i}", p) for i, p in enumerate(parameters)])

    backward = backward_of(parameters, device, pace)

    def step() -> None:
        optimizer.zero_grad()
        backward()
        optimizer.step()

    return step


def costs(
    way: str,
    rounds: int,
    device: str,
    counted: Callable[[], Counter[str]],
    idle: Callable[[], None] = lambda: None,
    small: bool = False,
) -> dict[str, Any]:
    """Medians of the rounds: groups, calls, wake-ups, and processor time without torch's own part of a step.

    counted: returns the number of calls of each function since the start, and of "groups". idle: waits until the device is
    idle. small: tiny gradients, for tests of this code.
    """
    shapes: Shapes = [(1,)] * TENSORS if small else resnet50_shapes()
    torchs = 0.0
    if way.startswith("hooks"):
        alone = _rounds(step_of(way, Pace(False), device, shapes, exchanges=False), Pace(False), rounds, counted, idle)
        torchs = statistics.median(cost.caller for cost, _ in alone)
    pace = Pace(way.endswith("-paced"))
    found = _rounds(step_of(way, pace, device, shapes), pace, rounds, counted, idle)

    def median(of: Callable[[Processor, Counter[str]], float]) -> float:
        return round(statistics.median(of(cost, called) for cost, called in found), 1)

    def calls(called: Counter[str], start: str) -> int:
        return sum(n for name, n in called.items() if name.startswith(start))

    drivers = median(lambda cost, called: calls(called, "cu"))
    kinds: Counter[str] = sum((called for _, called in found), Counter())
    return {
        "row": way,
        "groups": median(lambda cost, called: called["groups"]),
        "driver_calls": drivers,
        "driver_calls_per_tensor": round(drivers / TENSORS, 2),
        "nccl_calls": median(lambda cost, called: calls(called, "nccl")),
        "wake_ups": median(lambda cost, called: cost.sleeps),
        "caller_us": median(lambda cost, called: max(0.0, cost.caller - torchs)),
        "engine_us": median(lambda cost, called: cost.engine),
        "others_us": median(lambda cost, called: cost.others),
        "all_us": median(lambda cost, called: max(0.0, cost.caller - torchs) + cost.engine + cost.others),
        "torch_us": round(torchs, 1),
        "kinds": {name: round(n / rounds, 1) for name, n in sorted(kinds.items()) if name != "groups"},
    }


def _rounds(
    step: Callable[[], None], pace: Pace, rounds: int, counted: Callable[[], Counter[str]], idle: Callable[[], None]
) -> list[tuple[Processor, Counter[str]]]:
    engine = engine_thread()
    found = []
    for at in range(-5, rounds):
        idle()
        time.sleep(0.003)  # the engine's thread goes to sleep, as it does while a step's tensors are computed
        calls, begin = counted(), Processor.begin(engine)
        pace.begin()
        step()
        time.sleep(0.002)  # remaining work of other threads for this step
        cost = Processor.end(engine).since(begin)
        cost.caller -= pace.waited_us
        cost.total -= pace.waited_us
        called = counted()
        called.subtract(calls)
        if at >= 0:
            found.append((cost, called))
    return found
