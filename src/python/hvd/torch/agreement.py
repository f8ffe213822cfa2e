"""Compares parameters and optimizer state between ranks while training runs.

    hvd.agreement.watch(model, optimizer, exclude=["*.router.*"])

After each step every rank hashes one window of these tensors.  The windows rotate, so that every byte is compared within
HVD_AGREEMENT_STEPS steps.  A small allgather carries the hashes while the next step runs.  A window that differs is reported
with tensor and rank.  hvdrun --agreement watches each DistributedOptimizer by itself.

A NaN or an infinity that the runtime finds in a sum is reported if an optimizer's step follows.  A step that a GradScaler
skips does not follow, so overflows that the scaler handles are not reported.

Buffers, such as BatchNorm's statistics, may differ between ranks, and are not watched.  Neither are DTensors, which are shards.
"""

from __future__ import annotations

import fnmatch
import functools
import io
import pickle
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakSet

import torch

from hvd import _native
from hvd._runtime import environment as _environment
from hvd._runtime import world as _world
from hvd._runtime.bytes_gather import BytesGather
from hvd._runtime.objects import allgather_object
from hvd._runtime.submission import hand_over
from hvd.exceptions import DivergedAgainError, DivergedError
from hvd.process_sets import ProcessSet, global_process_set, number_of
from hvd.torch._adapter import TorchAdapter
from hvd.torch.ops import collectives
from hvd.torch.tensor_windows import (
    PIECE,
    Piece,
    divides_its_state,
    flattened,
    hash_of,
    host_digest,
    host_hashes,
    is_plain,
    pieces_of,
    place_of,
    weights_on,
    windows_of,
)

__all__ = ["Watch", "outvoted", "watch"]

_LEAST_LAYOUT = 64  # steps until the list of tensors is made anew
_PATIENCE = 2.0  # seconds that a step waits for ranks that have made fewer steps; then training goes on
_LEAST_PATIENCE = 0.1  # after several such waits
_PATIENCE_FOR_DETAILS = 5.0

_watches: WeakSet[Watch] = WeakSet()
_begun: Counter[int] = Counter()  # watches that have made a step in this world, by number of their process set
_repairs = 0  # of this process


class _Details(NamedTuple):
    """What a rank tells the others about a window that differs, or a sum that is not finite."""

    rank: int
    host: str
    pieces: list[tuple[str, int, int]]  # name, begin and end in elements
    hashes: list[int]
    repairs: int  # how often this process has been repaired
    not_finite: str  # the runtime's line about a NaN in the sums of that step


_ROW = struct.Struct("=qqq")


class _TensorGather:
    """A BytesGather of a row on a GPU, int64 [3]: the host does not wait for the GPU."""

    def __init__(self, name: str, row: torch.Tensor, process_set: ProcessSet) -> None:
        self._handle = collectives.allgather_async(row.view(torch.uint8), name, process_set)

    def arrives(self, seconds: float) -> bool:
        hand_over()
        return _native.wait_within(self._handle, seconds)  # type: ignore[arg-type]

    def result(self) -> bytes:
        return bytes(collectives.synchronize(self._handle).tolist())


class _Sent(NamedTuple):
    """A comparison that is under way."""

    gather: BytesGather | _TensorGather
    expected: bytes  # the rows if all ranks have what this rank has; empty: to be looked at
    step: int
    window: list[Piece]
    hashes: list[int] | torch.Tensor
    not_finite: str


class _Asked(NamedTuple):
    """The exchange of details that is under way.  All ranks begin it after the same comparison."""

    gather: BytesGather
    tells_sum: bool
    digests: list[int]  # of the ranks of the set; empty: no window is told


def outvoted(values: Sequence[Any]) -> list[int]:
    """The places of values that differ from the majority's.  Without a majority: all places.  All equal: empty."""
    (value, votes), *others = Counter(values).most_common()
    if not others:
        return []
    return [at for at, one in enumerate(values) if 2 * votes <= len(values) or one != value]


