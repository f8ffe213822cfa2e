"""DistributedOptimizer with changing parameters: frozen, unfrozen and unused ones, several optimizers, GANs."""

import copy
import gc
import weakref

import torch
from refusals import raises
from torch import nn
from torch_models import RANK, SIZE, assert_same, batches, make_model, train

import horovod.torch as hvd

MINE = slice(RANK, None, SIZE)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1)


def same_everywhere(model):
    for parameter in model.parameters():
        assert all(torch.equal(part, parameter.detach()) for part in hvd.allgather(parameter.detach()[None]))


def freeze(module, frozen=True):
    for parameter in module.parameters():
        parameter.requires_grad_(not frozen)


def check_unfrozen_later():
    """Gradual unfreezing: a parameter that was frozen when the optimizer was made is reduced from its first gradient on."""
    for kind in ({}, {"op": hvd.Adasum}, {"groups": 1}):
        model, reference = make_model(), make_model()
        for one in (model, reference):
            freeze(one[0])
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), **kind)
        plain = sgd(reference.parameters())
        for frozen in (True, False, True):
            for one in (model, reference):
                freeze(one[0], frozen)
            train(reference, plain, batches(2))
            train(model, optimizer, batches(2), MINE)
        same_everywhere(model)
        if "op" not in kind:
            assert_same(model, reference)


def check_unfrozen_on_one_rank():
    """Only rank 0 trains the first layer. All ranks get the same weights."""
    model = make_model()
    freeze(model[0], RANK != 0)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    freeze(model[0], RANK != SIZE - 1)
    train(model, optimizer, batches(3), MINE)
    same_everywhere(model)


def check_nobodys_gradient_moves_nothing():
    """Momentum and weight decay move a parameter with a gradient of zeros; a gradient on no rank stays None."""
    for kind in ({}, {"groups": 2}, {"op": hvd.Adasum}, {"compression": hvd.Compression.powersgd(1)}):
        if not kind or "groups" in kind:
            kind["backward_passes_per_step"] = 1
        model = nn.ModuleDict({"used": make_model(), "unused": nn.Linear(4, 4).double(), "frozen": nn.Linear(5, 5).double()})
        hvd.broadcast_parameters(model.state_dict(), 0)
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), **kind)
        hvd.broadcast_optimizer_state(optimizer, 0)  # it leaves zeros
        for step, (x, y) in enumerate(batches(4)):
            if step == 2:
                freeze(model["frozen"])
                kept = copy.deepcopy(model["frozen"])
            if step:
                optimizer.zero_grad()
            unused = copy.deepcopy(model["unused"])
            loss = ((model["used"](model["frozen"](x[MINE])) - y[MINE]) ** 2).mean()
            loss.backward()
            optimizer.step()
            assert_same(model["unused"], unused, 0, 0)
            assert all(p.grad is None for p in model["unused"].parameters())
        assert_same(model["frozen"], kept, 0, 0)
        same_everywhere(model)


def check_a_rank_without_data():
    """A rank without gradients contributes zeros; the average still divides by the number of all ranks."""
    model, reference = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    plain = sgd(reference.parameters())
    for x, y in batches(2):
        optimizer.zero_grad()
        plain.zero_grad()
        (((reference(x) - y) ** 2).mean() / SIZE).backward()
        if RANK == 1:
            ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
        plain.step()
    assert_same(model, reference)


def check_joined_ranks():
    """Rank 0 runs out of data first and contributes zeros."""
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    train(model, optimizer, batches(2 + RANK), MINE)
    assert hvd.join() == SIZE - 1, "the last one to run out"
    hvd.broadcast_parameters(model.state_dict(), SIZE - 1)
    everyones = hvd.allgather(model[0].weight.detach()[None])
    assert all(torch.equal(each, everyones[-1]) for each in everyones)


def check_ranks_may_join_before_their_first_step():
    """The optimizers of these ranks have not named their gradients when they join, unlike those of the other ranks."""
    one, other = make_model(), make_model(seed=4)
    optimizers = [hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters()) for model in (one, other)]
    pairs = list(zip((one, other), optimizers, strict=True))
    for _ in range(2):
        for _ in range(2 * RANK):
            for model, optimizer in pairs:
                train(model, optimizer, batches(1), MINE)
        last = hvd.join()
        for model, optimizer in pairs:
            hvd.broadcast_parameters(model.state_dict(), last)
            hvd.broadcast_optimizer_state(optimizer, last)
            train(model, optimizer, batches(2), MINE)
            everyones = hvd.allgather(model[0].weight.detach()[None])
            assert all(torch.equal(each, everyones[-1]) for each in everyones)


def check_a_second_optimizer_over_the_same_parameters():
    """A notebook's cell that runs twice, and fine-tuning: the last one gets the gradients, and any of them can step."""
    for between in (False, True):
        model, reference = make_model(), make_model()
        plain = [sgd(reference[2].parameters()), sgd(reference.parameters())]
        mine = [hvd.DistributedOptimizer(sgd(model[2].parameters()), model[2].named_parameters())]
        if not between:
            mine.append(hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters()))
        train(reference, plain[0], batches(2))
        for x, y in batches(2):
            model.zero_grad()
            ((model(x[MINE]) - y[MINE]) ** 2).mean().backward()
            mine[0].step()
        if between:  # with pending gradients
            ((model(x[MINE]) - y[MINE]) ** 2).mean().backward()
            mine.append(hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters()))
        for step, data in enumerate(batches(4, seed=7)):
            train(reference, plain[1 if between else step % 2], [data])
            model.zero_grad()
            train(model, mine[1 if between else step % 2], [data], MINE)
        assert_same(model, reference)


