"""Small models, their data and optimizers, for the checks of hvd.DistributedOptimizer, on all ranks and alone."""

import torch
from torch import nn

import horovod.torch as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
torch.set_num_threads(1)
BATCH = 6 * SIZE


def make_model(seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def batches(steps, seed=11):
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(BATCH, 5, generator=generator, dtype=torch.float64), torch.randn(BATCH, 3, generator=generator).double())
        for _ in range(steps)
    ]


def train(model, optimizer, data, mine=slice(None), passes=1):
    for x, y in data:
        optimizer.zero_grad()
        x, y = x[mine], y[mine]
        for part in range(passes):
            loss = ((model(x[part::passes]) - y[part::passes]) ** 2).mean() / passes
            loss.backward()
        optimizer.step()


def assert_same(model, other, rtol=1e-9, atol=1e-11):
    for mine, expected in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(mine, expected, rtol=rtol, atol=atol)


MAKERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
}


def compare(maker, passes=1, rtol=1e-9, atol=1e-11, steps=4, **arguments):
    """Trains both ways; the ranks' parts are the rows rank::size."""
    reference = make_model()
    train(reference, maker(reference.parameters()), batches(steps))
    model = make_model(seed=3 + RANK)
    optimizer = hvd.DistributedOptimizer(
        maker(model.parameters()),
        named_parameters=model.named_parameters(),
        backward_passes_per_step=passes,
        **arguments,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    train(model, optimizer, batches(steps), slice(RANK, None, SIZE), passes)
    assert_same(model, reference, rtol, atol)
    return model, optimizer


KIB = 1 << 10
RING = 512 * KIB  # a chunk of a ring; each rank reduces a slice of it
# Bytes.  8 KiB: eager tensors, registered gradients.  32 KiB: tensors that travel alone.  8 MiB: eager batches.
THRESHOLDS = (8 * KIB, 32 * KIB, RING // SIZE // 64 * 64, RING, 8 << 20)
WIDTH = 16  # floats: 64 bytes a row
ROWS = sorted({size // 4 // WIDTH + more for size in THRESHOLDS for more in (-1, 0, 1)})
EVERYONES = (SIZE + 1) / 2  # the mean of rank + 1


class Tables(nn.Module):
    """A table of each size, of which a pass uses a few rows, or all."""

    def __init__(self, sparse=False):
        super().__init__()
        torch.manual_seed(5)
        weights = [torch.zeros(rows, WIDTH) for rows in ROWS]
        self.tables = nn.ModuleList([nn.Embedding.from_pretrained(weight, freeze=False, sparse=sparse) for weight in weights])

    def loss(self, used):
        """used(rows): the used rows of a table with that many rows; each of their elements has the gradient rank + 1."""
        return sum(table(used(table.num_embeddings)).sum() for table in self.tables) * (RANK + 1)