class Watch:
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
        self._named, self._optimizer, self._set = named, optimizer, process_set
        self._exclude = [exclude] if isinstance(exclude, str) else list(exclude)
        self._steps = _environment.integer("HVD_AGREEMENT_STEPS")
        self._mode = _environment.text("HVD_AGREEMENT")
        self._stops = self._mode in ("stop", "repair")
        self._told_at_start: set[str] = set()
        self._when = "at the start"
        self.found = 0  # windows that differed
        self.not_finite = 0  # steps on sums with a NaN or an infinity
        self._forget()
        _follow_scalers()
        self._hooks: list[Any] = [
            optimizer.register_step_pre_hook(self._begins),
            optimizer.register_step_post_hook(self._stepped),
        ]
        _watches.add(self)

    def close(self) -> None:
        """Ends the comparison.  All ranks must call it after the same step."""
        for hook in self._hooks:
            hook.remove()
        self.check()
        _watches.discard(self)

    def _forget(self) -> None:
        """Starts again, in a new world."""
        self._step = 0
        self._name = ""  # of the operations; "" before the first step in this world, or since a join
        self._layout: list[list[Piece]] = []
        self._states = -1
        self._mixed = False  # some ranks use a GPU, others none
        self._is_on = False  # in this step
        self._ranks = 0  # number of the ranks that are compared
        self._sent: _Sent | None = None
        self._asked: _Asked | None = None
        self._patience = _PATIENCE
        self._seen = ""  # the runtime's line about a NaN in the sums of this step
        self._since = [0, 0]  # steps on such sums, and windows that differed: the same on all ranks

    def _joined(self) -> None:
        """All ranks of the set have joined (hvd.join): they may have made other numbers of steps, some of them none."""
        for pending in (self._sent, self._asked):
            if pending is not None:
                pending.gather.result()
        self._forget()
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
            if line not in self._told_at_start:  # it may be told again after each join
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
        """The hashes of the pieces: a list in host memory, else [pieces] on the first one's device.

        Also where they were made: 1 host, 2 GPU, 3 both.  Host and GPU have different hashes.
        """
        places = [place_of(piece, self._present(piece)) for piece in window]
        if None not in places:
            return host_hashes(places), 1  # type: ignore[arg-type]
        parts = [self._part(piece) for piece in window]
        in_host = [at for at, part in enumerate(parts) if part.is_cpu]
        of_host = host_hashes([(parts[at].data_ptr(), parts[at].numel() * parts[at].element_size()) for at in in_host])
        if len(in_host) == len(parts):
            return of_host, 1
        device = window[0].parameter.device
        hashes = [part if part.is_cpu else hash_of(part).to(device) for part in parts]
        for at, one in zip(in_host, torch.tensor(of_host, dtype=torch.int64).to(device), strict=True):
            hashes[at] = one
        return torch.stack(hashes), 3 if in_host else 2

    def _compares(self) -> bool:
        # A captured step compares nothing: the comparison needs the host.  In torch's Join, ranks make other numbers of steps.
        if self._joinables and any(one._join_config.enable for one in self._joinables):
            return False
        return _world.is_active() and _world.size() > 1 and bool(self._set.included()) and not TorchAdapter.is_capturing()

    def _begins(self, *_: Any) -> None:
        self._is_on = self._compares()
        if not self._is_on:
            return
        if not self._name:
            # The first steps come in the same order on all ranks of a set.  Ranks outside of it, and copies of an
            # optimizer on one rank, make watches of their own.
            group = number_of(self._set) or 0
            self._name = f"hvd.agreement.{_begun[group]}"
            _begun[group] += 1
            self._ranks = len(self._set.ranks or ())
            self._compare_at_start()
        # A fused optimizer skips the step by itself: the scaler gives it found_inf.
        found_inf = getattr(self._optimizer, "found_inf", None)
        skips = isinstance(found_inf, torch.Tensor) and bool(found_inf.item())
        seen = _native.not_finite()
        self._seen = "" if skips else seen

    def _stepped(self, *_: Any) -> None:
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
        flags = 4 * where + bool(self._seen)
        gather: BytesGather | _TensorGather
        expected = b""
        if isinstance(hashes, list):
            row = _ROW.pack(host_digest(hashes), self._step, flags)
            gather = BytesGather(self._name, row, self._set)
            expected = b"" if self._seen else row * self._ranks
        else:
            mine = torch.tensor([self._step, flags], device=hashes.device)
            digest = (hashes * weights_on(hashes.device)[: len(window)]).sum().reshape(1)
            gather = _TensorGather(self._name, torch.cat([digest, mine]), self._set)
        self._sent = _Sent(gather, expected, self._step, window, hashes, self._seen)

    def check(self) -> None:
        """Waits for the last comparison and reports it.  Collective if there is anything to report.

        Errors, with --agreement stop: DivergedError; FloatingPointError after a step on a NaN or an infinity.  With repair:
        the same, except for the first difference of a rank.
        """
        self._has_ended(None)

    def _has_ended(self, patience: float | None) -> bool:
        """Takes up and reports what is under way.  False: other ranks have not come so far in `patience` seconds.

        None: waits without a limit.  A rank that skips a step must not hold up the others, who may hold up that rank in
        return, in the next gradients.  It takes part in its next step.
        """
        if self._sent is not None:
            if patience is not None and not self._sent.gather.arrives(patience):
                self._patience = max(_LEAST_PATIENCE, self._patience / 2)
                return False
            sent, self._sent = self._sent, None
            rows = sent.gather.result()
            if rows != sent.expected or not rows:
                self._look(sent, list(_ROW.iter_unpack(rows)))
        if self._asked is not None:
            # After this exchange, all ranks are in the same step again.
            if patience is not None and not self._asked.gather.arrives(_PATIENCE_FOR_DETAILS):
                return False
            asked, self._asked = self._asked, None
            self._report(asked)
        return True

    def _look(self, sent: _Sent, rows: list[tuple[int, int, int]]) -> None:
        """Asks for details if a window differs, or a sum was not finite.  rows: of all ranks that have not joined."""
        self._step = max(row[1] for row in rows)  # a rank that had joined goes on with the others' windows
        if len(rows) != len(self._set.ranks or ()) or any(row[1] != sent.step for row in rows):
            return  # a rank has joined (hvd.join), or has made another number of steps
        tells_sum, differing = False, []
        if any(row[2] & 1 for row in rows):
            self.not_finite += 1
            tells_sum = self._is_worth_telling(0)
        digests = [row[0] for row in rows]
        if outvoted(digests) and outvoted([row[2] & ~1 for row in rows]):
            if not self._mixed:
                text = "parameters are on a GPU on some ranks, and in host memory on others: they are not compared"
                self._print(text, self._set.ranks or [])
            self._mixed = True
        elif outvoted(digests):
            self.found += 1
            differing = digests if self._is_worth_telling(1) else []
        if tells_sum or differing:
            places = [(piece.name, piece.begin, piece.end) for piece in sent.window]
            hashes = sent.hashes if isinstance(sent.hashes, list) else sent.hashes.tolist()
            mine = pickle.dumps(_Details(_world.rank(), socket.gethostname(), places, hashes, _repairs, sent.not_finite))
            gather = BytesGather(f"{self._name}.details", mine, self._set)
            self._asked = _Asked(gather, tells_sum, differing)

    def _is_worth_telling(self, what: int) -> bool:
        """A line for the first, second, fourth, eighth … time."""
        self._since[what] += 1
        return self._stops or not self._since[what] & (self._since[what] - 1)

    def _report(self, asked: _Asked) -> None:
        data = io.BytesIO(asked.gather.result())
        details: list[_Details] = []
        while data.tell() < len(data.getbuffer()):
            details.append(pickle.load(data))
        if asked.tells_sum and any(one.not_finite for one in details):
            self._tell_not_finite(details)
        if not asked.digests:
            return
        bad, text = self._describe(details, asked.digests)
        more = f"; {self.found} windows have differed so far" if self.found > 1 else ""
        self._print(text + more, [one.rank for one in details])
        if self._mode == "repair" and len(bad) < len(asked.digests) == len(details):
            self._repair(bad, details, text)
        elif self._stops:
            raise DivergedError(text)

    def _repair(self, bad: list[int], details: list[_Details], text: str) -> None:
        """Gives the ranks `bad` the parameters and the optimizer's state of another rank.

        Errors: a rank that was repaired before raises DivergedAgainError, and the others DivergedError.
        """
        global _repairs
        again = [one.rank for one in details if one.rank in bad and one.repairs]
        if again:
            if _world.rank() in again:
                raise DivergedAgainError(f"{text}, and this rank was repaired before")
            raise DivergedError(text)
        tensors = list(self._tensors())
        layout = [(name, list(t.shape), str(t.dtype)) for name, _, _, t in tensors]
        layouts = allgather_object(layout, f"{self._name}.layout", self._set)
        if any(one != layout for one in layouts):
            raise DivergedError(text)  # tensors are missing, so a broadcast would not fit
        source = next(one.rank for one in details if one.rank not in bad)
        values = [tensor.detach() for *_, tensor in tensors]
        names = [f"{self._name}.{at}" for at in range(len(values))]
        collectives.synchronize(collectives.broadcast_many_async_(values, source, names, self._set))
        _repairs += _world.rank() in bad
        listed = ", ".join(map(str, bad))
        self._print(f"rank {listed} has got the parameters and the optimizer's state of rank {source}", self._set.ranks or [])

    def _print(self, text: str, ranks: Sequence[int]) -> None:
        """On the first of `ranks`."""
        if ranks[0] == _world.rank():
            print(f"hvd: agreement: {text}", file=sys.stderr, flush=True)

    def _tell_not_finite(self, details: list[_Details]) -> None:
        """Prints the line of the first rank that has one."""
        text = next(one.not_finite for one in details if one.not_finite)
        more = f"; in {self.not_finite} steps so far" if self.not_finite > 1 else ""
        self._print(text + more, [one.rank for one in details])
        if self._stops:
            raise FloatingPointError(text)

    def _describe(self, details: list[_Details], digests: list[int]) -> tuple[list[int], str]:
        """The ranks that differ, and one line.

        details: of the ranks that have not joined since.  digests: of the window, of all ranks of the set.
        """
        ranks = self._set.ranks or []
        bad = [ranks[place] for place in outvoted(digests)]
        places = [one.pieces for one in details]
        what = "the list of tensors" if outvoted([str(one) for one in places]) else "a window of the parameters"
        for at, (name, begin, end) in enumerate(places[0]) if what != "the list of tensors" else ():
            values = [one.hashes[at] for one in details]
            if outvoted(values):
                what = f"{name}, elements {begin}-{end},"
                if len(details) == len(ranks):
                    bad = [ranks[place] for place in outvoted(values)]
                break
        hosts = {one.rank: f" ({one.host})" for one in details}
        named = ", ".join(f"{rank}{hosts.get(rank, '')}" for rank in bad)
        if len(bad) < len(ranks):
            return bad, f"{what} is not on rank {named} what it is on the others"
        return bad, f"{what} differs between ranks {named}, none of which has a majority"


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

    Call it on all ranks, after init() and after the ranks have equal parameters.  It replaces the watch that hvdrun --agreement
    has begun for this optimizer.  Differences are reported on stderr; with --agreement stop, step() raises DivergedError.

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


def _world_left() -> None:
    _begun.clear()
    for one in _watches:
        one._forget()


def _all_joined(group: int) -> None:
    _begun.pop(group, None)
    for one in _watches:
        if number_of(one._set) == group:
            one._joined()


_world.when_left.append(_world_left)
_world.when_joined.append(_all_joined)
