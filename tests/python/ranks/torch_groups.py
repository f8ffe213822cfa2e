"""torch.distributed over the backend "hvd": each operation's values, on all ranks and in smaller groups."""

import inspect
import os
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from refusals import raises

import hvd.torch as hvd
from hvd.torch._adapter import TorchAdapter
from hvd.torch._c10d import group_operations as operations
from hvd.torch._c10d import group_work as works
from hvd.torch.process_group import rendezvous

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
DTYPES = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]
path = hvd.broadcast_object(tempfile.mktemp() if RANK == 0 else None)
dist.init_process_group("hvd", init_method=f"file://{path}", rank=RANK, world_size=SIZE, timeout=timedelta(seconds=60))
ALL = SIZE * (SIZE + 1) // 2  # 1 + 2 + …


def same(found, wanted):
    wanted = torch.as_tensor(wanted, dtype=found.dtype)
    assert torch.equal(found, wanted.expand_as(found)), f"{found} is not {wanted}"


def check_what_it_says_it_is():
    assert dist.get_backend() == "hvd" and dist.is_initialized()
    assert (dist.get_rank(), dist.get_world_size()) == (RANK, SIZE)


def check_each_stream_that_waits_is_ordered():
    """After wait() on one stream, a wait() on a second stream orders the second stream after the first."""
    settled = []
    gpus_of, stream_of, settle = works._gpus_of, TorchAdapter.stream_of, works.collectives._settle
    current = 7
    works._gpus_of = lambda outputs: [torch.device("cuda", 0)]
    TorchAdapter.stream_of = staticmethod(lambda gpu: current)
    works.collectives._settle = lambda devices: settled.extend(
        device for device in devices if isinstance(device, tuple) and device[1] != current
    )
    try:
        work = dist.all_reduce(torch.ones(2, 3).t(), async_op=True)  # not contiguous: a result must be made
        work.wait()
        work.wait()
        assert settled == []
        current = 9
        work.wait()
        assert settled == [(0, 7)]
    finally:
        works._gpus_of, works.collectives._settle = gpus_of, settle
        TorchAdapter.stream_of = staticmethod(stream_of)


def check_allreduce_reductions():
    for op, wanted in (("SUM", ALL), ("AVG", ALL / SIZE), ("MIN", 1), ("MAX", SIZE)):
        tensor = torch.full((2, 3), RANK + 1.0)
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
        same(tensor, wanted)
    tensor = torch.full((2,), 2.0)
    dist.all_reduce(tensor, dist.ReduceOp.PRODUCT)
    same(tensor, 2.0**SIZE)
    for op, wanted in (("BOR", 2**SIZE - 1), ("BAND", 0), ("BXOR", 2**SIZE - 1)):
        tensor = torch.tensor([1 << RANK])
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
        same(tensor, wanted)


def check_allreduce_dtypes():
    for dtype in DTYPES:
        tensor = torch.ones(5, dtype=dtype)
        dist.all_reduce(tensor)
        same(tensor, SIZE)
    tensor = torch.tensor([RANK == 0, False])
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    assert tensor.tolist() == [True, False]
    tensor = torch.full((2, 2), complex(RANK, 1))
    dist.all_reduce(tensor)
    same(tensor, complex(sum(range(SIZE)), SIZE))
    part = torch.zeros(2, dtype=tensor.dtype)
    dist.reduce_scatter_tensor(part, torch.full((2 * SIZE,), complex(RANK, 1)))
    same(part, complex(sum(range(SIZE)), SIZE))
    swapped = torch.zeros(2 * SIZE, dtype=tensor.dtype)
    dist.all_to_all_single(swapped, torch.full((2 * SIZE,), complex(RANK, 1)))
    same(swapped, torch.tensor([complex(rank, 1) for rank in range(SIZE) for _ in range(2)]))


