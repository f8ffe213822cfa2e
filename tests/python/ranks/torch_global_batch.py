"""GlobalBatchLoader on a fixed set of ranks: its errors, and loops of scripts."""

import torch
from refusals import raises
from torch_models import Tables

import hvd.torch as hvd
from hvd._elastic import shares as _shares
from hvd.torch.elastic import ElasticSampler, GlobalBatchLoader, TorchState, run

hvd.init()
DATA = torch.arange(10.0)


def new(keep=True, **options):
    """The model, its optimizer, and a sampler for a training function with that decorator."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)
    sampler = ElasticSampler(DATA)
    run(keep_global_batch=keep)(lambda state: None)(TorchState(model, sampler=sampler))
    return model, optimizer, sampler


def loss_of(model, numbers):
    return model(numbers.unsqueeze(1).expand(-1, 3)).pow(2).mean()


def check_shares():
    for shares in range(1, 9):
        for size in range(1, 9):
            found = [_shares.of_rank(rank, size, shares) for rank in range(size)]
            assert [share for run_of in found for share in run_of] == list(range(shares)) and found[0][0] == 0
            assert max(map(len, found)) - min(map(len, found)) <= 1


def check_both_forms_of_the_decorator():
    for keep in (run, run(), run(keep_global_batch=False), run(keep_global_batch=True)):
        assert keep(lambda state, more: more)(TorchState(epoch=0), 7) == 7
    _, _, sampler = new(keep=False)
    sampler.record_batch(0, 1)
    assert len(list(sampler)) and "shares" not in sampler.state_dict()


def check_a_plain_loader_is_refused():
    _, _, sampler = new()
    assert sampler.state_dict()["shares"] == hvd.size()
    raises(RuntimeError, lambda: iter(sampler), "GlobalBatchLoader")
    raises(RuntimeError, lambda: sampler.record_batch(0, 1), "tells of them itself")
    raises(ValueError, lambda: GlobalBatchLoader(DATA, 2, sampler=range(10)), "needs an ElasticSampler")
    raises(ValueError, lambda: GlobalBatchLoader(DATA, 0, sampler=sampler), "at least 1")


def check_loops_that_go_wrong():
    model, optimizer, sampler = new()
    loader = GlobalBatchLoader(DATA, 2, sampler=sampler)
    raises(RuntimeError, lambda: list(loader), "were not gone through")
    assert sampler.processed_num == 0

    def outside():
        for batch in loader:
            list(batch)
            loss_of(model, DATA).backward()

    raises(RuntimeError, outside, "outside of a micro-batch")

    def cleared():
        sampler.set_epoch(1)
        for batch in loader:
            for numbers in batch:
                loss_of(model, numbers).backward()
            optimizer.zero_grad()

    raises(AssertionError, cleared, "zero_grad() between backward() and step()")


def check_optimizers_that_do_not_go_with_it():
    others = {"op": [hvd.Sum, hvd.Adasum], "compression": [hvd.Compression.fp16, hvd.Compression.powersgd(rank=1)]}
    for name, value in [(name, value) for name, values in others.items() for value in values]:
        model, optimizer, sampler = new(**{name: value})

        def train(model=model, optimizer=optimizer, sampler=sampler):
            for batch in GlobalBatchLoader(DATA, 2, sampler=sampler):
                for numbers in batch:
                    loss_of(model, numbers).backward()
                optimizer.step()

        raises(ValueError, train, "needs a DistributedOptimizer with op=Average")


def check_clipping_clearing_and_workers():
    model, optimizer, sampler = new()
    size = 2 * hvd.size()
    loader = GlobalBatchLoader(DATA, 2, sampler=sampler, drop_last=True, num_workers=1)
    assert len(loader) == len(DATA) // size
    for batch in loader:
        optimizer.zero_grad(set_to_none=False)
        losses = []
        for numbers in batch:
            losses.append(loss_of(model, numbers))
            (losses[-1] / 2).backward(retain_graph=True)
            (losses[-1] / 2).backward()
        assert batch.samples == size and len(batch) == 1
        batch.mean(losses)
        raises(ValueError, lambda batch=batch: batch.mean([]), "one for each is needed")
        raises(RuntimeError, lambda batch=batch: list(batch), "come once")
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()
    assert sampler.processed_num == len(DATA) // size * size
    weights = hvd.allgather_object(model.weight.tolist())
    assert all(other == weights[0] for other in weights)


def check_the_mean_of_an_uneven_batch():
    model, optimizer, sampler = new()
    before = model.weight.detach().clone()
    gradient = torch.autograd.grad(loss_of(model, DATA), model.weight)[0]
    for batch in GlobalBatchLoader(DATA, 10, sampler=sampler):  # all of them
        losses = []
        for numbers in batch:
            losses.append(loss_of(model, numbers))
            losses[-1].backward()
        assert abs(batch.mean(losses) - loss_of(model, DATA).item()) < 1e-4
        optimizer.step()
    torch.testing.assert_close(model.weight.detach(), before - 0.1 * gradient)


def check_gradients_of_all_sizes():
    """A share has the gradient rank + 1, and all shares weigh the same."""
    model, sampler = Tables(), ElasticSampler(DATA)
    run(keep_global_batch=True)(lambda state: None)(TorchState(model, sampler=sampler))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    for batch in GlobalBatchLoader(DATA, 1, sampler=sampler, drop_last=True):
        optimizer.zero_grad()
        for _ in batch:
            model.loss(torch.arange).backward()
        optimizer.step()
        break
    for table in model.tables:
        wanted = torch.full_like(table.weight, -(hvd.size() + 1) / 2)
        torch.testing.assert_close(table.weight.detach(), wanted)


def check_a_plain_step_afterwards():
    model, optimizer, _ = new()
    before = model.weight.detach().clone()
    model(torch.ones(1, 3) * hvd.rank()).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), before - 0.1 * (hvd.size() - 1) / 2)
