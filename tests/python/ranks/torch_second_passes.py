"""A parameter has one hook of DistributedOptimizer, and two after a backward() that may add to gradients in progress."""

import threading

import torch
from refusals import raises
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_models import RANK, SIZE

import horovod.torch as hvd

MEAN = sum(range(1, SIZE + 1)) / SIZE


def model_of(label, count=3, **options):
    model = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(count)])
    for layer in model:
        nn.init.eye_(layer.weight)
    named = [(f"{label}.{name}", p) for name, p in model.named_parameters()]
    return model, hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), named, **options)


def loss_of(model, factor=RANK + 1.0):
    x = torch.full((1, 2), factor)
    for layer in model:
        x = layer(x)
    return x.sum()


def step(model, optimizer):
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()


def hooks_of(optimizer):
    return [len(entry.hooks) for entry in optimizer._hvd._ordered]


def expect(optimizer, value):
    for entry in optimizer._hvd._ordered:
        torch.testing.assert_close(entry.parameter.grad, torch.full((2, 2), value))


def check_steps_need_one_hook():
    hvd.init()
    model, optimizer = model_of("one")
    for _ in range(3):
        step(model, optimizer)
        expect(optimizer, MEAN)
        with torch.no_grad():
            loss_of(model)
        torch.autograd.grad(loss_of(model), list(model.parameters()))
    assert hooks_of(optimizer) == [1, 1, 1]


def check_a_second_pass():
    model, optimizer = model_of("second")
    step(model, optimizer)
    for passes in (2, 1, 3):
        optimizer.zero_grad()
        for _ in range(passes):
            loss_of(model).backward()
        assert hooks_of(optimizer) == [2, 2, 2]
        optimizer.synchronize()
        expect(optimizer, MEAN * passes)
    _, later = model_of("later")
    assert hooks_of(later) == [2, 2, 2]


def check_several_passes_per_step():
    model, optimizer = model_of("several", backward_passes_per_step=2)
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(2):
            loss_of(model).backward()
        optimizer.synchronize()
        expect(optimizer, 2 * MEAN)
    for _ in range(2):  # the script clears the first pass
        optimizer.zero_grad()
        for cleared in (True, False, False):
            loss_of(model).backward()
            if cleared:
                model.zero_grad()
        optimizer.synchronize()
        expect(optimizer, 2 * MEAN)


def check_gradients_that_are_only_read():
    model, optimizer = model_of("read")
    step(model, optimizer)
    optimizer.zero_grad()
    loss_of(model).backward()
    torch.autograd.grad(loss_of(model), list(model.parameters()))
    assert hooks_of(optimizer) == [2, 2, 2]
    optimizer.synchronize()
    expect(optimizer, MEAN)


def check_a_pass_within_a_pass():
    """The inner one submits gradients; the outer one, of the same parameters, began before."""
    model, optimizer = model_of("within")
    for _ in range(3):
        optimizer.zero_grad()
        x = torch.full((1, 2), RANK + 1.0, requires_grad=True)
        x = checkpoint(lambda x: model[2](model[1](model[0](x))), x, use_reentrant=True)
        model[1](model[0](x)).sum().backward()
        optimizer.synchronize()
        for layer, passes in zip(model, (2, 2, 1)):
            torch.testing.assert_close(layer.weight.grad, torch.full((2, 2), MEAN * passes))
    assert hooks_of(optimizer) == [2, 2, 2]


def check_passes_on_two_threads():
    """Two threads run backward passes of different models. The second pass begins while the first one runs."""
    (model, optimizer), (other, others) = model_of("thread"), model_of("other")
    step(model, optimizer)
    step(other, others)
    optimizer.zero_grad()
    others.zero_grad()
    under_way, ended = threading.Event(), threading.Event()

    def waits(gradient):
        under_way.set()
        assert ended.wait(60)

    hook = model[1].weight.register_hook(waits)
    thread = threading.Thread(target=loss_of(model).backward)
    thread.start()
    assert under_way.wait(60)
    loss_of(other).backward()
    ended.set()
    thread.join()
    hook.remove()
    assert hooks_of(optimizer) == hooks_of(others) == [2, 2, 2]
    loss_of(model).backward()
    optimizer.synchronize()
    others.synchronize()
    expect(optimizer, 2 * MEAN)
    expect(others, MEAN)


def check_a_frozen_parameter():
    model, optimizer = model_of("frozen")
    step(model, optimizer)
    model[1].weight.requires_grad_(False)
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model).backward()
        loss_of(model).backward()
        optimizer.synchronize()
        torch.testing.assert_close(model[0].weight.grad, torch.full((2, 2), 2 * MEAN))
    assert hooks_of(optimizer) == [2, 1, 2]
    model[1].weight.requires_grad_(True)
    step(model, optimizer)
    expect(optimizer, MEAN)
    assert hooks_of(optimizer) == [2, 2, 2]


def check_a_pass_that_torchs_python_does_not_begin():
    """A second backward pass through the engine adds to a gradient that is being reduced. The runtime raises an error."""
    model, optimizer = model_of("engine")
    step(model, optimizer)
    optimizer.zero_grad()
    engine, options = torch._C._ImperativeEngine(), {"allow_unreachable": True, "accumulate_grad": True}
    for again in (False, True):
        loss = loss_of(model)
        run = lambda loss=loss: engine.run_backward((loss,), (torch.ones(()),), False, False, (), **options)  # noqa: E731
        if again:
            raises(AssertionError, run)
        else:
            run()
    optimizer._hvd.reset()
    step(model, optimizer)
    expect(optimizer, MEAN)
