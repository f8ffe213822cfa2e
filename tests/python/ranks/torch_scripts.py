"""Things besides functions that scripts for Horovod use: names, types of errors, texts, remains."""

import threading
import warnings

import torch
from refusals import raises
from torch import nn

import horovod.torch as hvd
from horovod.common.basics import HorovodBasics
from horovod.common.util import env, extension_available, num_rank_is_power_2, split_list
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.runner.util.threads import execute_function_multithreaded, in_thread, on_event
from horovod.torch.mpi_ops import Adasum, allreduce_async_, synchronize
from horovod.torch.sync_batch_norm import SyncBatchNorm


def sets_by_id():
    return hvd.mpi_ops._basics._get_process_set_ids_and_ranks()


def check_before_init():
    model = nn.Linear(2, 2)
    for call in (
        hvd.rank,
        hvd.join,
        hvd.barrier,
        lambda: hvd.allreduce(torch.ones(1)),
        lambda: hvd.broadcast_parameters(model.state_dict(), 0),
        lambda: hvd.broadcast_object(1),
        lambda: hvd.add_process_set([0]),
        lambda: hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1)),
    ):
        raises(ValueError, call, "not initialised", "init()")


def check_init_with_duplicate_sets():
    raises(ValueError, lambda: hvd.init(process_sets=[hvd.ProcessSet([0]), hvd.ProcessSet([1]), hvd.ProcessSet([0])]))
    assert hvd.is_initialized()  # as in Horovod
    mine = [hvd.ProcessSet([0]), hvd.ProcessSet([1])]
    hvd.init(process_sets=mine)
    hvd.init(process_sets=mine)
    if hvd.rank() == 0:  # no other rank is asked
        raises(ValueError, lambda: hvd.init(process_sets=[hvd.ProcessSet([1]), hvd.ProcessSet([1])]))
    assert sets_by_id() == {0: list(range(hvd.size())), 1: [0], 2: [1]}
    assert [s.process_set_id for s in mine] == [1, 2]
    assert hvd.remove_process_set(mine[0]) and 1 not in sets_by_id()
    hvd.shutdown()
    hvd.init()
    assert sets_by_id() == {0: list(range(hvd.size()))}


def check_names():
    assert HorovodBasics("path", "mpi_lib").rank() == hvd.rank() == hvd.mpi_ops._basics.rank()
    assert hvd.mpi_ops._basics.Adasum == Adasum == hvd.Adasum
    raises(AttributeError, lambda: hvd.mpi_ops._basics.colour)
    assert SyncBatchNorm is hvd.SyncBatchNorm
    assert synchronize(allreduce_async_(torch.ones(2), op=hvd.Sum)).tolist() == [hvd.size()] * 2
    for module in ("compression", "functions", "optimizer"):
        assert getattr(hvd, module).__name__ == f"horovod.torch.{module}"


def check_runner_names():
    assert get_env_rank_and_size() == (hvd.rank(), hvd.size())
    said, event, stop = [], threading.Event(), threading.Event()
    in_thread(said.append, ("one",)).join(10)
    in_thread(said.index, ("none",), silent=True).join(10)
    waiting = on_event(event, said.append, ("two",), stop=stop, check_stop_interval_s=0.01)
    stopped = on_event(threading.Event(), said.append, ("never",), stop=stop, check_stop_interval_s=0.01)
    event.set()
    waiting.join(10)
    stop.set()
    stopped.join(10)
    assert said == ["one", "two"] and not stopped.is_alive()
    raises(ValueError, lambda: in_thread(said.append, "three"))
    assert execute_function_multithreaded(pow, [[2, 3], [3, 2]], max_concurrent_executions=1) == {0: 8, 1: 9}


def check_mistakes():
    model = nn.Linear(2, 2)
    plain = torch.optim.SGD(model.parameters(), 0.1)
    ours = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    raises(ValueError, lambda: hvd.DistributedOptimizer(ours, model.named_parameters()), "distributed already")
    raises(ValueError, lambda: hvd.DistributedOptimizer(model), "Optimizer", "Linear")
    raises(ValueError, lambda: hvd.DistributedOptimizer(plain, compression="fp16"), "'fp16'", "hvd.Compression")
    raises(ValueError, lambda: hvd.broadcast_optimizer_state(model, 0), "Optimizer", "Linear")
    for value in ([1.0], 1.0, None):
        raises(TypeError, lambda value=value: hvd.allreduce(value), "torch.Tensor", type(value).__name__)
        raises(TypeError, lambda value=value: hvd.allgather(value), "torch.Tensor", type(value).__name__)
        raises(TypeError, lambda value=value: hvd.grouped_allreduce([value]), "torch.Tensor", type(value).__name__)


def check_util():
    assert extension_available("torch") and not extension_available("caffe")
    assert [num_rank_is_power_2(n) for n in range(5)] == [False, True, True, False, True]
    assert split_list(list(range(5)), 3) == [[0, 1], [2, 3], [4]]
    with env(HVD_TEST_ONE="1", HVD_TEST_NONE=None):
        import os

        assert os.environ["HVD_TEST_ONE"] == "1" and "HVD_TEST_NONE" not in os.environ
    assert "HVD_TEST_ONE" not in os.environ


