"""DistributedOptimizer: its stored, copied and exchanged state; sparse gradients; its state after an error."""

import copy
import pickle

import torch
from refusals import raises
from torch import nn
from torch_models import MAKERS, RANK, SIZE, assert_same, batches, compare, make_model, train

import horovod.torch as hvd


def check_state_dict():
    model, optimizer = compare(MAKERS["adam"])
    state = copy.deepcopy(optimizer.state_dict())
    saved = copy.deepcopy(model.state_dict())
    train(model, optimizer, batches(2, seed=5), slice(RANK, None, SIZE))
    after = copy.deepcopy(model)
    model.load_state_dict(saved)
    optimizer.load_state_dict(state)
    train(model, optimizer, batches(2, seed=5), slice(RANK, None, SIZE))
    assert_same(model, after)
    plain = torch.optim.Adam(make_model().parameters(), lr=0.05)
    plain.load_state_dict(state)  # a plain optimizer takes it too


def check_pickle():
    for form in ("pickle", "copy"):
        model, optimizer = compare(MAKERS["adam"])
        both = (model, optimizer)
        model2, optimizer2 = pickle.loads(pickle.dumps(both)) if form == "pickle" else copy.deepcopy(both)
        assert type(optimizer2) is type(optimizer)
        train(model, optimizer, batches(2, seed=8), slice(RANK, None, SIZE))
        train(model2, optimizer2, batches(2, seed=8), slice(RANK, None, SIZE))
        assert_same(model2, model)


def check_broadcast_of_the_state():
    for maker in [*MAKERS.values(), lambda p: torch.optim.LBFGS(p, max_iter=3), lambda p: torch.optim.SGD(p, lr=0.3)]:
        model = make_model(seed=RANK)
        optimizer = maker(model.parameters())
        if RANK == 0:  # the others' state is empty
            for x, y in batches(2):

                def closure(x=x, y=y, model=model, optimizer=optimizer):
                    optimizer.zero_grad()
                    loss = ((model(x) - y) ** 2).mean()
                    loss.backward()
                    return loss

                optimizer.step(closure)
            for group in optimizer.param_groups:
                group["lr"] = 0.0123
        groups = optimizer.param_groups
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert optimizer.param_groups is groups and groups[0]["lr"] == 0.0123
        states = hvd.allgather_object(optimizer.state_dict())
        for state in states[1:]:
            assert str(state) == str(states[0])
        if RANK == 0:
            optimizer.param_groups[0]["lr"] = 0.5
        hvd.broadcast_optimizer_state(optimizer, root_rank=1)  # overwrites the existing state of rank 0
        assert optimizer.param_groups[0]["lr"] == 0.0123
    lone = torch.optim.SGD(make_model().parameters() if RANK else [torch.zeros(1, requires_grad=True)], lr=0.1)
    if SIZE == 2:
        try:
            hvd.broadcast_optimizer_state(lone, root_rank=0)
        except ValueError as error:
            assert "groups" in str(error)
        else:
            raise AssertionError("groups of different sizes were accepted")


def check_sparse_gradients():
    for as_dense in (False, True):
        torch.manual_seed(2)
        reference = nn.Embedding(8, 3, sparse=True)
        model = copy.deepcopy(reference)
        plain = torch.optim.SparseAdam(list(reference.parameters()), lr=0.1)
        inner = torch.optim.SparseAdam(list(model.parameters()), lr=0.1)
        optimizer = hvd.DistributedOptimizer(inner, model.named_parameters(), sparse_as_dense=as_dense)
        for step in range(3):
            words = torch.tensor([[step, rank, 7] for rank in range(SIZE)])
            plain.zero_grad()
            (reference(words).pow(2).sum() / SIZE).backward()
            plain.step()
            optimizer.zero_grad()
            model(words[RANK]).pow(2).sum().backward()
            optimizer.step()
            assert model.weight.grad.is_sparse
        if not as_dense:  # as dense, unused rows decay too
            torch.testing.assert_close(model.weight, reference.weight)


def check_missing_sparse_gradients():
    """A table of words that only one rank used, also in the first step."""
    for steps in (1, 3):
        torch.manual_seed(2)
        tables = nn.ModuleList([nn.Embedding(6, 2, sparse=True) for _ in range(SIZE)])
        before = copy.deepcopy(tables)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(tables.parameters(), lr=1.0), tables.named_parameters())
        for _ in range(steps):
            optimizer.zero_grad()
            tables[RANK](torch.tensor([RANK])).sum().backward()
            optimizer.step()
        for rank, (now, then) in enumerate(zip(tables, before)):
            expected = then.weight.detach().clone()
            expected[rank] -= steps / SIZE
            torch.testing.assert_close(now.weight.detach(), expected)


def check_new_parameters():
    model, extra = make_model(), nn.Linear(3, 3).double()
    with torch.no_grad():
        for parameter in extra.parameters():
            parameter.fill_(0.1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    train(model, optimizer, batches(1))
    optimizer.add_param_group({"params": list(extra.parameters())})
    whole = nn.Sequential(model, extra)
    train(whole, optimizer, batches(2), slice(RANK, None, SIZE))
    everyones = hvd.allgather(extra.weight.detach()[None])
    assert all(torch.equal(each, everyones[0]) for each in everyones)


def check_a_failed_operation_ends_cleanly():
    """A gradient whose shape differs between ranks is an error on all, and training can continue."""
    parameter = nn.Parameter(torch.zeros(2 + RANK))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1), [("odd", parameter)])
    parameter.sum().backward()
    raises(hvd.HorovodInternalError, optimizer.step, "odd")
    compare(MAKERS["sgd"])


def check_optimizer_that_is_gone():
    """Pending gradients survive their optimizer: an exception after backward() must not free them."""
    for _ in range(3):
        model = nn.Linear(300, 300)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        model(torch.ones(4, 300)).sum().backward()
        hooks = optimizer._hvd
        hooks.reset()
        del model, optimizer, hooks
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [SIZE] * 3
