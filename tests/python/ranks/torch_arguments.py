"""Unusual tensors and arguments: the right result, or an error that names the fault."""

import torch
from refusals import raises
from torch import nn
from torch_models import RANK, SIZE, batches, make_model, train

import horovod.torch as hvd


def check_lazy_zeros_and_negatives():
    """Operations must resolve lazy tensors: their memory holds other values (negation), or does not exist (zeros)."""
    for call in (
        lambda t: hvd.allreduce(t, op=hvd.Max),
        lambda t: hvd.synchronize(hvd.allreduce_async(t, op=hvd.Max)),
        lambda t: hvd.grouped_allreduce([t], op=hvd.Max)[0],
        lambda t: hvd.broadcast(t, 0),
        lambda t: hvd.allgather(t)[:3],
    ):
        negative = torch._neg_view(torch.full((3,), 1.0))
        assert negative.is_neg() and call(negative).tolist() == [-1.0] * 3
        assert call(torch._efficientzerotensor(3)).tolist() == [0.0] * 3
    for in_place in (hvd.allreduce_, lambda t, **op: hvd.synchronize(hvd.allreduce_async_(t, **op))):
        memory = torch.full((3,), float(RANK))
        in_place(torch._neg_view(memory), op=hvd.Max)
        assert memory.tolist() == [0.0] * 3, memory  # the largest of 0, -1, ...
        raises(RuntimeError, lambda in_place=in_place: in_place(torch._efficientzerotensor(3)), "clone")
    complex_ = torch.tensor([1 + 2j])
    assert hvd.allgather(complex_.conj().imag).tolist() == [-2.0] * SIZE


def check_unsigned_integers():
    for name in ("uint32", "uint64"):
        if not hasattr(torch, name):
            continue
        tensor = torch.tensor([1, 2**31 + RANK], dtype=getattr(torch, name))
        assert hvd.allgather(tensor).tolist() == [x for rank in range(SIZE) for x in (1, 2**31 + rank)]
        assert hvd.broadcast(tensor, 1).tolist() == [1, 2**31 + 1]
        total = hvd.allreduce(tensor, op=hvd.Sum)
        assert total.dtype is tensor.dtype and total.tolist() == [
            SIZE,
            sum(2**31 + r for r in range(SIZE)) % 2 ** int(name[4:]),
        ]
        assert hvd.allreduce(tensor).tolist() == [1, 2**31 + sum(range(SIZE)) // SIZE]
        assert hvd.allreduce(tensor, op=hvd.Max).tolist() == [1, 2**31 + SIZE - 1]


def check_arguments_of_the_optimizer():
    model = make_model()

    def wrap(**arguments):
        return lambda: hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **arguments)

    raises(ValueError, wrap(op=77), "77", "Average")
    raises(ValueError, wrap(op="Sum"), "Sum")
    for factor in (0, -1.0, float("nan"), float("inf"), "2"):
        raises(ValueError, wrap(gradient_predivide_factor=factor), "gradient_predivide_factor")
    raises((TypeError, ValueError), wrap(process_set=None), "process_set", "ProcessSet")
    raises(ValueError, wrap(backward_passes_per_step=True), "backward_passes_per_step")
    for name in (5, "a\0b"):
        named = [(name, p) for p in model.parameters()]
        raises(ValueError, wrap(named_parameters=named), "name", "string")
    raises(ValueError, lambda: hvd.sparse_allreduce_async(torch.eye(2), "dense", hvd.Sum), "sparse")


def check_sharding_an_optimizer_with_a_state():
    """Adagrad starts with one."""
    for steps in (0, 2):
        reference, model = make_model(), make_model()
        plain = torch.optim.Adagrad(reference.parameters(), lr=0.1, initial_accumulator_value=0.5)
        begun = torch.optim.Adagrad(model.parameters(), lr=0.1, initial_accumulator_value=0.5)
        train(reference, plain, batches(steps))
        train(model, begun, batches(steps))
        sharded = hvd.ShardedOptimizer(begun)
        train(reference, plain, batches(3, seed=5))
        train(model, sharded, batches(3, seed=5), slice(RANK, None, SIZE))
        for mine, expected in zip(model.parameters(), reference.parameters()):
            torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-11)
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    sharded = hvd.ShardedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    model[0].requires_grad_(True)
    model(torch.ones(1, 2)).sum().backward()
    raises(ValueError, sharded.step, "anew")
