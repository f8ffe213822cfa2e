"""Logs the report on the job's steps, beside the loss: TensorBoard, Weights & Biases or MLflow.

    hvdrun -np 2 examples/torch_report.py                       # prints what it would log
    hvdrun -np 2 examples/torch_report.py --to tensorboard      # then: tensorboard --logdir runs
    hvdrun -np 2 examples/torch_report.py --to wandb            # WANDB_MODE=offline needs no account
    hvdrun -np 2 examples/torch_report.py --to mlflow           # then: mlflow ui

hvd.report() returns the last half minute of all ranks as a dict; None until the first report has arrived.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Callable

import torch

import hvd.torch as hvd

Logger = Callable[[int, dict[str, float]], None]


def tensorboard() -> Logger:
    """Writes into the folder runs/."""
    from torch.utils.tensorboard import SummaryWriter  # type: ignore[attr-defined, unused-ignore]

    writer: Any = SummaryWriter()

    def log(step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return log


def wandb() -> Logger:
    """One run of the project "hvdrun"."""
    import wandb as library  # type: ignore[import-not-found, unused-ignore]

    run = library.init(project="hvdrun")
    return lambda step, values: run.log(values, step=step)


def mlflow() -> Logger:
    """One run of the default experiment."""
    import mlflow as library  # type: ignore[import-not-found, unused-ignore]

    library.start_run()
    return lambda step, values: library.log_metrics({k.replace(" ", "_"): v for k, v in values.items()}, step=step)


def printed() -> Logger:
    """Prints on rank 0."""
    return lambda step, values: print(step, {name: round(value, 6) for name, value in values.items()}, flush=True)


def numbers(report: dict[str, Any]) -> dict[str, float]:
    """The numbers that are worth a curve: seconds of a step, in total and by part."""
    values = {"report/step": report["step_seconds"], "report/waiting": report["waiting_seconds"]}
    values |= {f"report/{name.removesuffix('_seconds')}": seconds for name, seconds in report["step_parts"].items()}
    return {name: float(value) for name, value in values.items()}


def train(steps: int, log: Logger | None) -> int:
    """Trains on random numbers; returns how often there was a report to log."""
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
    )
    logged, said = 0, ""
    for step in range(steps):
        x = torch.randn(64, 256)
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        time.sleep(0.01 if hvd.rank() == hvd.size() - 1 else 0)  # a cause to find: the last rank is slow
        optimizer.step()
        if log is None or step % 50 != 0:
            continue
        report = hvd.report()
        log(step, {"loss": loss.item(), **(numbers(report) if report else {})})
        logged += report is not None
        for finding in report["findings"][:1] if report else []:
            if finding["cause"] != said:  # once, not each time its numbers change
                print(f"step {step}: {finding['cause']}, ranks {finding['ranks']}: {finding['what']}", flush=True)
                said = finding["cause"]
    return logged


LOGGERS = {"print": printed, "tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Logs the job's report beside the loss.")
    parser.add_argument("--to", choices=LOGGERS, default="print")
    parser.add_argument("--steps", type=int, default=800)
    arguments = parser.parse_args()
    hvd.init()
    train(arguments.steps, LOGGERS[arguments.to]() if hvd.rank() == 0 else None)
