"""The parts of hvd.torch that are specific to torch: dtypes, layouts, compression, gradients, sparse tensors, names."""

import copy
import pickle
from unittest import SkipTest

import torch
from refusals import raises

import horovod.torch as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
torch.manual_seed(7)
DTYPES = ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
DTYPES += ["uint16"] if hasattr(torch, "uint16") else []


def data(dtype=torch.float32, shape=(3, 5), rank=None):
    rank = RANK if rank is None else rank
    count = int(torch.Size(shape).numel())
    return ((torch.arange(count) * (rank + 2) + rank) % 7 + 1).reshape(shape).to(dtype)


def everyone(dtype=torch.float32, shape=(3, 5)):
    return torch.stack([data(torch.float64, shape, rank) for rank in range(SIZE)])


def same(got, expected):
    torch.testing.assert_close(got.to(torch.float64), expected.to(torch.float64), rtol=1e-2, atol=1e-6)


def check_every_dtype():
    for name in DTYPES:
        dtype = getattr(torch, name)
        out = hvd.allreduce(data(dtype), op=hvd.Sum)
        assert out.dtype is dtype and out.shape == (3, 5)
        same(out, everyone().sum(0))
        average = everyone().mean(0)
        same(hvd.allreduce(data(dtype)), average if dtype.is_floating_point else average.trunc())
        same(hvd.allgather(data(dtype)), everyone().reshape(-1, 5))
        same(hvd.broadcast(data(dtype), 1), data(torch.float64, rank=1))
        for op, expected in ((hvd.Min, everyone().amin(0)), (hvd.Max, everyone().amax(0)), (hvd.Product, everyone().prod(0))):
            wrapped = expected if dtype.is_floating_point else expected.to(torch.int64).to(dtype)
            same(hvd.allreduce(data(dtype), op=op), wrapped)
    flags = torch.tensor([True, False, RANK == 0])
    assert hvd.allreduce(flags, op=hvd.Max).tolist() == [True, False, True]
    assert hvd.allgather(flags).tolist() == [flag for rank in range(SIZE) for flag in (True, False, rank == 0)]
    assert hvd.broadcast(flags, 0).tolist() == [True, False, True]


def check_8_bit_floats():
    for name in ("float8_e4m3fn", "float8_e5m2"):
        dtype = getattr(torch, name, None)
        if dtype is None:
            raise SkipTest(f"this torch has no {name}")

        def exactly(out, expected, dtype=dtype):
            assert out.dtype is dtype and torch.equal(out.float(), expected.to(dtype).float()), (out, expected)

        parts, mine = everyone().float(), data(dtype)
        exactly(hvd.allreduce(mine, op=hvd.Sum), parts.sum(0))  # in f32, and rounded once
        exactly(hvd.allreduce(mine), parts.sum(0) / SIZE)
        exactly(hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.3, postscale_factor=2), (parts * 0.3).sum(0) * 2)
        exactly(hvd.allreduce(mine, op=hvd.Min), parts.amin(0))
        exactly(hvd.allreduce(mine, op=hvd.Max), parts.amax(0))
        exactly(hvd.allreduce(mine, op=hvd.Product), parts.prod(0))
        both = hvd.grouped_allreduce([mine, data(torch.float32)], op=hvd.Sum)
        exactly(both[0], parts.sum(0))
        same(both[1], everyone().sum(0))
        rows = everyone(shape=(2 * SIZE, 3)).float().sum(0)
        exactly(hvd.reducescatter(data(dtype, (2 * SIZE, 3)), op=hvd.Sum), rows[2 * RANK : 2 * RANK + 2])
        exactly(hvd.allgather(mine), parts.reshape(-1, 5))
        exactly(hvd.broadcast(mine, 1), parts[1])
        most = torch.full((3,), torch.finfo(dtype).max).to(dtype)
        exactly(hvd.allreduce(most), most.float())
        assert not hvd.allreduce(most, op=hvd.Sum).float().isfinite().any()  # it does not saturate
        assert not hvd.allreduce_(most, op=hvd.Sum).float().isfinite().any()
        assert not most.float().isfinite().any()


