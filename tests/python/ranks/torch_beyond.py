"""Additions of hvd.torch to Horovod: divided optimizers, low-rank gradients, DDP's hook, loaders."""

import copy
import os
import tempfile
from unittest import SkipTest

import torch
from refusals import raises
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset, get_worker_info
from torch_models import MAKERS, RANK, SIZE, assert_same, batches, make_model, train

import hvd.torch as hvd

mine = slice(RANK, None, SIZE)


def same_everywhere(model):
    states = hvd.allgather_object([p.tolist() for p in model.parameters()])
    assert all(state == states[0] for state in states)


# ---- ShardedOptimizer


def check_sharded_equals_undivided():
    for maker in MAKERS.values():
        for options in ({}, {"bucket_bytes": 100}):
            reference, model = make_model(), make_model()
            train(reference, maker(reference.parameters()), batches(4))
            optimizer = hvd.ShardedOptimizer(maker(model.parameters()), **options)
            train(model, optimizer, batches(4), mine)
            assert_same(model, reference)
            same_everywhere(model)


def check_sharded_groups_passes_and_schedulers():
    def maker(net):
        groups = [{"params": net[0].parameters()}, {"params": net[2].parameters(), "lr": 0.02, "weight_decay": 0.1}]
        return torch.optim.Adam(groups, lr=0.05)

    reference, model = make_model(), make_model()
    plain, sharded = maker(reference), hvd.ShardedOptimizer(maker(model), backward_passes_per_step=2)
    for net, optimizer, rows, passes in ((reference, plain, slice(None), 1), (model, sharded, mine, 2)):
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for part in range(3):
            train(net, optimizer, batches(2, seed=part), rows, passes)
            scheduler.step()
    assert_same(model, reference)
    assert sharded.param_groups[1]["lr"] == plain.param_groups[1]["lr"]


def check_schedules_made_before_the_wrap():
    """Also after load_state_dict()."""
    for wrap in (hvd.ShardedOptimizer, hvd.DistributedOptimizer):
        reference, model = make_model(), make_model()
        for net, wrapped, rows in ((reference, False, slice(None)), (model, True, mine)):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
            optimizer = wrap(optimizer) if wrapped else optimizer
            for part in range(4):
                train(net, optimizer, batches(1, seed=part), rows)
                if part == 1 and wrapped:
                    optimizer.load_state_dict(optimizer.state_dict())
                scheduler.step()
                assert optimizer.param_groups[0]["lr"] == scheduler.get_last_lr()[0] < 0.5
        assert_same(model, reference)


def check_sharded_state_after_the_root_alone_has_loaded():
    model = make_model()
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = hvd.ShardedOptimizer(torch.optim.Adam(model.parameters(), lr=0.1 + RANK))
    hvd.broadcast_optimizer_state(optimizer, 0)
    assert optimizer.param_groups[0]["lr"] == 0.1 and all(p.grad is None for p in model.parameters())
    train(model, optimizer, batches(2), mine)
    hvd.broadcast_optimizer_state(optimizer, 0)
    state, other = optimizer.state_dict(), make_model()
    fresh = hvd.ShardedOptimizer(torch.optim.Adam(other.parameters()))
    if RANK == 0:
        fresh.load_state_dict(state)
    raises(ValueError, lambda: hvd.broadcast_optimizer_state(fresh, 0), "load_state_dict() on every rank")
    raises(ValueError, fresh.state_dict, "differ in kinds or steps", "rank 1", "load_state_dict() on every rank")
    raises(TypeError, lambda: copy.deepcopy(optimizer), "state_dict")
    other.float()(torch.ones(1, 5)).sum().backward()
    raises(ValueError, fresh.step, "float32", "anew")


