"""A rank of the campaign `agreement`: many steps of a tiny model that is equal on all ranks.

    equal_rank.py KIND STEPS SEED

KIND: horovod, ddp, fsdp2, numpy or elastic.  Rank 0 prints a line for each tenth of the steps.  In the elastic
job, ranks die at random steps.  EQUAL_RANKS: the number of ranks of the full job, which new ranks do not know.  The horovod
job also restores a checkpoint, freezes and unfreezes a layer, and joins, the
first time before some ranks have made a step.  EQUAL_PAUSE: all ranks rest while this file exists.
"""

from __future__ import annotations

import io
import math
import os
import pathlib
import random
import sys
import time
from typing import Any

BEGUN = time.monotonic()
JOIN_EVERY, RESTORE_EVERY, LOOK_EVERY = 5_000, 3_000, 200
DIE_EVERY = int(os.environ.get("EQUAL_DIE_EVERY", "2000"))


def progress(step: int, steps: int, hvd: Any) -> None:
    """Reports the progress.  All ranks also pause while rank 0 finds the file EQUAL_PAUSE."""
    if hvd.rank() == 0 and step % max(1, steps // 10) == 0:
        print(f"step {step} of {steps} after {time.monotonic() - BEGUN:.0f} s", flush=True)
    file = os.environ.get("EQUAL_PAUSE")
    while file and step % LOOK_EVERY == 0 and hvd.broadcast_object(os.path.exists(file), root_rank=0, name="pause"):
        time.sleep(1)


def tiny_model(torch: Any, norm: bool = True) -> Any:
    torch.set_num_threads(1)
    torch.manual_seed(3)
    nn = torch.nn
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8) if norm else nn.ReLU(), nn.Linear(8, 2))


def one_step(torch: Any, model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.randn(4, 4)).square().mean().backward()
    optimizer.step()


def horovod(steps: int, seed: int) -> None:
    import torch

    import hvd.torch as hvd

    hvd.init()
    model = tiny_model(torch)
    plain = torch.optim.AdamW(model.parameters())
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    torch.manual_seed(seed * 100 + hvd.rank())
    for step in range(steps + 1):
        if step:
            one_step(torch, model, optimizer)
        if step and step % RESTORE_EVERY == 0:
            file = io.BytesIO()
            torch.save((model.state_dict(), optimizer.state_dict()), file)
            file = io.BytesIO(hvd.broadcast_object(file.getvalue(), root_rank=0))
            of_model, of_optimizer = torch.load(file)
            model.load_state_dict(of_model), optimizer.load_state_dict(of_optimizer)
            model[0].requires_grad_(step // RESTORE_EVERY % 2 == 0)
        if step % JOIN_EVERY == 0:
            for _ in range(hvd.rank()):
                one_step(torch, model, optimizer)
            last = hvd.join()
            hvd.broadcast_parameters(model.state_dict(), root_rank=last)
            hvd.broadcast_optimizer_state(optimizer, root_rank=last)
        if step:
            progress(step, steps, hvd)


def torch_group(steps: int, seed: int, divided: bool) -> None:
    import torch
    import torch.distributed as dist

    import hvd.torch as hvd

    hvd.init()
    dist.init_process_group("hvd")
    model = tiny_model(torch, norm=not divided)
    if divided:
        from torch.distributed.fsdp import fully_shard

        fully_shard(model[0]), fully_shard(model)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters())
    hvd.agreement.watch(model, optimizer)
    torch.manual_seed(seed * 100 + hvd.rank())
    for step in range(1, steps + 1):
        one_step(torch, model, optimizer)
        progress(step, steps, hvd)
    dist.destroy_process_group()


def numpy(steps: int, seed: int) -> None:
    import numpy as np

    import hvd.numpy as hvd

    hvd.init()
    numbers = np.random.default_rng(seed * 100 + hvd.rank())
    tensors = [numbers.standard_normal(size, np.float32) for size in (1, 300, 3_000)]
    for step in range(1, steps + 1):
        at = step % len(tensors)
        hvd.allreduce(tensors[at], name=f"tensor.{at}")
        progress(step, steps, hvd)


def first_left(deaths: list[int], marks: pathlib.Path) -> float:
    """Returns the first step of `deaths` that no rank has marked as done; inf: all are done. Call it once in a world. A dying
    rank marks its step. A rank that read that mark in the same step would take the next death. All ranks would then be dead,
    and the state lost.
    """
    return next((death for death in deaths if not (marks / f"died.{death}").exists()), math.inf)


def elastic(steps: int, seed: int) -> None:
    import torch

    import hvd.torch as hvd

    hvd.init()
    model = tiny_model(torch)
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()), model.named_parameters())
    hvd.agreement.watch(model, optimizer, exclude=["1.*"])
    state = hvd.elastic.TorchState(model, optimizer, step=0)
    marks, dice, full = pathlib.Path(os.environ["EQUAL_FOLDER"]), random.Random(seed), int(os.environ["EQUAL_RANKS"])
    deaths = sorted(dice.randrange(1, DIE_EVERY) + DIE_EVERY * number for number in range(steps // DIE_EVERY))

    @hvd.elastic.run
    def train(state: Any) -> None:
        begun, next_death = state.step, first_left(deaths, marks)
        while state.step < steps:
            one_step(torch, model, optimizer)
            state.step += 1
            due = int(next_death) if next_death <= state.step else 0
            settled = state.step > begun + 20  # all ranks have a commit
            if due and settled and hvd.size() == full and hvd.rank() == due % full:
                (marks / f"died.{due}").touch()
                os._exit(9)
            if due and hvd.size() < full:
                time.sleep(0.1)  # until a spare rank has joined
            if state.step % 20 == 0:
                state.commit()
            progress(state.step, steps, hvd)

    train(state)


def main() -> None:
    kind, steps, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if kind in ("ddp", "fsdp2"):
        torch_group(steps, seed, kind == "fsdp2")
    else:
        {"horovod": horovod, "numpy": numpy, "elastic": elastic}[kind](steps, seed)


if __name__ == "__main__":
    main()