def check_optimizers_leave_nothing():
    model = make_model()
    for _ in range(3):
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
        train(model, optimizer, batches(1), MINE)
        reducer = weakref.ref(optimizer._hvd)
    weight = weakref.ref(model[0].weight)
    del optimizer, model
    gc.collect()
    assert reducer() is None and weight() is None


def check_dcgan():
    """The loop of PyTorch's tutorial: two backward passes into D before its step, and one more in G's step."""
    for named in (False, True):
        for passes in (1, 2):
            for kind in ({}, {"op": hvd.Sum}, {"compression": hvd.Compression.powersgd(2)}, {"groups": 1}):
                _dcgan(named, passes, kind)


def _dcgan(named, passes, kind):
    def models():
        torch.manual_seed(4)
        return [nn.Sequential(nn.Linear(a, 8), nn.Tanh(), nn.Linear(8, b)).double() for a, b in ((3, 5), (5, 1))]

    def loop(net_g, net_d, opt_g, opt_d, mine):
        for x, noise in batches(3):
            x, noise = x[mine], noise[mine]
            net_d.zero_grad()
            (net_d(x) - 1).pow(2).mean().backward()
            fake = net_g(noise)
            net_d(fake.detach()).pow(2).mean().backward()
            opt_d.step()
            net_g.zero_grad()
            (net_d(fake) - 1).pow(2).mean().backward()
            opt_g.step()

    def optimizers(net_g, net_d, wrap):
        return [wrap(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5), net) for net in (net_g, net_d)]

    def distributed(plain, net):
        if kind.get("op") == hvd.Sum:
            plain.param_groups[0]["lr"] /= SIZE
        names = {"named_parameters": net.named_parameters()} if named else {}
        more = {"backward_passes_per_step": passes if net is mine[1] else 1}
        return hvd.DistributedOptimizer(plain, **names, **more, **kind)

    reference, mine = models(), models()
    loop(*reference, *optimizers(*reference, lambda plain, _: plain), slice(None))
    loop(*mine, *optimizers(*mine, distributed), MINE)
    for net, other in zip(mine, reference):
        same_everywhere(net)
        if "compression" not in kind:
            assert_same(net, other)


def check_more_passes_than_declared():
    model, reference = make_model(), make_model()
    plain = sgd(reference.parameters())
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for x, y in batches(3):
        for net, opt, rows in ((reference, plain, slice(None)), (model, optimizer, MINE)):
            opt.zero_grad()
            for part in range(3 if net is reference or RANK else 2):  # rank 0 does two of them in one
                data = x[rows][part::3], y[rows][part::3]
                loss = ((net(data[0]) - data[1]) ** 2).mean()
                if part == 1 and net is model and not RANK:
                    loss = loss + ((net(x[rows][2::3]) - y[rows][2::3]) ** 2).mean()
                loss.backward()
            opt.step()
    assert_same(model, reference)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Max)
    train(model, optimizer, batches(1), MINE)
    model(torch.ones(1, 5).double()).sum().backward()
    raises(AssertionError, model(torch.ones(1, 5).double()).sum().backward, "backward_passes_per_step")
    optimizer.step()


def check_cleared_under_way():
    """model.zero_grad() after backward(): pending gradients are discarded, as without hvd."""
    model, reference = make_model(), make_model()
    plain = sgd(reference.parameters())
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for again in (True, False, True):
        for net, opt, rows in ((reference, plain, slice(None)), (model, optimizer, MINE)):
            opt.zero_grad()
            (net(torch.ones(4, 5).double()) ** 2).mean().backward()
            net.zero_grad()
            if again:
                x, y = batches(1)[0]
                ((net(x[rows]) - y[rows]) ** 2).mean().backward()
            opt.step()
    assert_same(model, reference)


def check_looked_at_under_way():
    """torch.autograd.grad() adds to no gradient."""
    model, reference = make_model(), make_model()
    plain = sgd(reference.parameters())
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for x, y in batches(2):
        for net, opt, rows in ((reference, plain, slice(None)), (model, optimizer, MINE)):
            opt.zero_grad()
            ((net(x[rows]) - y[rows]) ** 2).mean().backward()
            assert len(torch.autograd.grad(net(x).sum(), list(net.parameters()))) == 4
            opt.step()
    assert_same(model, reference)


def check_sparse_here_and_dense_there():
    table = nn.Embedding(6, 2, sparse=RANK == 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), table.named_parameters())
    table(torch.tensor([RANK])).sum().backward()
    raises(hvd.HorovodInternalError, optimizer.step, "weight", "sparse_as_dense")
    table = nn.Embedding(6, 2, sparse=RANK == 0)
    hvd.broadcast_parameters(table.state_dict(), 0)
    optimizer = torch.optim.SGD(table.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, table.named_parameters(), sparse_as_dense=True)
    table(torch.tensor([RANK])).sum().backward()
    optimizer.step()
    same_everywhere(table)


def check_sparse_gradients_in_two_passes():
    torch.manual_seed(2)
    table = nn.Embedding(8, 3, sparse=True)
    before = table.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), table.named_parameters())
    table(torch.tensor([RANK])).sum().backward()
    if RANK:
        table(torch.tensor([7, 7])).sum().backward()
    optimizer.step()
    for rank in range(SIZE):
        before[rank] -= 1 / SIZE
    before[7] -= 2 * (SIZE - 1) / SIZE
    torch.testing.assert_close(table.weight.detach(), before)


def check_optimizers_with_different_parameters():
    """An error at once, without a wait."""
    model = make_model()
    parameters = list(model.parameters()) if RANK else list(model.parameters())[:-1]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1))
    raises(hvd.HorovodInternalError, optimizer.step, "present")