def check_sharded_state():
    for maker in MAKERS.values():
        reference, model = make_model(), make_model()
        plain, sharded = maker(reference.parameters()), hvd.ShardedOptimizer(maker(model.parameters()))
        train(reference, plain, batches(2))
        train(model, sharded, batches(2), mine)
        mine_of_it, all_of_it = sharded.state_dict(), plain.state_dict()
        assert mine_of_it["param_groups"][0]["params"] == all_of_it["param_groups"][0]["params"]
        for number, state in all_of_it["state"].items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    torch.testing.assert_close(mine_of_it["state"][number][key], value, rtol=1e-9, atol=1e-11)
        model2 = make_model()  # from the undivided optimizer's state into a divided one
        model2.load_state_dict(reference.state_dict())
        resumed = hvd.ShardedOptimizer(maker(model2.parameters()))
        resumed.load_state_dict(plain.state_dict())
        model3 = make_model()  # and in the other direction
        model3.load_state_dict(model.state_dict())
        alone = maker(model3.parameters())
        alone.load_state_dict(mine_of_it)
        train(reference, plain, batches(2, seed=5))
        train(model2, resumed, batches(2, seed=5), mine)
        train(model3, alone, batches(2, seed=5))
        assert_same(model2, reference)
        assert_same(model3, reference)


def check_sharded_memory():
    model = nn.Linear(400, 250)
    numbers = sum(p.numel() for p in model.parameters())
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = hvd.ShardedOptimizer(torch.optim.Adam(model.parameters()))
    model(torch.ones(2, 400)).sum().backward()
    optimizer.step()
    assert optimizer.state_bytes() <= 2 * 4 * (numbers / SIZE + 1) + 64  # two moments of this rank's part
    shards = [bucket.shard for bucket in optimizer._all()]
    starts = {bucket.flat.data_ptr() for bucket in optimizer._all()}
    assert all(s.untyped_storage().data_ptr() in starts for s in shards)  # no copy of the parameters


def check_sharded_missing_gradients_and_clipping():
    reference, model = make_model(), make_model()
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    sharded = hvd.ShardedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Sum)
    x = torch.ones(2, 5).double()
    loss = model[0](x).sum() if RANK else model(x).sum()
    loss.backward()
    (reference(x).sum() + (SIZE - 1) * reference[0](x).sum()).backward()
    expected = torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.5)
    torch.testing.assert_close(sharded.clip_grad_norm_(0.5).double(), expected, rtol=1e-4, atol=1e-4)
    plain.step()
    sharded.step()
    assert_same(model, reference, rtol=1e-4, atol=1e-5)


def check_sharded_refuses_changed_gradients():
    """backward() has already sent the gradients, so step() would ignore a later change. step() must raise."""
    model = make_model()
    optimizer = hvd.ShardedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for change in (
        lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01),
        lambda: [p.grad.zero_() for p in model.parameters()],
        lambda: setattr(model[0].weight, "grad", model[0].weight.grad * 2),
    ):
        for waits in (False, True):
            model(torch.ones(2, 5).double()).sum().backward()
            if waits:
                optimizer.synchronize()
            change()
            raises(ValueError, optimizer.step, "changed after backward()", "optimizer.clip_grad_norm_")
            optimizer.zero_grad()
    model(torch.ones(2, 5).double()).sum().backward()
    optimizer.step()  # without a change


def check_sharded_skips_a_step():
    """A script may leave out step() after clip_grad_norm_() or synchronize(): the next step has only its own gradient."""
    for clears in (False, True):
        weight = nn.Parameter(torch.zeros(4, dtype=torch.float64))
        optimizer = hvd.ShardedOptimizer(torch.optim.SGD([weight], lr=1.0))
        for gradient in (100.0, 1.0, 50.0, 2.0):
            if clears:
                optimizer.zero_grad()
            else:
                weight.grad = None
            (weight.sum() * gradient).backward()
            norm = optimizer.clip_grad_norm_(1e9)
            torch.testing.assert_close(norm.double(), torch.tensor(2 * gradient).double())
            if gradient < 10:
                optimizer.step()
        torch.testing.assert_close(weight.detach(), torch.full((4,), -3.0).double())


