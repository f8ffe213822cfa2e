"""Plants random single-bit flips in training ranks, and prints what --agreement has found of them, by place.

    hvdrun -np 3 --agreement report --agreement-steps 20 tests/property/flips.py --flips 300

One rank changes a bit of a parameter, of the optimizer's state, of a checkpoint that it loads, of its own gradient before the
exchange, or of its reduced gradient after it; or it flips a bit of a tensor again and again while the tensor is reduced.
Rank 0 prints a line for each flip.  The exit code is 1 if ranks differ and no line says so, or it names another tensor or rank,
or if a flip during an exchange has another stage than the copy out.
"""

from __future__ import annotations

import argparse
import copy
import os
import random
import re
import sys
import tempfile
import threading
import time
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from torch import nn

import hvd.torch as hvd
from hvd import numpy as of_numpy
from hvd.torch import agreement

PLACES = ("parameter", "optimizer state", "restored checkpoint", "sent gradient", "reduced gradient", "during the exchange")
told: list[str] = []  # lines about windows that differ; all ranks get the same


def described(self: Any, details: Any, digests: Any) -> Any:
    bad, text = describe(self, details, digests)
    told.append(text)
    return bad, text


describe = agreement.Watch._describe
agreement.Watch._describe = described  # type: ignore[method-assign]


def flip(tensor: torch.Tensor, bit: int) -> None:
    """Flips one bit of the tensor's memory."""
    bytes_of = tensor.detach().view(-1).view(torch.uint8)
    bytes_of[bit // 8] ^= 1 << bit % 8


class Trial:
    """One model, one flip."""

    def __init__(self, draw: random.Random, place: str, steps: int) -> None:
        self.place, self.steps, self.culprit = place, steps, draw.randrange(hvd.size())
        self.model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        kind = draw.choice([torch.optim.Adam, lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9)])
        self.optimizer = hvd.DistributedOptimizer(kind(self.model.parameters()), self.model.named_parameters())
        self.name, self.parameter = draw.choice(list(self.model.named_parameters()))
        self.bit = draw.randrange(self.parameter.numel() * 32)
        self.key = draw.randrange(2)
        self.mine = self.culprit == hvd.rank()
        told.clear()

    def step(self, plant: bool = False) -> None:
        self.optimizer.zero_grad()
        sent = plant and self.place == "sent gradient" and self.mine
        hook = self.parameter.register_hook(self.flipped) if sent else None  # it runs before the gradient is submitted
        self.model(torch.randn(16, 64)).square().mean().backward()
        if hook:
            hook.remove()
        self.optimizer.synchronize()
        if plant and self.place == "reduced gradient" and self.mine:
            flip(self.parameter.grad, self.bit)
        with self.optimizer.skip_synchronize():
            self.optimizer.step()

    def flipped(self, gradient: torch.Tensor) -> torch.Tensor:
        copied = gradient.clone(memory_format=torch.contiguous_format)
        flip(copied, self.bit)
        return copied

    def plant(self) -> None:
        """Before a step."""
        if self.place == "restored checkpoint":
            state = copy.deepcopy(self.model.state_dict())
            if self.mine:
                flip(state[self.name], self.bit)
            self.model.load_state_dict(state)
        elif self.mine and self.place == "parameter":
            flip(self.parameter, self.bit)
        elif self.mine and self.place == "optimizer state":
            tensors = [t for t in self.optimizer.state[self.parameter].values() if t.numel() == self.parameter.numel()]
            flip(tensors[self.key % len(tensors)], self.bit)

    def differs(self) -> bool:
        """Returns whether ranks have different parameters or states now."""
        tensors: list[torch.Tensor] = list(self.model.parameters())
        tensors += [t for p in tensors for t in self.optimizer.state[p].values() if isinstance(t, torch.Tensor)]
        bits = torch.cat([t.detach().reshape(-1).float().view(torch.int32) for t in tensors])
        return bool((hvd.allreduce(bits, op=hvd.Max) != hvd.allreduce(bits, op=hvd.Min)).any())

    def run(self) -> dict[str, Any]:
        self.step(), self.step()
        self.plant()
        found_after = 0
        for number in range(self.steps + 2):
            self.step(plant=number == 0)
            if told and not found_after:
                found_after = number
                break
        lasts = bool(told) or self.differs()
        line = told[0] if told else ""
        right = bool(re.search(rf" {re.escape(self.name)}, elements ", line))
        rank = f"not on rank {self.culprit} (" in line or hvd.size() == 2
        for one in list(agreement._watches):
            one.close()
        return {
            "lasts": lasts,
            "found": bool(line),
            "tensor": right,
            "rank": rank and bool(line),
            "line": line,
            "about": self.about(),
        }

    def about(self) -> str:
        return f"bit {self.bit} of {self.name} on rank {self.culprit}, {type(self.optimizer).__name__}"


