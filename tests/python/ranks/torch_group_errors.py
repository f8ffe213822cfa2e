"""Failing calls: every future and work of a process group reports it, to Python and to torch's C++ code."""

import gc
import threading
import time
import weakref
from functools import partial

import torch
import torch.distributed as dist
from refusals import raises
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hvd.torch as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
dist.init_process_group("hvd", init_method="hvd://")


def failing():
    """A call on which ranks disagree."""
    return dist.all_reduce(torch.ones(3 + (RANK == 1)), async_op=True)


def told(call, *words):
    """Expects a RuntimeError with the disagreement, once; the next call works."""
    raises(RuntimeError, call, "ranks disagree", *words)
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [SIZE] * 2


def check_a_work():
    work = failing()
    told(work.wait, "shape")
    told(work.wait, "shape")  # again
    told(work.result)
    assert work.is_completed() and not work.is_success() and "disagree" in str(work.exception())
    told(work.get_future().wait)  # a future requested after the end


def check_futures_and_their_callbacks():
    for late in (False, True):
        future = failing().get_future()
        if late:
            told(future.wait, "shape")
        followers = [future.then(lambda done: done.value()[0] * 2)]
        followers.append(followers[0].then(lambda done: done.wait()))
        called = []
        future.add_done_callback(lambda done, called=called: called.append(done.done()))
        for one in (future, *followers):
            told(one.wait, "shape")
            told(one.value)
        told(partial(torch.futures.wait_all, [future]))
        told(torch.futures.collect_all([future]).wait)
        deadline = time.monotonic() + 30
        while not called and time.monotonic() < deadline:
            time.sleep(0.001)
        assert called == [True]
        # torch's prefix appears at most twice, for any length of the chain.
        try:
            followers[1].wait()
        except RuntimeError as error:
            assert str(error).count("Got the following error") <= 2, error


def check_a_callback_that_raises():
    def refuse(done):
        done.wait()
        raise ValueError("not these numbers")

    future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    raises(RuntimeError, future.then(refuse).wait, "not these numbers")
    assert future.wait()[0].tolist() == [SIZE] * 2
    seen = []
    other = failing().get_future().then(lambda done: seen.append(1) or "went on")  # it ignores the error
    assert other.wait() == "went on" and seen == [1]


def check_futures_of_others_stay_theirs():
    """then() of torch's own futures first checks for ours."""
    future = torch.futures.Future()
    following = future.then(lambda done: done.value() + 1).then(lambda done: done.value() + 1)
    called = []
    future.add_done_callback(lambda done: called.append(done.value()))
    threading.Thread(target=future.set_result, args=(1,)).start()
    assert following.wait() == 3
    failed = torch.futures.Future()
    failed.set_exception(ValueError("mine"))
    raises(ValueError, failed.wait, "mine")


def check_messages():
    """A receive with room for another size."""
    if RANK < 2:
        work = dist.isend(torch.ones(2), 1) if RANK == 0 else dist.irecv(torch.zeros(3), 0)
        future = work.get_future()
        raises(RuntimeError, work.wait, "disagree")
        raises(RuntimeError, future.wait, "disagree")
    dist.barrier()


def check_roots_that_are_no_ranks():
    ones = torch.ones(1)
    for root in (-1, SIZE):
        raises(ValueError, lambda root=root: dist.broadcast(ones, src=root), "broadcast", f"no rank {root}")
        raises(ValueError, lambda root=root: dist.reduce(ones, dst=root), "reduce", f"no rank {root}")
        raises(ValueError, lambda root=root: dist.gather(ones, dst=root), "gather", f"no rank {root}")
        raises(ValueError, lambda root=root: dist.scatter(ones, src=root), "scatter", f"no rank {root}")
    dist.barrier()


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def loss_of(network):
    return network(torch.ones(2, 16)).sum()


def other_call():
    """Rank 1's call in place of backward()."""
    dist.all_reduce(torch.ones(7))


def loss_after_steps(network):
    """The loss after the first steps, in which torch rebuilds its buckets."""
    for _ in range(2):
        loss_of(network).backward()
    return loss_of(network)


def told_in_backward(network, other=other_call):
    loss = loss_after_steps(network)
    told(other if RANK == 1 else loss.backward)


def check_ddp_whose_reduction_fails():
    """In backward(), with each kind of hook, and again with a new network."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    power = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=1)
    hooks = [None, (None, default_hooks.allreduce_hook), (None, default_hooks.fp16_compress_hook)]
    for hook in [*hooks, (power, powerSGD_hook.powerSGD_hook)]:
        for options in ({}, {"static_graph": True}):
            network = DistributedDataParallel(model(), **options)
            if hook is not None:
                network.register_comm_hook(*hook)
            told_in_backward(network)


def check_ddp_with_this_packages_hook():
    network = DistributedDataParallel(model())
    network.register_comm_hook(None, hvd.ddp_comm_hook)
    count = sum(parameter.numel() for parameter in network.parameters())
    other = torch.ones(count, dtype=torch.float64)
    told_in_backward(network, lambda: hvd.allreduce(other, name=f"ddp.0.{count}"))


def check_fsdp2_whose_reduction_fails():
    from torch.distributed.fsdp import fully_shard

    network = model()
    fully_shard(network)
    loss_of(network).backward()
    told(other_call if RANK == 1 else lambda: loss_of(network))  # in forward()
    network = model()
    fully_shard(network, reshard_after_forward=False)
    loss = loss_of(network)
    told(other_call if RANK == 1 else loss.backward)


def check_errors_keep_nothing_alive():
    """A network whose backward() failed is freed at once: its hooks hold no reference to the parameters."""

    def failed_step():
        network = DistributedDataParallel(model())
        told_in_backward(network)
        return weakref.ref(network)

    gc.collect()
    gc.disable()
    try:
        assert failed_step()() is None
    finally:
        gc.enable()


def check_a_hook_that_mends():
    """A comm hook of the script that repairs a failure."""

    def mending(state, bucket):
        buffer = bucket.buffer()
        future = dist.all_reduce(buffer, async_op=True).get_future()

        def mend(done):
            try:
                return done.value()[0]
            except RuntimeError:
                return torch.zeros_like(buffer)

        return future.then(mend)

    network = DistributedDataParallel(model())
    network.register_comm_hook(None, mending)
    loss = loss_after_steps(network)
    network.zero_grad()
    if RANK == 1:
        raises(RuntimeError, other_call, "disagree")
    else:
        loss.backward()
        assert all(parameter.grad.count_nonzero() == 0 for parameter in network.parameters())
    dist.barrier()


def check_a_group_does_not_outlive_its_world():
    before = dist.group.WORLD
    pair = dist.new_group([0, 1])
    hvd.shutdown()
    hvd.init()
    raises(RuntimeError, lambda: dist.all_reduce(torch.ones(1)), "world has ended", "init_process_group")
    if RANK < 2:
        raises(RuntimeError, lambda: dist.send(torch.ones(1), 1 - RANK, group=pair), "world has ended")
    dist.destroy_process_group()
    dist.init_process_group("hvd", init_method="hvd://")
    assert dist.group.WORLD is not before
    dist.all_reduce(tensor := torch.ones(1))
    assert tensor.item() == SIZE
    dist.destroy_process_group()
