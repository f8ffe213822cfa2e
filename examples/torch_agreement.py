"""Finds a rank whose weights have changed: rank 1 changes one weight by itself, and hvdrun names it.

hvdrun -np 3 --agreement report examples/torch_agreement.py
hvdrun -np 3 --agreement stop --agreement-steps 20 examples/torch_agreement.py
hvdrun -np 3 --agreement repair examples/torch_agreement.py

hvdrun would also name the first NaN in a gradient.  At the start it would name ranks with another version, script, model or
learning rate.
"""

from __future__ import annotations

import torch
from torch import nn

import hvd.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10), nn.BatchNorm1d(10))
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01), model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
# The optimizer is watched already.  This call leaves parameters out that may differ between ranks.
hvd.agreement.watch(model, optimizer, exclude=["3.bias"])

for step in range(60):
    optimizer.zero_grad()
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    if step == 30 and hvd.rank() == 1:
        with torch.no_grad():
            model[2].weight[3, 5] += 1e-3
print(f"rank {hvd.rank()} has made all steps", flush=True)
