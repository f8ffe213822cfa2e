"""allreduce_async_ and synchronize: handles, failures, pending names, and no leaks."""

import gc
import sys

import torch

import horovod.torch as hvd
from hvd.torch.ops import collectives

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


class Broken:
    is_cpu = True

    def is_contiguous(self):
        raise RuntimeError("is broken")


def ones(*shape, dtype=torch.float32):
    return torch.ones(shape or (3, 2), dtype=dtype) * (RANK + 1)


def check_handles():
    for unknown in (12345, True, None, "a", 1 << 70):
        assert hvd.synchronize(unknown) is None
    assert hvd.synchronize(lambda: "called") == "called"
    for arguments in (([],), (), (1, 2)):
        try:
            hvd.synchronize(*arguments)
            raise AssertionError("no error")
        except TypeError:
            pass
    tensor = ones()
    assert hvd.synchronize(handle=hvd.allreduce_async_(tensor, name="by name")) is tensor
    new = hvd.synchronize(hvd.allreduce_async(tensor, name="new"))
    assert new is not tensor and new.shape == tensor.shape
    several = hvd.synchronize(hvd.grouped_allreduce_async_([tensor, new], name="several"))
    assert several[0] is tensor and several[1] is new
    view = ones(4, 4).t()[1:]  # not dense
    assert hvd.synchronize(hvd.allreduce_async_(view, name="a view", op=hvd.Max)) is view and view.max() == SIZE
    assert not collectives._pending


def check_failures_of_all_ranks():
    handle = hvd.allreduce_async_(torch.ones(RANK + 1), name="differ")
    try:
        hvd.synchronize(handle)
        raise AssertionError("no error")
    except hvd.HorovodInternalError as error:
        assert error.code == "mismatch" and "differ" in str(error)
    assert hvd.synchronize(handle) is None and not collectives._pending
    hvd.barrier()


def check_a_name_under_way():
    tensor = ones()
    handle = hvd.allreduce_async_(tensor, name="busy") if RANK == 0 else 0
    if RANK == 0:
        try:
            hvd.allreduce_async_(ones(), name="busy")
            raise AssertionError("no error")
        except ValueError as error:
            assert "under way" in str(error)
    assert len(collectives._pending) == (RANK == 0)
    hvd.barrier()
    handle = handle or hvd.allreduce_async_(tensor, name="busy")
    assert hvd.synchronize(handle) is tensor


def check_process_sets():
    first = hvd.add_process_set([0])
    if RANK == 0:
        tensor = ones()
        assert hvd.synchronize(hvd.allreduce_async_(tensor, op=hvd.Sum, name="alone", process_set=first)) is tensor
        assert tensor.tolist() == ones().tolist()
    hvd.remove_process_set(first)
    try:
        hvd.allreduce_async_(ones(), name="gone", process_set=first)
        raise AssertionError("no error")
    except ValueError as error:
        assert "does not exist" in str(error)


def check_nothing_is_kept():
    tensor, name, group = ones(64), "kept " * 2, hvd.global_process_set
    other = ones(64).t()[::2]

    def once(steps):
        for _ in range(steps):
            assert hvd.synchronize(hvd.allreduce_async_(tensor, name=name, op=hvd.Sum, process_set=group)) is tensor
            assert hvd.synchronize(handle=hvd.allreduce_async_(tensor, None, name, None, 1, 1.0)) is tensor
            assert hvd.synchronize(hvd.allreduce_async_(other, name=name)) is other
            for arguments, keywords in (((tensor,), {"op": 9}), ((Broken(),), {}), ((tensor,), {"nam": 1}), ((), {})):
                try:
                    hvd.allreduce_async_(*arguments, **keywords)
                except (TypeError, ValueError):
                    continue
                raise AssertionError("no error")

    once(20)
    watched = (tensor, other, name, group, tensor.dtype, collectives._pending, None, True, tensor.shape)
    gc.collect()
    before, blocks = [sys.getrefcount(thing) for thing in watched], sys.getallocatedblocks()
    once(300)
    gc.collect()
    after = [sys.getrefcount(thing) for thing in watched]
    assert all(abs(a - b) < 100 for a, b in zip(after, before)), (before, after)
    assert sys.getallocatedblocks() - blocks < 150, sys.getallocatedblocks() - blocks
