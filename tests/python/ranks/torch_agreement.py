"""hvd.agreement: flipped bits of parameters and optimizer state are found, with tensor and rank; equal ranks are not reported.

HVD_AGREEMENT is stop, and HVD_AGREEMENT_STEPS is 4.
"""

import contextlib
import random
import re

import torch
import torch_scaling
from torch import nn
from torch_models import MAKERS, RANK, SIZE, batches, make_model, train

import hvd.torch as hvd
from hvd.exceptions import DivergedError
from hvd.torch import agreement

STEPS = 4
mine = slice(RANK, None, SIZE)


def distributed(maker=MAKERS["adam"]):
    model = make_model()
    return model, hvd.DistributedOptimizer(maker(model.parameters()), model.named_parameters())


def flip(tensor, bit):
    """Flips one bit of the tensor's memory."""
    view = tensor.detach().view(-1).view(torch.uint8)
    view[bit // 8] ^= 1 << bit % 8


def steps_until_found(model, optimizer, most=STEPS + 1):
    """The error of the first of `most` further steps that raises DivergedError, and the number of steps."""
    for step in range(most):
        try:
            train(model, optimizer, batches(1, seed=step), mine)
        except DivergedError as error:
            return str(error), step
    raise AssertionError("nothing was found")


def check_equal_ranks_are_not_reported():
    for maker in MAKERS.values():
        model, optimizer = distributed(maker)
        train(model, optimizer, batches(3 * STEPS), mine)
        assert [one.found for one in agreement._watches] == [0] * len(agreement._watches)


def check_flips_are_found_where_they_are():
    draw = random.Random(5)  # the same draws on all ranks
    for _ in range(6):
        model, optimizer = distributed()
        train(model, optimizer, batches(2), mine)
        name, parameter = draw.choice(list(model.named_parameters()))
        key = draw.choice([None, "exp_avg", "exp_avg_sq"])
        tensor = parameter if key is None else optimizer.state[parameter][key]
        culprit, bit = draw.randrange(SIZE), draw.randrange(tensor.numel()) * 64 + draw.randrange(40, 52)
        if culprit == RANK:
            flip(tensor, bit)
        error, _ = steps_until_found(model, optimizer)
        # A flip in the state reaches the parameter in the next step, and its window may come first.
        assert re.search(rf"(parameter|optimizer state \w+ of) {re.escape(name)}, elements \d+-\d+,", error), error
        assert (f"is not on rank {culprit} (" if SIZE > 2 else "differs between ranks 0 (") in error, error


def check_excluded_parameters_may_differ():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = agreement.watch(model, optimizer, exclude="0.*")
    with torch.no_grad():
        model[0].weight.add_(RANK)
    train(nn.Sequential(model[2]), optimizer, [(torch.ones(6, 8).double(), torch.ones(6, 3).double())] * 2 * STEPS)
    watch.close()
    assert watch.found == 0


def check_a_nan_names_tensor_element_and_rank():
    for bad, word in ((float("nan"), "NaN"), (float("inf"), "infinity")):
        model, optimizer = distributed(MAKERS["sgd"])
        train(model, optimizer, batches(2), mine)

        def plant(gradient, bad=bad):
            gradient = gradient.clone()
            gradient[2, 3] = bad if RANK == 1 else gradient[2, 3]
            return gradient

        hook = model[0].weight.register_hook(plant)
        train(model, optimizer, batches(1), mine)
        hook.remove()
        try:
            train(model, optimizer, batches(1), mine)
            raise AssertionError("nothing was found")
        except FloatingPointError as error:
            found = str(error)
        assert re.match(rf"{word} in the sum '\S*0\.weight' in step \d+, element 13, from rank 1 \(", found), found


def check_overflows_that_a_scaler_handles_are_not_reported():
    if torch_scaling.Scaler is None:
        return
    told, tell = [], agreement.Watch._tell_not_finite
    agreement.Watch._tell_not_finite = told.append
    try:
        for way in ("as documented", "unscaled first", "step alone"):
            for options in ({}, {"fused": True}):
                _, scale = torch_scaling.train(6, way, overflow=(2, 1), **options)
                assert scale == 512, scale
    finally:
        agreement.Watch._tell_not_finite = tell
    assert not told


def check_windows_cover_every_element_in_time():
    draw = random.Random(6)
    for steps in (1, 3, 50):
        tensors = [(f"t{i}", t, None, t) for i in range(40) for t in [torch.zeros(draw.choice([1, 7, 1000, 300_000]))]]
        windows = agreement._windows(tensors, steps)
        assert len(windows) <= steps + 1
        covered = {name: torch.zeros_like(t, dtype=torch.bool) for name, t, *_ in tensors}
        for window in windows:
            for piece in window:
                covered[piece.name][piece.begin : piece.end] = True
        assert all(bool(one.all()) for one in covered.values())


def check_the_hash_sees_every_bit_of_every_dtype():
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.bool, torch.complex64):
        for shift in (0, 1):
            whole = torch.zeros(20, dtype=dtype)
            part = whole[shift : shift + 16]
            before = int(agreement._hash(agreement._flat(part)))
            size = whole.element_size()
            for bit in range(16 * size * 8) if dtype != torch.bool else range(0, 128, 8):
                flip(whole, shift * size * 8 + bit)
                assert int(agreement._hash(agreement._flat(part))) != before
                flip(whole, shift * size * 8 + bit)


def check_the_vote():
    assert agreement.outvoted([3, 3, 3]) == [] and agreement.outvoted([3, 4]) == [0, 1]
    assert agreement.outvoted([3, 4, 3]) == [1] and agreement.outvoted([1, 2, 3]) == [0, 1, 2]


def check_wrong_arguments():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for arguments in ((model, model), ([1], optimizer)):
        with contextlib.suppress(ValueError):
            hvd.agreement.watch(*arguments)
            raise AssertionError(arguments)
