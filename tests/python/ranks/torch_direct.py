"""Ordinary gradients and calls go to the runtime in C; all others by Python, with the same results and errors."""

import gc
import signal
import sys
import weakref

import torch
from refusals import raises
from torch import nn
from torch_models import RANK, SIZE

import horovod.torch as hvd
from hvd import _native
from hvd.torch import ops

EXCHANGE = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
MEAN = sum(range(1, SIZE + 1)) / SIZE
DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64)


class Slow:
    """Has Python do everything while it is entered."""

    def __enter__(self):
        self.use(None)

    def __exit__(self, *_):
        self.use(EXCHANGE)

    @staticmethod
    def use(exchange):
        _native.use_tensors(exchange, torch.Tensor, nn.Parameter, torch.Tensor.is_neg, torch.strided)


def model_of(label, shapes=((4, 3), (5,), ()), **options):
    parameters = [nn.Parameter(torch.ones(shape)) for shape in shapes]
    named = [(f"{label}.{i}", p) for i, p in enumerate(parameters)]
    return parameters, hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.0), named, **options)


def backward(parameters, factor=RANK + 1.0):
    sum((p * factor).sum() for p in parameters).backward()


def ordinary(optimizer):
    return [entry.ordinary for entry in optimizer._hvd._ordered]


def check_ordinary_gradients():
    hvd.init()
    parameters, optimizer = model_of("ordinary")
    for step in range(4):
        optimizer.zero_grad()
        backward(parameters)
        assert ordinary(optimizer) == [step > 0 and EXCHANGE is not None] * 3, (step, ordinary(optimizer))
        optimizer.synchronize()
        assert not any(ordinary(optimizer))
        for p in parameters:
            torch.testing.assert_close(p.grad, torch.full_like(p, MEAN))


def check_gradients_that_python_submits():
    """Python submits unusual gradients one by one, and C still submits the ordinary gradients of the same step."""
    hvd.init()

    class Subclass(torch.Tensor):
        pass

    def lazily_negative(gradient):
        return torch._neg_view(-gradient)

    def transposed(gradient):
        return gradient.t().contiguous().t()

    def subclass(gradient):
        return gradient.as_subclass(Subclass)

    for change in (lazily_negative, transposed, subclass):
        parameters = [nn.Parameter(torch.ones(4, 3)) for _ in range(3)]

        def changes(parameter, change=change):
            parameter.grad = change(parameter.grad)

        parameters[1].register_post_accumulate_grad_hook(changes)  # called before the optimizer's
        named = [(f"{change.__name__}.{i}", p) for i, p in enumerate(parameters)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.0), named)
        for step in range(3):
            backward(parameters)
            in_c = step > 0 and EXCHANGE is not None
            assert ordinary(optimizer) == [in_c, False, in_c], (change, step, ordinary(optimizer))
            optimizer.synchronize()
            for p in parameters:
                torch.testing.assert_close(p.grad.as_subclass(torch.Tensor), torch.full_like(p, MEAN).detach())
            optimizer.zero_grad()


def check_options_that_python_submits():
    for options in ({"compression": hvd.Compression.fp16}, {"groups": 1}, {"backward_passes_per_step": 2}):
        parameters, optimizer = model_of("options" + next(iter(options)), **options)
        for step in range(3):
            for _ in range(options.get("backward_passes_per_step", 1)):
                backward(parameters)
            in_c = step > 0 and EXCHANGE is not None and "backward_passes_per_step" in options
            assert ordinary(optimizer) == [in_c] * 3, (options, step, ordinary(optimizer))
            optimizer.step()
            mean = MEAN * options.get("backward_passes_per_step", 1)
            for p in parameters:
                torch.testing.assert_close(p.grad, torch.full_like(p, mean))
            optimizer.zero_grad()


def check_both_ways_agree():
    """Ranks need not have the same torch."""
    parameters, optimizer = model_of("ways")
    for step in range(4):
        optimizer.zero_grad()
        if (RANK + step) % 2:
            with Slow():
                backward(parameters)
                hvd.allreduce_(torch.ones(2), name="way")
                hvd.allgather(torch.ones(2), name="way")
                hvd.reducescatter(torch.ones(SIZE), name="way", op=hvd.Sum)
        else:
            backward(parameters)
            hvd.allreduce_(torch.ones(2), name="way")
            hvd.allgather(torch.ones(2), name="way")
            hvd.reducescatter(torch.ones(SIZE), name="way", op=hvd.Sum)
        optimizer.step()
        for p in parameters:
            torch.testing.assert_close(p.grad, torch.full_like(p, MEAN))


def check_nothing_is_kept():
    """An optimizer is freed without the garbage collector, also one whose backward() has failed."""
    gc.collect()
    gc.disable()
    try:
        for fails in (False, True):
            parameters, optimizer = model_of(f"kept {fails}")
            for _ in range(2):
                backward(parameters)
                optimizer.step()
                optimizer.zero_grad()
            if fails:
                parameters[0].grad = torch.ones(4, 3)
                optimizer._hvd._outbox.ask_for_the_end = lambda backward: None
                optimizer._hvd.entries[id(parameters[0])].make_hooks()[1](parameters[0])
                assert optimizer._hvd._outbox.waiting == (1 if EXCHANGE is not None else 0)
            watched = [weakref.ref(thing) for thing in (optimizer._hvd, optimizer._hvd._outbox, *optimizer._hvd._ordered)]
            del optimizer
            left = [thing() for thing in watched if thing() is not None]
            assert not left, left
            backward(parameters)  # torch still has the hooks' dictionaries
            del parameters
    finally:
        gc.enable()


