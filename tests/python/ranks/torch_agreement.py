"""hvd.agreement: flipped bits of parameters and optimizer state are found, with tensor and rank; equal ranks are not reported.

HVD_AGREEMENT is stop, and HVD_AGREEMENT_STEPS is 4.
"""

import contextlib
import copy
import random
import re
import types

import torch
from torch import nn
from torch_models import MAKERS, RANK, SIZE, batches, make_model, train

import hvd.torch as hvd
from hvd._agreement import exchange, host_windows
from hvd.exceptions import DivergedError
from hvd.torch import agreement, start_comparison, tensor_windows

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


def check_ranks_may_have_other_watches_beside():
    """Some ranks may have additional watches: of a process set without all ranks, or of a copy of the model on one rank."""
    pair = hvd.add_process_set([0, SIZE - 1]) if SIZE > 2 else None  # two ranks are all ranks
    model = make_model()
    if pair and pair.included():
        of_pair = make_model(seed=5)
        set_optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(of_pair.parameters(), lr=0.1), of_pair.named_parameters(), process_set=pair
        )
        train(of_pair, set_optimizer, batches(2), mine)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    copied = copy.deepcopy(optimizer) if RANK == 0 else None
    train(model, optimizer, batches(2), mine)
    later, later_optimizer = distributed()
    train(later, later_optimizer, batches(2), mine)
    if pair:
        hvd.remove_process_set(pair)
    del copied


def check_parameters_that_are_added_later_are_compared():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model[0].parameters()), model.named_parameters())
    train(model, optimizer, batches(2), mine)
    optimizer.add_param_group({"params": list(model[2].parameters())})
    train(model, optimizer, batches(2), mine)
    if RANK == 1:
        flip(model[2].weight, 50)
    error, _ = steps_until_found(model, optimizer, most=2 * STEPS)
    assert " 2.weight, elements " in error, error


def check_the_comparison_goes_on_after_a_join():
    model, optimizer = distributed()
    train(model, optimizer, batches(5 if RANK == 1 else 7), mine)
    last = hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    hvd.broadcast_optimizer_state(optimizer, root_rank=last)
    train(model, optimizer, batches(4), mine)
    if RANK == 1:
        flip(model[2].weight, 50)
    error, _ = steps_until_found(model, optimizer)
    assert "2.weight, elements " in error, error


def check_ranks_may_join_before_their_first_step():
    told, tell = [], agreement.Watch._print
    agreement.Watch._print = lambda _, text, *more: told.append(text)
    try:
        model, optimizer = distributed()
        for epoch in range(3):
            train(model, optimizer, batches(2 * RANK), mine)
            last = hvd.join()
            if epoch < 2:
                hvd.broadcast_parameters(model.state_dict(), root_rank=last)
                hvd.broadcast_optimizer_state(optimizer, root_rank=last)
            train(model, optimizer, batches(2), mine)
    except DivergedError:
        assert epoch == 2
    else:
        raise AssertionError("ranks without the same parameters go on")
    finally:
        agreement.Watch._print = tell
    starts = [line for line in told if " have other values on rank " in line]
    assert len(starts) == 1 and starts[0].startswith("after hvd.join(), 4 of 4 parameters"), told


def check_ranks_may_skip_steps():
    """A branch on one rank: the others must not wait for that rank, which may wait for them in the next gradients."""
    before = exchange._PATIENCE, exchange._PATIENCE_FOR_DETAILS
    exchange._PATIENCE, exchange._PATIENCE_FOR_DETAILS = 0.2, 1.0
    try:
        for skipped in (1, 2):
            model, found = make_model(), []
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            hvd.agreement.watch(model, optimizer)
            for step, (x, y) in enumerate(batches(14)):
                optimizer.zero_grad()
                (model(x) - y).square().mean().backward()
                for name, parameter in model.named_parameters():
                    hvd.allreduce_(parameter.grad, name=f"skipped.{name}")
                if RANK == 1 and step in range(4, 4 + skipped):
                    continue
                try:
                    optimizer.step()
                except DivergedError as error:
                    found.append(str(error))
            assert found and ("is not on rank 1 (" if SIZE > 2 else "differs between ranks 0 (") in found[0], found
    finally:
        exchange._PATIENCE, exchange._PATIENCE_FOR_DETAILS = before


