"""hvd.torch on a single rank."""

import torch
from torch import nn

import hvd.torch as hvd


def check_a_broadcast_state_without_a_step() -> None:
    """Horovod's zeros also exist on a single rank; a step does not use them as gradients."""
    hvd.init()
    weight = nn.Parameter(torch.ones(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1, weight_decay=0.5), [("weight", weight)])
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert weight.grad is not None and hvd.broadcast(weight.grad, root_rank=0).tolist() == [0] * 3
    optimizer.step()
    assert weight.tolist() == [1] * 3 and weight.grad is None
