"""A training script for long jobs: it picks its GPU, resumes from its checkpoint, and saves before it is ended.

    hvdrun -np 2 --grace 30 examples/torch_training.py --epochs 20 --checkpoint run/digits.ckpt

Ctrl-C, preemption (SIGTERM) and hvdrun's --time-limit end it with a checkpoint. The same command resumes from there, on any
number of ranks, and trains the same model as an uninterrupted run. The data are scikit-learn's 1797 digits.
"""

from __future__ import annotations

import argparse
import os
import pathlib
from typing import Any

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import hvd.torch as hvd


def pick_device() -> torch.device:
    """This rank's GPU, by its number on its host; the CPU if there is none."""
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
        return torch.device("cpu")
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())  # % for --gpus own: each rank sees one
    return torch.device("cuda")


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Pixels [64] in 0..1 and the digit, for training and held out; the same split on every rank."""
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    held_out, training = order[: len(x) // 5], order[len(x) // 5 :]
    return TensorDataset(x[training], y[training]), TensorDataset(x[held_out], y[held_out])


def save(path: pathlib.Path, state: dict[str, Any]) -> None:
    """Writes a checkpoint atomically: a reader of `path` never sees half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


class Training:
    """A model, its optimizer, and the progress: `epoch`, and `seen` images of that epoch by all ranks together."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, pick_device()
        self.epoch = self.seen = 0
        torch.manual_seed(7)
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(self.device)
        sgd = torch.optim.SGD(self.model.parameters(), lr=options.rate * hvd.size(), momentum=0.9)
        self.optimizer = hvd.DistributedOptimizer(sgd, named_parameters=self.model.named_parameters())

    def resume(self) -> None:
        """Rank 0 reads the checkpoint, if there is one; all ranks start with rank 0's state."""
        path = self.options.checkpoint
        if hvd.rank() == 0 and path.exists():
            state = torch.load(path, map_location=self.device, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.epoch, self.seen = state["epoch"], state["seen"]
            print(f"goes on in epoch {self.epoch + 1}, after {self.seen} images of it", flush=True)
        self.epoch, self.seen = hvd.broadcast_object((self.epoch, self.seen), root_rank=0, name="progress")
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)
        for group in self.optimizer.param_groups:  # for this number of ranks, not the checkpoint's
            group["lr"] = self.options.rate * hvd.size()

    def checkpoint(self) -> None:
        """Rank 0 writes. All ranks have the same state, so no rank waits."""
        if hvd.rank() == 0:
            model, optimizer = self.model.state_dict(), self.optimizer.state_dict()
            save(self.options.checkpoint, {"epoch": self.epoch, "seen": self.seen, "model": model, "optimizer": optimizer})

    def train_epoch(self, data: TensorDataset) -> bool:
        """Trains the rest of an epoch. Returns False if the job must end; the checkpoint is then written."""
        sampler: DistributedSampler[Any] = DistributedSampler(data, hvd.size(), hvd.rank(), seed=3, drop_last=True)
        sampler.set_epoch(self.epoch)  # another order each epoch, the same in each run
        together = self.options.batch * hvd.size()
        done = self.seen // together
        for step, (x, y) in enumerate(DataLoader(sampler.dataset, self.options.batch, sampler=sampler, drop_last=True)):
            if step < done:
                continue  # trained on before the job was ended
            self.optimizer.zero_grad()
            functional.cross_entropy(self.model(x.to(self.device)), y.to(self.device)).backward()
            self.optimizer.step()
            self.seen = (step + 1) * together
            if hvd.should_stop():  # true on all ranks at the same step
                self.checkpoint()
                return False
        self.epoch, self.seen = self.epoch + 1, 0
        self.checkpoint()
        return True

    def evaluate(self, data: TensorDataset) -> tuple[float, float]:
        """(loss, accuracy) over all ranks' parts of the held-out images."""
        x, y = (part[hvd.rank() :: hvd.size()].to(self.device) for part in data.tensors)
        with torch.no_grad():
            guess = self.model(x)
            sums = torch.stack([functional.cross_entropy(guess, y, reduction="sum"), (guess.argmax(1) == y).sum()])
        loss, right = (hvd.allreduce(sums, op=hvd.Sum, name="held_out") / len(data)).tolist()
        return loss, right


def main() -> None:
    """Trains until the last epoch, or until the job is told to end."""
    parser = argparse.ArgumentParser(description="Trains a classifier of handwritten digits, and goes on where it was ended.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16, help="images per rank and step")
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate of one rank")
    parser.add_argument("--checkpoint", type=pathlib.Path, default=pathlib.Path("digits.ckpt"))
    hvd.init()
    training = Training(parser.parse_args())
    data, held_out = load_data()
    training.resume()
    while training.epoch < training.options.epochs:
        if not training.train_epoch(data):
            if hvd.rank() == 0:
                print(f"told to end: saved in epoch {training.epoch + 1}, after {training.seen} images of it", flush=True)
            return
        loss, right = training.evaluate(held_out)
        if hvd.rank() == 0:
            print(f"epoch {training.epoch}/{training.options.epochs}  loss {loss:.6f}  accuracy {right:.1%}", flush=True)


if __name__ == "__main__":
    main()
