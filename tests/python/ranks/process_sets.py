"""Process sets from Python: static, dynamic, from communicators; three or more ranks."""

import os
import random
from unittest import SkipTest

import numpy as np
from refusals import raises

import hvd.numpy as hvd
from hvd import process_sets as sets_module

EVEN, PAIR = hvd.ProcessSet([2, 0]), hvd.ProcessSet([0, 1])
assert EVEN.size() is None and EVEN.included() is None and EVEN.rank() is None
hvd.init(process_sets=[EVEN, PAIR])
RANK, SIZE = hvd.rank(), hvd.size()


def check_static():
    assert (EVEN.process_set_id, PAIR.process_set_id) == (1, 2)
    assert EVEN.ranks == [0, 2] and EVEN.size() == 2
    assert EVEN.included() == (RANK in (0, 2)) and PAIR.included() == (RANK in (0, 1))
    if EVEN.included():
        assert EVEN.rank() == [0, 2].index(RANK)
    else:
        raises(ValueError, EVEN.rank, "not a member")
    assert hvd.global_process_set.ranks == list(range(SIZE)) and hvd.global_process_set.rank() == RANK


def check_operations():
    one = np.full(3, float(RANK))
    if not EVEN.included():
        raises(ValueError, lambda: hvd.allreduce(one, process_set=EVEN), "not a member")
        raises(ValueError, lambda: hvd.barrier(process_set=EVEN), "not a member")
        return
    for _ in range(3):
        assert (hvd.allreduce(one, name="x", op=hvd.Sum, process_set=EVEN) == 2).all()
        assert (hvd.allreduce(one, name="x", process_set=EVEN) == 1).all()
        assert hvd.allgather(one[:1], name="g", process_set=EVEN).tolist() == [0, 2]
        for root in (0, 2):  # a rank of the world
            assert (hvd.broadcast(one, root, name="b", process_set=EVEN) == root).all()
            assert hvd.broadcast_object({"from": RANK}, root, process_set=EVEN) == {"from": root}
        assert hvd.allgather_object(RANK, process_set=EVEN) == [0, 2]
        a, b = hvd.grouped_allreduce([one, one * 2], name="group", op=hvd.Sum, process_set=EVEN)
        assert a[0] == 2 and b[0] == 4
        assert hvd.alltoall(np.array([RANK, RANK + 10.0]), name="a", process_set=EVEN).tolist() == (
            [0, 2] if RANK == 0 else [10, 12]
        )
        hvd.barrier(process_set=EVEN)
    raises(ValueError, lambda: hvd.broadcast(one, 1, process_set=EVEN), "rank of the world")
    wrong = raises(hvd.HorovodInternalError, lambda: hvd.allreduce(np.zeros(RANK + 1), name="wrong", process_set=EVEN))
    assert "on rank 2" in str(wrong), wrong


def check_dynamic():
    for _ in range(3):
        made = hvd.add_process_set([1, 2])
        assert made.process_set_id > 2 and made.ranks == [1, 2]
        raises(ValueError, lambda: hvd.add_process_set([2, 1]), "already")
        raises(ValueError, lambda made=made: hvd.add_process_set(made), "already")
        raises(ValueError, lambda: hvd.add_process_set(range(SIZE)), "already")
        if made.included():
            assert hvd.allreduce(np.ones(1), name="d", op=hvd.Sum, process_set=made)[0] == 2
        assert hvd.remove_process_set(made) is True
        assert made.process_set_id is None and made.size() is None
        raises(ValueError, lambda made=made: hvd.allreduce(np.ones(1), process_set=made))
        assert hvd.remove_process_set(made) is False
    assert hvd.remove_process_set(hvd.global_process_set) is False
    raises(ValueError, lambda: hvd.add_process_set([0, SIZE]), "no rank")
    raises(ValueError, lambda: hvd.add_process_set([0, 0]), "twice")
    raises(ValueError, lambda: hvd.add_process_set([]), "at least one rank")
    raises(ValueError, lambda: hvd.ProcessSet(["a"]))
    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "0"
    raises(ValueError, lambda: hvd.add_process_set([0]), "HOROVOD_DYNAMIC_PROCESS_SETS")
    del os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"]


def check_random_orders():
    """Overlapping sets, in a different order on each rank, asynchronously."""
    mine = random.Random(RANK)
    groups = [(group, group.size()) for group in (hvd.global_process_set, EVEN, PAIR) if group.included()]
    for step in range(50):
        mine.shuffle(groups)
        handles = [
            (hvd.allreduce_async(np.ones(1 + step * 100), name=f"r{size}", op=hvd.Sum, process_set=group), size)
            for group, size in groups
        ]
        mine.shuffle(handles)
        for handle, size in handles:
            assert (hvd.synchronize(handle) == size).all()


