"""Gradients on both sides of every size at which the runtime, or the optimizer, changes its method."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_models import EVERYONES, RANK, RING, SIZE, WIDTH, Tables

import horovod.torch as hvd


def everything(rows):
    return torch.arange(rows)


def own_and_last(rows):
    """A row that only this rank uses, and one that all ranks use."""
    return torch.tensor([RANK, rows - 1])


def wrapped(model, kind=torch.optim.SGD, **options):
    return hvd.DistributedOptimizer(kind(model.parameters(), lr=1.0), model.named_parameters(), **options)


def assert_trained(model, change, what):
    """change(rows): the value subtracted from a table's zeros."""
    for table in model.tables:
        rows = table.num_embeddings
        wanted = change(rows).expand(rows, WIDTH)
        assert torch.allclose(table.weight.detach(), -wanted, rtol=1e-2), (what, rows, table.weight.detach() + wanted)


def step(model, optimizer, used, passes=1):
    optimizer.zero_grad()
    for _ in range(passes):
        model.loss(used).backward()
    optimizer.step()


def dense_change(rows):
    return torch.full((1, 1), 2 * EVERYONES)


def check_dense():
    ways = {
        "plain": {},
        "in groups": {"groups": 3},
        "fp16": {"compression": hvd.Compression.fp16},
        "powersgd": {"compression": hvd.Compression.powersgd(rank=1)},
        "two passes": {"backward_passes_per_step": 2},
        "predivided": {"gradient_predivide_factor": 2.0},
    }
    for what, options in ways.items():
        model, passes = Tables(), options.get("backward_passes_per_step", 1)
        optimizer = wrapped(model, **options)
        for _ in range(2):
            step(model, optimizer, everything, passes)
        assert_trained(model, lambda rows, passes=passes: passes * dense_change(rows), what)


def sparse_change(rows):
    change = torch.zeros(rows, 1)
    change[:SIZE, 0] = 2 * torch.arange(1, SIZE + 1) / SIZE
    change[-1] = 2 * EVERYONES
    return change


def check_sparse():
    for options in ({}, {"sparse_as_dense": True}, {"groups": 2}):
        model = Tables(sparse=True)
        optimizer = wrapped(model, **options)
        for _ in range(2):
            step(model, optimizer, own_and_last)
        assert_trained(model, sparse_change, options)


def check_sparse_and_dense_by_turns():
    """The gradient of a table is dense in one step and sparse in the next. Dense gradients use registered memory."""
    model = Tables()
    optimizer = wrapped(model)
    for sparse in (False, True, False):
        for table in model.tables:
            table.sparse = sparse
        step(model, optimizer, own_and_last)
    assert_trained(model, lambda rows: 1.5 * sparse_change(rows), "by turns")


def check_missing_on_one_rank():
    """One rank lacks the gradient of every second table."""
    for sparse in (False, True):
        model = Tables(sparse)
        optimizer = wrapped(model)
        mine = [table for index, table in enumerate(model.tables) if RANK == 0 or index % 2]
        for _ in range(2):
            optimizer.zero_grad()
            sum(table(everything(table.num_embeddings)).sum() for table in mine).backward()
            optimizer.step()
        for index, table in enumerate(model.tables):
            wanted = 2.0 if index % 2 else 2.0 / SIZE
            assert torch.allclose(table.weight.detach(), torch.tensor(-wanted)), (sparse, table.num_embeddings)


def check_adasum():
    """All ranks make the same step, which is also the combined one."""
    model = Tables()
    optimizer = wrapped(model, op=hvd.Adasum)
    for _ in range(2):
        optimizer.zero_grad()
        sum(table(everything(table.num_embeddings)).sum() for table in model.tables).backward()
        optimizer.step()
    assert_trained(model, lambda rows: torch.full((1, 1), 2.0), "Adasum")


def check_sharded():
    model = Tables()
    optimizer = hvd.ShardedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), bucket_bytes=RING)
    for _ in range(2):
        step(model, optimizer, everything)
    assert_trained(model, dense_change, "sharded")


def check_ddp_hook():
    torch.distributed.init_process_group("gloo", store=store(), rank=RANK, world_size=SIZE)
    try:
        model = Tables()
        network = DistributedDataParallel(Through(model), bucket_cap_mb=0.02)
        network.register_comm_hook(None, hvd.ddp_comm_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        for _ in range(2):
            optimizer.zero_grad()
            network(everything).backward()
            optimizer.step()
        assert_trained(model, dense_change, "ddp_comm_hook")
    finally:
        torch.distributed.destroy_process_group()


class Through(nn.Module):
    """With a forward(), which DistributedDataParallel requires."""

    def __init__(self, tables):
        super().__init__()
        self.inner = tables

    def forward(self, used):
        return self.inner.loss(used)


def store():
    """Rank 0's store, on a port that it chooses."""
    served = torch.distributed.TCPStore("127.0.0.1", 0, SIZE, True, wait_for_workers=False) if RANK == 0 else None
    port = hvd.broadcast_object(served.port if served else None)
    return served or torch.distributed.TCPStore("127.0.0.1", port, SIZE, False)
