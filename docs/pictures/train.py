# Rank 2 has no data for the fourth epoch.
import sys
import time

import torch

import hvd.torch as hvd

hvd.init()
torch.manual_seed(0)
model = torch.nn.Linear(10, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))


def batches(epoch):
    if hvd.rank() == 2 and epoch == 4:
        raise ValueError(f"no rows for epoch {epoch}")
    return torch.randn(20, 32, 10, generator=torch.Generator().manual_seed(epoch))


for epoch in range(1, 10):
    for step, x in enumerate(batches(epoch), 1):
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        if hvd.rank() == 0 and step % 4 == 0:
            print(f"\repoch {epoch}: {'#' * (2 * step):40} {step}/20", end="", file=sys.stderr, flush=True)
    if hvd.rank() == 0:
        print(f"\repoch {epoch}: loss {loss.item():.4f}".ljust(60), file=sys.stderr, flush=True)
