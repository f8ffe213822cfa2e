"""An optimizer with its state divided among the ranks: each rank stores and updates its part of all parameters.

Parameters lie in flat buckets, and rank r owns the r-th part of each.  Gradients are reduce-scattered during
backward().  Every rank does the optimizer's step on its own parts, and the parts are gathered.  The two exchanges send as many
bytes as an allreduce, since a ring's allreduce is a reducescatter and an allgather.  A rank stores 1/size of the state.  This
is stage 1 of ZeRO (arXiv:1910.02054).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

import torch

from hvd._native import Average, Max, Sum
from hvd._runtime import world as _world
from hvd._runtime.objects import allgather_object
from hvd.process_sets import ProcessSet, global_process_set, number_of
from hvd.torch._optimizer.parameter_entries import after_accumulation
from hvd.torch._sharded_bucket import Bucket, summary
from hvd.torch.compression import Compression, Compressor
from hvd.torch.ops import collectives

__all__ = ["ShardedOptimizer"]

# Large enough to use the links, small enough that the first ones travel during backward().
_BUCKET_BYTES = 32 << 20
# Optimizers whose step for an element needs more than the gradient and state of that element.
_WHOLE_TENSORS = ("Adafactor", "LBFGS", "Muon", "SparseAdam")


class ShardedOptimizer(torch.optim.Optimizer):
    """The given optimizer with its state divided among the ranks; it replaces that optimizer and DistributedOptimizer.

        optimizer = hvd.ShardedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-3))

    For optimizers that treat each element by itself (SGD, Adam and most others).  Steps equal DistributedOptimizer's up
    to rounding.  Parameters become views of larger tensors; p.grad stays this rank's own gradient.  backward() sends it, so
    step() refuses later changes: clip with clip_grad_norm_() of this class.  A missing gradient counts as zeros.
    state_dict() is collective.  state_dict() returns the form of the undivided optimizer.  The undivided optimizer can load
    this form, and so can this class on any number of ranks.

    optimizer: its state, if any, must be the same on all ranks.
    backward_passes_per_step, op (Average or Sum), compression: as in DistributedOptimizer.
    Errors: ValueError for an optimizer that uses whole tensors, and for sparse gradients.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        backward_passes_per_step: int = 1,
        op: int = Average,
        compression: type[Compressor] = Compression.none,
        process_set: ProcessSet = global_process_set,
        bucket_bytes: int = _BUCKET_BYTES,
    ) -> None:
        kind = type(optimizer)
        if kind.__name__ in _WHOLE_TENSORS:
            raise ValueError(f"{kind.__name__} needs whole tensors: it cannot be sharded; use hvd.DistributedOptimizer")
        if op not in (Average, Sum):
            raise ValueError("ShardedOptimizer works with op=Average or op=Sum")
        if backward_passes_per_step < 1:
            raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}: it must be at least 1")
        number_of(process_set)
        _world.admit()
        self._op, self._compression, self._set = op, compression, process_set
        self._ranks = process_set.size() or 1
        self._rank = process_set.rank() or 0
        self._passes = backward_passes_per_step
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self._buckets: list[list[Bucket]] = []
        self._left: dict[torch.Tensor, int] = {}
        self._sent: dict[torch.Tensor, tuple[int, int]] = {}  # address and version of each gradient when it was sent
        self._hooks: list[Any] = []
        for index, group in enumerate(self.param_groups):
            self._buckets.append(self._bucketed(index, group["params"], bucket_bytes))
        # The user's optimizer now updates one parameter for each bucket: this rank's part.  An existing state (Adagrad begins
        # with one) is divided in the same way.  Both have the same groups, because schedules may know either of them.
        begun = optimizer.state_dict() if optimizer.state else None
        self._inner = optimizer
        self._inner.state.clear()
        self._inner.param_groups = self.param_groups
        if begun is not None:
            self.load_state_dict(begun)

    def _bucketed(self, index: int, parameters: list[torch.Tensor], limit: int) -> list[Bucket]:
        kinds: dict[Any, list[list[torch.Tensor]]] = {}
        for p in reversed([p for p in parameters if p.requires_grad]):  # the last layer's gradients come first
            lists = kinds.setdefault((p.dtype, p.device), [[]])
            if lists[-1] and sum(q.numel() for q in lists[-1]) * p.element_size() >= limit:
                lists.append([])
            lists[-1].append(p)
        chosen = [members for lists in kinds.values() for members in lists]
        made = []
        for number, members in enumerate(chosen):
            bucket = Bucket(f"sharded.{index}.{number}", members, self._ranks, self._rank)
            made.append(bucket)
            for p, place in zip(members, bucket.places):
                self._left[p] = self._passes
                self._hooks.append(after_accumulation(p, self._hook(bucket, p, place)))
        return made

    def _all(self) -> Iterator[Bucket]:
        for buckets in self._buckets:
            yield from buckets

    # ---- gradients

    def _hook(self, bucket: Bucket, p: torch.Tensor, place: tuple[int, int]) -> Callable[..., None]:
        def ready(*_: Any) -> None:
            self._skip_step()
            self._left[p] -= 1
            if self._left[p] > 0:
                return
            if self._left[p] < 0:
                self._left[p] = 0
                raise AssertionError(
                    f"more backward passes than backward_passes_per_step={self._passes} before step(); "
                    "set it to the number of backward() calls per step()"
                )
            self._copy_in(bucket, p, place)
            bucket.waits_for -= 1
            if bucket.waits_for == 0:
                self._send(bucket)

        return ready

    def _copy_in(self, bucket: Bucket, p: torch.Tensor, place: tuple[int, int]) -> None:
        if bucket.gradient is None:
            bucket.gradient = torch.zeros_like(bucket.flat)
        if p.grad is not None:
            if p.grad.is_sparse:
                raise ValueError("ShardedOptimizer cannot have sparse gradients: use hvd.DistributedOptimizer")
            bucket.gradient[place[0] : place[1]].copy_(p.grad.detach().reshape(-1))
            self._sent[p] = (p.grad.data_ptr(), p.grad._version)

    def _refuse_changes(self) -> None:
        """ValueError if the script has changed a gradient after it was sent: the step would ignore the change."""
        sent, self._sent = self._sent, {}
        for p, as_sent in sent.items():
            if p.grad is not None and (p.grad.data_ptr(), p.grad._version) != as_sent:
                raise ValueError(
                    "a gradient was changed after backward(), and ShardedOptimizer has sent it already: call "
                    "optimizer.clip_grad_norm_(max_norm) in place of torch.nn.utils.clip_grad_norm_(), and leave "
                    "scaler.unscale_() out"
                )

    def _send(self, bucket: Bucket) -> None:
        gradient, bucket.context = self._compression.compress(bucket.gradient)  # type: ignore[arg-type]
        bucket.handle = collectives.reducescatter_async(gradient, bucket.name, self._op, self._set)
        bucket.gradient = None

    def synchronize(self) -> None:
        """Waits for this rank's parts of the reduced gradients.  step() calls it."""
        for bucket in self._all():
            if bucket.handle is None:
                for p, place in zip(bucket.parameters, bucket.places):
                    if self._left[p]:  # no gradient, or fewer passes than declared
                        self._copy_in(bucket, p, place)
                self._send(bucket)
        try:
            for bucket in self._all():
                reduced = collectives.synchronize(bucket.handle)
                bucket.shard.grad = self._compression.decompress(reduced, bucket.context)
        finally:
            for bucket in self._all():
                bucket.handle = bucket.context = bucket.gradient = None
                bucket.waits_for = len(bucket.parameters)
            self._left = dict.fromkeys(self._left, self._passes)
            self._synchronized = True

    _synchronized = False  # shards have the reduced gradients, and step() has not been called yet

    def _skip_step(self) -> None:
        """Forgets reduced gradients that the script has not used for a step."""
        if self._synchronized:
            self._synchronized = False
            self._overflow = None
            self._sent.clear()
            for bucket in self._all():
                bucket.shard.grad = None

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Scales the reduced gradients so that the 2-norm of all of them is at most max_norm; returns the previous norm.

        Collective.  In place of torch.nn.utils.clip_grad_norm_, between backward() and step().
        """
        if not self._synchronized:
            self.synchronize()
        shards = [bucket.shard.grad for bucket in self._all() if bucket.shard.grad is not None]
        squares = torch.stack([shard.float().pow(2).sum() for shard in shards]).sum().reshape(1)
        norm = collectives.allreduce(squares, None, "sharded.norm", Sum, process_set=self._set).sqrt()[0]
        scale = float(max_norm) / (float(norm) + 1e-6)
        if scale < 1:
            for shard in shards:
                shard.mul_(scale)
        return norm

    # ---- the step

    _overflow: bool | None = None  # found for a GradScaler; step() has not been called yet

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """A GradScaler reads this property before it looks for infinities.  The scaler must find infinities on all ranks, or on
        none."""
        if self._overflow is None and self._busy():
            self.synchronize()
            self._refuse_changes()
            shards = [bucket.shard.grad for bucket in self._all() if bucket.shard.grad is not None]
            bad = torch.tensor([float(any(not bool(torch.isfinite(shard).all()) for shard in shards))])
            self._overflow = bool(collectives.allreduce(bad, None, "sharded.overflow", Max, process_set=self._set).item())
            if self._overflow:
                next(p for p in self._left if p.grad is not None).grad.fill_(float("inf"))  # type: ignore[union-attr]
        return True  # and step() unscales

    def _busy(self) -> bool:
        return any(left != self._passes for left in self._left.values())

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Reduces the gradients, steps on this rank's parts and gathers the parameters.  Collective."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._synchronized:
            self.synchronize()
        self._synchronized = False
        self._refuse_changes()
        if any(p.requires_grad and p not in self._left for group in self.param_groups for p in group["params"]):
            raise ValueError("a parameter was frozen when this ShardedOptimizer was made: make it anew to train it")
        if self._unscaled():
            for bucket in self._all():
                bucket.move_in()
            self._step_on_shards()
            self._gather()
        for bucket in self._all():
            bucket.shard.grad = None
        return loss

    def _step_on_shards(self) -> None:
        whole = [group["params"] for group in self.param_groups]
        try:
            for group, buckets in zip(self.param_groups, self._buckets):
                group["params"] = [bucket.shard for bucket in buckets]
            self._inner.step()
        finally:
            for group, params in zip(self.param_groups, whole):
                group["params"] = params

    def _unscaled(self) -> bool:
        """Undoes a GradScaler's scale, if one calls; False if this step must be skipped."""
        overflow, self._overflow = self._overflow, None
        if overflow is None:
            return True
        scale: Any = getattr(self, "grad_scale", None)
        if scale is None:
            raise ValueError(
                "scaler.unscale_() cannot reach gradients that are divided among the ranks: leave it out, and let "
                "scaler.step(optimizer) unscale them"
            )
        for bucket in self._all():
            if not overflow and bucket.shard.grad is not None:
                bucket.shard.grad.div_(scale.to(bucket.shard.device))
        return not overflow

    @torch.no_grad()
    def _gather(self) -> None:
        if self._ranks == 1:
            return
        handles = [
            collectives.allgather_async(bucket.shard.detach(), f"{bucket.name}.parameters", self._set) for bucket in self._all()
        ]
        for bucket, handle in zip(self._all(), handles):
            bucket.flat.copy_(collectives.synchronize(handle))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The optimizer's own.  AssertionError between backward() and step()."""
        if self._busy():
            raise AssertionError("zero_grad() between backward() and step(): the gradients are being reduced")
        self._skip_step()
        super().zero_grad(set_to_none)

    # ---- the state

    def _positions(self) -> dict[torch.Tensor, int]:
        everything = [p for group in self.param_groups for p in group["params"]]
        return {p: index for index, p in enumerate(everything)}

    @torch.no_grad()
    def state_dict(self) -> dict[str, Any]:
        """The undivided optimizer's state_dict, on every rank.  Collective.

        Errors: ValueError on all ranks if their states differ in kinds or steps, because only some ranks have loaded one.
        """
        self._compared()
        positions = self._positions()
        state: dict[int, dict[str, Any]] = {}
        for bucket in self._all():
            own = self._inner.state.get(bucket.shard, {})
            numbers = [positions[p] for p in bucket.parameters]
            for key, value in own.items():
                if isinstance(value, torch.Tensor) and value.shape == bucket.shard.shape:
                    whole = collectives.allgather(value, f"{bucket.name}.{key}", self._set)
                    for number, part in zip(numbers, bucket.divided(whole)):
                        state.setdefault(number, {})[key] = part
                else:
                    for number in numbers:
                        copied = value.clone() if isinstance(value, torch.Tensor) else value
                        state.setdefault(number, {})[key] = copied
        groups, at = [], 0
        for group in self.param_groups:
            options = {key: value for key, value in group.items() if key != "params"}
            groups.append({**options, "params": list(range(at, at + len(group["params"])))})
            at += len(group["params"])
        return {"state": {number: state[number] for number in sorted(state)}, "param_groups": groups}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes this rank's parts of an undivided optimizer's state_dict."""
        groups = state_dict["param_groups"]
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            raise ValueError("the state_dict has other groups of parameters than this optimizer")
        for group, new in zip(self.param_groups, groups):
            group.update({key: value for key, value in new.items() if key != "params"})
        positions = self._positions()
        by_position = dict(zip([n for g in groups for n in g["params"]], range(len(positions))))
        state = {by_position[number]: value for number, value in state_dict["state"].items()}
        self._inner.state.clear()
        for bucket in self._all():
            known = [state.get(positions[p]) for p in bucket.parameters]
            keys = next((list(one) for one in known if one), [])
            for key in keys:
                self._inner.state[bucket.shard][key] = self._own_part(bucket, key, [one and one[key] for one in known])

    @staticmethod
    def _own_part(bucket: Bucket, key: str, values: list[Any]) -> Any:
        """This rank's part of one kind of state.  values: one for each of the bucket's parameters; None: it has no such
        state."""
        pairs = [(value, p) for value, p in zip(values, bucket.parameters) if value is not None]
        sample, p = max(pairs, key=lambda pair: pair[1].dim())
        if not isinstance(sample, torch.Tensor):
            return sample
        if sample.shape != p.shape or (p.dim() == 0 and key == "step"):
            return sample.clone()
        flat = torch.zeros(bucket.flat.shape, dtype=sample.dtype, device=bucket.flat.device)
        for value, (start, end) in zip(values, bucket.places):
            if value is not None:
                flat[start:end].copy_(value.reshape(-1))
        return flat[bucket.mine].clone()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Works during construction; afterwards it raises ValueError, because parts are divided once."""
        if hasattr(self, "_inner"):
            raise ValueError("a ShardedOptimizer cannot take more parameters: make it anew with all of them")
        super().add_param_group(param_group)

    def broadcast_options(self, root_rank: int) -> None:
        """Overwrites all ranks' options by root_rank's.  Collective.  ValueError on all ranks if their states are of different
        steps: root_rank has only its own part of its state.
        """
        options = [{key: value for key, value in group.items() if key != "params"} for group in self.param_groups]
        root_options = self._compared(options)[root_rank]
        for group, new in zip(self.param_groups, root_options):
            group.update(new)

    def _compared(self, further: Any = None) -> dict[int, Any]:
        """Compares the ranks' states, and returns each rank's further object, by rank.  Collective."""
        known = [summary(self._inner.state.get(bucket.shard, {}), bucket.shard) for bucket in self._all()]
        everyone = allgather_object((_world.rank(), known, further), process_set=self._set)
        different = [rank for rank, other, _ in everyone if other != everyone[0][1]]
        if different:
            raise ValueError(
                f"the ranks' parts of a ShardedOptimizer's state differ in kinds or steps (rank {different[0]}'s from rank "
                f"{everyone[0][0]}'s), and no rank has the others' parts: call load_state_dict() on every rank"
            )
        return {rank: other for rank, _, other in everyone}

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a ShardedOptimizer cannot be copied or pickled: copy its state_dict(), which is collective")

    def state_bytes(self) -> int:
        """The size of this rank's part of the state."""
        tensors = [v for state in self._inner.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
        return sum(t.numel() * t.element_size() for t in tensors)
