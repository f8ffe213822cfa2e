"""alltoall and reducescatter in torch: results, splits, groups, gradients, wrong arguments."""

import numpy
import torch
from refusals import raises

import horovod.torch as hvd
import hvd.numpy as hvd_numpy

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
DTYPES = ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "bool"]


def between(sender, receiver):
    """The rows that one rank sends another."""
    return (2 * sender + receiver + 1) % 4


def sent(rank, dtype=torch.float32, columns=3):
    """The rows that a rank sends to all, and its splits."""
    rows = [torch.full((between(rank, to), columns), (10 * rank + to) % 120) for to in range(SIZE)]
    return torch.cat(rows).to(dtype), [between(rank, to) for to in range(SIZE)]


def expected(dtype=torch.float32, columns=3):
    return torch.cat([torch.full((between(r, RANK), columns), (10 * r + RANK) % 120) for r in range(SIZE)]).to(dtype)


def rows_of(total, rank=RANK):
    """The slice of a rank's part of a reducescatter."""
    first = total // SIZE * rank + min(rank, total % SIZE)
    return slice(first, first + total // SIZE + (rank < total % SIZE))


def check_alltoall_with_splits():
    for dtype in (getattr(torch, name) for name in DTYPES):
        for kind in (torch.int32, torch.int64):
            tensor, splits = sent(RANK, dtype)
            out, received = hvd.alltoall(tensor, torch.tensor(splits, dtype=kind), name=f"x.{dtype}")
            assert torch.equal(out, expected(dtype)) and out.dtype is dtype
            assert received.dtype is kind and received.tolist() == [between(r, RANK) for r in range(SIZE)]
    tensor, splits = sent(RANK)
    out, received = hvd.alltoall(tensor, splits)  # a list will do
    assert torch.equal(out, expected()) and received.dtype is torch.int32
    out, received = hvd.alltoall(tensor.t().contiguous().t(), splits)  # not contiguous
    assert torch.equal(out, expected())


def check_alltoall_in_equal_parts():
    out = hvd.alltoall(torch.arange(2 * SIZE) + 100 * RANK)
    assert torch.equal(out, torch.cat([torch.tensor([2 * RANK, 2 * RANK + 1]) + 100 * r for r in range(SIZE)]))
    out, received = hvd.synchronize(hvd.alltoall_async(torch.zeros(SIZE, 2)))
    assert out.shape == (SIZE, 2) and received.tolist() == [1] * SIZE
    assert hvd.alltoall(torch.zeros(0, 4)).shape == (0, 4)


def check_alltoall_of_wrong_splits():
    tensor = torch.zeros(4)
    raises(ValueError, lambda: hvd.alltoall(tensor, [4] + [1] * (SIZE - 1)), "splits")
    raises(ValueError, lambda: hvd.alltoall(tensor, [1] * (SIZE + 1)), "splits")
    raises(ValueError, lambda: hvd.alltoall(tensor, [5] + [-1] + [0] * (SIZE - 2)), "splits")
    raises(ValueError, lambda: hvd.alltoall(tensor, torch.tensor([2.0] * SIZE)), "integers")
    raises(ValueError, lambda: hvd.alltoall(torch.zeros(SIZE + 1)), "no multiple")
    raises(ValueError, lambda: hvd.alltoall(torch.tensor(1.0)), "scalar")
    raises(hvd.HorovodInternalError, lambda: hvd.alltoall(torch.zeros(SIZE, 1 + RANK % 2), name="odd"), "shape")
    assert hvd.alltoall(torch.zeros(SIZE), name="odd").shape == (SIZE,)


def check_alltoall_gradient():
    for given in (True, False):
        tensor, splits = sent(RANK) if given else (torch.ones(SIZE, 3), None)
        tensor = tensor.detach().requires_grad_()
        result = hvd.alltoall(tensor, splits, name=f"gradient.{given}")
        out = result[0] if given else result
        (out * (RANK + 1)).sum().backward()
        to = [r + 1 for r in range(SIZE) for _ in range(between(RANK, r) if given else 1)]
        assert torch.equal(tensor.grad, torch.tensor(to, dtype=torch.float32)[:, None].expand(-1, 3))


def check_reducescatter():
    for dtype in (getattr(torch, name) for name in DTYPES[:-1]):
        for rows in (0, 1, SIZE, 3 * SIZE + 1, 4001):
            whole = (torch.arange(rows * 2).reshape(rows, 2) % 5).to(dtype)
            out = hvd.reducescatter(whole + RANK, op=hvd.Sum, name=f"s.{dtype}.{rows}")
            total = whole.to(torch.float64) * SIZE + SIZE * (SIZE - 1) // 2
            assert torch.equal(out.to(torch.float64), total[rows_of(rows)]) and out.dtype is dtype
            out = hvd.reducescatter(whole + 2 * RANK, name=f"a.{dtype}.{rows}")  # Average
            assert torch.equal(out, (whole + SIZE - 1)[rows_of(rows)])
    out = hvd.reducescatter(torch.ones(2 * SIZE), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert torch.equal(out, torch.full((2,), 2.0 * SIZE))
    out = hvd.reducescatter(torch.ones(2 * SIZE), compression=hvd.Compression.fp16, op=hvd.Sum)
    assert torch.equal(out, torch.full((2,), float(SIZE)))
    raises(ValueError, lambda: hvd.reducescatter(torch.tensor(1.0)), "scalar")
    raises(ValueError, lambda: hvd.reducescatter(torch.ones(SIZE), op=hvd.Max), "Max")


def check_reducescatter_gradient():
    for op, factor in ((hvd.Sum, SIZE), (hvd.Average, 1)):
        tensor = torch.ones(2 * SIZE + 1, 3, requires_grad=True)
        out = hvd.reducescatter(tensor, op=op, prescale_factor=2.0, name=f"gradient.{op}")
        (out * (RANK + 1)).sum().backward()
        weights = torch.cat([torch.full((len(range(2 * SIZE + 1)[rows_of(2 * SIZE + 1, r)]),), r + 1.0) for r in range(SIZE)])
        assert torch.equal(tensor.grad, 2 * factor * weights[:, None].expand(-1, 3))
    tensors = [torch.ones(SIZE, k, requires_grad=True) for k in (1, 4)]
    outs = hvd.grouped_reducescatter(tensors, op=hvd.Average, name="group")
    sum(out.sum() for out in outs).backward()
    assert all(torch.equal(tensor.grad, torch.ones_like(tensor)) for tensor in tensors)


def check_groups():
    for _ in range(3):
        tensors = [torch.full((k * SIZE + 1, 2), float(RANK + k)) for k in range(4)]
        outs = hvd.grouped_reducescatter(tensors, op=hvd.Sum, name="rs")
        for k, out in enumerate(outs):
            assert torch.equal(out, torch.full_like(tensors[k], SIZE * k + SIZE * (SIZE - 1) / 2)[rows_of(k * SIZE + 1)])
        outs = hvd.grouped_allgather([torch.full((RANK + k,), k) for k in range(4)], name="ag")
        assert [len(out) for out in outs] == [sum(r + k for r in range(SIZE)) for k in range(4)]
    raises(ValueError, lambda: hvd.grouped_reducescatter([]), "at least one")


def check_many_at_once():
    for _ in range(5):
        gathers = [hvd.allgather_async(torch.full((RANK + i % 3, 4), i), name=f"many.{i}") for i in range(60)]
        moves = [hvd.alltoall_async(*sent(RANK), name=f"many.{i}") for i in range(20)]
        for i, handle in enumerate(gathers):
            assert torch.equal(hvd.synchronize(handle), torch.full((sum(r + i % 3 for r in range(SIZE)), 4), i))
        for handle in moves:
            assert torch.equal(hvd.synchronize(handle)[0], expected())


def check_numpy():
    tensor, splits = sent(RANK)
    out, received = hvd_numpy.alltoall(tensor.numpy(), numpy.array(splits, numpy.int64))
    assert numpy.array_equal(out, expected().numpy()) and received.dtype == numpy.int64
    out = hvd_numpy.reducescatter(numpy.arange(2.0 * SIZE), op=hvd_numpy.Sum)
    assert numpy.array_equal(out, numpy.array([2.0 * RANK, 2.0 * RANK + 1]) * SIZE)
    outs = hvd_numpy.grouped_reducescatter([numpy.ones(SIZE), numpy.ones((SIZE, 2), numpy.int32)])
    assert [out.shape for out in outs] == [(1,), (1, 2)]


def check_adasum():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        same = hvd.allreduce(torch.ones(33, dtype=dtype), op=hvd.Adasum, name=f"same.{dtype}")
        assert torch.equal(same, torch.ones(33, dtype=dtype))  # parallel gradients count once
        own = torch.zeros(SIZE, dtype=dtype)
        own[RANK] = 3
        assert torch.equal(hvd.allreduce(own, op=hvd.Adasum), torch.full((SIZE,), 3, dtype=dtype))  # orthogonal ones add up
    outs = hvd.grouped_allreduce([torch.ones(5), torch.full((2, 2), RANK + 1.0)], op=hvd.Adasum)
    assert torch.equal(outs[0], torch.ones(5)) and outs[1].shape == (2, 2)
    raises(ValueError, lambda: hvd.allreduce(torch.ones(2, dtype=torch.int32), op=hvd.Adasum), "Adasum")