def check_layouts():
    for make in (lambda t: t.t(), lambda t: t[::2, 1:], lambda t: t[:, :1].expand(-1, 3)):
        out = hvd.allreduce(make(data()), op=hvd.Sum)
        same(out, make(everyone().sum(0)))
        assert out.is_contiguous()
    for make in (lambda t: t.t(), lambda t: t[::2, 1:]):
        base = data()
        view = make(base)
        assert hvd.allreduce_(view, op=hvd.Sum) is view
        same(view, make(everyone().sum(0)))
    images = data(shape=(2, 3, 4, 4)).to(memory_format=torch.channels_last)
    same(hvd.allreduce(images, op=hvd.Sum), everyone(shape=(2, 3, 4, 4)).sum(0))
    same(hvd.broadcast(data().t(), 0), data(rank=0).t())
    view = data().t()
    same(hvd.broadcast_(view, 0), data(rank=0).t())
    same(hvd.allgather(data().t()), torch.cat([data(rank=r).t() for r in range(SIZE)]))


def check_forms():
    expected = everyone().sum(0)
    tensor = data()
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    same(tensor, expected)
    tensor = data()
    handle = hvd.allreduce_async_(tensor, op=hvd.Sum)
    assert isinstance(handle, int) and hvd.synchronize(handle) is tensor
    same(tensor, expected)
    handle = hvd.allreduce_async(data(), op=hvd.Sum)
    same(hvd.synchronize(handle), expected)
    same(hvd.allreduce(data(), False), expected)
    same(hvd.allreduce(data(), True), everyone().mean(0))
    tensors = [data(), data(shape=(4,))]
    sums = [expected, everyone(shape=(4,)).sum(0)]
    for outs in (
        hvd.grouped_allreduce(tensors, op=hvd.Sum, name="g"),
        hvd.synchronize(hvd.grouped_allreduce_async(tensors, op=hvd.Sum, name="g")),
        hvd.grouped_allreduce_([t.clone() for t in tensors], op=hvd.Sum, name="g"),
        hvd.synchronize(hvd.grouped_allreduce_async_([t.clone() for t in tensors], op=hvd.Sum, name="g")),
        hvd.grouped_allreduce(tuple(tensors), op=hvd.Sum),
    ):
        assert len(outs) == 2
        for out, total in zip(outs, sums):
            same(out, total)
    polled = []
    for _ in range(10):
        handle = hvd.grouped_allreduce_async(tensors)
        polled.append(hvd.poll(handle))
        hvd.synchronize(handle)
        handle = hvd.broadcast_async_(tensor, 0)
        polled.append(hvd.poll(handle))
        assert hvd.synchronize(handle) is tensor
    assert False in polled, polled


def check_parameters_stay_parameters():
    parameter = torch.nn.Parameter(data())
    assert hvd.allreduce_(parameter, op=hvd.Sum) is parameter
    assert parameter.requires_grad and parameter.is_leaf
    hvd.broadcast_(parameter, 0)
    same(parameter.detach(), everyone().sum(0))


def check_compression():
    for compression, dtype in ((hvd.Compression.fp16, torch.float16), (hvd.Compression.bf16, torch.bfloat16)):
        small, context = compression.compress(data())
        assert small.dtype is dtype and compression.decompress(small, context).dtype is torch.float32
        out = hvd.allreduce(data(), op=hvd.Sum, compression=compression)
        assert out.dtype is torch.float32
        same(out, everyone().sum(0))
        integers = data(torch.int64)
        assert compression.compress(integers)[0] is integers
        outs = hvd.grouped_allreduce([data(), integers], op=hvd.Sum, compression=compression)
        same(outs[0], everyone().sum(0))
        same(outs[1], everyone().sum(0))


def leaf(tensor):
    return tensor.detach().clone().requires_grad_(True)


def check_gradient_of_allreduce():
    weights = torch.arange(15.0).reshape(3, 5) + RANK
    all_weights = torch.stack([torch.arange(15.0).reshape(3, 5) + rank for rank in range(SIZE)])
    for op, expected in ((hvd.Sum, all_weights.sum(0)), (hvd.Average, all_weights.mean(0))):
        x = leaf(data())
        out = hvd.allreduce(x, op=op, name="grad", prescale_factor=2.0, postscale_factor=0.25)
        assert out.requires_grad
        (out * weights).sum().backward()
        same(x.grad, expected * 0.5)
        xs = [leaf(data()), leaf(data(shape=(4,)))]
        outs = hvd.grouped_allreduce(xs, op=op, name="grads")
        ((outs[0] * weights).sum() + outs[1].sum() * 3).backward()
        same(xs[0].grad, expected)
        same(xs[1].grad, torch.full((4,), 3.0 * (SIZE if op == hvd.Sum else 1)))
    with torch.no_grad():
        assert not hvd.allreduce(leaf(data())).requires_grad


def reference_gradient(reduce, weights):
    """The gradient that one process with all ranks' tensors gets, for the sum of all ranks' losses."""
    everything = everyone().requires_grad_(True)
    (reduce(everything) * weights).sum().backward()
    return everything.grad[RANK]


def check_gradient_of_min_max_product():
    weights = sum(torch.arange(15.0).reshape(3, 5) + rank for rank in range(SIZE))
    mine = torch.arange(15.0).reshape(3, 5) + RANK
    cases = (
        (hvd.Min, lambda t: t.amin(0)),
        (hvd.Max, lambda t: t.amax(0)),
        (hvd.Product, lambda t: t.prod(0)),
    )
    for op, reduce in cases:
        x = leaf(data())
        (hvd.allreduce(x, op=op, name="extreme") * mine).sum().backward()
        same(x.grad, reference_gradient(reduce, weights))
        x = leaf(data())
        (hvd.grouped_allreduce([x], op=op)[0] * mine).sum().backward()
        same(x.grad, reference_gradient(reduce, weights))
    x = leaf(torch.tensor([0.0, 2.0, 0.0]) if RANK == 0 else torch.tensor([3.0, 0.0, 0.0]))
    hvd.allreduce(x, op=hvd.Product).sum().backward()
    if SIZE == 2:
        same(x.grad, torch.tensor([3.0, 0.0, 0.0]) * SIZE if RANK == 0 else torch.tensor([0.0, 2.0, 0.0]) * SIZE)


def check_gradient_of_allgather():
    for name in (None, "gather"):
        x = leaf(data(shape=(RANK + 1, 2)))
        out = hvd.allgather(x, name=name)
        scale = torch.arange(float(out.shape[0]))[:, None]
        (out * scale * (RANK + 1)).sum().backward()
        first = RANK * (RANK + 1) // 2
        mean = sum(range(1, SIZE + 1)) / SIZE
        same(x.grad, torch.arange(first, first + RANK + 1)[:, None].expand(-1, 2) * mean)
    xs = [leaf(data(shape=(RANK + 1, 2))), leaf(data(shape=(2,)))]
    first, second = hvd.grouped_allgather(xs, name="gathers")
    (first.sum() * (RANK + 1) + second.sum()).backward()
    same(xs[0].grad, torch.full((RANK + 1, 2), sum(range(1, SIZE + 1)) / SIZE))
    same(xs[1].grad, torch.ones(2))


def check_gradient_of_broadcast():
    x = leaf(data())
    (hvd.broadcast(x, 1) * (RANK + 1)).sum().backward()
    same(x.grad, torch.full((3, 5), sum(range(1, SIZE + 1)) / SIZE if RANK == 1 else 0.0))


def check_sparse():
    indices = torch.tensor([[0, 2 + RANK, 0]])
    values = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]) * (RANK + 1)
    sparse = torch.sparse_coo_tensor(indices, values, (6, 2))
    total = torch.zeros(6, 2)
    for rank in range(SIZE):
        total.index_add_(0, torch.tensor([0, 2 + rank, 0]), torch.tensor([[1.0] * 2, [2.0] * 2, [3.0] * 2]) * (rank + 1))
    out = hvd.sparse_allreduce_async(sparse, name="sparse", op=hvd.Sum)()
    assert out.is_sparse
    same(out.to_dense(), total)
    same(hvd.synchronize(hvd.sparse_allreduce_async(sparse, name="sparse", op=hvd.Average)).to_dense(), total / SIZE)
    raises(ValueError, lambda: hvd.allreduce(sparse), "sparse")
    raises(ValueError, lambda: hvd.sparse_allreduce_async(sparse, name="s", op=hvd.Max))


def check_broadcast_parameters():
    torch.manual_seed(RANK)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    torch.manual_seed(0)
    other = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    model[1].num_batches_tracked += RANK
    for params in (model.state_dict(), model.named_parameters(), list(model.named_parameters()), model.parameters()):
        hvd.broadcast_parameters(params, root_rank=0)
        for mine, expected in zip(model.state_dict().values(), other.state_dict().values()):
            assert torch.equal(mine, expected)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += RANK
    hvd.broadcast_parameters({}, root_rank=0)
    raises(ValueError, lambda: hvd.broadcast_parameters(3, root_rank=0))
    raises(ValueError, lambda: hvd.broadcast_parameters(torch.nn.Linear(2, 1), root_rank=0), "give model.state_dict()")
    raises(ValueError, lambda: hvd.broadcast_parameters(torch.nn.Sequential(torch.nn.ReLU()), root_rank=0), "state_dict()")
    raises(ValueError, lambda: hvd.broadcast_parameters({"a": 3}, root_rank=0), "'a'")


