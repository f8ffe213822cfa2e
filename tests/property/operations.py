"""The operations that the property test draws from: one class each, and a table at the end.

A class defines how to draw an operation of its kind, each rank's inputs, the call, and the expected result.  The generator
and the world determine all of these, so that every rank knows the inputs of the others.
To add an operation: a class, and its row in KINDS.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import model
import numpy as np

import hvd.numpy as hvd
from hvd._runtime.collectives import DTYPES as DTYPE_CODES
from hvd._runtime.collectives import Collectives
from hvd.numpy import NumpyAdapter

INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
FLOATS = ["float16", model.BF16, "float32", "float64", *model.EIGHTS, *model.COMPLEX]
DTYPES = [*INTEGERS, *FLOATS, "float32", "bool"]


class StandIn(NumpyAdapter):
    """Unsigned integers stand for a dtype of equal size that NumPy lacks."""

    def __init__(self, dtype: str) -> None:
        super().__init__()
        self._code = DTYPE_CODES[dtype]

    def view(self, tensor: Any, writes: bool = False) -> Any:
        found = super().view(tensor, writes)
        return None if found is None else (found[0], self._code, *found[2:])


STAND_INS = {dtype: Collectives(StandIn(dtype)) for dtype in (model.BF16, *model.EIGHTS)}


@dataclass
class World:
    """Facts that all ranks know before the first draw."""

    rank: int
    size: int
    nodes: int
    sets: list[Any]  # process sets, the global one first

    def nodes_of(self, ranks: list[int], per_node: int) -> int:
        return len({rank // per_node for rank in ranks}) if per_node else 1


@dataclass
class Operation:
    """One drawn operation; a group counts as one.  seed: the seed of its data."""

    kind: str
    name: str
    dtype: str
    shapes: list[tuple[int, ...]]  # one for each tensor
    members: list[int]
    process_set: Any
    seed: int
    op: int = model.SUM
    before: float = 1.0
    after: float = 1.0
    root: int = 0
    form: str = "new"  # or "in place"
    layout: str = "dense"
    grouped: bool = False
    turn: int = 0  # number of earlier repetitions
    extra: dict[str, Any] = field(default_factory=dict)  # data of its kind only

    def api(self) -> Any:
        return STAND_INS.get(self.dtype, hvd)

    def __str__(self) -> str:
        parts = [f"{self.kind} '{self.name}' {self.dtype} {self.shapes if self.grouped else self.shapes[0]}"]
        parts += [f"op {self.op}"] if self.kind in ("allreduce", "reducescatter") else []
        parts += [f"scaled {self.before:g}, {self.after:g}"] if (self.before, self.after) != (1, 1) else []
        parts += [f"root {self.root}"] if self.kind == "broadcast" else []
        parts += [f"set {self.members}"] if self.process_set is not hvd.global_process_set else []
        parts += [word for word in (self.form, self.layout) if word not in ("new", "dense")]
        return ", ".join([*parts, *(f"{key} {value}" for key, value in self.extra.items())])


# ---- shapes, values and layouts


def draw_shape(rng: np.random.Generator, large: bool) -> tuple[int, ...]:
    """Any shape: scalars, empty ones, sizes at which the runtime changes its method, some hundred thousand elements."""
    choice = rng.integers(0, 12)
    if choice == 0:
        return ()
    if choice == 1:
        return tuple(int(n) for n in rng.permutation([0, *rng.integers(1, 4, rng.integers(0, 3))]))
    if choice <= 5:
        return tuple(int(n) for n in rng.integers(1, 9, rng.integers(1, 5)))
    if choice == 6:  # around 64 bytes, 8 KiB (eager) and 32 KiB (the smallest chunk)
        return (int(rng.choice([8, 16, 64, 1024, 2048, 4096, 8192, 16384]) + rng.integers(-1, 2)),)
    if choice <= 9 or not large:
        return (int(rng.integers(1, 5000)), *(int(n) for n in rng.integers(1, 4, rng.integers(0, 2))))
    return (int(rng.integers(20_000, 700_000)),)


def draw_values(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], mild: bool = False) -> np.ndarray:
    """A tensor.  mild: so small that a product of a few stays exact or in range."""
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.7)
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        low, high = (max(info.min, -3), 4) if mild else (max(info.min, -(2**40)), min(info.max, 2**40) + 1)
        return np.asarray(rng.integers(low, high, shape, dtype=np.int64)).astype(dtype)
    if dtype in model.COMPLEX:
        return np.asarray(rng.standard_normal((*shape, 2)).view(np.complex128)[..., 0], dtype)
    values = rng.standard_normal(shape) * (1.0 if mild else 10.0 ** float(rng.integers(-3, 4)))
    if not mild and rng.random() < 0.1 and values.size:  # sometimes special values
        flat = np.atleast_1d(values).reshape(-1)
        flat[rng.integers(0, flat.size)] = rng.choice([np.inf, -np.inf, np.nan, 0.0, -0.0])
        values = flat.reshape(shape)
    if dtype in model.EIGHTS:
        return model.to_eight(np.asarray(values), dtype)
    with np.errstate(over="ignore"):
        narrow = np.asarray(values).astype(np.float32 if dtype == model.BF16 else dtype)
    return model.to_bf16(narrow) if dtype == model.BF16 else narrow


def lay_out(array: np.ndarray, layout: str) -> np.ndarray:
    """Returns an array with the same values in another memory layout: strided or column-major, if the shape allows."""
    if layout == "strided" and array.ndim:
        spread = np.zeros((*array.shape[:-1], array.shape[-1] * 2), array.dtype)
        spread[..., ::2] = array
        return spread[..., ::2]
    return np.asfortranarray(array) if layout == "fortran" and array.ndim else array


def choose(rng: np.random.Generator, values: list[Any]) -> Any:
    return values[int(rng.integers(0, len(values)))]


def factor(rng: np.random.Generator, op: Operation) -> float:
    """A factor before or after a reduction.  For uint64 the factor is positive: no wider type with a sign exists."""
    return float(choose(rng, [0.5, 2.0, 0.3, 1.5 if op.dtype == "uint64" else -1.5, 1.0]))


# ---- the operations


class Kind:
    """Base: all ranks contribute tensors of the drawn shapes."""

    dtypes = DTYPES
    groups = False
    needs: tuple[str, ...] = ()  # names that hvd.numpy must have

    def draw(self, rng: np.random.Generator, op: Operation, world: World) -> None:
        """Draws the parts that are special to the kind."""

    def inputs(self, op: Operation, rank: int, turn: int) -> list[np.ndarray]:
        """The inputs of a rank in a given repetition."""
        rng = np.random.default_rng([op.seed, rank, turn])
        return [draw_values(rng, op.dtype, shape) for shape in op.shapes]

    def submit(self, op: Operation, tensors: list[np.ndarray], name: str) -> Any:
        """The asynchronous call; returns its handle."""
        raise NotImplementedError

    def run(self, op: Operation, tensors: list[np.ndarray], name: str) -> Any:
        """The blocking call."""
        return op.api().synchronize(self.submit(op, tensors, name))

    def check(self, op: Operation, world: World, turn: int, result: Any, per_node: int) -> str | None:
        """Returns the fault of this rank's result; None: the result is right."""
        raise NotImplementedError


