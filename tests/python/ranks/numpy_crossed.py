"""Operations of different kinds under one name: refused on all ranks, without a wait.

HOROVOD_STALL_CHECK_TIME_SECONDS is 1 here; with the default it takes 5 seconds."""

import numpy as np

import hvd.numpy as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
CALLS = {
    "allreduce": lambda name, **more: hvd.allreduce(np.ones(3), name=name, **more),
    "allgather": lambda name, **more: hvd.allgather(np.ones(3), name=name, **more),
    "broadcast": lambda name, **more: hvd.broadcast(np.ones(3), 0, name=name, **more),
    "alltoall": lambda name, **more: hvd.alltoall(np.ones(2 * SIZE), name=name, **more),
    "reducescatter": lambda name, **more: hvd.reducescatter(np.ones(4), name=name, **more),
    "grouped": lambda name, **more: hvd.grouped_allreduce([np.ones(3), np.ones(2)], name=name, **more),
}


def refused(call, *words):
    try:
        call()
    except hvd.HorovodInternalError as error:
        assert error.code == "mismatch", error
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError("it was not refused")


def check_each_kind_against_another():
    for number, (here, there) in enumerate(zip(CALLS, [*list(CALLS)[1:-1], "allreduce", "allgather"])):
        if here == "grouped":
            continue
        name = f"t{number}"
        refused(lambda: CALLS[there if RANK else here](name), name, f"{here} on rank 0", f"{there} on ranks 1")  # noqa: B023
        CALLS[here](name)  # the next one works


def check_names_that_both_have_had():
    for kind in ("allreduce", "broadcast"):
        for _ in range(3):
            CALLS[kind]("known")
    refused(lambda: CALLS["broadcast" if RANK else "allreduce"]("known"), "known", "allreduce on rank 0")
    for kind in ("allreduce", "broadcast"):
        CALLS[kind]("known")


def check_a_member_of_a_group():
    refused(lambda: CALLS["allgather"]("g.0") if RANK else CALLS["grouped"]("g"), "g.0")
    CALLS["grouped"]("g")


def check_in_a_process_set():
    members = hvd.add_process_set([0, 1])
    if RANK < 2:
        refused(lambda: CALLS["broadcast" if RANK else "allreduce"]("s", process_set=members), "'s'", "broadcast on rank 1")
    hvd.barrier()


def check_crossed_orders_are_no_mistake():
    handles = [lambda: hvd.allreduce_async(np.ones(3), name="c"), lambda: hvd.allgather_async(np.ones(3), name="c")]
    for _ in range(3):
        started = [call() for call in (handles if RANK else handles[::-1])]
        sizes = [hvd.synchronize(handle).size for handle in started]
        assert sorted(sizes) == [3, 3 * SIZE], sizes