def check_shapes_and_layouts():
    for shape in ((), (0,), (3, 0), (1,), (2, 3, 4)):
        tensor = torch.ones(shape)
        dist.all_reduce(tensor)
        same(tensor, SIZE)
    whole = torch.zeros(4, 6)
    part = whole.t()[1::2]
    part.fill_(RANK + 1)
    dist.all_reduce(part)
    same(part, ALL)
    assert whole.sum() == 12 * ALL
    part.fill_(RANK)
    dist.broadcast(part, SIZE - 1)
    same(part, SIZE - 1)


def check_allreduce_sparse():
    tensor = torch.sparse_coo_tensor([[RANK, RANK + 1]], [1.0, 2.0], (SIZE + 1,))
    dist.all_reduce(tensor)
    wanted = torch.zeros(SIZE + 1)
    for rank in range(SIZE):
        wanted[rank] += 1
        wanted[rank + 1] += 2
    same(tensor.to_dense(), wanted)


def check_broadcast_and_reduce():
    for root in range(SIZE):
        tensor = torch.full((3,), RANK)
        dist.broadcast(tensor, root)
        same(tensor, root)
        tensor = torch.full((3,), RANK + 1)
        dist.reduce(tensor, root)
        same(tensor, ALL if root == RANK else RANK + 1)


def check_allgather():
    for dtype in (*DTYPES, torch.bool, torch.complex64):
        mine = torch.full((2, 3), RANK).to(dtype)
        found = [torch.zeros(2, 3, dtype=dtype) for _ in range(SIZE)]
        dist.all_gather(found, mine)
        for rank, tensor in enumerate(found):
            same(tensor, torch.full((2, 3), rank).to(dtype))
        found = torch.zeros(2 * SIZE, 3, dtype=dtype)
        dist.all_gather_into_tensor(found, mine)
        same(found, torch.arange(SIZE).repeat_interleave(2)[:, None].to(dtype))
    turned = torch.zeros(2, SIZE).t()
    dist.all_gather_into_tensor(turned, torch.full((1, 2), float(RANK)))
    same(turned, torch.arange(SIZE)[:, None].float())
    dist.all_gather_into_tensor(torch.zeros(0), torch.zeros(0))
    whole = torch.zeros(SIZE, 2)
    whole[RANK] = RANK
    dist.all_gather_into_tensor(whole, whole[RANK])
    same(whole, torch.arange(SIZE)[:, None].float())
    uneven = [torch.zeros(rank + 1) for rank in range(SIZE)]
    dist.all_gather(uneven, torch.full((RANK + 1,), float(RANK)))
    for rank, tensor in enumerate(uneven):
        same(tensor, rank)
    raises(ValueError, lambda: dist.all_gather_into_tensor(torch.zeros(1), torch.zeros(3)), "does not fit")


def check_reduce_scatter():
    rows = torch.arange(2.0 * SIZE)
    for op, wanted in (("SUM", rows * SIZE), ("AVG", rows), ("MAX", rows), ("MIN", rows)):
        found = torch.zeros(2)
        dist.reduce_scatter_tensor(found, rows.clone(), getattr(dist.ReduceOp, op))
        same(found, wanted[2 * RANK : 2 * RANK + 2])
        found = torch.zeros(2)
        dist.reduce_scatter(found, list(rows.split(2)), getattr(dist.ReduceOp, op))
        same(found, wanted[2 * RANK : 2 * RANK + 2])
    found = torch.zeros(RANK + 1)
    dist.reduce_scatter(found, [torch.full((rank + 1,), float(rank)) for rank in range(SIZE)])
    same(found, RANK * SIZE)


def check_reduce_scatter_into_a_part_of_its_input():
    for place in range(SIZE):  # index in the output; the rank's own part is not copied
        whole = torch.arange(4096.0 * SIZE) + RANK
        expected = sum(torch.arange(4096.0 * SIZE) + rank for rank in range(SIZE))[4096 * RANK : 4096 * (RANK + 1)]
        part = whole[4096 * place : 4096 * (place + 1)]
        dist.reduce_scatter_tensor(part, whole)
        assert torch.equal(part, expected), place


def check_all_to_all():
    found = torch.zeros(SIZE, dtype=torch.int64)
    dist.all_to_all_single(found, torch.arange(SIZE) + 10 * RANK)
    same(found, torch.arange(SIZE) * 10 + RANK)
    found = torch.zeros(SIZE * (RANK + 1), 2)
    mine = torch.cat([torch.full((rank + 1, 2), float(RANK)) for rank in range(SIZE)])
    dist.all_to_all_single(found, mine, [RANK + 1] * SIZE, [rank + 1 for rank in range(SIZE)])
    same(found, torch.arange(SIZE).repeat_interleave(RANK + 1)[:, None].float())
    found = [torch.zeros(RANK + 1, dtype=torch.bfloat16) for _ in range(SIZE)]
    dist.all_to_all(found, [torch.full((rank + 1,), RANK, dtype=torch.bfloat16) for rank in range(SIZE)])
    for rank, tensor in enumerate(found):
        same(tensor, rank)


def check_gather_and_scatter():
    for root in range(SIZE):
        found = [torch.zeros(2) for _ in range(SIZE)] if root == RANK else None
        dist.gather(torch.full((2,), float(RANK)), found, root)
        for rank, tensor in enumerate(found or []):
            same(tensor, rank)
        tensor = torch.zeros(2)
        dist.scatter(tensor, [torch.full((2,), float(rank)) for rank in range(SIZE)] if root == RANK else None, root)
        same(tensor, RANK)


def check_coalesced():
    tensors = [torch.ones(3), torch.ones(2, 2)]
    with dist._coalescing_manager(async_ops=True) as together:
        for tensor in tensors:
            dist.all_reduce(tensor)
    together.wait()
    for tensor in tensors:
        same(tensor, SIZE)
    gathered = [torch.zeros(SIZE), torch.zeros(2 * SIZE)]
    with dist._coalescing_manager(async_ops=True) as together:
        for count, tensor in enumerate(gathered, 1):
            dist.all_gather_into_tensor(tensor, torch.full((count,), float(RANK)))
    together.wait()
    same(gathered[1], torch.arange(SIZE).repeat_interleave(2).float())
    scattered = [torch.zeros(1), torch.zeros(2)]
    with dist._coalescing_manager(async_ops=True) as together:
        for count, tensor in enumerate(scattered, 1):
            dist.reduce_scatter_tensor(tensor, torch.arange(1.0 * count * SIZE))
    together.wait()
    same(scattered[1], torch.arange(2.0 * SIZE)[2 * RANK : 2 * RANK + 2] * SIZE)


def check_objects():
    found = [None] * SIZE
    dist.all_gather_object(found, {"rank": RANK})
    assert found == [{"rank": rank} for rank in range(SIZE)]
    objects = [["any", 1] if RANK == 0 else None]
    dist.broadcast_object_list(objects, 0)
    assert objects == [["any", 1]]
    found = [None] * SIZE if RANK == 1 else None
    dist.gather_object(RANK, found, 1)
    assert found in (None, list(range(SIZE)))
    mine = [None]
    dist.scatter_object_list(mine, list(range(SIZE)) if RANK == 0 else None, 0)
    assert mine == [RANK]


def check_works_and_futures():
    tensor = torch.ones(4)
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait() and work.is_completed() and work.is_success()
    same(work.result()[0], SIZE)
    work = dist.all_reduce(tensor, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    same(doubled.wait(), 2 * SIZE * SIZE)
    same(work.get_future().wait()[0], SIZE * SIZE)
    works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(300)]  # more than the names of one place
    assert all(work.wait() for work in works)
    polled = dist.all_gather(list(torch.zeros(SIZE, 1)), torch.ones(1), async_op=True)
    limit = time.monotonic() + 60
    while not polled.is_completed() and time.monotonic() < limit:
        time.sleep(0.001)
    assert polled.is_completed()
    for _ in range(600):
        dist.all_reduce(torch.ones(1), async_op=True)  # never awaited
    dist.barrier()
    dist.barrier(async_op=True).wait()


def check_profiler():
    with torch.profiler.profile() as profile:
        works = [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(2)]
        dist.broadcast(torch.ones(2), 0)
        for work in works:
            work.wait()
    names = [event.name for event in profile.events()]
    assert (names.count("hvd:all_reduce"), names.count("hvd:broadcast")) == (2, 1), names


def check_groups():
    ranks = [[0, 1], [SIZE - 2, SIZE - 1], list(range(SIZE)), [SIZE - 1], list(range(SIZE))]
    groups = [dist.new_group(members) for members in ranks]
    for members, group in zip(ranks, groups):
        if RANK not in members:
            continue
        tensor = torch.full((2,), RANK + 1)
        dist.all_reduce(tensor, group=group)
        same(tensor, sum(rank + 1 for rank in members))
        tensor = torch.full((2,), RANK)
        dist.broadcast(tensor, members[-1], group=group)
        same(tensor, members[-1])
    # Two groups of the same ranks do not disturb each other.
    works = [
        dist.all_reduce(torch.ones(1), group=group, async_op=True) for group in (groups[2], groups[4])[:: 1 - 2 * (RANK % 2)]
    ]
    for work in works:
        work.wait()
    dist.destroy_process_group(groups[2])


def check_a_group_that_only_its_members_make():
    members = [0, 1] if RANK < 2 else list(range(2, SIZE))
    group = dist.new_group(members, use_local_synchronization=True)
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=group)
    same(tensor, len(members))
    dist.barrier()


def check_premul_sum():
    half = dist._make_nccl_premul_sum(0.5)
    tensor = torch.full((3,), float(RANK + 1))
    dist.all_reduce(tensor, half)
    same(tensor, ALL / 2)
    tensors = [torch.ones(2), torch.ones(1)]
    dist.all_reduce_coalesced(tensors, dist._make_nccl_premul_sum(torch.tensor([4.0])))
    same(tensors[1], 4 * SIZE)
    mine, whole = torch.zeros(2), torch.full((2 * SIZE,), float(RANK + 1))
    dist.reduce_scatter_tensor(mine, whole, half)
    same(mine, ALL / 2)
    same(whole, RANK + 1)
    tensor = torch.full((3,), float(RANK + 1))
    dist.reduce(tensor, 0, half)
    same(tensor, ALL / 2 if RANK == 0 else RANK + 1)


def check_a_group_in_another_order():
    if "sort_ranks" not in inspect.signature(dist.new_group).parameters:
        return  # torch sorts
    ranks = [1, 0] if SIZE < 4 else [2, 0, 3]
    for few in (True, False):
        group = dist.new_group(ranks, sort_ranks=False)
        if RANK not in ranks:
            continue
        most, operations._MOST_BROADCASTS = operations._MOST_BROADCASTS, 16 if few else 0
        place, size = dist.get_rank(group), len(ranks)
        assert place == ranks.index(RANK)
        tensor = torch.full((2,), RANK)
        dist.broadcast(tensor, ranks[0], group=group)
        same(tensor, ranks[0])
        parts = list(torch.zeros(size, 2))
        dist.all_gather(parts, torch.full((2,), float(RANK)), group=group)
        same(torch.stack(parts)[:, 0], torch.tensor(ranks))
        for op, wanted in ((dist.ReduceOp.SUM, sum(ranks) * 10 + size * place), (dist.ReduceOp.MAX, max(ranks) * 10 + place)):
            mine = torch.zeros(1)
            dist.reduce_scatter_tensor(mine, torch.arange(size) + 10.0 * RANK, op, group=group)
            same(mine, wanted)
        # The rank at place p sends p + 1 rows of the receiver's place to each rank.
        rows = torch.arange(size).repeat_interleave(place + 1).view(-1, 1).expand(-1, 3) + 10 * RANK
        got = torch.zeros(sum(range(size + 1)), 3, dtype=torch.int64)
        dist.all_to_all_single(got, rows, [p + 1 for p in range(size)], [place + 1] * size, group=group)
        wanted = [10 * rank + place for p, rank in enumerate(ranks) for _ in range(p + 1)]
        same(got[:, 0], torch.tensor(wanted))
        into = list(torch.zeros(size, 1)) if place == 1 else None
        dist.gather(torch.full((1,), float(RANK)), into, ranks[1], group=group)
        if into:
            same(torch.cat(into), torch.tensor(ranks))
        mine = torch.zeros(1)
        dist.scatter(mine, list(torch.arange(float(size)).split(1)) if place == 1 else None, ranks[1], group=group)
        same(mine, place)
        if place == 0:
            dist.send(torch.ones(1), ranks[1], group=group)
        elif place == 1:
            assert dist.recv(torch.zeros(1), group=group) == ranks[0]
        operations._MOST_BROADCASTS = most


