"""hvd inside of CUDA graphs, over the fake GPU (fake_gpu.py).

torch works on the host, so a graph here has the work of hvd alone.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

import torch
import torch.distributed as dist

import hvd.torch as hvd
from hvd.torch import _adapter, ops

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
fake: Any = type(ops.collectives._adapter)
driver, exchange = fake.driver, fake.exchange
exchange.fake_exchange_stream.argtypes = [ctypes.c_void_p]
for function in (driver.cuGraphLaunch, driver.cuStreamSynchronize, driver.cuStreamBeginCapture_v2):
    function.argtypes = [ctypes.c_void_p] * (2 if function is driver.cuGraphLaunch else 1)
driver.cuStreamBeginCapture_v2.argtypes = [ctypes.c_void_p, ctypes.c_int]
driver.cuStreamEndCapture.argtypes = [ctypes.c_void_p, ctypes.c_void_p]


def new_stream() -> int:
    context, stream = ctypes.c_void_p(), ctypes.c_void_p()
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), hvd.local_rank())
    driver.cuCtxPushCurrent_v2(context)
    assert driver.cuStreamCreateWithPriority(ctypes.byref(stream), 1, 0) == 0
    driver.cuCtxPopCurrent_v2(ctypes.byref(context))
    return stream.value or 0


STREAM = new_stream()


@contextmanager
def on_stream(capturing: bool) -> Iterator[None]:
    was = staticmethod(_adapter.TorchAdapter.is_capturing)
    fake.stream = STREAM
    exchange.fake_exchange_stream(STREAM)
    _adapter.TorchAdapter.is_capturing = staticmethod(lambda: capturing)  # type: ignore[method-assign]
    try:
        yield
    finally:
        fake.stream = 0
        exchange.fake_exchange_stream(None)
        _adapter.TorchAdapter.is_capturing = was  # type: ignore[method-assign]


class Graph:
    """Captures calls into a CUDA graph. result: the value that the calls returned."""

    def __init__(self, calls: Callable[[], Any]) -> None:
        self.graph = ctypes.c_void_p()
        driver.cuStreamSynchronize(STREAM)
        with on_stream(True):
            assert driver.cuStreamBeginCapture_v2(STREAM, 0) == 0
            try:
                self.result = calls()
            finally:
                self.code = driver.cuStreamEndCapture(STREAM, ctypes.byref(self.graph))
        assert self.code == 0, self.code

    def replay(self) -> None:
        assert driver.cuGraphLaunch(self.graph, STREAM) == 0
        driver.cuStreamSynchronize(STREAM)

    def __del__(self) -> None:
        driver.cuGraphDestroy(self.graph)


def skipped() -> bool:
    """Returns whether tensors go through host memory, because such operations cannot be captured."""
    return os.environ.get("HOROVOD_GPU_OPERATIONS") == "MPI"


def check_replays_exchange_new_data() -> None:
    if skipped():
        return
    a, b, c, d, rows, many = (torch.zeros(*n) for n in ((10,), (7,), (300,), (5,), (2, 3), (2 * SIZE + 1, 4)))

    def calls() -> Any:
        hvd.allreduce_(a, op=hvd.Sum, name="a")
        hvd.grouped_allreduce_([b, c], op=hvd.Average, name="group")
        hvd.broadcast_(d, SIZE - 1, name="d")
        handle = hvd.allreduce_async(b, op=hvd.Sum, name="async")
        return (
            hvd.synchronize(handle),
            hvd.allgather(rows, name="rows"),
            hvd.reducescatter(many, op=hvd.Sum, name="many"),
            hvd.grouped_allgather([a, b], name="both"),
        )

    graph = Graph(calls)
    doubled, gathered, scattered, both = graph.result
    for step in range(3):
        for place, tensor in enumerate((a, b, c, d, rows, many)):
            tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape) + 10 * RANK + step + place)
        graph.replay()
        mean = sum(range(SIZE)) * 10 / SIZE + step
        assert torch.allclose(a, SIZE * (torch.arange(10) + mean)), a
        assert torch.allclose(b, torch.arange(7) + mean + 1), b
        assert torch.allclose(c, torch.arange(300) + mean + 2)
        assert torch.allclose(d, torch.arange(5.0) + 10 * (SIZE - 1) + step + 3), (step, d)
        assert torch.allclose(doubled, SIZE * b)
        each = [torch.arange(6.0).view(2, 3) + 10 * r + step + 4 for r in range(SIZE)]
        assert torch.equal(gathered, torch.cat(each))
        whole = SIZE * (torch.arange(many.numel()).view(many.shape) + mean + 5)
        assert torch.allclose(scattered, torch.tensor_split(whole, SIZE)[RANK])
        assert torch.allclose(both[0], a.repeat(SIZE)) and torch.allclose(both[1], b.repeat(SIZE))


def check_differences_and_waits_are_refused() -> None:
    outside = hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="outside")
    texts = []

    def calls() -> None:
        tensors = torch.ones(4 + RANK), torch.ones(4, dtype=torch.int16)
        for call in (
            lambda: hvd.allreduce_(tensors[0], op=hvd.Sum, name="x"),
            lambda: hvd.allreduce_(tensors[1], op=hvd.Sum, name="short"),
            lambda: hvd.alltoall(torch.ones(2 * SIZE), name="to all"),
            lambda: hvd.synchronize(outside),
        ):
            try:
                call()
            except (ValueError, RuntimeError) as error:
                texts.append(str(error))

    Graph(calls)
    assert len(texts) == 4, texts
    if not skipped():
        assert "rank 0 records allreduce 'allreduce.x' of float32 [4], but rank 1 records" in texts[0], texts
        assert "int16 goes through host memory" in texts[1], texts
    else:
        assert "go through host memory" in texts[0], texts
    assert all("captured into a CUDA graph" in text for text in texts[2:]), texts
    assert hvd.synchronize(outside).tolist() == [SIZE] * 3


def check_an_optimizers_step() -> None:
    """A capture of backward() includes the exchanges of its hooks. Each replay averages the current gradients."""
    if skipped():
        return
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model.named_parameters())
    data = torch.ones(2, 4) * (RANK + 1)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(data).sum().backward()
        optimizer.step()

    for _ in range(2):
        with on_stream(False):
            step()
    graph = Graph(step)
    gradients: list[Any] = [p.grad for p in model.parameters()]
    for step_number in range(3):
        for place, gradient in enumerate(gradients):
            gradient.fill_(RANK + place + step_number)
        graph.replay()
        for place, gradient in enumerate(gradients):
            assert torch.allclose(gradient, torch.full_like(gradient, (SIZE - 1) / 2 + place + step_number))
    step()  # an eager step still works after the capture


def check_c10d() -> None:
    if skipped():
        return
    if not dist.is_initialized():
        name = hvd.broadcast_object(tempfile.mkdtemp() if RANK == 0 else None, 0)
        dist.init_process_group("hvd", init_method=f"file://{name}/store", rank=RANK, world_size=SIZE)
    y, z, part, swapped = torch.zeros(2 * SIZE), torch.zeros(4), torch.zeros(2), torch.zeros(2 * SIZE)
    all_x = torch.zeros(3 * SIZE)
    x = all_x[3 * RANK : 3 * RANK + 3]  # in place: a copy by torch would not be in the graph
    works = []

    def calls() -> None:
        dist.all_gather_into_tensor(all_x, x)
        dist.reduce_scatter_tensor(part, y)
        dist.all_to_all_single(swapped, y)
        works.append(dist.all_reduce(y, async_op=True))
        works[0].wait()
        dist.broadcast(z, SIZE - 1)

    graph = Graph(calls)
    assert works[0].is_completed() and works[0].get_future().wait()[0] is y
    for step in range(3):
        x.fill_(RANK + step)
        y.copy_(torch.arange(2.0 * SIZE) + RANK)
        z.fill_(RANK * step)
        graph.replay()
        assert torch.equal(all_x, torch.arange(SIZE).repeat_interleave(3) + float(step))
        total = SIZE * torch.arange(2.0 * SIZE) + sum(range(SIZE))
        assert torch.equal(part, total[2 * RANK : 2 * RANK + 2]) and torch.equal(y, total)
        assert torch.equal(swapped, torch.cat([torch.arange(2.0) + 2 * RANK + r for r in range(SIZE)]))
        assert torch.equal(z, torch.full((4,), float((SIZE - 1) * step)))
