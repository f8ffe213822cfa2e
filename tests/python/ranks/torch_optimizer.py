"""DistributedOptimizer: ranks with a part of the batch each train like one process with the whole batch."""

import copy
import os
import pickle
import warnings

import torch
from torch import nn

import horovod.torch as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
torch.set_num_threads(1)
BATCH = 6 * SIZE


def raises(kind, call, *words):
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def make_model(seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def batches(steps, seed=11):
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(BATCH, 5, generator=generator, dtype=torch.float64), torch.randn(BATCH, 3, generator=generator).double())
        for _ in range(steps)
    ]


def train(model, optimizer, data, mine=slice(None), passes=1):
    for x, y in data:
        optimizer.zero_grad()
        x, y = x[mine], y[mine]
        for part in range(passes):
            loss = ((model(x[part::passes]) - y[part::passes]) ** 2).mean() / passes
            loss.backward()
        optimizer.step()


def assert_same(model, other, rtol=1e-9, atol=1e-11):
    for mine, expected in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(mine, expected, rtol=rtol, atol=atol)


MAKERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
}


def compare(maker, passes=1, rtol=1e-9, atol=1e-11, steps=4, **arguments):
    """Trains both ways; the ranks' parts are the rows rank::size."""
    reference = make_model()
    train(reference, maker(reference.parameters()), batches(steps))
    model = make_model(seed=3 + RANK)
    optimizer = hvd.DistributedOptimizer(
        maker(model.parameters()),
        named_parameters=model.named_parameters(),
        backward_passes_per_step=passes,
        **arguments,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    train(model, optimizer, batches(steps), slice(RANK, None, SIZE), passes)
    assert_same(model, reference, rtol, atol)
    return model, optimizer


def check_like_one_process():
    for maker in MAKERS.values():
        compare(maker)


def check_backward_passes_per_step():
    compare(MAKERS["sgd"], passes=2)
    compare(MAKERS["adam"], passes=3)


def check_sum_and_predivide():
    compare(lambda p: torch.optim.SGD(p, lr=0.1), gradient_predivide_factor=2.0)
    reference = make_model()
    train(reference, torch.optim.SGD(reference.parameters(), lr=0.1), batches(2))
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 / SIZE)
    train(model, hvd.DistributedOptimizer(optimizer, op=hvd.Sum), batches(2), slice(RANK, None, SIZE))
    assert_same(model, reference)


def check_groups():
    for groups in (1, 2, 50):
        compare(MAKERS["sgd"], groups=groups)
    model = make_model()
    reference = make_model()
    train(reference, MAKERS["sgd"](reference.parameters()), batches(3))
    lists = [list(model[0].parameters()), [model[2].weight]]
    optimizer = hvd.DistributedOptimizer(MAKERS["sgd"](model.parameters()), model.named_parameters(), groups=lists)
    train(model, optimizer, batches(3), slice(RANK, None, SIZE))
    assert_same(model, reference)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        compare(MAKERS["sgd"], num_groups=2)


def check_compression():
    compare(MAKERS["sgd"], compression=hvd.Compression.fp16, rtol=0.05, atol=0.01)
    compare(MAKERS["sgd"], compression=hvd.Compression.bf16, rtol=0.1, atol=0.05, groups=2)


def check_missing_gradients():
    """A branch that only one rank takes: its parameters count as zero on the others."""
    for groups in (None, 1):
        torch.manual_seed(1)
        branches = nn.ModuleList([nn.Linear(2, 1) for _ in range(SIZE + 1)])
        before = copy.deepcopy(branches)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(branches.parameters(), lr=1.0), branches.named_parameters(), groups=groups
        )
        for _ in range(2):
            optimizer.zero_grad()
            branches[RANK](torch.ones(1, 2)).sum().backward()
            optimizer.step()
        for index, (now, then) in enumerate(zip(branches, before)):
            change = 2.0 / SIZE if index < SIZE else 0.0
            torch.testing.assert_close(now.weight, then.weight - change)