def check_join():
    for epoch in range(3):
        for step in range((RANK + epoch) % SIZE):
            living = [rank for rank in range(SIZE) if (rank + epoch) % SIZE > step]
            here = len(living)
            assert hvd.allgather_object(RANK) == living
            for root in range(SIZE):
                if root in living:
                    assert hvd.broadcast_object(RANK, root_rank=root) == root
                else:
                    raises(hvd.HorovodInternalError, lambda root=root: hvd.broadcast_object(1, root), f"{root}, the root, has")
            assert (hvd.allreduce(np.ones(4), name="j", op=hvd.Sum) == here).all()
            assert (hvd.allreduce(np.ones(4)) == here / SIZE).all()
            assert len(hvd.allgather(np.ones(2), name="jg")) == 2 * here
            raises(hvd.HorovodInternalError, lambda: hvd.allreduce(np.ones(4), name="m", op=hvd.Max), "joined") if (
                here < SIZE
            ) else None
        last = hvd.join()
        assert hvd.allgather_object(last) == [last] * SIZE and 0 <= last < SIZE
    if EVEN.included():
        if RANK == 2:
            assert (hvd.allreduce(np.ones(4), op=hvd.Sum, process_set=EVEN) <= 2).all()
        assert hvd.join(process_set=EVEN) in (0, 2)


def check_torch():
    try:
        import torch
    except ImportError as missing:
        raise SkipTest(str(missing)) from None
    import hvd.torch as hvt

    model = torch.nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(0)
    optimizer = hvt.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1), named_parameters=model.named_parameters(), process_set=EVEN
    )
    for step in range(3):
        optimizer.zero_grad()
        model(torch.full((1, 3), float(RANK))).sum().backward()
        optimizer.step()
        expected = -(step + 1) * (1.0 if EVEN.included() else float(RANK))
        assert torch.allclose(model.weight, torch.full((1, 3), expected)), (RANK, model.weight)
    if EVEN.included():
        x = torch.ones(2, requires_grad=True)
        hvt.broadcast(x, 2, name="grad", process_set=EVEN).sum().backward()
        assert x.grad.tolist() == ([1.0, 1.0] if RANK == 2 else [0.0, 0.0])
        x = torch.ones(2, requires_grad=True)
        hvt.allgather(x, name="gather", process_set=EVEN).sum().backward()
        assert x.grad.tolist() == [1.0, 1.0]


def check_communicators():
    try:
        from mpi4py import MPI
    except ImportError as missing:
        raise SkipTest(str(missing)) from None
    world = MPI.COMM_WORLD
    halves = world.Split(RANK % 2, RANK)
    group = hvd.ProcessSet(halves)
    hvd.remove_process_set(EVEN)
    hvd.add_process_set(group)
    assert group.ranks == [rank for rank in range(SIZE) if rank % 2 == RANK % 2]
    assert hvd.allreduce(np.ones(1), name="half", op=hvd.Sum, process_set=group)[0] == len(group.ranks)
    hvd.shutdown()
    assert group.process_set_id is None
    hvd.init(comm=world, process_sets="dynamic")
    assert hvd.size() == SIZE
    hvd.shutdown()
    hvd.init(comm=halves)
    assert (hvd.size(), hvd.rank()) == (len(group.ranks), group.ranks.index(RANK))
    assert hvd.allgather_object(world.rank) == group.ranks
    hvd.shutdown()
    hvd.init()


def check_sets_given_twice():
    """init() fails on the ranks whose list has the same set twice. These ranks alone can call init() again."""
    try:
        from mpi4py import MPI
    except ImportError as missing:
        raise SkipTest(str(missing)) from None
    world, halves = MPI.COMM_WORLD, MPI.COMM_WORLD.Split(RANK % 2, RANK)
    every, even = world.Dup(), range(0, SIZE, 2)
    hvd.shutdown()

    def begin(*ranks_or_comms):
        sets = [hvd.ProcessSet(which) for which in ranks_or_comms]
        hvd.init(comm=world, process_sets=sets)
        return sets

    raises(ValueError, lambda: begin(halves, every, halves.Dup(), [0]), "twice")
    assert hvd.is_initialized() and hvd.global_process_set.mpi_comm == world
    if RANK % 2 == 0:
        raises(ValueError, lambda: begin(halves, even, [0]), "twice")
    else:
        begin(halves, even, [0])
    mine, first = begin(halves, [0])
    assert (mine.process_set_id, first.process_set_id) == (1 + RANK % 2, 3)
    assert sets_module.ranks_by_id() == {1: list(even), 2: list(range(1, SIZE, 2)), 3: [0]}
    assert hvd.allreduce(np.ones(1), name="mine", op=hvd.Sum, process_set=mine)[0] == len(mine.ranks)
    hvd.shutdown()
    hvd.init()


def check_init_again():
    hvd.shutdown()
    assert EVEN.process_set_id is None and not sets_module._living
    again = hvd.ProcessSet([1, 0])
    hvd.init(process_sets=[again])
    assert again.process_set_id == 1
    if again.included():
        assert hvd.allreduce(np.ones(1), name="again", op=hvd.Sum, process_set=again)[0] == 2
    hvd.shutdown()
    hvd.init(comm=list(reversed(range(SIZE))))
    assert hvd.rank() == SIZE - 1 - RANK
