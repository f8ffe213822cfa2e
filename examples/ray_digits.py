"""Trains a classifier of digits on a Ray cluster.

python examples/ray_digits.py            two ranks on this machine
python examples/ray_digits.py auto       on the cluster of `ray start`
"""

import sys

import ray

from horovod.ray import RayExecutor


def train(epochs: int) -> float:
    """The loss after the last epoch; the same on every rank."""
    import torch
    from sklearn.datasets import load_digits

    import horovod.torch as hvd
    from horovod.ray import ray_logger

    hvd.init()
    torch.manual_seed(1)
    digits = load_digits()
    images, labels = torch.tensor(digits.data[hvd.rank() :: hvd.size()]).float() / 16, torch.tensor(digits.target)
    labels = labels[hvd.rank() :: hvd.size()].long()
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    loss = torch.zeros(())
    for epoch in range(epochs):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        if hvd.rank() == 0:
            ray_logger.log({"epoch": epoch, "loss": float(loss)})
    return float(hvd.allreduce(loss))


if __name__ == "__main__":
    ray.init(sys.argv[1]) if sys.argv[1:] else ray.init("local", num_cpus=2, include_dashboard=False)
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=60), num_workers=2)
    executor.start()
    losses = executor.run(train, args=[5], callbacks=[print])
    executor.shutdown()
    print(f"loss {losses[0]:.3f} on {len(losses)} ranks")
