"""torch.compile with generated machine code, around our operations and of a model that trains with them."""

import warnings

import torch
from torch import nn

import hvd.torch as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def check_operations_in_a_compiled_function():
    @torch.compile
    def total(x):
        return hvd.allreduce(x * 2, op=hvd.Sum, name="total") + 1

    @torch.compile
    def moved(x):
        return hvd.allgather(x * 2), hvd.broadcast(x + RANK, 0), hvd.size() * x

    @torch.compile
    def begun_and_ended(x):
        handle = hvd.allreduce_async_(x * 2, op=hvd.Sum, name="begun")
        return hvd.synchronize(handle) + 1

    x = torch.ones(3, requires_grad=True)
    with warnings.catch_warnings(record=True) as told:
        out = total(x)
        out.sum().backward()
        gathered, sent, scaled = moved(torch.ones(2))
        later = begun_and_ended(torch.ones(3))
    assert later.tolist() == [2.0 * SIZE + 1] * 3
    assert not [warning for warning in told if "hvd" in str(warning.message)]
    assert out.tolist() == [2.0 * SIZE + 1] * 3 and x.grad.tolist() == [2.0 * SIZE] * 3
    assert gathered.tolist() == [2.0] * 2 * SIZE and sent.tolist() == [1.0] * 2 and scaled.tolist() == [float(SIZE)] * 2


def check_a_compiled_model_trains_like_one_process():
    def made():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    model, reference = made(), made()
    compiled = torch.compile(model)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    plain = torch.optim.SGD(reference.parameters(), 0.1)
    numbers = torch.Generator().manual_seed(1)
    for _ in range(3):
        batch = torch.randn(4 * SIZE, 8, generator=numbers)
        optimizer.zero_grad()
        compiled(batch[4 * RANK : 4 * RANK + 4]).pow(2).mean().backward()
        optimizer.step()
        plain.zero_grad()
        reference(batch).pow(2).mean().backward()
        plain.step()
    for mine, other in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
