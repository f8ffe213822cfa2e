"""DistributedOptimizer moves gradients into registered memory, without a visible effect."""

import copy
import os

import torch
from refusals import raises
from torch import nn
from torch_models import RANK, SIZE

import horovod.torch as hvd


def is_registered(tensor):
    """Returns whether a tensor lies in memory of hvd_alloc()."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            start, end = (int(x, 16) for x in line.split()[0].split("-"))
            if start <= tensor.data_ptr() < end:
                return "memfd:hvd-arena" in line
    return False


def check_tensors_that_the_script_allocates():
    """hvd.alloc on a CPU: tensors in memory that the ranks share."""
    tensor = hvd.alloc(3, 1000, device="cpu")
    assert tensor.shape == (3, 1000) and tensor.dtype == torch.float32 and not tensor.any()
    if not os.environ.get("HVD_RANKS_PER_NODE"):
        assert is_registered(tensor)
    tensor += hvd.rank()
    hvd.allreduce_(tensor, op=hvd.Sum, name="allocated")
    assert (tensor == sum(range(hvd.size()))).all()
    assert hvd.alloc((2, 3), dtype=torch.int64, device="cpu").tolist() == [[0] * 3] * 2
    assert hvd.alloc(0, device="cpu").numel() == 0 and hvd.alloc(device="cpu").shape == ()
    raises(ValueError, lambda: hvd.alloc(3, device="meta"), "cpu and cuda are possible")
    if not torch.cuda.is_available():
        raises(RuntimeError, hvd.mem_pool, "hvd.mem_pool")


def check_gradients_in_registered_memory():
    """Gradients move to registered memory although zero_grad() sets them to None. No other tensor is overwritten."""
    from hvd.torch._optimizer import registered_gradients as _registered_gradients

    possible = _registered_gradients.usable() and not os.environ.get("HVD_RANKS_PER_NODE")
    model = nn.Linear(90, 90)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model.named_parameters())
    own = torch.full((2, 90), RANK + 1.0)
    everyones = (SIZE + 1) / 2

    def step(factor, **arguments):
        optimizer.zero_grad(**arguments)
        (model(own) * factor).sum().backward()
        optimizer.step()
        assert torch.allclose(model.weight.grad, torch.full((90, 90), 2 * factor * everyones))
        assert torch.allclose(model.bias.grad, torch.full((90,), 2.0 * factor))

    def registered():
        return is_registered(model.weight.grad)

    for factor in (1, 2, 3):
        step(factor)
        assert registered() == possible
        assert not is_registered(model.bias.grad)  # too small to benefit
    step(1, set_to_none=False)
    assert registered() == possible
    # A gradient that the script keeps, itself or through a view, is not written to again.
    kept, copy_of_kept = model.weight.grad, model.weight.grad.clone()
    step(5)
    assert torch.equal(kept, copy_of_kept) and not registered()
    del kept
    step(6)
    assert registered() == possible
    view = model.weight.grad.view(-1)[7:]
    copy_of_view = view.clone()
    step(7)
    assert torch.equal(view, copy_of_view) and not registered()
    del view
    step(8)
    assert registered() == possible
    # A gradient that the script reads before the optimizer does is reduced in place.
    seen = []
    hook = model.weight.register_hook(lambda gradient: seen.append(gradient))
    step(9)
    hook.remove()
    seen.clear()
    # A gradient that the script replaces on one rank only.
    for _ in range(3):
        optimizer.zero_grad()
        model(own).sum().backward()
        optimizer.synchronize()
        if RANK == 0:
            model.weight.grad = torch.ones(90, 90)
        with optimizer.skip_synchronize():
            optimizer.step()
        if RANK == 0:
            model.weight.grad = None
        step(2, set_to_none=False)


def check_registered_memory_outlives_the_optimizer():
    """A gradient that the script keeps stays valid after the end of model and optimizer, and of the runtime."""
    for _ in range(5):
        model = nn.Linear(200, 200)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(1, 200)).sum().backward()
            optimizer.step()
        kept = model.weight.grad
        copied = copy.deepcopy(kept)
        assert torch.equal(copied, kept) and not is_registered(copied)
        del model, optimizer
        assert torch.equal(kept, torch.ones(200, 200))