def check_objects():
    assert hvd.broadcast_object({"lr": 0.1 + RANK, "t": torch.ones(2)}, 0)["lr"] == 0.1
    assert [len(each) for each in hvd.allgather_object([RANK] * RANK)] == list(range(SIZE))


def check_wrong_arguments():
    raises(TypeError, lambda: hvd.allreduce_([1.0]), "torch.Tensor")
    raises(TypeError, lambda: hvd.allreduce_async(None), "torch.Tensor")
    raises(ValueError, lambda: hvd.allreduce(torch.zeros(2), average=True, op=hvd.Sum))
    raises(ValueError, lambda: hvd.broadcast_(torch.zeros(2), SIZE + 3))
    raises(ValueError, lambda: hvd.allreduce_(torch.zeros(2, device="meta")), "meta")
    raises(ValueError, lambda: hvd.add_process_set(list(range(SIZE))), "process set")
    raises(ValueError, lambda: hvd.allreduce(torch.zeros(2), process_set=hvd.ProcessSet([0])), "process set")
    hvd.barrier()


def check_queries():
    assert hvd.mpi_enabled() and hvd.mpi_built()
    assert hvd.gloo_built() is False and hvd.gloo_enabled() is False
    assert isinstance(hvd.nccl_built(), int)
    assert not hvd.ddl_built() and not hvd.ccl_built() and not hvd.rocm_built()
    assert hvd.mpi_threads_supported() in (True, False)
    assert hvd.global_process_set.size() == SIZE and hvd.global_process_set.rank() == RANK
    assert hvd.global_process_set.included() is True
    assert pickle.loads(pickle.dumps(hvd.global_process_set)) is hvd.global_process_set
    assert copy.deepcopy(hvd.global_process_set) is hvd.global_process_set


def check_names():
    import horovod
    import horovod.common.exceptions
    import horovod.common.util
    import horovod.runner
    import horovod.torch.compression
    import horovod.torch.functions
    import horovod.torch.mpi_ops
    import horovod.torch.optimizer
    import hvd as package

    assert horovod.run is horovod.runner.run is package.run
    assert horovod.common.exceptions.HorovodInternalError is hvd.HorovodInternalError is package.HorovodInternalError
    assert horovod.torch.mpi_ops.allreduce is hvd.allreduce
    assert issubclass(hvd.HorovodInternalError, RuntimeError)
    assert (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product) == (0, 1, 2, 3, 4, 5)


def check_the_gradient_of_an_extremum_of_negative_multiples():
    for op, holder in ((hvd.Min, SIZE - 1), (hvd.Max, 0)):
        x = torch.tensor([RANK + 1.0], requires_grad=True)
        least = hvd.allreduce(x, op=op, prescale_factor=-2)
        least.sum().backward()
        assert (least.item(), x.grad.item()) == (-2.0 * (holder + 1), -2.0 * SIZE * (holder == RANK)), (least, x.grad)


def check_two_factors_of_zero():
    zeros = {"prescale_factor": 0.0, "postscale_factor": 0.0}
    x = leaf(data())
    outs = [hvd.allreduce(x, **zeros), hvd.allreduce_(data(), **zeros), *hvd.grouped_allreduce_([data(), data()], **zeros)]
    outs.append(hvd.reducescatter(data(), op=hvd.Sum, **zeros))
    outs[0].sum().backward()
    for out in [*outs, x.grad]:
        same(out, torch.zeros_like(out))


def check_forked_child():
    """A forked child (a DataLoader's worker) may ask for the rank; an operation is an error there, not a hang."""
    import os

    hvd.barrier()
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            hvd.allreduce(torch.zeros(1))
            text = "no error"
        except ValueError as error:
            text = f"{hvd.rank()} {hvd.is_initialized()} {error}"
        os.write(into, text.encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    assert text.startswith(f"{RANK} True ") and "fork" in text, text
    same(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(SIZE)))


def check_last_of_all_init_again():
    hvd.shutdown()
    raises(ValueError, lambda: hvd.allreduce_(torch.zeros(1)))
    raises(ValueError, hvd.rank)
    hvd.init()
    same(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(SIZE)))