def during(draw: random.Random, steps: int, lines: Any) -> dict[str, Any]:
    """A thread of the culprit changes one element during 5 * steps operations, whenever it gets a core.

    lines: returns the text that the runtime has written on rank 0.
    """
    time.sleep(1.2)  # the runtime reports a new difference only after a second without differences
    culprit, at = draw.randrange(hvd.size()), draw.randrange(1 << 18)
    tensor, ends = np.ones(1 << 18, np.float32), threading.Event()

    def change() -> None:
        while not ends.is_set():
            tensor[at] = 77

    thread = threading.Thread(target=change, daemon=True)
    if hvd.rank() == culprit:
        thread.start()
    for _ in range(5 * steps):
        of_numpy.allreduce_(tensor, op=hvd.Min, name=f"flown.{at}")
    ends.set()
    hvd.barrier()
    of_numpy.allreduce_(np.zeros(1), name="next")  # the next batch: the runtime compares earlier results when a batch begins
    text = hvd.broadcast_object(lines(), root_rank=0)
    found = f"'flown.{at}'" in text or f".flown.{at}'" in text
    rank = (f"not on rank {culprit} what" in text or hvd.size() == 2) and "; stage: copy out" in text
    about = f"element {at} of rank {culprit}"
    told_here = next((line for line in text.splitlines() if "flown" in line), "")
    return {"lasts": True, "found": found, "tensor": found, "rank": found and rank, "line": told_here, "about": about}


def is_wrong(place: str, result: dict[str, Any]) -> bool:
    """Returns whether ranks differ without a report, or the report names a wrong tensor or rank."""
    if place == PLACES[-1] and not result["found"]:
        return False  # the changes may all have come between two looks
    return bool(result["lasts"]) and not (result["found"] and result["tensor"] and result["rank"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-exchange", action="store_true", help="without flips during an exchange, which need spare cores")
    options = parser.parse_args()
    hvd.init()
    torch.manual_seed(hvd.rank())
    torch.set_num_threads(1)
    draw = random.Random(options.seed)
    places = PLACES[:-1] if options.no_exchange else PLACES
    steps = int(os.environ["HVD_AGREEMENT_STEPS"])
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    wrong = 0
    with tempfile.TemporaryFile() as errors:
        if hvd.rank() == 0:
            os.dup2(errors.fileno(), 2)  # the runtime's lines

        def lines() -> str:
            errors.seek(0)
            text = errors.read().decode()
            errors.truncate(0)
            errors.seek(0)  # stderr shares the offset
            return text

        for number in range(options.flips):
            place = places[number % len(places)]
            result = during(draw, steps, lines) if place == PLACES[-1] else Trial(draw, place, steps).run()
            wrong += is_wrong(place, result)
            counts[place]["flips"] += 1
            for key in ("lasts", "found", "tensor", "rank"):
                counts[place][key] += result[key]
            if hvd.rank() == 0:
                word = "WRONG" if is_wrong(place, result) else "found" if result["found"] else "-"
                print(f"{number + 1:4} {word:5} {place}: {result['about']}: {result['line'] or 'no line'}", flush=True)
    if hvd.rank() == 0:
        print(f"{'place':22} {'flips':>6} {'ranks differ':>13} {'found':>6} {'tensor right':>13} {'rank right':>11}")
        for place in places:
            c = counts[place]
            print(f"{place:22} {c['flips']:6} {c['lasts']:13} {c['found']:6} {c['tensor']:13} {c['rank']:11}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