def check_errors_have_both_types():
    for kind in (ValueError, RuntimeError):
        raises(kind, lambda: hvd.reducescatter(torch.ones(4), op=hvd.Adasum), "Adasum")
        raises(kind, lambda: hvd.grouped_reducescatter([torch.ones(4)], op=hvd.Min), "Min")


def check_names_of_parameters():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    groups = [{"params": part.parameters()} for part in model]
    names = hvd.DistributedOptimizer(torch.optim.SGD(groups, lr=0.1))._parameter_names
    assert set(names) == set(model.parameters()) and len(set(names.values())) == 4
    assert len({tuple(n) for n in hvd.allgather_object(list(names.values()))}) == 1
    named = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    assert named._parameter_names[model[0].weight] == "0.weight"


def check_warning_of_a_second_synchronize():
    model = nn.Linear(1, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    model(torch.ones(1, 1)).sum().backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        optimizer.step()
    assert len(seen) == 1 and "optimizer.step() called without optimizer.skip_synchronize()" in str(seen[0].message)


def check_gradients_after_broadcast_of_the_state():
    model = nn.Linear(3, 1)
    model.bias.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert torch.equal(model.weight.grad, torch.zeros(1, 3)) and model.bias.grad is None
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)  # from now on it leaves gradients alone
    assert torch.equal(model.weight.grad, torch.ones(1, 3))


def check_types_that_only_move():
    names = ("float8_e4m3fnuz", "float8_e5m2fnuz")
    for dtype in (getattr(torch, name) for name in names if hasattr(torch, name)):
        mine, root = [(torch.arange(4).reshape(2, 2) + 4 * rank).to(dtype) for rank in (hvd.rank(), 0)]
        both = torch.cat([(torch.arange(4).reshape(2, 2) + 4 * rank).to(torch.float64) for rank in range(hvd.size())])
        out = hvd.allgather(mine)
        assert out.dtype is dtype and torch.equal(out.to(torch.float64), both)
        out = synchronize(hvd.allgather_async(mine[:1]))
        assert out.dtype is dtype and out.shape == (hvd.size(), 2)
        out = hvd.broadcast(mine, 0)
        assert out.dtype is dtype and torch.equal(out.to(torch.float64), root.to(torch.float64))
        out = hvd.alltoall(mine)
        assert out.dtype is dtype and torch.equal(out.to(torch.float64), both[hvd.rank() :: 2])
        hvd.broadcast_(mine.t(), 0)  # not contiguous
        assert torch.equal(mine.to(torch.float64), root.to(torch.float64))
        for call in (hvd.allreduce, hvd.allreduce_, hvd.reducescatter, lambda t: hvd.grouped_allreduce([t])):
            raises(ValueError, lambda call=call: call(mine), "opaque is not possible", "cast")  # noqa: B023


def check_complex_numbers():
    for dtype in (torch.complex64, torch.complex128):
        everyone = [torch.tensor([[1 + 2j, 3 - 1j], [rank - 1j, 2.0]], dtype=dtype) for rank in range(hvd.size())]
        mine, total = everyone[hvd.rank()].clone(), sum(everyone)
        assert torch.equal(hvd.allreduce(mine, op=hvd.Sum), total) and torch.equal(hvd.allreduce(mine), total / hvd.size())
        product = torch.stack(everyone).prod(0)
        assert torch.equal(hvd.allreduce(mine, op=hvd.Product, prescale_factor=2), product * 2 ** hvd.size())
        assert torch.equal(hvd.reducescatter(mine, op=hvd.Sum)[: 2 - hvd.rank()], total[hvd.rank() :][:1])
        assert torch.equal(hvd.allgather(mine.conj()), torch.cat(everyone).conj())
        assert torch.equal(hvd.allreduce(mine.conj(), op=hvd.Sum), total.conj())
        assert torch.equal(hvd.broadcast(mine.t(), 1), everyone[1].t())
        assert hvd.broadcast(torch.tensor(1 + 2j, dtype=dtype), 0).item() == 1 + 2j
        for op in (hvd.Min, hvd.Max, hvd.Adasum):
            raises(ValueError, lambda op=op: hvd.allreduce(mine, op=op), str(dtype)[6:], "use Sum, Average or Product")  # noqa: B023
        hvd.allreduce_(mine, op=hvd.Sum)
        assert torch.equal(mine, total)
    given = everyone[hvd.rank()].clone().requires_grad_()
    for op, wanted in ((hvd.Sum, hvd.size() * (1 - 1j)), (hvd.Product, None)):
        given.grad = None
        (hvd.allreduce(given, op=op) * (1 + 1j)).real.sum().backward()
        if wanted is None:  # d Re(c p) / d x, as torch writes it: the conjugate of c times the others' product
            others = [t for rank, t in enumerate(everyone) if rank != hvd.rank()]
            wanted = hvd.size() * ((1 + 1j) * torch.stack(others).prod(0)).conj()
        assert torch.allclose(given.grad, torch.as_tensor(wanted).expand_as(given).to(given.dtype)), (op, given.grad, wanted)
