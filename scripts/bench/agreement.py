"""Compares the cost of --agreement with a comparison by hand: python scripts/bench/agreement.py [--rounds N] [--processor].

Each row is a step of 16.8 M parameters.  It has milliseconds, the median of the rounds, and the extra time in percent of `off`.
The ranks take turns with all rows in each round, so a busy machine slows all rows alike.

off       no comparison
rotating  --agreement report: a slice of each result and of the parameters, all of them within 500 steps
results   the same with --agreement-steps 1, and without torch's parameters
full      --agreement-steps 1: all results, parameters and optimizer states in each step
gather    torch's way by hand: an allgather of all parameters after each step, and a comparison with one's own
sums      the same with a sum in double for each parameter in place of the parameters

The last rows are microseconds of an allreduce of 4 bytes.

--processor counts processor time of the training thread instead, which other load on the machine changes less.  One
process makes all comparisons in turns, after each step one of them; least and median.  Here `results` is the hash of all
gradients; the runtime makes it earlier, while they are in the cache.  The hand-made rows also wait, so look at their time.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

ROWS = ("off", "rotating", "results", "full", "gather", "sums")
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-4),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=1e-4, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-4),
}


def compared(row: str, model: Any) -> bool:
    """Returns whether all ranks have the same parameters, by a comparison that a user would write."""
    import hvd.torch as hvd

    if row == "gather":
        own = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    else:
        own = torch.stack([p.detach().sum(dtype=torch.float64) for p in model.parameters()])
    return all(torch.equal(one, own) for one in hvd.allgather(own, name="by.hand").chunk(hvd.size()))


def step_of(row: str, optimizer_name: str) -> Callable[[], object]:
    """A step of 16.8 M parameters."""
    import hvd.torch as hvd

    torch.manual_seed(1)
    model = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(2048, 2048), torch.nn.ReLU())])
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    if row == "results":
        for watch in list(hvd.agreement._watches):
            watch.close()
    batch = torch.randn(16, 2048)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()
        if row in ("gather", "sums") and not compared(row, model):
            raise AssertionError("the ranks differ")

    return step


def set_up(row: str) -> None:
    import hvd.torch as hvd

    os.environ["HVD_AGREEMENT"] = "report" if row in ("rotating", "results", "full") else "off"
    os.environ["HVD_AGREEMENT_STEPS"] = "1" if row in ("results", "full") else "500"
    hvd.init()


def seconds(make: Callable[[], Callable[[], object]], times: int) -> float:
    """The median of a step, in a new world."""
    step = make()
    for _ in range(3):
        step()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        step()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def four_bytes() -> Callable[[], object]:
    """100 allreduces of 4 bytes."""
    import hvd.torch as hvd

    tensor = torch.ones(1)

    def step() -> None:
        for _ in range(100):
            hvd.allreduce_(tensor, name="small")

    return step


def measured(rounds: int, optimizer: str) -> None:
    """Measures on each rank, under hvdrun."""
    import hvd.torch as hvd

    torch.set_num_threads(1)
    steps: dict[str, list[float]] = {row: [] for row in ROWS}
    small: dict[str, list[float]] = {row: [] for row in ROWS[:2]}
    for number in range(rounds):
        first = number % len(ROWS)
        for row in ROWS[first:] + ROWS[:first]:  # each row is first, second, … equally often
            set_up(row)
            steps[row].append(1e3 * seconds(functools.partial(step_of, row, optimizer), 8))
            if row in small:
                small[row].append(1e4 * seconds(four_bytes, 20))
            last = hvd.rank()
            hvd.shutdown()
    if last:
        return
    print(f"{'row':9} {'ms':>7} {'more':>9} {'quartiles of the rounds':>24}")
    for row in ROWS:
        more = [100 * (one / off - 1) for one, off in zip(steps[row], steps["off"], strict=True)]
        low, middle, high = statistics.quantiles(more, n=4)
        print(f"{row:9} {statistics.median(steps[row]):7.2f} {middle:+8.2f} % {low:+11.2f} to {high:+.2f}", flush=True)
    for row, taken in small.items():
        print(f"4 B, {row:9} {statistics.median(taken):.2f} us", flush=True)


def counted(rounds: int, optimizer_name: str) -> None:
    """Processor time on each rank, under hvdrun."""
    set_up("full")
    import hvd.torch as hvd
    from hvd import _native

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(2048, 2048), torch.nn.ReLU())])
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS[optimizer_name](model.parameters()), model.named_parameters())
    for watch in list(hvd.agreement._watches):
        watch.close()
    watches = {}
    for row, steps in (("rotating", "500"), ("full", "1")):
        os.environ["HVD_AGREEMENT_STEPS"] = steps
        watches[row] = watch = hvd.agreement.Watch(model.named_parameters, optimizer)
        for hook in watch._hooks:
            hook.remove()  # the rows take turns, so they are called by hand
    parameters, batch = list(model.parameters()), torch.randn(16, 2048)

    def compare(row: str) -> None:
        if row in watches:
            watches[row]._before_step()
            watches[row]._after_step()
        elif row == "results":
            gradients = [p.grad for p in parameters if p.grad is not None]
            _native.hashes([(g.data_ptr(), g.numel() * g.element_size()) for g in gradients])
        elif row != "off" and not compared(row, model):
            raise AssertionError("the ranks differ")

    taken: dict[str, list[tuple[float, float]]] = {row: [] for row in ("step", *ROWS)}

    def count(row: str, work: Callable[[], object]) -> None:
        begun = time.thread_time(), time.perf_counter()
        work()
        taken[row].append((1e3 * (time.thread_time() - begun[0]), 1e3 * (time.perf_counter() - begun[1])))

    def step() -> None:
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()

    for _ in range(rounds + 2):  # two of them to get warm
        for row in ROWS:
            count("step", step)
            count(row, functools.partial(compare, row))
    if hvd.rank() == 0:
        least_step = min(time for _, time in taken["step"])
        print(f"{'':9} {'processor ms: least':>20} {'median':>8} {'of a step':>10} {'time ms: least':>15} {'median':>8}")
        for row, pairs in taken.items():
            processor, times = zip(*pairs[2:], strict=True)
            share = 100 * min(processor) / least_step
            print(
                f"{row:9} {min(processor):20.3f} {statistics.median(processor):8.3f} {share:8.2f} %"
                f" {min(times):15.3f} {statistics.median(times):8.3f}",
                flush=True,
            )
    for watch in watches.values():
        watch.check()
    hvd.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--processor", action="store_true", help="counts processor time")
    parser.add_argument("--optimizer", choices=list(OPTIMIZERS), default="sgd")
    options = parser.parse_args()
    if "HVD_RANK" in os.environ or "HOROVOD_RANK" in os.environ:
        return (counted if options.processor else measured)(options.rounds, options.optimizer)
    beside = os.path.join(os.path.dirname(sys.executable), "hvdrun")
    hvdrun = os.environ.get("HVDRUN") or (beside if os.path.exists(beside) else shutil.which("hvdrun") or "hvdrun")
    command = [hvdrun, "-np", str(options.ranks), "--no-report", sys.executable, __file__, *sys.argv[1:]]
    subprocess.run(command, check=True)
    return None


if __name__ == "__main__":
    main()