class Allreduce(Kind):
    groups = True

    def draw(self, rng, op, world):
        some = [model.AVERAGE, model.SUM, model.PRODUCT]
        op.op = choose(rng, some if op.dtype in model.COMPLEX else [*some, model.SUM, model.MIN, model.MAX])
        op.form = choose(rng, ["new", "in place"])
        if op.dtype != "bool" and op.op != model.PRODUCT and rng.random() < 0.3:
            op.before, op.after = (factor(rng, op) for _ in range(2))

    def inputs(self, op, rank, turn):
        rng = np.random.default_rng([op.seed, rank, turn])
        # Scaled integers pass through a double, so model and runtime must stay within its 53 bits.
        mild = op.op == model.PRODUCT or (op.dtype in INTEGERS and (op.before, op.after) != (1, 1))
        if op.dtype == "float16" and op.op == model.AVERAGE and op.seed % 4 == 0:  # the sum exceeds its largest number
            return [np.asarray(rng.uniform(2e4, 6e4, shape)).astype("float16") for shape in op.shapes]
        return [draw_values(rng, op.dtype, shape, mild) for shape in op.shapes]

    def submit(self, op, tensors, name):
        call = f"{'grouped_' if op.grouped else ''}allreduce_async{'_' if op.form == 'in place' else ''}"
        what = tensors if op.grouped else tensors[0]
        return getattr(op.api(), call)(what, None, name, op.op, op.before, op.after, op.process_set)

    def run(self, op, tensors, name):
        call = f"{'grouped_' if op.grouped else ''}allreduce{'_' if op.form == 'in place' else ''}"
        what = tensors if op.grouped else tensors[0]
        return getattr(op.api(), call)(what, None, name, op.op, op.before, op.after, op.process_set)

    def check(self, op, world, turn, result, per_node):
        everybody = [self.inputs(op, rank, turn) for rank in op.members]
        nodes = world.nodes_of(op.members, per_node)
        for i, got in enumerate(result if op.grouped else [result]):
            want, bound = model.reduce([tensors[i] for tensors in everybody], op.dtype, op.op, op.before, op.after, nodes)
            if wrong := model.mismatch(got, want, bound, op.dtype):
                return f"tensor {i}: {wrong}"
        return None


class Broadcast(Kind):
    def draw(self, rng, op, world):
        op.root = choose(rng, op.members)
        op.form = choose(rng, ["new", "in place"])

    def submit(self, op, tensors, name):
        call = op.api().broadcast_async_ if op.form == "in place" else op.api().broadcast_async
        return call(tensors[0], op.root, name, op.process_set)

    def run(self, op, tensors, name):
        call = op.api().broadcast_ if op.form == "in place" else op.api().broadcast
        return call(tensors[0], op.root, name, op.process_set)

    def check(self, op, world, turn, result, per_node):
        return model.mismatch(result, self.inputs(op, op.root, turn)[0], None, op.dtype)


