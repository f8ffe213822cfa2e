"""DistributedOptimizer(op=Adasum): every rank steps alone, and the changes are reduced."""

import copy

import torch
from torch import nn

import horovod.torch as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
torch.set_num_threads(1)
MAKERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05),
}


def make_model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double()


def data(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(6, 4, generator=generator, dtype=torch.float64)


def distributed(model, maker=MAKERS["sgd"], **options):
    return hvd.DistributedOptimizer(maker(model.parameters()), model.named_parameters(), op=hvd.Adasum, **options)


def step(model, optimizer, *parts):
    optimizer.zero_grad()
    for part in parts:
        model(part).square().mean().backward()
    optimizer.step()


def adasum(a, b):
    product = (a * b).sum()
    return a * (1 - product / (2 * (a * a).sum())) + b * (1 - product / (2 * (b * b).sum()))


def assert_close(model, other, **tolerance):
    for mine, expected in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(mine, expected, **tolerance)


def same_everywhere(model):
    for parameter in model.parameters():
        assert all(torch.equal(part, parameter.detach()) for part in hvd.allgather(parameter.detach()[None]))


def raises(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return
    raise AssertionError(f"no {kind.__name__}")


def check_changes_are_reduced():
    """Compared with two optimizers in this process, each on the data of one rank, with separate states."""
    for maker in MAKERS.values():
        model = make_model()
        optimizer = distributed(model, maker)
        shadows = [copy.deepcopy(model) for _ in range(2)]
        optimizers = [maker(shadow.parameters()) for shadow in shadows]
        for round_ in range(3):
            starts = [p.detach().clone() for p in shadows[0].parameters()]
            for rank in range(2):
                step(shadows[rank], optimizers[rank], data(10 * round_ + rank))
            with torch.no_grad():
                for start, one, other in zip(starts, shadows[0].parameters(), shadows[1].parameters()):
                    both = start + adasum(one - start, other - start)
                    one.copy_(both)
                    other.copy_(both)
            step(model, optimizer, data(10 * round_ + RANK))
            assert_close(model, shadows[0], rtol=1e-9, atol=1e-12)
        same_everywhere(model)


def check_equal_changes_stay():
    for options in ({}, {"compression": hvd.Compression.bf16}, {"backward_passes_per_step": 2}):
        model, single = make_model(), make_model()
        optimizer, own = distributed(model, **options), MAKERS["sgd"](single.parameters())
        parts = [data(1), data(2)][: options.get("backward_passes_per_step", 1)]
        for _ in range(3):
            step(model, optimizer, *parts)
            step(single, own, *parts)
        assert_close(model, single, **({"rtol": 1e-2, "atol": 1e-2} if "compression" in options else {}))


def check_missing_gradients():
    model = make_model()
    optimizer = distributed(model)
    before = copy.deepcopy(model)
    optimizer.zero_grad()
    if RANK == 0:
        model[0](data(1)).square().mean().backward()  # the second layer gets none, and rank 1 none at all
    optimizer.step()
    same_everywhere(model)
    assert not torch.equal(model[0].weight, before[0].weight) and torch.equal(model[2].weight, before[2].weight)


def check_order_of_calls():
    model = make_model()
    optimizer = distributed(model)
    model(data(RANK)).square().mean().backward()
    raises(AssertionError, optimizer.zero_grad, "zero_grad")
    optimizer.synchronize()  # nothing to wait for
    with optimizer.skip_synchronize():
        optimizer.step()
    same_everywhere(model)
    step(model, optimizer, data(RANK))
    same_everywhere(model)


def check_closure_and_state():
    model = make_model()
    optimizer = distributed(model)

    def closure():
        optimizer.zero_grad()
        loss = model(data(RANK)).square().mean()
        loss.backward()
        return loss

    before = model(data(RANK)).square().mean().item()
    assert abs(optimizer.step(closure).item() - before) < 1e-12
    same_everywhere(model)
    other = make_model()
    again = distributed(other)
    other.load_state_dict(model.state_dict())
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for m, o in ((model, optimizer), (other, again)):
        step(m, o, data(RANK + 5))
    assert_close(model, other, rtol=0, atol=0)


def check_failure_is_no_step():
    model = nn.Linear(2 + RANK, 1).double()  # the ranks disagree about its shape
    optimizer = distributed(model)
    before = copy.deepcopy(model)
    optimizer.zero_grad()
    model(torch.ones(1, 2 + RANK).double()).sum().backward()
    raises(hvd.HorovodInternalError, optimizer.step, "weight")
    assert_close(model, before, rtol=0, atol=0)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE
