"""torch.distributed over the backend "hvd": messages, pending calls, and calls that wait to their time limit."""

import signal
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from refusals import raises

import hvd.torch as hvd
from hvd.torch._c10d import group_work

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
dist.init_process_group("hvd", init_method="hvd://", timeout=timedelta(seconds=60))


def same(found, wanted):
    wanted = torch.as_tensor(wanted, dtype=found.dtype)
    assert torch.equal(found, wanted.expand_as(found)), f"{found} is not {wanted}"


def check_send_and_recv():
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    mine, its = torch.full((3, 2), float(RANK)).t(), torch.zeros(2, 3)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, after), dist.P2POp(dist.irecv, its, before)]):
        work.wait()
    same(its, before)
    if RANK < 2:
        for number in range(100):
            if RANK == 0:
                dist.send(torch.tensor([number]), 1, tag=number % 3)
            else:
                got = torch.zeros(1, dtype=torch.int64)
                assert dist.recv(got, 0, tag=number % 3) == 0
                same(got, number)
    # tags: the later message is received first
    if RANK == 0:
        works = [dist.isend(torch.tensor([tag]), 1, tag=tag) for tag in (1, 2)]
        for work in works:
            work.wait()
    elif RANK == 1:
        for tag in (2, 1):
            got = torch.zeros(1, dtype=torch.int64)
            dist.recv(got, 0, tag=tag)
            same(got, tag)


def check_messages_to_oneself():
    mine, its = torch.arange(6.0).reshape(2, 3).t(), torch.zeros(3, 2)
    for calls in ((dist.isend, dist.irecv), (dist.irecv, dist.isend)):
        its.zero_()
        ops = [dist.P2POp(call, mine if call is dist.isend else its, RANK) for call in calls]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        same(its, mine)
    for tag in (1, 1, 2):
        given = torch.full((2,), float(tag))
        dist.isend(given, RANK, tag=tag).wait()
        given.zero_()  # the message is a copy
    for tag in (2, 1, 1):
        got = torch.zeros(2)
        work = dist.irecv(got, RANK, tag=tag)
        assert work.is_completed() and work.get_future().wait()[0] is got
        same(got, tag)
    dist.isend(torch.ones(3), RANK)
    raises(ValueError, dist.irecv(torch.zeros(2), RANK).wait, "3 elements", "room for 2")
    late = dist.irecv(torch.zeros(2), RANK)
    raises(dist.DistBackendError, lambda: late.wait(timedelta(milliseconds=10)), "Timed out")
    dist.isend(torch.ones(2), RANK)
    late.wait()
    raises(ValueError, lambda: dist.send(torch.ones(1), RANK), "rank")  # torch's own refusal


def check_recv_from_any_source():
    """Rank 0 receives 20 messages of each of two tags from each other rank: most in any order, the last by name."""
    if RANK:
        for number in range(20):
            for tag in (7, 8):
                dist.send(torch.tensor([100 * RANK + number]), 0, tag=tag)
        dist.barrier()
        return
    got = torch.zeros(1, dtype=torch.int64)
    taken = {(rank, tag): [] for rank in range(1, SIZE) for tag in (7, 8)}
    for _ in range(15 * (SIZE - 1)):
        for tag in (7, 8):
            source = dist.recv(got, tag=tag)
            taken[source, tag].append(int(got))
    for (rank, _), numbers in taken.items():  # equal for both tags: sends wait for their receives
        assert abs(len(numbers) - len(taken[rank, 7])) <= 1
    for number in range(20):
        for (rank, tag), numbers in taken.items():
            if len(numbers) == number:
                assert dist.recv(got, rank, tag=tag) == rank
                numbers.append(int(got))
    for (rank, tag), numbers in taken.items():
        assert numbers == [100 * rank + number for number in range(20)], (rank, tag, numbers)
    dist.barrier()


def check_many_receives_from_any_source_at_once():
    """Rank 0 posts all receives before any rank sends. Each receive gets a different message."""
    others = [torch.zeros(2, 3).t() for _ in range(4 * (SIZE - 1))]
    works = [dist.irecv(tensor) for tensor in others] if RANK == 0 else []
    dist.barrier()
    for number in range(4 if RANK else 0):
        dist.send(torch.full((3, 2), 10.0 * RANK + number), 0)
    if RANK:
        return
    for work in works:
        work.wait()
    sources = [work._source_rank() if hasattr(work, "_source_rank") else work.source_rank() for work in works]
    assert sorted(sources) == sorted(list(range(1, SIZE)) * 4), sources
    for tensor, source in zip(others, sources):
        assert int(tensor[0, 0]) // 10 == source
    assert len({int(tensor[0, 0]) for tensor in others}) == len(others)


def check_many_pending_messages():
    """Ranks that send first and receive afterwards, with more messages than names."""
    if RANK < 2:
        sends = [dist.isend(torch.tensor([float(i)]), 1 - RANK, tag=77) for i in range(150)]
        tensor = torch.zeros(1)
        for i in range(150):
            dist.recv(tensor, 1 - RANK, tag=77)
            same(tensor, i)
        for work in sends:
            work.wait()
    tensor = torch.zeros(1)
    lone = [dist.isend(tensor, 1, tag=78) for _ in range(66)] if RANK == 0 else []
    for work in lone[::65]:
        raises(RuntimeError, partial(work.wait, timedelta(seconds=0.1)), "Timed out")
    hvd.barrier()
    for _ in range(66 if RANK == 1 else 0):
        dist.recv(tensor, 0, tag=78)
    for work in lone:
        work.wait()


def check_a_wait_has_a_limit():
    group = dist.new_group(list(range(SIZE)))
    if RANK == 0:
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        raises(dist.DistBackendError, lambda: work.wait(timedelta(seconds=0.2)), "c10d", "Timed out waiting 200ms")
        dist.barrier()
        assert work.wait()
    else:
        dist.barrier()
        dist.all_reduce(torch.ones(1), group=group)


def check_a_group_that_timed_out_refuses_calls():
    other = dist.new_group([0, 1])
    dist.barrier()  # the limit also holds for making the group: its process set exists, and no rank is late
    group = dist.new_group([0, 1], timeout=timedelta(seconds=3))
    if RANK == 0:
        x = torch.ones(1)
        raises(dist.DistBackendError, lambda: dist.all_reduce(x, group=group), "Timed out waiting 3000ms")
        raises(
            dist.DistBackendError,
            lambda: dist.all_reduce(torch.ones(1), group=group),
            "timed out before",
            "destroy_process_group",
        )
        raises(dist.DistBackendError, lambda: dist.send(torch.ones(1), 1, group=group), "timed out before")
    if RANK < 2:
        dist.barrier(group=other)  # other groups work
    if RANK == 1:
        dist.all_reduce(torch.ones(1), group=group)  # ends the pending call
    dist.barrier()


class Alarm(Exception):
    pass


def check_an_exception_of_a_signal_handler_leaves_a_call():
    """A call that an exception interrupts keeps its tensor. The group refuses this rank's next calls until all ranks have made
    the interrupted call."""

    def ring(*_):
        raise Alarm()

    other = dist.new_group([0, 1])
    group = dist.new_group([0, 1])
    if RANK > 1:
        return
    dist.barrier(group=group)  # its process set exists
    seconds = group_work._LEFT_SECONDS
    for ended in (True, False):
        group_work._LEFT_SECONDS = 60 if ended else 0.5
        x = torch.full((1000,), RANK + 1.0)
        dist.barrier(group=other)
        if RANK == 0:
            before = signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            raises(Alarm, lambda x=x: dist.all_reduce(x, group=group))
            signal.signal(signal.SIGALRM, before)
        if ended:
            dist.barrier(group=other)
            if RANK == 1:
                dist.all_reduce(x, group=group)
            dist.all_reduce(x, group=group)  # waits for the end of the one before
            same(x, 6)
        elif RANK == 0:
            words = "was left by an exception before", "destroy_process_group"
            raises(dist.DistBackendError, lambda: dist.all_reduce(torch.ones(1), group=group), "c10d", *words)
            raises(dist.DistBackendError, lambda: dist.send(torch.ones(1), 1, group=group), *words)
        dist.barrier(group=other)
    if RANK == 1:
        dist.all_reduce(x, group=group)  # ends the pending call
    dist.barrier(group=other)
    dist.all_reduce(x, group=group)  # the group goes on
    same(x, 6)
    group_work._LEFT_SECONDS = seconds


def check_monitored_barrier():
    dist.monitored_barrier()
    if RANK == 1:  # it comes too late
        dist.barrier()
        raises(RuntimeError, lambda: dist.monitored_barrier(timeout=timedelta(seconds=20)), "Rank 1 failed to pass")
    else:
        raises(RuntimeError, lambda: dist.monitored_barrier(timeout=timedelta(seconds=0.05)), "monitoredBarrier")
        dist.barrier()


def check_many_pending_calls_of_one_place():
    """More than the names of one place.  Rank 0 makes them all before a message for which the others wait."""
    message, count = torch.zeros(1), 80
    if RANK:
        dist.recv(message, 0)
    ones = [torch.ones(2) for _ in range(count)]
    works = [dist.all_reduce(one, async_op=True) for one in ones]
    parts = [[torch.zeros(3) for _ in range(SIZE)] for _ in range(count)]
    works += [dist.all_gather(part, torch.full((3,), float(RANK)), async_op=True) for part in parts]
    rows = [torch.zeros(SIZE) for _ in range(count)]
    works += [dist.all_to_all_single(row, torch.full((SIZE,), RANK + 10.0 * n), async_op=True) for n, row in enumerate(rows)]
    sums = [torch.zeros(1) for _ in range(count)]
    works += [dist.reduce_scatter_tensor(one, torch.arange(SIZE) + 1.0, async_op=True) for one in sums]
    futures = [work.get_future() for work in works]
    if RANK == 0:
        for rank in range(1, SIZE):
            dist.send(torch.full((1,), 5.0), rank)
    for work in works:
        work.wait()
    for future in futures:
        future.wait()
    for one, part, total in zip(ones, parts, sums):
        same(one, SIZE)
        same(torch.stack(part), torch.arange(SIZE).view(-1, 1))
        same(total, SIZE * (RANK + 1))
    for n, row in enumerate(rows):
        same(row, torch.arange(SIZE) + 10.0 * n)
    dist.barrier()


def check_the_end():
    dist.destroy_process_group()
    assert not dist.is_initialized()