class Allgather(Kind):
    groups = True

    def draw(self, rng, op, world):
        op.shapes = [shape or (1,) for shape in op.shapes]
        op.extra["ragged"] = bool(rng.random() < 0.7)

    def inputs(self, op, rank, turn):
        rng = np.random.default_rng([op.seed, rank, turn])
        shapes = op.shapes
        if op.extra["ragged"]:  # a different first dimension on each rank and in each repetition
            shapes = [(int(rng.integers(0, 2 * shape[0] + 2)), *shape[1:]) for shape in shapes]
        return [draw_values(rng, op.dtype, shape) for shape in shapes]

    def submit(self, op, tensors, name):
        if op.grouped:
            return op.api().grouped_allgather_async(tensors, name, op.process_set)
        return op.api().allgather_async(tensors[0], name, op.process_set)

    def check(self, op, world, turn, result, per_node):
        everybody = [self.inputs(op, rank, turn) for rank in op.members]
        for i, got in enumerate(result if op.grouped else [result]):
            if wrong := model.mismatch(got, np.concatenate([tensors[i] for tensors in everybody]), None, op.dtype):
                return f"tensor {i}: {wrong}"
        return None


class Reducescatter(Allreduce):
    def draw(self, rng, op, world):
        op.shapes = [shape or (1,) for shape in op.shapes]
        op.op = choose(rng, [model.AVERAGE, model.SUM])
        if op.dtype != "bool" and rng.random() < 0.3:
            op.before, op.after = (factor(rng, op) for _ in range(2))

    def submit(self, op, tensors, name):
        call = op.api().grouped_reducescatter_async if op.grouped else op.api().reducescatter_async
        return call(tensors if op.grouped else tensors[0], name, op.op, op.process_set, op.before, op.after)

    def run(self, op, tensors, name):
        return op.api().synchronize(self.submit(op, tensors, name))

    def check(self, op, world, turn, result, per_node):
        everybody = [self.inputs(op, rank, turn) for rank in op.members]
        nodes = world.nodes_of(op.members, per_node)
        me, count = op.members.index(world.rank), len(op.members)
        for i, got in enumerate(result if op.grouped else [result]):
            want, bound = model.reduce([tensors[i] for tensors in everybody], op.dtype, op.op, op.before, op.after, nodes)
            rows = model.rows_of(want.shape[0], count, me)
            if wrong := model.mismatch(got, want[rows], None if bound is None else bound[rows], op.dtype):
                return f"tensor {i}: {wrong}"
        return None


class Alltoall(Kind):
    def draw(self, rng, op, world):
        op.shapes = [shape or (1,) for shape in op.shapes]
        op.extra["splits"] = choose(rng, ["equal", "given", "many zeros"])

    def splits(self, op, rank, turn):
        rng = np.random.default_rng([op.seed, rank, turn, 1])
        count, rows = len(op.members), op.shapes[0][0]
        if op.extra["splits"] == "equal":
            return np.full(count, rows // count, np.int32)
        splits = rng.integers(0, 2 * rows // count + 2, count).astype(np.int32)
        return splits * (rng.random(count) < 0.3).astype(np.int32) if op.extra["splits"] == "many zeros" else splits

    def inputs(self, op, rank, turn):
        rng = np.random.default_rng([op.seed, rank, turn])
        rows = int(self.splits(op, rank, turn).sum())
        return [draw_values(rng, op.dtype, (rows, *op.shapes[0][1:]))]

    def submit(self, op, tensors, name):
        splits = None if op.extra["splits"] == "equal" else self.splits(op, hvd.rank(), op.turn)
        return op.api().alltoall_async(tensors[0], splits, name, op.process_set)

    def check(self, op, world, turn, result, per_node):
        me = op.members.index(world.rank)
        parts, counts = [], []
        for rank in op.members:
            splits = self.splits(op, rank, turn)
            begin = int(splits[:me].sum())
            parts.append(self.inputs(op, rank, turn)[0][begin : begin + int(splits[me])])
            counts.append(int(splits[me]))
        received = [int(n) for n in result[1]]
        if received != counts:
            return f"received splits are {received} instead of {counts}"
        return model.mismatch(result[0], np.concatenate(parts), None, op.dtype)


class Barrier(Kind):
    def draw(self, rng, op, world):
        op.shapes = [()]

    def submit(self, op, tensors, name):
        return None

    def run(self, op, tensors, name):
        return op.api().barrier(process_set=op.process_set)

    def check(self, op, world, turn, result, per_node):
        return None


KINDS: dict[str, tuple[Kind, float]] = {  # with the frequency of each
    "allreduce": (Allreduce(), 5),
    "broadcast": (Broadcast(), 2),
    "allgather": (Allgather(), 2),
    "alltoall": (Alltoall(), 2),
    "reducescatter": (Reducescatter(), 2),
    "barrier": (Barrier(), 0.3),
}
