"""The ranks' program of test_on_gpu.py on a real GPU: every operation against torch on the CPU, and training."""

import os
import sys
from typing import Callable

import torch

import hvd.torch as hvd
from hvd import _native

hvd.init()
torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
rank, size = hvd.rank(), hvd.size()


def data(r: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(r)
    return torch.randint(-8, 8, shape, generator=generator).to(dtype)


def same(got: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    assert got.is_cuda, what
    assert torch.allclose(got.cpu().double(), expected.double(), rtol=1e-2 if got.element_size() == 2 else 1e-5), what


def check_operations() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64, torch.int16):
        all_ranks = [data(r, 1000, 3, dtype=dtype) for r in range(size)]
        mine = all_ranks[rank].cuda()
        name = str(dtype)
        same(hvd.allreduce(mine, op=hvd.Sum, name=name), sum(all_ranks), f"allreduce {name}")
        same(hvd.broadcast(mine, size - 1, name=name), all_ranks[-1], f"broadcast {name}")
        same(hvd.allgather(mine[: 10 + rank], name=name), torch.cat([a[: 10 + r] for r, a in enumerate(all_ranks)]), name)
        scattered = hvd.reducescatter(mine, op=hvd.Sum, name=name)
        parts = torch.tensor_split(sum(all_ranks), size)
        same(scattered, parts[rank], f"reducescatter {name}")
        exchanged = hvd.alltoall(mine[: 4 * size], name=name)
        same(exchanged, torch.cat([a[4 * rank : 4 * rank + 4] for a in all_ranks]), f"alltoall {name}")


def check_8_bit_floats() -> None:
    """Sums use f32 and are rounded once, and too large ones are visible.  The drawn numbers exist in both formats."""
    for dtype, most in ((torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0)):
        name = str(dtype)
        all_ranks = [data(r, 1000, 3).to(dtype) for r in range(size)]
        mine = all_ranks[rank].cuda()
        total = sum(a.float() for a in all_ranks)
        assert isinstance(total, torch.Tensor)
        same(hvd.allreduce(mine, op=hvd.Sum, name=name).float(), total.to(dtype).float(), f"allreduce {name}")
        average = hvd.allreduce(mine, op=hvd.Average, name=f"{name} average").float()
        same(average, (total / size).to(dtype).float(), f"average {name}")
        parts = torch.tensor_split(total.to(dtype).float(), size)
        same(hvd.reducescatter(mine, op=hvd.Sum, name=name).float(), parts[rank], f"reducescatter {name}")
        same(hvd.broadcast(mine, size - 1, name=name).float(), all_ranks[-1].float(), f"broadcast {name}")
        gathered = hvd.allgather(mine[: 10 + rank], name=name).float()
        same(gathered, torch.cat([a[: 10 + r].float() for r, a in enumerate(all_ranks)]), f"allgather {name}")
        exchanged = hvd.alltoall(mine[: 4 * size], name=name).float()
        same(exchanged, torch.cat([a[4 * rank : 4 * rank + 4].float() for a in all_ranks]), f"alltoall {name}")
        if size > 1:
            large = hvd.allreduce(torch.full((5,), most, device="cuda").to(dtype), op=hvd.Sum, name=f"{name} large").float()
            assert not torch.isfinite(large).any(), large


def check_late_tensors_on_streams() -> None:
    """Inputs that are still being computed, results that are read at once, on a stream of our own: no synchronise anywhere."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(20):
            x = torch.ones(1 << 20, device="cuda")
            torch.cuda._sleep(2_000_000)
            x.mul_(rank + i)
            y = hvd.allreduce(x, op=hvd.Sum, name="late") + 1
            assert float(y[-1]) == sum(range(size)) + size * i + 1


def check_mixed_sizes_fuse() -> None:
    tensors = [torch.full((n,), float(rank + n), device="cuda") for n in (1, 7, 1000, 100_001, 3_000_000, 33)]
    for average in (False, True):
        outs = hvd.grouped_allreduce(tensors, op=hvd.Average if average else hvd.Sum, name=f"group{average}")
        for t, out in zip(tensors, outs):
            total = sum(r + t.numel() for r in range(size)) / (size if average else 1)
            assert torch.allclose(out, torch.full_like(out, total)), (t.numel(), average)


def check_memory_that_nccl_registers() -> None:
    mine = hvd.alloc(1000, 1000, device="cuda")
    with torch.cuda.use_mem_pool(hvd.mem_pool()):
        large = torch.empty(3_000_000, device="cuda")
    for step in range(3):
        for tensor in (mine, large):
            tensor.fill_(rank + step)
            hvd.allreduce_(tensor, op=hvd.Sum, name=f"registered {tensor.numel()}")
            assert torch.equal(tensor, torch.full_like(tensor, sum(r + step for r in range(size)))), (tensor.numel(), step)
            assert torch.equal(hvd.broadcast(tensor, size - 1), tensor)
    address = mine.data_ptr()
    mine.sum().item()
    del mine
    assert hvd.alloc(1000, 1000, device="cuda").data_ptr() == address


def check_memory_is_torchs() -> None:
    """If torch offers its allocator, its statistics count our buffers and results, and all memory of a result returns."""

    def held() -> int:
        torch.cuda.synchronize()
        hvd.allreduce(small, op=hvd.Sum, name="tidy")  # the next call returns memory that the device no longer uses
        torch.cuda.synchronize()
        return int(torch.cuda.memory_stats()["allocated_bytes.all.current"])

    small = torch.ones(4, device="cuda")
    rows = torch.ones(1 << 20, device="cuda")
    for _ in range(2):
        before = held()
        gathered = hvd.allgather(rows, name="rows of torch's")
        grown = held() - before
        del gathered
        again = held() - before
    if _native.use_memory("torch"):
        assert grown >= rows.nbytes * size, grown
    assert again < rows.nbytes, again


def check_groups_and_splits_as_in_horovod() -> None:
    """A group is on one side; received splits are on the side of the splits; a state without gradients can be broadcast."""
    mixed = [torch.ones(3), torch.ones(3, device="cuda")]
    try:
        hvd.grouped_allreduce(mixed, op=hvd.Sum, name="mixed")
    except ValueError as error:
        assert "on a GPU" in str(error), error
    else:
        raise AssertionError("a group of host and GPU tensors was taken")
    splits = torch.full((size,), rank + 1, dtype=torch.int32, device="cuda")
    _, received = hvd.alltoall(torch.ones(size * (rank + 1), device="cuda"), splits, name="splits")
    assert received.is_cuda and received.dtype == torch.int32
    assert received.tolist() == [r + 1 for r in range(size)]
    weight = torch.nn.Parameter(torch.ones(4, device="cuda"))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1, momentum=0.9), [("weight", weight)])
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert weight.grad is not None and hvd.broadcast(weight.grad, 0, name="no gradient").tolist() == [0] * 4
    optimizer.step()
    assert weight.tolist() == [1] * 4


def check_training_equals_one_process() -> None:
    def train(distributed: bool) -> torch.Tensor:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).cuda()
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        if distributed:
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        torch.manual_seed(2)
        for _ in range(20):
            batch = torch.randn(8 * size, 32).cuda()
            part = batch[rank * 8 : rank * 8 + 8] if distributed else batch
            optimizer.zero_grad()
            (model(part) - part.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()

    assert torch.allclose(train(False), train(True), atol=1e-4)


def check_gradients_of_several_streams() -> None:
    """Gradients are computed on several streams, and are complete late. One batch must wait for all of these streams."""
    weights = [torch.nn.Parameter(torch.ones(1 << 20, device="cuda")) for _ in range(6)]
    named = [(f"streams.{i}", weight) for i, weight in enumerate(weights)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=0.0), named)
    streams = [torch.cuda.Stream() for _ in range(2)]

    class Late(torch.autograd.Function):
        @staticmethod
        def forward(ctx, weight, number):  # type: ignore[no-untyped-def,override]
            ctx.number = number
            return weight[:1].clone()

        @staticmethod
        def backward(ctx, gradient):  # type: ignore[no-untyped-def,override]
            made = torch.zeros(1 << 20, device="cuda")
            torch.cuda._sleep(5_000_000)
            return made.add_(ctx.number), None

    for step in range(5):
        optimizer.zero_grad()
        parts = []
        for i, weight in enumerate(weights):
            with torch.cuda.stream(streams[i % 2]):
                parts.append(Late.apply(weight, float(rank + i + step)))
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)
        torch.cat(parts).sum().backward()
        optimizer.synchronize()
        for i, weight in enumerate(weights):
            mean = sum(range(size)) / size + i + step
            assert weight.grad is not None and bool((weight.grad == mean).all()), (step, i, float(weight.grad[-1]), mean)


def check_cuda_graph() -> None:
    """Forward and backward are one CUDA graph, and the exchange follows each launch. graphs_on_gpu.py has graphs with the
    exchange inside."""

    def model_of() -> torch.nn.Module:
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).cuda()

    def loss_of(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return (model(x) - x.sum(1, keepdim=True)).square().mean()

    def refused(call: Callable[[], object]) -> None:
        try:
            call()
        except ValueError as error:
            assert "captured into a CUDA graph" in str(error), error
        else:
            raise AssertionError("a capture took part in an operation")

    generator = torch.Generator().manual_seed(2)
    batches = [torch.randn(8 * size, 32, generator=generator).cuda() for _ in range(20)]
    alone, graphed = model_of(), model_of()
    x = batches[0][:8].clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            loss_of(graphed, x).backward()
    torch.cuda.current_stream().wait_stream(side)
    graphed.zero_grad(set_to_none=True)
    ones = torch.ones(1 << 20, device="cuda")
    under_way = hvd.allreduce_async(ones, op=hvd.Sum, name="under way")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss_of(graphed, x).backward()
        refused(lambda: hvd.synchronize(under_way))
    assert float(hvd.synchronize(under_way)[-1]) == size
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(graphed.parameters(), lr=0.05), graphed.named_parameters())
    plain = torch.optim.SGD(alone.parameters(), lr=0.05)
    for batch in batches:
        x.copy_(batch[rank * 8 : rank * 8 + 8])
        graph.replay()
        optimizer.step()
        plain.zero_grad()
        loss_of(alone, batch).backward()
        plain.step()
    for expected, got in zip(alone.parameters(), graphed.parameters()):
        assert torch.allclose(expected, got, atol=1e-4)


for name, check in list(globals().items()):
    if name.startswith("check_") and (len(sys.argv) < 2 or name in sys.argv[1:]):
        check()
        if rank == 0:
            os.write(1, f"PASSED {name}\n".encode())
