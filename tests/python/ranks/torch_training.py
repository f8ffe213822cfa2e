"""Further ways of training: compiled models, several optimizers, accumulation."""

import sys
from contextlib import nullcontext
from unittest import SkipTest

import torch
from torch import nn
from torch_models import MAKERS, RANK, SIZE, assert_same, batches, make_model, train

import horovod.torch as hvd

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
COMPILES = TORCH >= (2, 1) or sys.version_info < (3, 11)  # torch 2.0 refuses later Pythons
mine = slice(RANK, None, SIZE)


def trained_alone(maker=MAKERS["sgd"], steps=3):
    model = make_model()
    train(model, maker(model.parameters()), batches(steps))
    return model


def check_a_compiled_model():
    if not COMPILES:
        raise SkipTest("torch.compile does not work with this torch and Python")
    model = make_model()
    compiled = torch.compile(model, backend="aot_eager")  # everything except the compiler of the machine code
    optimizer = hvd.DistributedOptimizer(MAKERS["sgd"](model.parameters()), model.named_parameters())
    train(compiled, optimizer, batches(3), mine)
    assert_same(model, trained_alone())
    names = [name for name, _ in compiled.named_parameters()]
    again = hvd.DistributedOptimizer(MAKERS["sgd"](compiled.parameters()), compiled.named_parameters())
    assert all(name.startswith("_orig_mod.") for name in names)
    train(compiled, again, batches(1), mine)


def check_an_operation_in_a_compiled_function():
    if not COMPILES:
        raise SkipTest("torch.compile does not work with this torch and Python")

    @torch.compile(backend="aot_eager")
    def mean_of_all(x):
        return hvd.allreduce(x * 2, name="compiled") + 1

    for _ in range(2):
        assert mean_of_all(torch.full((4,), float(RANK))).tolist() == [SIZE] * 4

    def loss(x):
        return (hvd.allreduce(x, op=hvd.Sum, name="compiled.loss") ** 2).sum()

    x = torch.ones(3, requires_grad=True)
    torch.compile(loss, backend="aot_eager")(x).backward()
    assert x.grad.tolist() == [2.0 * SIZE * SIZE] * 3


def check_several_optimizers():
    reference, model = make_model(), make_model()
    for net, rows, wrap in ((reference, slice(None), False), (model, mine, True)):
        made = []
        for part, maker in ((net[0], MAKERS["sgd"]), (net[2], MAKERS["adam"])):
            optimizer = maker(part.parameters())
            if wrap:
                named = [(f"{id(part) == id(net[2])}.{name}", p) for name, p in part.named_parameters()]
                optimizer = hvd.DistributedOptimizer(optimizer, named)
            made.append(optimizer)
        for x, y in batches(4):
            for optimizer in made:
                optimizer.zero_grad()
            ((net(x[rows]) - y[rows]) ** 2).mean().backward()
            for optimizer in made:
                optimizer.step()
    assert_same(model, reference)


def check_two_losses_and_two_optimizers_in_turn():
    """As in a GAN, one backward pass computes gradients of both optimizers, and only one optimizer makes a step."""
    torch.manual_seed(1)
    maker, judge = nn.Linear(4, 4), nn.Linear(4, 1)
    for net in (maker, judge):
        hvd.broadcast_parameters(net.state_dict(), 0)
    makers = hvd.DistributedOptimizer(torch.optim.SGD(maker.parameters(), lr=0.1), maker.named_parameters("maker"))
    judges = hvd.DistributedOptimizer(torch.optim.SGD(judge.parameters(), lr=0.1), judge.named_parameters("judge"))
    for _ in range(3):
        x = torch.randn(5, 4)
        judges.zero_grad()
        judge(maker(x).detach()).sum().backward()
        judges.step()
        makers.zero_grad()
        for parameter in judge.parameters():
            parameter.requires_grad_(False)
        judge(maker(x)).mean().backward()
        makers.step()
        for parameter in judge.parameters():
            parameter.requires_grad_(True)
    states = hvd.allgather_object([p.tolist() for net in (maker, judge) for p in net.parameters()])
    assert all(state == states[0] for state in states)


def check_accumulation_as_with_ddp():
    """Losses divided by the number of passes; another number of passes in a later step."""
    model = make_model()
    optimizer = hvd.DistributedOptimizer(MAKERS["sgd"](model.parameters()), model.named_parameters())
    for (x, y), passes in zip(batches(3), (3, 1, 2)):
        optimizer.set_backward_passes_per_step(passes)
        optimizer.zero_grad()
        for part in range(passes):
            xs, ys = x[mine][part::passes], y[mine][part::passes]
            with nullcontext():
                (((model(xs) - ys) ** 2).mean() / passes).backward()
        optimizer.step()
    assert_same(model, trained_alone())


def check_lbfgs_with_a_closure():
    def maker(parameters):
        return torch.optim.LBFGS(parameters, lr=0.5, max_iter=4, line_search_fn="strong_wolfe")

    def steps(model, optimizer, rows):
        for x, y in batches(2):

            def closure(x=x, y=y):
                optimizer.zero_grad()
                loss = ((model(x[rows]) - y[rows]) ** 2).mean()
                loss.backward()
                return loss

            optimizer.step(closure)

    reference, model = make_model(), make_model()
    steps(reference, maker(reference.parameters()), slice(None))
    steps(model, hvd.DistributedOptimizer(maker(model.parameters()), model.named_parameters()), mine)
    assert_same(model, reference, rtol=1e-6, atol=1e-8)


def check_lbfgs_without_a_closure():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.LBFGS(model.parameters()), model.named_parameters())
    model(batches(1)[0][0]).sum().backward()
    try:
        optimizer.step()
    except (TypeError, ValueError) as error:
        assert "closure" in str(error), error
    else:
        raise AssertionError("LBFGS stepped without a closure")
