"""Compares parameters and optimizer state between ranks while training runs.

    hvd.agreement.watch(model, optimizer, exclude=["*.router.*"])

After each step every rank hashes one window of these tensors.  The windows rotate, so that every byte is compared within
HVD_AGREEMENT_STEPS steps.  A small allgather carries the hashes while the next step runs.  A window that differs is reported
with tensor and rank.  hvdrun --agreement watches each DistributedOptimizer by itself.

A NaN or an infinity that the runtime finds in a sum is reported if an optimizer's step follows.  A step that a GradScaler
skips does not follow, so overflows that the scaler handles are not reported.

Buffers, such as BatchNorm's statistics, may differ between ranks, and are not watched.  DTensors are shards, and are not
watched.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakSet

import torch

from hvd import _native
from hvd._agreement.exchange import IN_HOST, ON_BOTH, ON_GPU, Exchange, flags_of
from hvd._agreement.host_windows import host_hashes
from hvd._runtime import world as _world
from hvd._runtime.objects import allgather_object
from hvd._runtime.submission import hand_over
from hvd.agreement import compare
from hvd.process_sets import ProcessSet, global_process_set, number_of
from hvd.torch._adapter import TorchAdapter
from hvd.torch.ops import collectives
from hvd.torch.tensor_windows import (
    PIECE,
    Piece,
    divides_its_state,
    flattened,
    hash_of,
    is_plain,
    pieces_of,
    place_of,
    weights_on,
    windows_of,
)

__all__ = ["Watch", "compare", "watch"]

_LEAST_LAYOUT = 64  # steps until the list of tensors is made anew

_watches: WeakSet[Watch] = WeakSet()


class _TensorGather:
    """A BytesGather of a row on a GPU, int64 [3]: the host does not wait for the GPU."""

    def __init__(self, name: str, row: torch.Tensor, process_set: ProcessSet) -> None:
        self._handle = collectives.allgather_async(row.view(torch.uint8), name, process_set)

    def arrives(self, seconds: float) -> bool:
        hand_over()
        return _native.wait_within(self._handle, seconds)  # type: ignore[arg-type]

    def result(self) -> bytes:
        return bytes(collectives.synchronize(self._handle).tolist())


class Watch(Exchange):
    """The comparison of one model and its optimizer.  watch() makes it."""

    def __init__(
        self,
        named: Callable[[], Iterable[tuple[str, torch.Tensor]]],
        optimizer: torch.optim.Optimizer,
        exclude: Iterable[str] = (),
        process_set: ProcessSet = global_process_set,
        model: Any = None,
    ) -> None:
        """named: the present parameters by name.  The other arguments are as in watch()."""
        self._joinables = [one for one in (model, optimizer) if hasattr(one, "_join_config")]
        self._named, self._optimizer = named, optimizer
        self._exclude = [exclude] if isinstance(exclude, str) else list(exclude)
        self._told_at_start: set[str] = set()
        self._when = "at the start"
        super().__init__(process_set)
        _follow_scalers()
        self._hooks: list[Any] = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]
        _watches.add(self)

    def close(self) -> None:
        """Ends the comparison.  All ranks must call it after the same step."""
        for hook in self._hooks:
            hook.remove()
        super().close()
        _watches.discard(self)

    def _forget(self) -> None:
        super()._forget()
        self._layout: list[list[Piece]] = []
        self._states = -1
        self._is_on = False  # in this step
        self._seen = ""  # the runtime's line about a NaN in the sums of this step

    def _joined(self) -> None:
        super()._joined()
        self._when = "after hvd.join()"

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor, str | None, torch.Tensor]]:
        state = {} if divides_its_state(self._optimizer) else self._optimizer.state
        for name, parameter in self._named():
            if self._is_excluded(name) or not is_plain(parameter):
                continue
            yield f"parameter {name}", parameter, None, parameter
            for key, value in state.get(parameter, {}).items():
                if is_plain(value):
                    yield f"optimizer state {key} of {name}", parameter, key, value

    def _compare_at_start(self) -> None:
        from hvd.torch import start_comparison

        named = {name: p for name, p in self._named() if not self._is_excluded(name)}
        pieces = [piece for name, p in named.items() if is_plain(p) for piece in pieces_of(name, p, None, p, PIECE)]
        hashes = dict.fromkeys(named, 0)
        for piece in pieces:
            hashes[piece.name] ^= int(hash_of(self._part(piece))) * (2 * piece.begin + 1)
        mine = start_comparison.facts(self._optimizer, named, hashes, len(self._set.ranks or ()))
        told = allgather_object((_world.rank(), mine), f"{self._name}.start", self._set)
        ranks = [rank for rank, _ in told]  # without those that have joined (hvd.join)
        for line in start_comparison.differences([facts for _, facts in told], ranks):
            if line not in self._told_at_start:  # each join repeats the comparison, and thus the line
                self._print(f"{self._when}, {line}", ranks)
            self._told_at_start.add(line)

    def _is_excluded(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._exclude)

    def _present(self, piece: Piece) -> torch.Tensor | None:
        """The piece's whole tensor: an optimizer may replace the tensors of its state."""
        return piece.parameter if piece.key is None else self._optimizer.state[piece.parameter].get(piece.key)

    def _part(self, piece: Piece) -> torch.Tensor:
        """The piece of the present tensor.  Empty: the tensor has another size."""
        tensor = self._present(piece)
        flat = flattened(tensor) if tensor is not None and is_plain(tensor) else torch.empty(0)
        if flat.numel() < piece.end or flat.element_size() != piece.element_bytes:
            return torch.empty(0)
        return flat[piece.begin : piece.end]

    def _hashes(self, window: list[Piece]) -> tuple[list[int] | torch.Tensor, int]:
        """Returns the hashes of the pieces, and the place of their computation.  IN_HOST: a list of int.  Otherwise: a tensor
        [pieces] on the device of the first piece."""
        places = [place_of(piece, self._present(piece)) for piece in window]
        if None not in places:
            return host_hashes(places, torch.get_num_threads()), IN_HOST  # type: ignore[arg-type]
        parts = [self._part(piece) for piece in window]
        in_host = [at for at, part in enumerate(parts) if part.is_cpu]
        spans = [(parts[at].data_ptr(), parts[at].numel() * parts[at].element_size()) for at in in_host]
        of_host = host_hashes(spans, torch.get_num_threads())
        if len(in_host) == len(parts):
            return of_host, IN_HOST
        device = window[0].parameter.device
        hashes = [part if part.is_cpu else hash_of(part).to(device) for part in parts]
        for at, one in zip(in_host, torch.tensor(of_host, dtype=torch.int64).to(device), strict=True):
            hashes[at] = one
        return torch.stack(hashes), ON_BOTH if in_host else ON_GPU

    def _compares(self) -> bool:
        # A captured step compares nothing: the comparison needs the host.  In torch's Join, ranks make other numbers of steps.
        if self._joinables and any(one._join_config.enable for one in self._joinables):
            return False
        return super()._compares() and not TorchAdapter.is_capturing()

    def _before_step(self, *_: Any) -> None:
        self._is_on = self._compares()
        if not self._is_on:
            return
        if self._begins():
            self._compare_at_start()
        # A fused optimizer skips the step by itself: the scaler gives it found_inf.
        found_inf = getattr(self._optimizer, "found_inf", None)
        skips = isinstance(found_inf, torch.Tensor) and bool(found_inf.item())
        seen = _native.not_finite()
        self._seen = "" if skips else seen

    def _after_step(self, *_: Any) -> None:
        if not self._is_on or not self._has_ended(self._patience):
            return
        turns = -(-_LEAST_LAYOUT // len(self._layout)) * len(self._layout) if self._layout else 1
        if self._step % turns == 0 or len(self._optimizer.state) != self._states:
            self._layout, self._states = windows_of(list(self._tensors()), self._steps), len(self._optimizer.state)
        self._step += 1
        if not self._layout:
            return
        window = self._layout[(self._step - 1) % len(self._layout)]
        hashes, where = self._hashes(window)
        if isinstance(hashes, list):
            self._send_hashes(window, hashes, self._seen)
            return
        mine = torch.tensor([self._step, flags_of(where, self._seen)], device=hashes.device)
        digest = (hashes * weights_on(hashes.device)[: len(window)]).sum().reshape(1)
        gather = _TensorGather(self._name, torch.cat([digest, mine]), self._set)
        self._send_by(gather, window, hashes.tolist, self._seen)

    def _overwrite(self, source: int) -> bool:
        tensors = list(self._tensors())
        layout = [(name, list(t.shape), str(t.dtype)) for name, _, _, t in tensors]
        layouts = allgather_object(layout, f"{self._name}.layout", self._set)
        if any(one != layout for one in layouts):
            return False  # tensors are missing, so a broadcast would not fit
        values = [tensor.detach() for *_, tensor in tensors]
        names = [f"{self._name}.{at}" for at in range(len(values))]
        collectives.synchronize(collectives.broadcast_many_async_(values, source, names, self._set))
        return True


@functools.cache
def _follow_scalers() -> None:
    """Forgets infinities that a GradScaler has handled, from now on: it has skipped the step, or checked the gradients."""
    scaler: Any = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    step = scaler.step

    @functools.wraps(step)
    def forgetting(*args: Any, **kwargs: Any) -> Any:
        result = step(*args, **kwargs)
        if _world.is_active():
            _native.not_finite()
        return result

    scaler.step = forgetting


def watch(
    model: torch.nn.Module | Iterable[tuple[str, torch.Tensor]],
    optimizer: torch.optim.Optimizer,
    exclude: Iterable[str] = (),
    process_set: ProcessSet = global_process_set,
) -> Watch:
    """Compares the model's parameters and the optimizer's state between the ranks after each optimizer.step().

    Call it on all ranks, after init() and after the ranks have equal parameters.  The new watch replaces the watch that hvdrun
    --agreement has begun for this optimizer.  Differences are reported on stderr; with --agreement stop, step() raises
    DivergedError.

    model: a module, or pairs of name and parameter.  exclude: patterns such as "*.router.*" for names of parameters that may
    differ.  process_set: the ranks that have equal parameters.
    Errors: ValueError before init(), and for another model or optimizer.
    """
    _world.need()
    number_of(process_set)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"a torch.optim.Optimizer is needed, not a {type(optimizer).__name__}")
    pairs = list(model.named_parameters() if isinstance(model, torch.nn.Module) else model)
    if any(not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], torch.Tensor)) for pair in pairs):
        raise ValueError("the model must be a torch.nn.Module, or pairs of name and parameter")
    for old in list(_watches):
        if old._optimizer is optimizer:
            old.close()
    named = functools.partial(_parameters_of, model) if isinstance(model, torch.nn.Module) else lambda: pairs
    return Watch(named, optimizer, exclude, process_set, model)


def _parameters_of(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The present parameters by name, without those that FSDP's first version divides among the ranks."""
    divided = (module for module in model.modules() if type(module).__name__ == "FullyShardedDataParallel")
    shards = {id(parameter) for module in divided for parameter in module.parameters()}
    return (pair for pair in model.named_parameters() if id(pair[1]) not in shards)
