"""DistributedOptimizer: ranks with a part of the batch each train like one process with the whole batch."""

import copy
import warnings

import torch
from refusals import raises
from torch import nn
from torch_models import MAKERS, RANK, SIZE, assert_same, batches, compare, make_model, train

import horovod.torch as hvd


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


def lying(values, order):
    """Returns a tensor with the same values whose dimensions lie in memory in `order`, from the outermost to the innermost."""
    inverse = sorted(range(values.dim()), key=order.__getitem__)
    return values.permute(order).contiguous().permute(inverse)


def check_gradients_travel_as_they_lie():
    """channels_last: no copy if all ranks have the parameter's layout; right results if one rank differs."""
    rows, channels_last, other = (0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)
    values = torch.arange(3 * 3 * 3 * 3, dtype=torch.float32).reshape(3, 3, 3, 3)
    expected = values * (SIZE + 1) / 2
    cases = [
        (channels_last, channels_last, hvd.Compression.none),
        (channels_last, channels_last, hvd.Compression.fp16),
        (channels_last, other if RANK == 0 else channels_last, hvd.Compression.none),
        (channels_last if RANK == 0 else rows, channels_last, hvd.Compression.none),
        (rows, channels_last if RANK == 0 else rows, hvd.Compression.none),
    ]
    for number, (parameters_order, gradients_order, compression) in enumerate(cases):
        for groups in (None, 1):
            parameters = [nn.Parameter(lying(torch.zeros_like(values), parameters_order)) for _ in range(2)]
            names = [(f"lying.{number}.{index}", parameter) for index, parameter in enumerate(parameters)]
            plain = torch.optim.SGD(parameters, lr=1.0)
            optimizer = hvd.DistributedOptimizer(plain, names, groups=groups, compression=compression)
            for step in range(2):
                for parameter in parameters:
                    parameter.grad = lying(torch.zeros_like(values), gradients_order)
                sum((parameter * values * (RANK + 1)).sum() for parameter in parameters).backward()
                if step and number == 0:
                    assert all(entry.work is entry.parameter.grad for entry in optimizer._hvd.entries.values())
                optimizer.synchronize()
                for parameter in parameters:
                    torch.testing.assert_close(parameter.grad, expected)


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


def check_set_backward_passes_per_step():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
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
    """A user's optimizer with unusual arguments."""

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
    assert len(optimizer.state) == len(plain.state) > 0  # the state was copied too
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
