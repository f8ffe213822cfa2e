"""--agreement repair: a rank that differs gets the others' parameters and optimizer state; the second time it must leave.

HVD_AGREEMENT is repair, HVD_AGREEMENT_STEPS is 4, and there are three ranks.
"""

import torch
from torch_models import MAKERS, RANK, SIZE, batches, make_model, train

import hvd.torch as hvd
from hvd._agreement import exchange
from hvd.exceptions import DivergedAgainError, DivergedError

mine = slice(RANK, None, SIZE)


def start():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(MAKERS["adam"](model.parameters()), model.named_parameters())
    train(model, optimizer, batches(3), mine)
    return model, optimizer


def are_equal(model, optimizer):
    values = [p.tolist() for p in model.parameters()]
    values += [s.tolist() for p in model.parameters() for s in optimizer.state[p].values()]
    told = hvd.allgather_object(values)
    return all(one == told[0] for one in told)


def check_a_repaired_rank_goes_on_and_leaves_the_next_time():
    model, optimizer = start()
    for key in (None, "exp_avg"):
        exchange._repairs = 0
        with torch.no_grad():
            tensor = model[0].weight if key is None else optimizer.state[model[2].weight][key]
            tensor[1, 1] += RANK == 2
        assert not are_equal(model, optimizer)
        train(model, optimizer, batches(7), mine)
        assert are_equal(model, optimizer)
        assert exchange._repairs == (RANK == 2)
    with torch.no_grad():
        model[2].bias[0] += RANK == 2
    try:
        train(model, optimizer, batches(7), mine)
        raise AssertionError("nothing was found")
    except DivergedAgainError as error:
        assert RANK == 2 and "not on rank 2 (" in str(error), error
    except DivergedError as error:
        assert RANK != 2 and "not on rank 2 (" in str(error), error


def check_excluded_parameters_stay():
    exchange._repairs = 0
    model, optimizer = start()
    hvd.agreement.watch(model, optimizer, exclude="2.*")
    with torch.no_grad():
        model[0].bias[0] += RANK == 1
        model[2].bias.fill_(RANK)
    before = model[2].bias.detach().clone()
    for _ in range(8):
        optimizer.zero_grad()
        model[0](torch.ones(6, 5).double()).mean().backward()
        optimizer.step()
    assert exchange._repairs == (RANK == 1)
    told = hvd.allgather_object(model[0].bias.tolist())
    assert told[0] == told[1] and abs(float((model[2].bias - before).detach().abs().max())) < 1


def check_without_a_majority_it_stops():
    model, optimizer = start()
    with torch.no_grad():
        model[0].weight[1, 1] += RANK
    try:
        train(model, optimizer, batches(7), mine)
        raise AssertionError("nothing was found")
    except DivergedError as error:
        assert "none of which has a majority" in str(error)
