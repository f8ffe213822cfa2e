"""torch's features based on process groups, over "hvd" and over gloo in turn: the same numbers."""

import shutil
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_models import EVERYONES, Tables

import hvd.torch as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
folder = hvd.broadcast_object(tempfile.mkdtemp() if RANK == 0 else None)
dist.init_process_group("hvd", init_method=f"file://{folder}/store", rank=RANK, world_size=SIZE)
GLOO = dist.new_group(backend="gloo")
BACKENDS = ("hvd", "gloo")


def group(backend):
    return dist.group.WORLD if backend == "hvd" else GLOO


def mesh(backend):
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh.from_group(group(backend), "cpu")


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))


def batch(step, rank=RANK):
    return torch.randn(4, 16, generator=torch.Generator().manual_seed(100 * step + rank))


def trained(network, optimizer, batches):
    for data in batches:
        optimizer.zero_grad()
        network(data).pow(2).mean().backward()
        optimizer.step()


def whole(parameters):
    return torch.cat([(p.full_tensor() if hasattr(p, "full_tensor") else p).detach().reshape(-1) for p in parameters])


def alike(results, rtol=1e-5, atol=1e-6):
    torch.testing.assert_close(results[0], results[1], rtol=rtol, atol=atol)


def with_ddp(backend, **options):
    network = DistributedDataParallel(model(), process_group=group(backend), bucket_cap_mb=0.001, **options)
    trained(network, torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9), [batch(step) for step in range(5)])
    return whole(network.parameters())


def check_ddp():
    for options in ({}, {"static_graph": True}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True}):
        alike([with_ddp(backend, **options) for backend in BACKENDS])


def check_ddp_join():
    def result(backend):
        network = DistributedDataParallel(model(), process_group=group(backend))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        with network.join():
            trained(network, optimizer, [batch(step) for step in range(2 + RANK)])
        return whole(network.parameters())

    alike([result(backend) for backend in BACKENDS])


def check_ddp_with_hooks():
    """Hooks wait for further operations in callbacks of futures, PowerSGD's for several."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    def result(backend, hook, state, megabytes):
        network = DistributedDataParallel(model(), process_group=group(backend), bucket_cap_mb=megabytes)
        network.register_comm_hook(state, hook)
        trained(network, torch.optim.SGD(network.parameters(), lr=0.1), [batch(step) for step in range(6)])
        return whole(network.parameters())

    def with_power_sgd(backend, megabytes=25):
        state = powerSGD_hook.PowerSGDState(group(backend), start_powerSGD_iter=2, min_compression_rate=1, random_seed=5)
        return result(backend, powerSGD_hook.powerSGD_hook, state, megabytes)

    halves = [result(backend, default_hooks.fp16_compress_hook, group(backend), 0.001) for backend in BACKENDS]
    alike(halves, rtol=1e-3, atol=1e-4)
    alike([with_power_sgd(backend) for backend in BACKENDS])
    # Callbacks of several buckets run in parallel. Over gloo their operations mix up, so only "hvd" is tested.
    found = [with_power_sgd("hvd", 0.001) for _ in range(5)]
    parts = [torch.empty_like(found[0]) for _ in range(SIZE)]
    dist.all_gather(parts, found[0])
    assert all(torch.equal(other, found[0]) for other in [*found, *parts])


def check_ddp_with_builtin_hooks():
    """torch's hooks in C++."""

    def result(backend, kind):
        network = DistributedDataParallel(model(), process_group=group(backend), bucket_cap_mb=0.001)
        network._register_builtin_comm_hook(kind)
        trained(network, torch.optim.SGD(network.parameters(), lr=0.1), [batch(step) for step in range(5)])
        assert network._get_ddp_logging_data()["comm_hook"] == str(kind)
        return whole(network.parameters())

    for kind in (dist.BuiltinCommHookType.ALLREDUCE, dist.BuiltinCommHookType.FP16_COMPRESS):
        found = [result(backend, kind) for backend in BACKENDS]
        if SIZE == 2:  # the sum of two halves does not depend on the order
            assert torch.equal(*found), (found[0] - found[1]).abs().max()
        alike(found, rtol=1e-3, atol=1e-4)


def check_ddp_compiled():
    """Compiled code calls the group."""
    network = DistributedDataParallel(model())
    compiled = torch.compile(network, backend="aot_eager")
    trained(compiled, torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9), [batch(step) for step in range(5)])
    alike([whole(network.parameters()), with_ddp("gloo")])


def check_callbacks_that_wait():
    """Each future's callback waits for an operation that it has begun, three levels deep."""

    def begin(depth):
        future = dist.all_reduce(torch.full((2,), float(depth)), async_op=True).get_future()
        if depth == 0:
            return future
        return future.then(lambda done: done.value()[0] + begin(depth - 1).wait()[0])

    futures = [begin(3) for _ in range(4)]
    found = [future.wait() for future in futures]
    assert all(value.tolist() == [6.0 * SIZE] * 2 for value in found), found


def check_callbacks_inside_of_then():
    """On rank 1 the work is complete, so then() runs the callback itself. On other ranks the callback runs later, in another
    thread."""

    def begin():
        return dist.all_reduce(torch.ones(2), async_op=True).get_future()

    if RANK == 1:
        time.sleep(0.2)
    first = begin()
    if RANK == 1:
        first.wait()
    following = first.then(lambda done: done.value()[0] + sum(begin().wait()[0] for _ in range(3)))
    others = [begin() for _ in range(3)]
    assert following.wait().tolist() == [4.0 * SIZE] * 2
    assert all(future.wait()[0].tolist() == [SIZE] * 2 for future in others)


