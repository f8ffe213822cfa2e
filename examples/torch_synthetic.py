"""Images per second that all ranks train, on synthetic images: the common benchmark of articles about Horovod.

    hvdrun -np 2 examples/torch_synthetic.py
    hvdrun -np 2 examples/torch_synthetic.py --batch-size 64 --compression bf16

Prints images per second of one rank and of all, and the scaling efficiency.  This is the rate of all ranks together, divided by
the rate without exchange.  In the run without exchange, the same ranks train at the same time on the same machine, each alone.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

import horovod.torch as hvd


def network() -> nn.Module:
    """A small convolutional network, 2.6 million parameters, for images of 3 x 32 x 32."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (32, 64, 128):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16, 1200), nn.ReLU(), nn.Linear(1200, 10))


def rates(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: int, iterations: int, steps: int, label: str
) -> list[float]:
    """Images per second of this rank in each iteration of `batches` steps; prints a line for each on rank 0."""
    images, targets = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    found = []
    for iteration in range(iterations + 1):
        start = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            functional.cross_entropy(model(images), targets).backward()
            optimizer.step()
        rate = batch * steps / (time.perf_counter() - start)
        if iteration:  # the first one warms up
            found.append(rate)
            if hvd.rank() == 0 and label:
                print(f"Iter #{iteration - 1}: {rate:.1f} img/sec per {label}", flush=True)
    return found


def main(
    batch_size: int = 32, iterations: int = 5, steps: int = 5, compression: str = "none", quiet: bool = False
) -> dict[str, float]:
    """Returns the figures."""
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(hvd.rank())
    size, label = hvd.size(), "" if quiet else "CPU"
    model = network()
    alone = rates(model, torch.optim.SGD(model.parameters(), lr=0.01), batch_size, iterations, steps, "")
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01 * size),
        named_parameters=model.named_parameters(),
        compression=getattr(hvd.Compression, compression),
    )
    if hvd.rank() == 0 and label:
        print(f"Model: convolutions\nBatch size: {batch_size}\nNumber of CPUs: {size}\nRunning benchmark...", flush=True)
    together = rates(model, optimizer, batch_size, iterations, steps, label)
    mean, spread = statistics.mean(together), 1.96 * statistics.pstdev(together)
    total = hvd.allreduce(torch.tensor([mean, statistics.mean(alone)]), op=hvd.Sum, name="rates").tolist()
    figures = {"per_rank": mean, "total": total[0], "efficiency": total[0] / total[1]}
    if hvd.rank() == 0 and label:
        print(f"Img/sec per CPU: {mean:.1f} +-{spread:.1f}")
        print(f"Total img/sec on {size} CPU(s): {total[0]:.1f} +-{spread * size:.1f}")
        print(f"Scaling efficiency: {figures['efficiency']:.1%}", flush=True)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Images a second on made-up data.")
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="steps of an iteration")
    parser.add_argument("--compression", choices=["none", "fp16", "bf16"], default="none")
    main(**vars(parser.parse_args()))
