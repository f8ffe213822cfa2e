"""The ranks' program of test_on_gpu.py for CUDA graphs: hvd inside of them, on a real GPU.

CAPTURE_MODE: torch's capture_error_mode (global).
"""

import faulthandler
import os
import sys
import traceback
from typing import Any, Callable

import torch

import hvd.torch as hvd

faulthandler.dump_traceback_later(85, exit=True)  # a hang tells its place
hvd.init()
torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
rank, size = hvd.rank(), hvd.size()


def captured(calls: Callable[[], Any]) -> Any:
    """Captures the calls into a CUDA graph. Returns the graph and the calls' result."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=os.environ.get("CAPTURE_MODE", "global")):
        result = calls()
    return graph, result


def data(r: int, step: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + r)
    return torch.randint(-8, 8, shape, generator=generator).float()


def check_operations() -> None:
    """Each operation in one graph, replayed with new inputs, against the results computed here."""
    a, b, c, d = (torch.zeros(n, device="cuda") for n in (1000, 7, 300_000, 77))
    half = torch.zeros(50, device="cuda", dtype=torch.bfloat16)
    rows = torch.zeros(5, 3, device="cuda")
    many = torch.zeros(2 * size + 1, 4, device="cuda")

    def calls() -> Any:
        hvd.allreduce_(a, op=hvd.Sum, name="a")
        hvd.grouped_allreduce_([b, c], op=hvd.Average, name="group")
        hvd.broadcast_(d, size - 1, name="d")
        average = hvd.allreduce(half, op=hvd.Average, name="half")
        scaled = hvd.allreduce(b, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0, name="scaled")
        handle = hvd.allreduce_async_(half, op=hvd.Sum, name="half_")
        hvd.synchronize(handle)
        return average, scaled, hvd.allgather(rows, name="rows"), hvd.reducescatter(many, op=hvd.Sum, name="many")

    graph, (average, scaled, gathered, scattered) = captured(calls)
    for step in range(4):
        inputs = [[data(r, step, *t.shape) for t in (a, b, c, d, half, rows, many)] for r in range(size)]
        for tensor, value in zip((a, b, c, d, half, rows, many), inputs[rank]):
            tensor.copy_(value)
        graph.replay()
        total = [sum(each[at] for each in inputs) for at in range(7)]
        mean_b = total[1] / size
        expected = {
            "allreduce_": (a, total[0]),
            "group 0": (b, mean_b),
            "group 1": (c, total[2] / size),
            "broadcast_": (d, inputs[-1][3]),
            "average": (average, total[4] / size),
            "scaled": (scaled, 2 * size * mean_b),
            "async": (half, total[4]),
            "allgather": (gathered, torch.cat([each[5] for each in inputs])),
            "reducescatter": (scattered, torch.tensor_split(total[6], size)[rank]),
        }
        for what, (got, want) in expected.items():
            error = (got.cpu().float() - want).abs().max().item()
            assert error < (0.2 if got.dtype == torch.bfloat16 else 1e-3), (what, step, error)
        plain = hvd.allreduce(torch.ones(5, device="cuda"), op=hvd.Sum, name="beside")  # beside graphs, not in one
        assert plain.tolist() == [size] * 5


def check_differences_are_refused() -> None:
    x, y = torch.ones(10, device="cuda"), torch.ones(20, device="cuda")
    if size > 1:
        for calls, text in (
            (lambda: hvd.allreduce_(x if rank else y, name="x"), "[20]"),
            (lambda: hvd.allreduce_(x, name="p" if rank else "q"), "'allreduce.q'"),
        ):
            try:
                captured(calls)
            except Exception as error:
                assert "records" in str(error) and text in str(error), repr(error)
            else:
                raise AssertionError("ranks recorded different calls")
            torch.cuda.synchronize()
    under_way = hvd.allreduce_async(x, op=hvd.Sum, name="outside")

    def refused() -> None:
        for call in (lambda: hvd.synchronize(under_way), lambda: hvd.allreduce_(x.short(), op=hvd.Sum, name="short")):
            try:
                call()
            except ValueError as error:
                assert "captur" in str(error), error
            else:
                raise AssertionError("not refused")

    captured(refused)
    assert hvd.synchronize(under_way).tolist() == [size] * 10


def model_of(seed: int = 1) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).cuda()


def loss_of(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


def batches(number: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(8 * size, 32, generator=generator).cuda() for _ in range(number)]


def trained(model: torch.nn.Module, all_batches: list[torch.Tensor]) -> list[torch.Tensor]:
    """One process's parameters after a step on each whole batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch in all_batches:
        optimizer.zero_grad()
        loss_of(model, batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def mine(batch: torch.Tensor) -> torch.Tensor:
    return batch[rank * 8 : rank * 8 + 8]


def on_side_stream(work: Callable[[], Any]) -> None:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)