def check_synchronize_then_clip():
    model, reference = make_model(), make_model()
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    for x, y in batches(2):
        plain.zero_grad()
        ((reference(x) - y) ** 2).mean().backward()
        nn.utils.clip_grad_norm_(reference.parameters(), 0.1)
        plain.step()
        optimizer.zero_grad()
        ((model(x[RANK::SIZE]) - y[RANK::SIZE]) ** 2).mean().backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with optimizer.skip_synchronize():
            optimizer.step()
    assert_same(model, reference)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ((model(x) - y) ** 2).mean().backward()
        optimizer.synchronize()
        optimizer.step()
    assert any("skip_synchronize" in str(each.message) for each in caught)


def check_zero_grad_in_between():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    model(torch.ones(1, 5).double()).sum().backward()
    raises(AssertionError, optimizer.zero_grad, "step()")
    optimizer.step()
    optimizer.zero_grad()


def check_too_many_passes():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    model(torch.ones(1, 5).double()).sum().backward()
    raises(AssertionError, model(torch.ones(1, 5).double()).sum().backward, "backward_passes_per_step")
    optimizer.step()
    optimizer.set_backward_passes_per_step(2)
    assert optimizer.backward_passes_per_step == 2
    optimizer.zero_grad()
    for _ in range(2):
        model(torch.ones(1, 5).double()).sum().backward()
    optimizer.step()
    raises(ValueError, lambda: optimizer.set_backward_passes_per_step(0))


def check_names():
    model = make_model()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    named = list(model.named_parameters())
    raises(ValueError, lambda: hvd.DistributedOptimizer(plain, named + named[:1]), "0.weight")
    raises(ValueError, lambda: hvd.DistributedOptimizer(plain, named[1:]), "named_parameters")
    raises(ValueError, lambda: hvd.DistributedOptimizer(plain, model.parameters()))
    raises(ValueError, lambda: hvd.DistributedOptimizer(plain, named, gradient_predivide_factor=2.0, op=hvd.Sum))
    raises(ValueError, lambda: hvd.DistributedOptimizer(plain, named, groups="two"))
    raises(ValueError, lambda: hvd.DistributedOptimizer(plain, named, groups=[[named[0][1]], [named[0][1]]]))
    raises(ValueError, lambda: hvd.DistributedOptimizer(plain, named, backward_passes_per_step=0))
    optimizer = hvd.DistributedOptimizer(plain)  # without names
    train(model, optimizer, batches(1))


class Odd(torch.optim.SGD):
    """An optimizer of a user's own, with arguments that nobody can guess."""

    def __init__(self, flavour, params):
        super().__init__(params, lr=0.1, momentum=0.5)
        self.flavour = flavour

    def taste(self):
        return self.flavour


def check_class():
    model = make_model()
    plain = Odd("sweet", model.parameters())
    train(model, plain, batches(1))
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    assert isinstance(optimizer, Odd) and isinstance(optimizer, torch.optim.SGD)
    assert optimizer.taste() == "sweet"
    assert type(optimizer).__name__ == "Odd"
    assert not type(optimizer).__module__.startswith("torch.optim")
    assert optimizer.param_groups[0] is plain.param_groups[0]
    assert len(optimizer.state) == len(plain.state) > 0  # the state came along
    assert "lr: 0.1" in repr(optimizer)


def check_schedulers():
    for wrap_first in (True, False):
        model, reference = make_model(), make_model()
        plain = torch.optim.SGD(reference.parameters(), lr=0.2)
        scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, 0.5)
        inner = torch.optim.SGD(model.parameters(), lr=0.2)
        if wrap_first:
            optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
            mine = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        else:
            mine = torch.optim.lr_scheduler.StepLR(inner, 1, 0.5)
            optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for data in batches(3):
                train(reference, plain, [data])
                scheduler.step()
                train(model, optimizer, [data], slice(RANK, None, SIZE))
                mine.step()
        assert optimizer.param_groups[0]["lr"] == 0.2 / 8
        assert_same(model, reference)


