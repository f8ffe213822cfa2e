"""Training with tensors on the (fake) GPU gives the result of one process."""

from typing import Any

import torch

import hvd.torch as hvd
from hvd.torch import ops


def train(optimizer_of, rank: int, ranks: int) -> list[float]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
    optimizer = optimizer_of(model, torch.optim.SGD(model.parameters(), lr=0.1))
    torch.manual_seed(2)
    data = torch.randn(8 * 12, 10)
    for step in range(8):
        batch = data[step * 12 : step * 12 + 12]
        part = batch[rank * (12 // ranks) : (rank + 1) * (12 // ranks)]
        optimizer.zero_grad()
        (model(part) - part.sum(1, keepdim=True)).pow(2).mean().backward()
        optimizer.step()
    return [float(x) for p in model.parameters() for x in p.detach().flatten()]


def check_training_equals_one_process() -> None:
    hvd.init()
    alone = train(lambda model, optimizer: optimizer, 0, 1)
    together = train(
        lambda model, optimizer: hvd.DistributedOptimizer(optimizer, model.named_parameters()), hvd.rank(), hvd.size()
    )
    assert torch.allclose(torch.tensor(alone), torch.tensor(together), atol=1e-5)


def check_parameters_and_state_travel() -> None:
    model = torch.nn.Linear(4, 4)
    torch.nn.init.constant_(model.weight, hvd.rank() + 1.0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    assert float(model.weight[0, 0].detach()) == 1.0


def check_a_result_survives_a_capture() -> None:
    """hvd.synchronize while torch captures: refused before anything is lost."""
    total = hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="captured")
    rows = hvd.allgather_async(torch.ones(1), name="captured rows")
    adapter = type(ops.collectives._adapter)
    stream_of = adapter.stream_of
    adapter.stream_of = staticmethod(lambda gpu: 7)
    adapter.is_capturing = staticmethod(lambda: True)
    try:
        for handle in (total, rows):
            try:
                hvd.synchronize(handle)
            except ValueError as error:
                assert "captured into a CUDA graph" in str(error), error
            else:
                raise AssertionError("a capturing stream was made to wait")
    finally:
        del adapter.is_capturing
        adapter.stream_of = staticmethod(stream_of)
    assert hvd.synchronize(total).tolist() == [hvd.size()] * 3
    assert hvd.synchronize(rows).tolist() == [1] * hvd.size()


def check_a_group_is_on_one_side() -> None:
    """As in Horovod, all tensors of a group are in host memory, or all on GPUs."""
    hvd.init()
    on_host: Any = torch.ones(3)
    on_host.in_host_memory = True
    for call in (hvd.grouped_allreduce, hvd.grouped_allreduce_, hvd.grouped_allgather, hvd.grouped_reducescatter):
        for tensors in ([torch.ones(3), on_host], [on_host, torch.ones(3)]):
            try:
                call(tensors, name="mixed")
            except ValueError as error:
                assert all(word in str(error) for word in ("mixed.0'", "on a GPU", "in host memory")), error
            else:
                raise AssertionError("a group of host and GPU tensors was taken")
    assert [t.tolist() for t in hvd.grouped_allreduce([on_host, on_host], op=hvd.Sum)] == [[hvd.size()] * 3] * 2
    assert hvd.grouped_allreduce([torch.ones(3)], op=hvd.Sum)[0].tolist() == [hvd.size()] * 3


def check_received_splits_are_where_the_splits_are() -> None:
    """No real GPU is needed: torch's device "meta" also differs from the host's."""
    hvd.init()
    adapter = ops.collectives._adapter
    assert adapter.integers((1, 2), torch.zeros(2, dtype=torch.int64, device="meta")).device.type == "meta"
    for like in (None, [1, 2], torch.zeros(2)):
        received = adapter.integers((1, 2), like)
        assert received.tolist() == [1, 2] and received.dtype == torch.int32
    splits = torch.ones(hvd.size(), dtype=torch.int64)
    _, received = hvd.alltoall(torch.ones(hvd.size()), splits)
    assert received.dtype == torch.int64 and received.device == splits.device
