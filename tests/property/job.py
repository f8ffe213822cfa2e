"""The property test's rank program: draws cases from a seed, runs them, and compares with the model.

    [HVD_RANKS_PER_NODE=n] hvdrun -np 4 --python PYTHON tests/property/job.py SEED FIRST END

Case i is a function of (SEED, i) and the number of ranks.  Names, and thus the runtime's cache, carry over from case to case,
so a failure is repeated from the first case on.  The first rank that finds a wrong result prints it and the command to repeat
it, and ends the job.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
import traceback
from typing import Any

import numpy as np
from operations import KINDS, Operation, World, choose, draw_shape, lay_out

import hvd.numpy as hvd

LIMIT_SECONDS = 60  # for one case


class Wrong(Exception):
    """A result differs from the model's."""


def draw_operation(rng: np.random.Generator, index: int, world: World, large: bool) -> Operation:
    """Any operation; every rank of the world draws the same."""
    names = list(KINDS)
    weights = np.array([weight for _, weight in KINDS.values()])
    kind = names[int(rng.choice(len(names), p=weights / weights.sum()))]
    process_set = choose(rng, world.sets) if rng.random() < 0.4 else world.sets[0]
    grouped = KINDS[kind][0].groups and rng.random() < 0.25
    count = int(rng.integers(1, 6)) if grouped else 1
    op = Operation(
        kind=kind,
        # Few names, so that most have been seen before, with the same signature or another.
        name=f"{kind}.{int(rng.integers(0, 4))}.{index}",
        dtype=choose(rng, KINDS[kind][0].dtypes),
        shapes=[draw_shape(rng, large and not grouped) for _ in range(count)],
        members=list(process_set.ranks),
        process_set=process_set,
        seed=int(rng.integers(0, 2**62)),
        layout=choose(rng, ["dense"] * 6 + ["strided", "fortran"]),
        grouped=bool(grouped),
    )
    KINDS[kind][0].draw(rng, op, world)
    return op


class Case:
    """Some operations, repeated a few times: all asynchronous, in a different order on each rank, or one after the other."""

    def __init__(self, seed: int, number: int, world: World, per_node: int) -> None:
        self.world, self.per_node = world, per_node
        rng = np.random.default_rng([seed, number])
        self.operations = [
            draw_operation(rng, i, world, large=number % 4 == 0) for i in range(int(rng.choice([1, 1, 2, 4, 8, 12])))
        ]
        self.turns = int(rng.choice([1, 2, 4]))
        self.blocking = bool(rng.random() < 0.3)
        self.unnamed = bool(rng.random() < 0.1)
        self.slow = int(rng.integers(0, 3 * world.size))  # this rank, if it exists, is late
        self.own = np.random.default_rng([seed, number, world.rank])  # this rank's timing

    def dawdle(self) -> None:
        if self.world.rank == self.slow:
            time.sleep(self.own.uniform(0, 0.02))
        elif self.own.random() < 0.2:
            time.sleep(self.own.uniform(0, 0.002))

    def tensors(self, op: Operation, turn: int) -> list[np.ndarray]:
        dense = KINDS[op.kind][0].inputs(op, self.world.rank, turn)
        return [lay_out(array, op.layout) for array in dense]

    def run(self) -> None:
        mine = [op for op in self.operations if self.world.rank in op.members]
        for turn in range(self.turns):
            for op in mine:
                op.turn = turn
            (self.one_by_one if self.blocking or self.unnamed else self.all_at_once)(mine, turn)

    def one_by_one(self, mine: list[Operation], turn: int) -> None:
        for op in mine:
            self.dawdle()
            tensors = self.tensors(op, turn)
            result = KINDS[op.kind][0].run(op, tensors, None if self.unnamed else op.name)
            self.check(op, turn, tensors, result)

    def all_at_once(self, mine: list[Operation], turn: int) -> None:
        ready = [(op, self.tensors(op, turn)) for op in mine]
        under_way: list[tuple[Operation, list[np.ndarray], Any]] = []
        for i in self.own.permutation(len(ready)):
            self.dawdle()
            op, tensors = ready[i]
            if op.kind == "barrier":
                continue  # it has no asynchronous form
            under_way.append((op, tensors, KINDS[op.kind][0].submit(op, tensors, op.name)))
        for i in self.own.permutation(len(under_way)):
            op, tensors, handle = under_way[i]
            if self.own.random() < 0.2:
                while not op.api().poll(handle):
                    time.sleep(0.0002)
            self.check(op, turn, tensors, op.api().synchronize(handle))

    def check(self, op: Operation, turn: int, tensors: list[np.ndarray], result: Any) -> None:
        wrong = KINDS[op.kind][0].check(op, self.world, turn, result, self.per_node)
        if wrong is None and op.form != "in place":
            for before, after in zip(self.tensors(op, turn), tensors):
                if before.tobytes() != after.tobytes():
                    wrong = "the input has changed"
        if wrong:
            raise Wrong(f"turn {turn}, {op}: {wrong}")


def start(seed: int) -> World:
    hvd.init()
    per_node = int(os.environ.get("HVD_RANKS_PER_NODE", "0"))
    size = hvd.size()
    nodes = -(-size // per_node) if per_node else 1
    sets = [hvd.global_process_set]
    rng = np.random.default_rng([seed, size])
    for _ in range(3 if size > 1 else 0):
        ranks = sorted(int(rank) for rank in rng.permutation(size)[: int(rng.integers(1, size + 1))])
        if len(ranks) < size and ranks not in [list(known.ranks) for known in sets]:
            sets.append(hvd.add_process_set(ranks))
    return World(hvd.rank(), size, nodes, sets)


def main() -> None:
    seed, first, end = (int(word) for word in sys.argv[1:4])
    per_node = int(os.environ.get("HVD_RANKS_PER_NODE", "0"))
    world = start(seed)
    number = first
    try:
        for number in range(first, end):
            faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True)
            case = Case(seed, number, world, per_node)
            case.run()
        faulthandler.cancel_dump_traceback_later()
    except BaseException as error:
        nodes = f"HVD_RANKS_PER_NODE={per_node} " if per_node else ""
        text = str(error) if isinstance(error, Wrong) else traceback.format_exc()
        again = f"{nodes}hvdrun -np {world.size} --python {sys.executable} tests/property/job.py {seed} {first} {number + 1}"
        os.write(2, f"PROPERTY: rank {world.rank}, seed {seed}, case {number}: {text}\nREPEAT: {again}\n".encode())
        os._exit(1)  # the others may wait for this rank
    if world.rank == 0:
        print(f"{end - first} cases hold", flush=True)


if __name__ == "__main__":
    main()