def check_sharded_with_a_scaler():
    Scaler = getattr(torch.amp, "GradScaler", None)
    if Scaler is None:
        raise SkipTest("torch.amp.GradScaler for the CPU needs torch 2.3")
    reference, model = make_model().float(), make_model().float()
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    sharded = hvd.ShardedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    scaler = Scaler("cpu", init_scale=256.0, growth_interval=50)
    for step, (x, _) in enumerate(batches(3)):
        x = x.float()
        sharded.zero_grad()
        loss = model(x[mine]).pow(2).mean()
        if step == 1 and RANK == SIZE - 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(sharded)
        scaler.update()
        if step != 1:
            plain.zero_grad()
            reference(x).pow(2).mean().backward()
            plain.step()
    assert scaler.get_scale() == 128.0
    assert_same(model, reference, rtol=1e-4, atol=1e-5)
    scaler.scale(model(torch.ones(1, 5)).sum()).backward()
    scaler.unscale_(sharded)
    raises(ValueError, lambda: scaler.step(sharded), "unscale_")


def check_sharded_refusals():
    model = make_model()
    raises(ValueError, lambda: hvd.ShardedOptimizer(torch.optim.LBFGS(model.parameters())), "LBFGS", "DistributedOptimizer")
    raises(ValueError, lambda: hvd.ShardedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum), "Average")
    optimizer = hvd.ShardedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    raises(ValueError, lambda: optimizer.add_param_group({"params": [torch.zeros(1)]}), "anew")
    table = nn.Embedding(4, 2, sparse=True)
    optimizer = hvd.ShardedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1))
    raises(ValueError, lambda: table(torch.tensor([1])).sum().backward(), "sparse")


# ---- PowerSGD


def powersgd_of(gradients, error, q):
    """The reference: one PowerSGD step computed from all ranks' gradients, by the definition in the paper."""
    wanted = [e + g for e, g in zip(error, gradients)]
    p = torch.linalg.qr(sum(w @ q for w in wanted) / len(wanted)).Q
    q = sum(w.t() @ p for w in wanted) / len(wanted)
    mean = p @ q.t()
    return mean, [w - mean for w in wanted], q / q.norm(dim=0, keepdim=True)


def check_low_rank_gradients_are_powersgds():
    weight = nn.Parameter(torch.zeros(12, 10, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, [("w", weight)], compression=hvd.Compression.powersgd(rank=2))
    generators = [torch.Generator().manual_seed(r) for r in range(SIZE)]
    error, q = [torch.zeros(12, 10).double() for _ in range(SIZE)], None
    for _ in range(3):
        gradients = [torch.randn(12, 10, generator=g, dtype=torch.float64) for g in generators]
        optimizer.zero_grad()
        (weight * gradients[RANK]).sum().backward()
        if q is None:
            q = next(thin for entry in optimizer._hvd.entries.values() if (thin := optimizer._hvd._of(entry))).q.clone()
        optimizer.synchronize()
        mean, error, q = powersgd_of(gradients, error, q)
        torch.testing.assert_close(weight.grad, mean, rtol=1e-8, atol=1e-10)
        with optimizer.skip_synchronize():
            optimizer.step()
    same_everywhere(nn.ParameterList([weight]))


def check_low_rank_is_exact_where_the_rank_is_full():
    model, reference = make_model(), make_model()
    train(reference, MAKERS["sgd"](reference.parameters()), batches(4))
    compression = hvd.Compression.powersgd(rank=8, least_saving=0.1)
    optimizer = hvd.DistributedOptimizer(MAKERS["sgd"](model.parameters()), model.named_parameters(), compression=compression)
    train(model, optimizer, batches(4), mine)
    assert_same(model, reference, rtol=1e-6, atol=1e-8)


def check_low_rank_training_learns():
    torch.manual_seed(0)
    truth = torch.randn(30, 3) @ torch.randn(3, 20)
    model = nn.Linear(30, 20)
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression=hvd.Compression.powersgd(rank=1))
    generator = torch.Generator().manual_seed(RANK)
    losses = []
    for _ in range(150):
        x = torch.randn(16, 30, generator=generator)
        optimizer.zero_grad()
        loss = (model(x) - x @ truth).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 20, (losses[0], losses[-1])
    same_everywhere(model)


