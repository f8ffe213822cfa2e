"""SyncBatchNorm: ranks with a part of the batch each normalise like one process with the whole batch."""

import torch
from torch import nn

import horovod.torch as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
torch.set_num_threads(1)


def rows_of(sizes):
    """The slice of this rank's rows in a batch of sum(sizes) rows."""
    return slice(sum(sizes[:RANK]), sum(sizes[: RANK + 1]))


def batch(sizes, shape, dtype=torch.float64, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(sum(sizes), *shape, generator=generator, dtype=torch.float64) * 3 + 7).to(dtype)


def compare(plain, sync, whole, mine, rtol=1e-9, atol=1e-9):
    """Two steps of training on both, each with its own gradients, then inference."""
    for step in range(2):
        x, part = (whole + step).requires_grad_(), (whole[mine] + step).detach().requires_grad_()
        weights = torch.cos(torch.arange(x.numel(), dtype=torch.float64)).reshape(x.shape).to(x.dtype)
        expected, out = plain(x), sync(part)
        torch.testing.assert_close(out, expected[mine], rtol=rtol, atol=atol)
        (expected * weights).sum().backward()
        (out * weights[mine]).sum().backward()
        torch.testing.assert_close(part.grad, x.grad[mine], rtol=rtol, atol=atol)
    for one, other in zip(plain.parameters(), sync.parameters()):
        torch.testing.assert_close(hvd.allreduce(other.grad, op=hvd.Sum), one.grad, rtol=rtol, atol=atol)
    for (name, one), other in zip(plain.named_buffers(), sync.buffers()):
        torch.testing.assert_close(other, one, rtol=rtol, atol=atol, msg=lambda text, name=name: f"{name}: {text}")
    plain.eval()
    sync.eval()
    torch.testing.assert_close(sync(whole[mine]), plain(whole[mine]), rtol=rtol, atol=atol)


def check_like_one_process():
    for kind, shape in (
        (nn.BatchNorm1d, (4,)),
        (nn.BatchNorm1d, (4, 5)),
        (nn.BatchNorm2d, (3, 4, 2)),
        (nn.BatchNorm3d, (2, 3, 1, 2)),
    ):
        sizes = [2 + r for r in range(SIZE)]
        compare(kind(shape[0]).double(), hvd.SyncBatchNorm(shape[0]).double(), batch(sizes, shape), rows_of(sizes))


def check_options():
    sizes, shape = [3] * SIZE, (4, 2)
    for options in ({"momentum": None}, {"affine": False}, {"track_running_stats": False}, {"eps": 0.5, "momentum": 0.7}):
        plain, sync = nn.BatchNorm1d(4, **options).double(), hvd.SyncBatchNorm(4, **options).double()
        if options.get("track_running_stats", True):
            compare(plain, sync, batch(sizes, shape), rows_of(sizes))
        else:  # in inference the batch counts too
            whole = batch(sizes, shape)
            torch.testing.assert_close(sync.eval()(whole[rows_of(sizes)]), plain.eval()(whole)[rows_of(sizes)])


def check_ranks_without_rows():
    sizes = [0] * (SIZE - 1) + [4]
    compare(nn.BatchNorm1d(3).double(), hvd.SyncBatchNorm(3).double(), batch(sizes, (3, 2)), rows_of(sizes))


def check_small_types():
    sizes = [4] * SIZE
    for dtype in (torch.bfloat16, torch.float16):
        whole = batch(sizes, (3, 5), dtype)
        out = hvd.SyncBatchNorm(3)(whole[rows_of(sizes)])
        assert out.dtype is dtype
        torch.testing.assert_close(out.float(), nn.BatchNorm1d(3)(whole.float())[rows_of(sizes)], rtol=2e-2, atol=2e-2)


def check_large_mean():
    """Sums of squares would lose all digits in float32."""
    sizes = [8] * SIZE
    whole = batch(sizes, (2,), torch.float32) + 1e4
    out = hvd.SyncBatchNorm(2)(whole[rows_of(sizes)])
    expected = nn.BatchNorm1d(2).double()(whole.double())[rows_of(sizes)]
    torch.testing.assert_close(out.double(), expected, rtol=1e-3, atol=1e-3)


def check_training():
    """A model with SyncBatchNorm and DistributedOptimizer gets the same weights as in one process with all data."""
    sizes = [4] * SIZE
    whole, models = batch(sizes, (3,)), []
    for norm in (nn.BatchNorm1d, hvd.SyncBatchNorm):
        torch.manual_seed(2)
        models.append(nn.Sequential(nn.Linear(3, 6), norm(6), nn.Tanh(), nn.Linear(6, 1)).double())
    single, distributed = models
    one = torch.optim.SGD(single.parameters(), lr=0.1)
    many = hvd.DistributedOptimizer(torch.optim.SGD(distributed.parameters(), lr=0.1), distributed.named_parameters())
    for _ in range(4):
        for model, optimizer, x in ((single, one, whole), (distributed, many, whole[rows_of(sizes)])):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    for mine, expected in zip(distributed.state_dict().values(), single.state_dict().values()):
        torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-9)


def check_process_set():
    alone = hvd.add_process_set(range(SIZE - 1))
    if alone.included():
        sizes = [2] * (SIZE - 1)
        whole = batch(sizes, (2, 3))
        out = hvd.SyncBatchNorm(2, process_set=alone).double()(whole[rows_of(sizes)])
        torch.testing.assert_close(out, nn.BatchNorm1d(2).double()(whole)[rows_of(sizes)])
    hvd.remove_process_set(alone)


def check_wrong_shapes():
    for tensor in (torch.zeros(4), torch.zeros(4, 5)):
        try:
            hvd.SyncBatchNorm(3)(tensor)
        except ValueError:
            continue
        raise AssertionError("no ValueError")
