"""GradScaler and autocast with DistributedOptimizer: all ranks scale, skip and step alike."""

from unittest import SkipTest

import torch
from torch import nn
from torch_models import RANK, SIZE, assert_same, make_model

import horovod.torch as hvd

Scaler = getattr(torch.amp, "GradScaler", None)  # torch.cuda's before 2.3, which does nothing on a CPU


def scaler_of(scale=1024.0):
    return Scaler("cpu", init_scale=scale, growth_interval=100)


def rows(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(4 * SIZE, 5, generator=generator)


def reference(steps, skipped=()):
    model = make_model().float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        if step not in skipped:
            optimizer.zero_grad()
            model(rows(step)).pow(2).mean().backward()
            optimizer.step()
    return model


def train(steps, way, overflow=None, op=None, **options):
    """Trains with a gradient scaler. way: the form in which the script uses the scaler. overflow: the (step, rank) with an
    infinite loss."""
    model = make_model().float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, **options)
    arguments = {} if op is None else {"op": op}
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **arguments)
    scaler = scaler_of()
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(rows(step)[RANK::SIZE]).pow(2).mean()
        if overflow == (step, RANK):
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        if way == "as documented":
            optimizer.synchronize()
            scaler.unscale_(optimizer)
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
        elif way == "unscaled first":
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e6)
            scaler.step(optimizer)
        else:
            scaler.step(optimizer)
        scaler.update()
    return model, scaler.get_scale()


def check_a_scaler_in_every_way():
    if Scaler is None:
        raise SkipTest("torch.amp.GradScaler for the CPU needs torch 2.3")
    for way in ("as documented", "unscaled first", "step alone"):
        model, _ = train(4, way)
        assert_same(model, reference(4), rtol=1e-5, atol=1e-6)


def check_one_ranks_overflow_is_everybodys():
    if Scaler is None:
        raise SkipTest("torch.amp.GradScaler for the CPU needs torch 2.3")
    for way in ("as documented", "unscaled first", "step alone"):
        model, scale = train(4, way, overflow=(1, SIZE - 1))
        assert_same(model, reference(4, skipped=(1,)), rtol=1e-5, atol=1e-6)
        assert scale == 512.0, scale


def check_a_scaler_with_adasum():
    if Scaler is None:
        raise SkipTest("torch.amp.GradScaler for the CPU needs torch 2.3")
    for way in ("as documented", "unscaled first", "step alone"):
        for overflow in (None, (1, 0)):
            scaled, scale = train(3, way, overflow, op=hvd.Adasum)
            assert scale == (512.0 if overflow else 1024.0), scale  # on all ranks
            plain = make_model().float()
            optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
            optimizer = hvd.DistributedOptimizer(optimizer, plain.named_parameters(), op=hvd.Adasum)
            for step in range(3):
                if overflow is None or step != overflow[0]:
                    optimizer.zero_grad()
                    plain(rows(step)[RANK::SIZE]).pow(2).mean().backward()
                    optimizer.step()
            assert_same(scaled, plain, rtol=1e-4, atol=1e-5)


def check_autocast_in_bfloat16():
    model = make_model().float()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    for step in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(rows(step)[RANK::SIZE]).float().pow(2).mean()
        loss.backward()
        assert model[0].weight.grad.dtype is torch.float32
        optimizer.step()
    states = hvd.allgather_object([p.tolist() for p in model.parameters()])
    assert all(state == states[0] for state in states)
    assert_same(model, reference_without_momentum(3), rtol=0.1, atol=0.02)


def reference_without_momentum(steps):
    model = make_model().float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        model(rows(step)).pow(2).mean().backward()
        optimizer.step()
    return model


def check_models_in_half_precision():
    for dtype in (torch.float16, torch.bfloat16):
        model = nn.Linear(6, 2).to(dtype)
        hvd.broadcast_parameters(model.state_dict(), 0)
        start = model.weight.detach().clone()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
        model.weight.grad = None
        loss = (model.weight * (RANK + 1)).sum() + model.bias.sum()
        loss.backward()
        optimizer.step()
        expected = start - torch.tensor((SIZE + 1) / 2, dtype=dtype)
        assert torch.equal(model.weight, expected), (model.weight, expected)