def check_low_rank_refusals():
    model = make_model()
    wrap, low = hvd.DistributedOptimizer, hvd.Compression.powersgd()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    raises(ValueError, lambda: wrap(sgd, compression=low, op=hvd.Sum), "Average")
    raises(ValueError, lambda: wrap(sgd, compression=low, op=hvd.Adasum), "Average")
    raises(ValueError, lambda: hvd.allreduce(torch.ones(4, 4), compression=low), "DistributedOptimizer")
    raises(ValueError, lambda: hvd.Compression.powersgd(0), "at least 1")


# ---- DDP's hook


def check_the_hook_of_ddp():
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    folder = hvd.broadcast_object(tempfile.mkdtemp() if RANK == 0 else None, 0)
    store = dist.FileStore(os.path.join(folder, "store"), SIZE)
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=SIZE)
    try:
        for state in (None, hvd.DDPSettings(hvd.Compression.bf16, name="half")):
            model, reference = make_model(), make_model()
            ddp = DistributedDataParallel(model, bucket_cap_mb=0.0001)
            ddp.register_comm_hook(state, hvd.ddp_comm_hook)
            train(ddp, MAKERS["sgd"](ddp.parameters()), batches(4), mine)
            train(reference, MAKERS["sgd"](reference.parameters()), batches(4))
            loose = {} if state is None else {"rtol": 0.1, "atol": 0.05}
            assert_same(model, reference, **loose)
            same_everywhere(model)
            del ddp
    finally:
        dist.destroy_process_group()


# ---- DataLoader


class Stream(IterableDataset):
    def __init__(self, count=21):
        self.count = count

    def __iter__(self):
        return iter(range(self.count))


class DividedStream(Stream):
    """Divides itself among the workers, as torch's documentation advises."""

    def __len__(self):
        return self.count

    def __iter__(self):
        info = get_worker_info()
        return iter(range(self.count)) if info is None else iter(range(info.id, self.count, info.num_workers))


def check_streams_that_divide_themselves():
    loader = hvd.DataLoader(DividedStream(), batch_size=2, num_workers=2, persistent_workers=True)
    for _ in range(2):
        parts = hvd.allgather_object([x for batch in loader for x in batch.tolist()])
        assert sorted(x for part in parts for x in part) == list(range(21))
    assert len(hvd.DataLoader(DividedStream(), batch_size=None)) == len(parts[RANK])
    raises(TypeError, lambda: len(hvd.DataLoader(Stream())), "Stream", "len()")


def check_the_loader():
    data = TensorDataset(torch.arange(25))
    loader = hvd.DataLoader(data, batch_size=3)
    seen = hvd.allgather_object([x for (batch,) in loader for x in batch.tolist()])
    assert {x for part in seen for x in part} == set(range(25))
    assert len({len(part) for part in seen}) == 1
    loader = hvd.DataLoader(data, 3, shuffle=True, seed=1, drop_last=True)
    first, second = ([x for (batch,) in loader for x in batch.tolist()] for _ in range(2))
    assert first != second and len(first) == 25 // SIZE // 3 * 3
    loader.set_epoch(0)
    assert [x for (batch,) in loader for x in batch.tolist()] == first
    parts = hvd.allgather_object(first)
    assert len({x for part in parts for x in part}) == len(first) * SIZE
    for workers in (0, 2):
        stream = hvd.DataLoader(Stream(), batch_size=2, num_workers=workers)
        parts = hvd.allgather_object([x for batch in stream for x in batch.tolist()])
        assert sorted(x for part in parts for x in part) == list(range(21))
        batches = hvd.allgather_object(len(list(hvd.DataLoader(Stream(18), batch_size=4, num_workers=workers))))
        assert max(batches) - min(batches) <= 1, batches
    raises(ValueError, lambda: hvd.DataLoader(data, sampler=torch.utils.data.SequentialSampler(data)), "sampler")