def check_closures():
    model, reference = make_model(), make_model()
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())

    def closure_of(net, opt, x, y):
        def closure():
            opt.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            loss.backward()
            return loss

        return closure

    for x, y in batches(3):
        plain.step(closure_of(reference, plain, x, y))
        loss = optimizer.step(closure_of(model, optimizer, x[RANK::SIZE], y[RANK::SIZE]))
        assert loss.ndim == 0
    assert_same(model, reference)
    model, reference = make_model(), make_model()
    plain = torch.optim.LBFGS(reference.parameters(), max_iter=5)
    optimizer = hvd.DistributedOptimizer(torch.optim.LBFGS(model.parameters(), max_iter=5), model.named_parameters())
    for x, y in batches(2):
        plain.step(closure_of(reference, plain, x, y))
        optimizer.step(closure_of(model, optimizer, x[RANK::SIZE], y[RANK::SIZE]))
    assert_same(model, reference, rtol=1e-6, atol=1e-8)


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
        hvd.broadcast_optimizer_state(optimizer, root_rank=1)  # and back, into what is there
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
        if not as_dense:  # as dense, rows that no rank used decay too
            torch.testing.assert_close(model.weight, reference.weight)


def check_missing_sparse_gradients():
    """A table of words that only one rank used, in the first step too."""
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
    """A gradient whose shape differs between ranks is an error on all, and training can go on."""
    parameter = nn.Parameter(torch.zeros(2 + RANK))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1), [("odd", parameter)])
    parameter.sum().backward()
    raises(hvd.HorovodInternalError, optimizer.step, "odd")
    compare(MAKERS["sgd"])


def check_optimizer_that_is_gone():
    """Gradients under way outlive their optimizer: an exception after backward() must not free them."""
    for _ in range(3):
        model = nn.Linear(300, 300)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        model(torch.ones(4, 300)).sum().backward()
        hooks = optimizer._hvd
        hooks.reset()
        del model, optimizer, hooks
    hvd.barrier()


def is_registered(tensor):
    """Whether a tensor lies in memory that hvd_alloc gave."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            start, end = (int(x, 16) for x in line.split()[0].split("-"))
            if start <= tensor.data_ptr() < end:
                return "memfd:hvd-arena" in line
    return False


def check_gradients_in_registered_memory():
    """They move there, in spite of zero_grad() leaving None; and nobody's tensor is overwritten."""
    from hvd.torch import _registered

    possible = _registered._owners is not None and not os.environ.get("HVD_RANKS_PER_NODE")
    model = nn.Linear(90, 90)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model.named_parameters())
    own = torch.full((2, 90), RANK + 1.0)
    everyones = (SIZE + 1) / 2

    def step(factor, **arguments):
        optimizer.zero_grad(**arguments)
        (model(own) * factor).sum().backward()
        optimizer.step()
        assert torch.allclose(model.weight.grad, torch.full((90, 90), 2 * factor * everyones))
        assert torch.allclose(model.bias.grad, torch.full((90,), 2.0 * factor))

    def registered():
        return is_registered(model.weight.grad)

    for factor in (1, 2, 3):
        step(factor)
        assert registered() == possible
        assert not is_registered(model.bias.grad)  # too small to gain
    step(1, set_to_none=False)
    assert registered() == possible
    # A gradient that the script keeps, itself or through a view, is not written to again.
    kept, copy_of_kept = model.weight.grad, model.weight.grad.clone()
    step(5)
    assert torch.equal(kept, copy_of_kept) and not registered()
    del kept
    step(6)
    assert registered() == possible
    view = model.weight.grad.view(-1)[7:]
    copy_of_view = view.clone()
    step(7)
    assert torch.equal(view, copy_of_view) and not registered()
    del view
    step(8)
    assert registered() == possible
    # One that the script looks at before the optimizer does is reduced where it is.
    seen = []
    hook = model.weight.register_hook(lambda gradient: seen.append(gradient))
    step(9)
    hook.remove()
    seen.clear()
    # One that the script replaces on one rank only.
    for _ in range(3):
        optimizer.zero_grad()
        model(own).sum().backward()
        optimizer.synchronize()
        if RANK == 0:
            model.weight.grad = torch.ones(90, 90)
        with optimizer.skip_synchronize():
            optimizer.step()
        if RANK == 0:
            model.weight.grad = None
        step(2, set_to_none=False)


def check_registered_memory_outlives_the_optimizer():
    """A gradient that the script keeps stays valid when model and optimizer are gone, and when the runtime is."""
    for _ in range(5):
        model = nn.Linear(200, 200)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(1, 200)).sum().backward()
            optimizer.step()
        kept = model.weight.grad
        copied = copy.deepcopy(kept)
        assert torch.equal(copied, kept) and not is_registered(copied)
        del model, optimizer
        assert torch.equal(kept, torch.ones(200, 200))