def check_disagreements_are_told_and_the_next_call_works():
    for wanted, call in (
        ("disagree on shape", lambda: dist.all_reduce(torch.ones(3 + (RANK == 0)))),
        ("disagree on dtype", lambda: dist.all_reduce(torch.ones(3, dtype=torch.float64 if RANK else torch.float32))),
        ("disagree on reduce op", lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.MAX if RANK else dist.ReduceOp.MIN)),
        ("disagree on operation", lambda: dist.broadcast(torch.ones(3), 0) if RANK else dist.all_reduce(torch.ones(3))),
        (
            "disagree",
            lambda: dist.all_gather([torch.ones(1)] * SIZE, torch.ones(1)) if RANK else dist.all_reduce(torch.ones(1)),
        ),
        ("disagree on root", lambda: dist.broadcast(torch.ones(3), min(RANK, 1))),
    ):
        for _ in range(3):
            raises(RuntimeError, call, "c10d/world", wanted)
            tensor = torch.ones(3)
            dist.all_reduce(tensor)
            same(tensor, SIZE)


def check_wrong_arguments():
    raises(ValueError, lambda: dist.all_gather([torch.zeros(1)], torch.zeros(1)), str(SIZE))
    raises(RuntimeError, lambda: dist.all_to_all_single(torch.zeros(SIZE), torch.zeros(SIZE), None, [SIZE + 1] * SIZE))
    raises(ValueError, lambda: dist.send(torch.zeros(1), RANK))


def made_anew(path):
    """The default group, made again."""
    dist.destroy_process_group()
    again = hvd.broadcast_object(tempfile.mktemp() if RANK == 0 else None)
    dist.init_process_group("cpu:hvd", init_method=f"file://{again}", rank=RANK, world_size=SIZE)
    if RANK == 0 and os.path.exists(path):
        os.remove(path)
    return again


def check_after_destroy_it_can_be_made_again():
    again = made_anew(path)
    # Rank 0 leaves a pending call, and in the next world another call has its place.
    dist.barrier()  # the limit also holds for making the group
    late = dist.new_group(timeout=timedelta(seconds=3))
    if RANK == 0:
        raises(RuntimeError, lambda: dist.all_reduce(torch.ones(2), group=late), "Timed out")
    hvd.barrier()
    again = made_anew(again)
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=dist.new_group())
    same(tensor, SIZE)
    pair = dist.new_group([0, 1])
    if RANK < 2:
        dist.all_reduce(tensor, group=pair)
        same(tensor, 2 * SIZE)
    dist.destroy_process_group()
    if RANK == 0 and os.path.exists(again):
        os.remove(again)


def check_worlds_that_share_a_store():
    """torch's default does this: rank 0's process keeps one server for each address."""
    store, _, _ = rendezvous(timedelta(seconds=60))
    for _ in range(3):
        dist.init_process_group("hvd", store=store, rank=RANK, world_size=SIZE, timeout=timedelta(seconds=20))
        pair, tensor = dist.new_group([0, 1]), torch.ones(1)
        if RANK < 2:
            dist.all_reduce(tensor, group=pair)
            same(tensor, 2)
        if RANK == 1:
            dist.send(torch.ones(1), 0)
        elif RANK == 0:
            assert dist.recv(torch.zeros(1)) == 1
        if RANK == 0:
            raises(RuntimeError, lambda: dist.monitored_barrier(timeout=timedelta(seconds=0.05)), "failed to pass")
        hvd.barrier()
        dist.destroy_process_group()