class Joins(nn.Module):
    """A stand-in for DistributedDataParallel: torch.distributed.algorithms.Join sets `_join_config.enable` of the module."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self._join_config = types.SimpleNamespace(enable=False)


def check_ranks_make_other_numbers_of_steps_in_torchs_join():
    model = make_model()
    joins, optimizer = Joins(model), torch.optim.SGD(model.parameters(), lr=0.0)
    watch = agreement.watch(joins, optimizer)
    train(model, optimizer, batches(2))
    joins._join_config.enable = True
    train(model, optimizer, batches(4 + RANK))
    joins._join_config.enable = False
    train(model, optimizer, batches(2))
    if RANK == 1:
        flip(model[0].weight, 50)
    error, _ = steps_until_found(model, optimizer)
    assert "model.0.weight, elements " in error and watch.found == 1, error


def check_shards_and_parameters_without_memory_are_left_out():
    class FullyShardedDataParallel(nn.Linear):
        pass

    torch.manual_seed(RANK)
    divided = FullyShardedDataParallel(4, 4)
    torch.manual_seed(1)
    model = nn.Sequential(divided, nn.Linear(4, 4), nn.LazyLinear(4), nn.Linear(4, 4, device="meta"))
    watch = agreement.watch(model, torch.optim.SGD([*divided.parameters(), *model[1].parameters()], lr=0.1))
    assert [name for name, *_ in watch._tensors()] == ["parameter 1.weight", "parameter 1.bias"]
    watch.close()

    class ZeroRedundancyOptimizer(torch.optim.SGD):
        pass

    model = nn.Linear(4, 4)
    zero = ZeroRedundancyOptimizer(model.parameters(), lr=0.1)
    zero.state[model.weight]["momentum_buffer"] = torch.zeros(4, 4)
    watch = agreement.watch(model, zero)
    assert [name for name, *_ in watch._tensors()] == ["parameter weight", "parameter bias"]
    watch.close()


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
        assert re.match(rf"{word} in the sum '\S*0\.weight[^']*' in step \d+, element 13, from rank 1 \(", found), found


def check_overflows_that_a_scaler_handles_are_not_reported():
    scaler_type = getattr(torch.amp, "GradScaler", None)
    if scaler_type is None:
        return  # torch.cuda's before 2.3, which does nothing on a CPU
    told, tell = [], agreement.Watch._tell_not_finite
    agreement.Watch._tell_not_finite = told.append
    try:
        for is_distributed, fused in ((True, False), (True, True), (False, False)):
            model = make_model().float()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
            if is_distributed:
                optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
            else:  # another library reduces the gradients
                hvd.agreement.watch(model, optimizer)
            scaler = scaler_type("cpu", init_scale=1024.0)
            for step in range(6):
                optimizer.zero_grad()
                loss = model(torch.ones(2, 5)).sum() * (float("inf") if (step, RANK) == (2, 1) else 1)
                scaler.scale(loss).backward()
                for name, p in () if is_distributed else model.named_parameters():
                    p.grad = hvd.allreduce(p.grad, name=f"by.hand.{name}")
                scaler.step(optimizer)
                scaler.update()
            assert scaler.get_scale() == 512, scaler.get_scale()
    finally:
        agreement.Watch._tell_not_finite = tell
    assert not told


def lines_of_a_start(model, **options):
    """The lines of the first step."""
    lines, tell = [], agreement.Watch._print
    agreement.Watch._print = lambda _, text, *more: lines.append(text)
    try:
        maker = torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})
        optimizer = hvd.DistributedOptimizer(maker, model.named_parameters())
        train(model, optimizer, batches(1), mine)
    finally:
        agreement.Watch._print = tell
    return lines


def check_the_comparison_at_the_start():
    assert lines_of_a_start(make_model()) == []
    odd = 1 if RANK == 1 else 0
    (values,) = lines_of_a_start(make_model(seed=3 + odd))[-1:]
    who = "1" if SIZE > 2 else "0, 1"
    assert re.match(rf"at the start, 4 of 4 parameters have other values on rank {who}, the first is 0.weight: call", values)
    rates = lines_of_a_start(make_model(), lr=0.1 * (1 + odd))
    assert len(rates) == 1 and re.match(r"at the start, the learning rate is 0\.\d on rank .*0\.2 on rank 1", rates[0]), rates
    options = lines_of_a_start(make_model(), momentum=0.1 * odd)
    assert len(options) == 1 and "an option of the optimizer is momentum=0" in options[0], options
    same = torch.utils.data.distributed.DistributedSampler(range(60), SIZE, rank=0)
    samplers = lines_of_a_start(make_model())
    assert len(samplers) == 1 and "a data sampler gives the same samples to several ranks, among them 0, 1" in samplers[0]
    same.rank, same.seed = RANK, odd
    seeds = lines_of_a_start(make_model())
    assert len(seeds) == 1 and re.search(r"a data sampler is DistributedSampler of 60 samples, seed 0", seeds[0]), seeds
    same.seed = 0
    assert lines_of_a_start(make_model()) == []


def check_the_start_accepts_any_option_and_sampler():
    class Bare(torch.utils.data.distributed.DistributedSampler):
        def __init__(self):
            self.num_replicas = SIZE

    bare, model = Bare(), make_model()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    plain.param_groups[0].update(schedule=lambda step: step, owner=bare, limit=float("nan"))
    facts = start_comparison.facts(plain, {}, {}, SIZE)
    assert "a data sampler" in facts
    plain.param_groups[0]["lr"] = float("nan")
    facts = hvd.allgather_object(start_comparison.facts(plain, {}, {}, SIZE))
    assert list(start_comparison.differences(facts, range(SIZE))) == []


def check_what_counts_as_a_difference():
    def lines(what, *values):
        usual = {"samplers": [], "values": {}}
        return list(start_comparison.differences([{what: value, **usual} for value in values], range(len(values))))

    assert lines("the version of torch", "2.1", "2.1", "2.0") == ["the version of torch is 2.1 on rank 0, 1; 2.0 on rank 2"]
    assert (
        lines("the seed of torch", 5, 6, 7, 8)
        == lines("the seed of torch", 5, 6)
        == lines("the seed of torch", 5, 6, 5, 6)
        == []
    )
    assert lines("the seed of torch", 5, 5, 7) == ["the seed of torch is 5 on rank 0, 1; 7 on rank 2"]
    assert lines("a parameter", ["a [2]", "b [3]"], ["a [2]"]) == ["a parameter is b [3] on rank 0; missing on rank 1"]
    long = ["x" * 80 + "1", "x" * 80 + "2"]
    assert len(lines("the script", *long)) == 1 and lines("the script", *long)[0].count(" on rank ") == 2


def check_windows_cover_every_element_in_time():
    draw = random.Random(6)
    for steps in (1, 3, 50):
        tensors = [(f"t{i}", t, None, t) for i in range(40) for t in [torch.zeros(draw.choice([1, 7, 1000, 300_000]))]]
        windows = tensor_windows.windows_of(tensors, steps)
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
            before = int(tensor_windows.hash_of(tensor_windows.flattened(part)))
            size = whole.element_size()
            for bit in range(16 * size * 8) if dtype != torch.bool else range(0, 128, 8):
                flip(whole, shift * size * 8 + bit)
                assert int(tensor_windows.hash_of(tensor_windows.flattened(part))) != before
                flip(whole, shift * size * 8 + bit)


def check_the_places_of_pieces():
    """Only memory without gaps is hashed in place; other tensors are copied first. Both ways give the same hash."""
    model = make_model()
    watch = agreement.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    whole = torch.arange(40.0).reshape(5, 8)
    (piece,) = tensor_windows.pieces_of("t", whole, None, whole, tensor_windows.PIECE)
    assert tensor_windows.place_of(piece, whole) == (whole.data_ptr(), 160)
    later = piece._replace(begin=7, end=9)
    assert tensor_windows.place_of(later, whole) == (whole.data_ptr() + 28, 8)
    for other in (whole.t(), whole[:, ::2], whole[:2], whole.double(), whole.to_sparse(), whole.to("meta"), None):
        assert tensor_windows.place_of(piece, other) is None
    transposed = whole.t()
    (piece,) = tensor_windows.pieces_of("t", transposed, None, transposed, tensor_windows.PIECE)
    dense = transposed.contiguous()
    assert watch._hashes([piece]) == (host_windows.host_hashes([(dense.data_ptr(), 160)], 1), 1)
    watch.close()
    hashes = [-1, 2**62, 3, -(2**63)]
    digest = host_windows.host_digest(hashes)
    assert -(2**63) <= digest < 2**63 and digest == host_windows.host_digest(list(hashes))
    for at in range(4):
        others = [one ^ (at == i) for i, one in enumerate(hashes)]
        assert host_windows.host_digest(others) != digest
    many = [3] * 70_000  # more than before
    assert host_windows.host_digest(many) != host_windows.host_digest([*many[:-1], 4])
    assert host_windows.host_digest(hashes) == digest


def check_threads_hash_as_one_does():
    draw = torch.Generator().manual_seed(7)
    parts = [torch.randn(size, generator=draw) for size in (700_000, 1, 2_000_000, 3, 900_000, 4, 1_500_000)]
    places = [(part.data_ptr(), part.numel() * part.element_size()) for part in parts]
    alone = [host_windows.host_hashes([place], 1)[0] for place in places]
    for threads in (1, 2, 4):
        assert host_windows.host_hashes(places, threads) == alone
    flip(parts[2], 8 * 4_000_001)
    after = host_windows.host_hashes(places, 4)
    assert [a == b for a, b in zip(after, alone, strict=True)] == [True, True, False] + [True] * 4


def check_the_vote():
    assert exchange.outvoted([3, 3, 3]) == [] and exchange.outvoted([3, 4]) == [0, 1]
    assert exchange.outvoted([3, 4, 3]) == [1] and exchange.outvoted([1, 2, 3]) == [0, 1, 2]


def check_wrong_arguments():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for arguments in ((model, model), ([1], optimizer)):
        with contextlib.suppress(ValueError):
            hvd.agreement.watch(*arguments)
            raise AssertionError(arguments)