def check_message_that_comes_last():
    """A posted receive does not block later operations of the group."""
    message = torch.zeros(2)
    received = dist.irecv(message, (RANK - 1) % SIZE).get_future()
    dist.all_reduce(torch.ones(2), async_op=True).get_future().wait()
    dist.send(torch.full((2,), float(RANK)), (RANK + 1) % SIZE)
    received.wait()
    assert message.tolist() == [(RANK - 1) % SIZE] * 2


def check_ddp_sparse_gradients():
    def result(backend):
        torch.manual_seed(3)
        network = DistributedDataParallel(nn.EmbeddingBag(20, 4, sparse=True), process_group=group(backend))
        batches = [torch.arange(RANK, RANK + 6).view(2, 3)] * 3
        trained(network, torch.optim.SGD(network.parameters(), lr=0.1), batches)
        return whole(network.parameters())

    alike([result(backend) for backend in BACKENDS])


def check_fsdp2():
    from torch.distributed.fsdp import fully_shard

    def result(backend):
        network = model()
        for layer in (network[0], network[2], network):
            fully_shard(layer, mesh=mesh(backend))
        trained(network, torch.optim.Adam(network.parameters(), lr=0.1), [batch(step) for step in range(4)])
        return whole(network.parameters())

    alike([result(backend) for backend in BACKENDS])


class AllSizes(Tables):
    """DistributedDataParallel and FSDP2 require a forward()."""

    def forward(self):
        return self.loss(torch.arange)


def check_gradients_of_all_sizes():
    from torch.distributed.fsdp import fully_shard

    for megabytes in (0.02, 25):
        network = DistributedDataParallel(AllSizes(), bucket_cap_mb=megabytes)
        for _ in range(2):  # the buckets of the first step differ
            network().backward()
        for parameter in network.parameters():
            torch.testing.assert_close(parameter.grad, torch.full_like(parameter, 2 * EVERYONES))
    network = AllSizes()
    fully_shard(network)
    network().backward()
    for parameter in network.parameters():
        local = parameter.grad.to_local()
        torch.testing.assert_close(local, torch.full_like(local, EVERYONES))


def check_dtensor():
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def result(backend):
        torch.manual_seed(1)
        plain = torch.randn(7, 6)
        rows = distribute_tensor(plain, mesh(backend), [Shard(0)])
        moved = rows.redistribute(placements=[Shard(1)]).redistribute(placements=[Replicate()])
        assert torch.equal(moved.to_local(), plain)
        return (rows @ rows.T).full_tensor()

    alike([result(backend) for backend in BACKENDS])


def check_tensor_parallel():
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def result(backend):
        network = parallelize_module(model(), mesh(backend), {"0": ColwiseParallel(), "2": RowwiseParallel()})
        trained(network, torch.optim.SGD(network.parameters(), lr=0.1), [batch(step, 0) for step in range(4)])
        return whole(network.parameters())

    alike([result(backend) for backend in BACKENDS])


def check_two_dimensions():
    if SIZE % 2:
        return
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    sides = init_device_mesh("cpu", (2, SIZE // 2), mesh_dim_names=("replicas", "shards"))
    network = model()
    fully_shard(network, mesh=sides)
    trained(network, torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9), [batch(step) for step in range(5)])
    torch.testing.assert_close(whole(network.parameters()), with_ddp("gloo"), rtol=1e-4, atol=1e-5)


def check_checkpoint():
    from torch.distributed import checkpoint
    from torch.distributed.fsdp import fully_shard

    network = model()
    fully_shard(network)
    before = whole(network.parameters())
    checkpoint.save(network.state_dict(), checkpoint_id=f"{folder}/checkpoint")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    state = network.state_dict()
    checkpoint.load(state, checkpoint_id=f"{folder}/checkpoint")
    network.load_state_dict(state)
    assert torch.equal(whole(network.parameters()), before)


def check_zero_redundancy_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def result(backend):
        network = DistributedDataParallel(model(), process_group=group(backend))
        optimizer = ZeroRedundancyOptimizer(
            network.parameters(), optimizer_class=torch.optim.Adam, process_group=group(backend), lr=0.1
        )
        trained(network, optimizer, [batch(step) for step in range(4)])
        optimizer.consolidate_state_dict(0)
        return whole(network.parameters())

    alike([result(backend) for backend in BACKENDS])


def check_pipeline():
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    def result(backend):
        torch.manual_seed(2)
        layer = [nn.Linear(8, 8) for _ in range(SIZE)][RANK]
        stage = PipelineStage(layer, RANK, SIZE, torch.device("cpu"), group=group(backend))
        schedule = ScheduleGPipe(stage, 4, loss_fn=lambda found, wanted: (found - wanted).pow(2).mean())
        given = (torch.ones(8, 8),) if RANK == 0 else ()
        schedule.step(*given, **({"target": torch.zeros(8, 8)} if RANK == SIZE - 1 else {}))
        return layer.weight.grad

    alike([result(backend) for backend in BACKENDS])


def check_functional_collectives_and_compile():
    @torch.compile(backend="aot_eager")
    def doubled(tensor):
        dist.all_reduce(tensor)
        return tensor * 2

    assert doubled(torch.ones(3)).tolist() == [2.0 * SIZE] * 3


def check_end():
    dist.barrier()
    dist.destroy_process_group()
    assert not dist.is_initialized()
    hvd.barrier()
    if RANK == 0:
        shutil.rmtree(folder, ignore_errors=True)