def check_whole_step() -> None:
    """Forward, backward with hooks, and optimizer.step() are one graph."""
    os.environ["HOROVOD_ELASTIC"] = "1"  # one rank exchanges too
    all_batches, model = batches(15), model_of()
    optimizer: Any = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model.named_parameters()
    )
    del os.environ["HOROVOD_ELASTIC"]
    x = mine(all_batches[0]).clone()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, x).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def warm_up() -> None:
        for batch in all_batches[:3]:
            x.copy_(mine(batch))
            step()

    on_side_stream(warm_up)
    graph, _ = captured(step)
    for batch in all_batches[3:]:
        x.copy_(mine(batch))
        graph.replay()
    for expected, got in zip(trained(model_of(), all_batches), model.parameters()):
        assert torch.allclose(expected, got, atol=1e-4), (expected - got).abs().max()


def start_c10d() -> None:
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("hvd", init_method="hvd://")


def check_graphed_callables_with_ddp() -> None:
    start_c10d()
    all_batches, plain = batches(12), model_of()
    graphed = torch.cuda.make_graphed_callables(plain, (mine(all_batches[0]).clone(),))
    model = torch.nn.parallel.DistributedDataParallel(graphed, device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch in all_batches:
        optimizer.zero_grad()
        loss_of(model, mine(batch)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    for expected, got in zip(trained(model_of(), all_batches), model.parameters()):
        assert torch.allclose(expected, got, atol=1e-4), (expected - got).abs().max()


def check_ddp_in_a_graph() -> None:
    """DDP's whole step is a graph."""
    start_c10d()
    all_batches = batches(20)
    state: dict[str, Any] = {}
    x = mine(all_batches[0]).clone()

    def step() -> None:
        state["optimizer"].zero_grad(set_to_none=True)
        loss_of(state["model"], x).backward()  # type: ignore[no-untyped-call]
        state["optimizer"].step()

    def warm_up() -> None:
        state["model"] = torch.nn.parallel.DistributedDataParallel(model_of(), device_ids=[torch.cuda.current_device()])
        state["optimizer"] = torch.optim.SGD(state["model"].parameters(), lr=0.05, momentum=0.9)
        for batch in all_batches[:12]:
            x.copy_(mine(batch))
            step()

    on_side_stream(warm_up)
    graph, _ = captured(step)
    for batch in all_batches[12:]:
        x.copy_(mine(batch))
        graph.replay()
    for expected, got in zip(trained(model_of(), all_batches), state["model"].parameters()):
        assert torch.allclose(expected, got, atol=1e-4), (expected - got).abs().max()


def check_c10d() -> None:
    import torch.distributed as dist

    start_c10d()
    x, y = torch.zeros(6, device="cuda"), torch.zeros(2 * size, device="cuda")
    all_x, part = torch.zeros(6 * size, device="cuda"), torch.zeros(2, device="cuda")

    def calls() -> None:
        dist.all_gather_into_tensor(all_x, x)
        dist.reduce_scatter_tensor(part, y)
        dist.all_reduce(y, op=dist.ReduceOp.AVG)
        dist.broadcast(x, size - 1)

    graph, _ = captured(calls)
    for step in range(3):
        xs, ys = [data(r, step, 6) for r in range(size)], [data(r, step + 50, 2 * size) for r in range(size)]
        x.copy_(xs[rank])
        y.copy_(ys[rank])
        graph.replay()
        assert torch.equal(all_x.cpu(), torch.cat(xs)), "all_gather_into_tensor"
        assert torch.equal(part.cpu(), sum(ys)[2 * rank : 2 * rank + 2]), "reduce_scatter_tensor"
        assert torch.allclose(y.cpu(), sum(ys) / size), "all_reduce"
        assert torch.equal(x.cpu(), xs[-1]), "broadcast"


def check_compiled_with_reduced_overhead() -> None:
    """torch.compile captures functional collectives itself."""
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    start_c10d()
    world = dist.group.WORLD

    @torch.compile(mode="reduce-overhead")
    def f(x: torch.Tensor) -> torch.Tensor:
        total = functional.all_reduce(x * 2, "sum", world)
        return functional.all_gather_tensor(total + 1, 0, world)

    for step in range(6):
        torch.compiler.cudagraph_mark_step_begin()
        xs = [data(r, step, 4) for r in range(size)]
        got = f(xs[rank].cuda()).cpu()
        assert torch.allclose(got, (2 * sum(xs) + 1).repeat(size)), (step, got)


failed = 0
for name, check in list(globals().items()):
    if name.startswith("check_") and (len(sys.argv) < 2 or name in sys.argv[1:]):
        try:
            check()
            torch.cuda.synchronize()
        except BaseException:  # the next check runs too, unless CUDA is unusable
            failed += 1
            sys.stderr.write(f"FAILED {name} on rank {rank}\n{traceback.format_exc()}\n")
            sys.stderr.flush()
            continue
        if rank == 0:
            os.write(1, f"PASSED {name}\n".encode())
sys.exit(1 if failed else 0)
