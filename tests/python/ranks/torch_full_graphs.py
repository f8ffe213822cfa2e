"""More of torch_full_graph.py: each operation, process sets, a model, torch's functional collectives."""

import torch
from full_graphs import RANK, SIZE, compiled, same

import hvd.torch as hvd


def check_allreduce():
    for op in (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
        same(lambda x, op=op: hvd.allreduce(x * 2, op=op) + 1, (3, 2))
    same(lambda x: hvd.allreduce(x.t(), average=False, compression=hvd.Compression.fp16), (3, 2))
    same(lambda x, y: hvd.grouped_allreduce([x * 2, y], op=hvd.Sum, name="g", postscale_factor=3), (3, 2), (1,))


def check_allreduce_in_place():
    def both(x):
        y, z = x * 2, x + 1
        hvd.allreduce_(y, op=hvd.Sum)
        hvd.grouped_allreduce_([y, z], name="in place")
        return y, z, hvd.broadcast_(x * RANK, SIZE - 1)

    same(both, (5,), derive=False)


def check_broadcast():
    same(lambda x: hvd.broadcast(x * 2, 1, name="b") * RANK, (3,))


def check_allgather_of_different_rows():
    same(lambda x: hvd.allgather(x * 2) * 3, (2 + RANK, 2))
    same(lambda x, y: hvd.grouped_allgather([x, y * 2], name="rows"), (RANK, 2), (3,))


def check_alltoall():
    same(lambda x: hvd.alltoall(x * 2), (2 * SIZE, 3))
    same(lambda x: hvd.alltoall(x, splits=[RANK] + [1] * (SIZE - 1))[0] * 2, (RANK + SIZE - 1, 3))
    same(lambda x: hvd.alltoall(x, splits=torch.tensor([1] * SIZE), name="t"), (SIZE,), derive=False)


def check_reducescatter():
    same(lambda x: hvd.reducescatter(x * 2, op=hvd.Sum, name="r") + 1, (SIZE + 1, 2))
    same(lambda x, y: hvd.grouped_reducescatter([x, y * 2], prescale_factor=2.0), (SIZE, 2), (2 * SIZE,))


def check_process_sets():
    sets = [hvd.add_process_set([rank]) for rank in range(SIZE)]
    mine = sets[RANK]
    same(lambda x: hvd.allreduce(x * 2, op=hvd.Sum, process_set=mine), (3,))
    step = compiled(lambda x: hvd.allreduce(x, process_set=mine))
    assert step(torch.ones(2)).tolist() == [1, 1]
    for one in sets:
        hvd.remove_process_set(one)
    try:
        step(torch.ones(2))
        raise AssertionError("the removed set was used")
    except ValueError as error:
        assert "add_process_set" in str(error)


def check_a_model_with_an_operation_in_its_loss():
    torch.manual_seed(3)
    layer = torch.nn.Linear(4, 2)

    def loss(x):
        all_rows = hvd.allgather(layer(x))
        torch._check(all_rows.shape[0] == SIZE * x.shape[0])  # what torch cannot know, and logsumexp needs
        return (layer(x) @ all_rows.t()).logsumexp(1).mean()

    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(RANK))
    wanted = torch.autograd.grad(loss(x), list(layer.parameters()))
    torch.testing.assert_close(torch.autograd.grad(compiled(loss)(x), list(layer.parameters())), wanted)


def check_functional_collectives():
    import torch.distributed as dist
    from torch.distributed import _functional_collectives as funcol

    dist.init_process_group("hvd", init_method="hvd://")
    group = dist.group.WORLD

    def moved(x):
        return (
            funcol.all_reduce(x * 2, "sum", group) + 1,
            funcol.all_gather_tensor(x, 0, group) * 2,
            funcol.reduce_scatter_tensor(x, "sum", 0, group) * 2,
            funcol.all_to_all_single(x, None, None, group) * 2,
            funcol.broadcast(x, 0, group) * 2,
        )

    same(moved, (2 * SIZE, 2), derive=False)
    dist.destroy_process_group()