def check_references_are_given_back():
    tensor, name = torch.ones(3), "counted"
    parameters, optimizer = model_of("references")

    def some():
        for _ in range(20):
            hvd.allreduce_(tensor, name=name)
            hvd.grouped_allreduce_([tensor, torch.ones(2)], name=name)
            hvd.allgather(tensor, name=name)
            hvd.alltoall(torch.ones(SIZE), name=name)
            backward(parameters)
            optimizer.step()

    some()
    counted = (tensor, name, hvd.global_process_set, hvd.Sum, *parameters, *optimizer._hvd._ordered, None)
    before = [sys.getrefcount(thing) for thing in counted]
    some()
    after = [sys.getrefcount(thing) for thing in counted]
    assert max(b - a for a, b in zip(before[:-1], after)) <= 0 and after[-1] - before[-1] < 40, (before, after)


def check_results_of_calls():
    for dtype in DTYPES:
        for shape in ((2,), (2, 3), (4, 1, 2)):
            mine = torch.full(shape, RANK + 1, dtype=dtype)
            every = [torch.full(shape, r + 1, dtype=dtype) for r in range(SIZE)]
            gathered = hvd.allgather(mine, name="rows")
            assert gathered.dtype == dtype and torch.equal(gathered, torch.cat(every))
            gathered.add_(1)  # its memory is its own
            sent = torch.full((SIZE * shape[0], *shape[1:]), RANK + 1, dtype=dtype)
            assert torch.equal(hvd.alltoall(sent, name="all"), torch.cat(every))
            total = hvd.reducescatter(sent, name="parts", op=hvd.Sum)
            assert torch.equal(total, torch.full(shape, SIZE * (SIZE + 1) // 2, dtype=dtype))
            assert torch.equal(hvd.allreduce_(mine.clone(), op=hvd.Sum, name="sum"), total)
    assert hvd.allgather(torch.ones(0, 3), name="none").shape == (0, 3)
    assert torch.equal(hvd.allgather(torch.ones(2, 3).t(), name="columns"), torch.ones(3 * SIZE, 2))
    assert torch.equal(hvd.allgather(torch._neg_view(torch.ones(2)), name="opposite"), -torch.ones(2 * SIZE))
    assert torch.equal(hvd.allgather(torch.full((2,), 1j), name="pairs"), torch.full((2 * SIZE,), 1j))


def check_errors_of_calls():
    for wrong, error in (
        ({"op": 17}, ValueError),
        ({"op": hvd.Sum, "average": True}, ValueError),
        ({"name": 3}, TypeError),
        ({"name": "a\0b"}, ValueError),
        ({"prescale_factor": "2"}, TypeError),
        ({"process_set": 0}, TypeError),
        ({"process_set": hvd.ProcessSet([0])}, ValueError),
    ):
        raises(error, lambda wrong=wrong: hvd.allreduce_async_(torch.ones(2), **wrong))
        raises(error, lambda wrong=wrong: hvd.grouped_allreduce_async_([torch.ones(2)], **wrong))
    for wrong in (None, "tensor", [1.0], torch.ones(2).to_sparse()):
        raises((TypeError, ValueError), lambda wrong=wrong: hvd.allreduce_(wrong))
        raises((TypeError, ValueError), lambda wrong=wrong: hvd.allgather(wrong))
    for layout, wrong in (
        ("sparse_coo", torch.eye(2).to_sparse()),
        ("sparse_csr", torch.eye(2).to_sparse_csr()),
        ("_mkldnn", torch.ones(2, 2).to_mkldnn()),
    ):
        for call in (hvd.allreduce_async_, hvd.allreduce_, hvd.allgather, hvd.alltoall):
            raises(ValueError, lambda call=call, wrong=wrong: call(wrong), layout)
        raises(ValueError, lambda wrong=wrong: hvd.grouped_allreduce_async_([wrong]), layout)
    assert not ops.collectives._pending, ops.collectives._pending
    assert hvd.synchronize(12345) is None


def check_a_signal_ends_a_wait():
    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    for call in (hvd.allgather, hvd.allreduce_):
        if RANK > 0:
            hvd.barrier()
            call(torch.ones(2), name="interrupted")
        elif SIZE > 1:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            raises(Stop, lambda call=call: call(torch.ones(2), name="interrupted"))
            hvd.barrier()  # the operation is still in progress, and ends now
    signal.signal(signal.SIGALRM, before)
    assert torch.equal(hvd.allgather(torch.ones(1), name="after"), torch.ones(SIZE))


def check_a_new_world():
    """Requests that were prepared in the last one mean nothing in this."""
    parameters, optimizer = model_of("worlds")
    for _ in range(2):
        for _ in range(2):
            backward(parameters)
            optimizer.step()
            for p in parameters:
                torch.testing.assert_close(p.grad, torch.full_like(p, MEAN))
            optimizer.zero_grad()
        hvd.shutdown()
        hvd.init()
