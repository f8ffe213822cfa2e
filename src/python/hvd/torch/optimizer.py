"""DistributedOptimizer: the user's optimizer, whose step() first averages the gradients of all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Callable

import torch

from hvd._native import Adasum, Average
from hvd._runtime import environment as _environment
from hvd._runtime import world as _world
from hvd._runtime.arguments import reduce_op
from hvd._runtime.objects import broadcast_object
from hvd.process_sets import ProcessSet, global_process_set, number_of
from hvd.torch._optimizer.adasum_update import AdasumUpdateReducer
from hvd.torch._optimizer.grad_scaler import GradScalerSupport
from hvd.torch._optimizer.gradient_transport import Settings
from hvd.torch._optimizer.powersgd import LowRankReducer
from hvd.torch._optimizer.reducer import Reducer, drop_untouched
from hvd.torch.compression import Compression, Compressor, PowerSGD
from hvd.torch.ops import allreduce

__all__ = ["DistributedOptimizer"]

if TYPE_CHECKING:
    _Base = torch.optim.Optimizer
else:
    _Base = object  # the user's class follows it in every derived class


class _Distributed(GradScalerSupport, _Base):
    """The first base class; the user's optimizer class is the second.  hvd's own state is in _hvd, which state_dict() does not
    include."""

    _hvd: Reducer
    _hvd_names: dict[int, str]
    _hvd_groups: Any
    _synchronized: bool
    _should_synchronize: bool

    def _hvd_start(self, settings: Settings, names: dict[int, str], groups: Any) -> None:
        kind = LowRankReducer if isinstance(settings.compression, PowerSGD) else Reducer
        self._hvd = AdasumUpdateReducer(settings) if settings.op == Adasum else kind(settings)
        self._hvd_names = names
        self._hvd_groups = groups
        self._synchronized = False
        self._scaler_synchronized = False
        self._should_synchronize = True
        is_fixed = not _environment.flag("HOROVOD_ELASTIC")  # in an elastic job other ranks may join
        alone = not _world.is_active() or (_world.size() == 1 and is_fixed)
        if alone or not settings.process_set.included():
            return
        self._hvd.watch(self._hvd_parameters())
        if groups:
            self._hvd.group(_lists_of_parameters(self, groups))
        if settings.op != Adasum and _environment.text("HVD_AGREEMENT") != "off":
            from hvd.torch.agreement import Watch

            Watch(self._hvd_parameters, self, (), settings.process_set)

    def _hvd_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        for at, group in enumerate(self.param_groups):
            for index, parameter in enumerate(group["params"]):
                yield self._hvd_names.setdefault(id(parameter), f"gradient.{at}.{index}"), parameter

    # ---- Horovod's additions

    @property
    def backward_passes_per_step(self) -> int:
        """The number of backward() calls for one step()."""
        return self._hvd.settings.passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes backward_passes_per_step, between steps."""
        self._hvd.set_passes(_checked_passes(passes))

    @property
    def op(self) -> int:
        """The reduce op."""
        return self._hvd.settings.op

    @property
    def process_set(self) -> ProcessSet:
        """The ranks whose gradients are reduced."""
        return self._hvd.settings.process_set

    @property
    def gradient_predivide_factor(self) -> float:
        """The divisor of gradients before the sum."""
        return self._hvd.settings.predivide

    @property
    def sparse_as_dense(self) -> bool:
        """True if sparse gradients are reduced as dense ones."""
        return self._hvd.settings.sparse_as_dense

    @property
    def _parameter_names(self) -> dict[torch.Tensor, str]:
        # Scripts for Horovod read it.
        return {parameter: name for name, parameter in self._hvd_parameters()}

    def synchronize(self) -> None:
        """Waits until all gradients are reduced.  Use it with skip_synchronize() to inspect or clip them before step()."""
        self._hvd.synchronize()
        self._synchronized = self.op != Adasum  # Adasum reduces nothing before the step

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within this context step() does not reduce gradients; use it after synchronize()."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    # ---- the optimizer's own methods

    def step(self, closure: Callable[[], Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        """Reduces the gradients over all ranks, then does the optimizer's step.

        With a closure, the gradients from each of its calls are reduced before the optimizer sees them.
        """
        if self.__dict__.pop("_hvd_left_zeros", False) and not self._hvd.entries:
            drop_untouched(p for group in self.param_groups for p in group["params"])
        if isinstance(self._hvd, AdasumUpdateReducer):
            self._scaler_synchronized = False
            if self._hvd.entries and self._skips_for_overflow():
                self._hvd.synchronize()
                return None
            return self._hvd.step(partial(super().step, *((closure,) if closure else ()), *args, **kwargs))
        if self._should_synchronize and not (self._scaler_synchronized and not self._hvd.busy):
            if self._synchronized and not self._hvd.busy:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() after optimizer.synchronize(): the "
                    "gradients are reduced already and are used as they are; "
                    "write `with optimizer.skip_synchronize(): optimizer.step()`",
                    stacklevel=2,
                )
            elif closure is None or self._hvd.busy:
                self._hvd.synchronize()
            if closure is not None:
                closure = self._reducing(closure)
        self._synchronized = self._scaler_synchronized = False
        if closure is None:
            return super().step(*args, **kwargs)
        return super().step(closure, *args, **kwargs)

    step.hooked = True  # type: ignore[attr-defined]  # torch wraps step() for its hooks: the user's class has that already

    def _reducing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        # L-BFGS decides by the loss whether to continue, and all ranks must decide the same.
        shared_loss = isinstance(self, torch.optim.LBFGS) and bool(self._hvd.entries)

        def reduced() -> Any:
            loss = closure()
            self._hvd.synchronize()
            if shared_loss and isinstance(loss, torch.Tensor):
                return allreduce(loss.detach(), op=Average, process_set=self.process_set)
            return loss

        return reduced

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Clears the gradients.  AssertionError between backward() and step(): they are being reduced."""
        if self._hvd.busy:
            raise AssertionError(
                "zero_grad() between backward() and step(): the gradients are being reduced; "
                "call optimizer.step() or optimizer.synchronize() first"
            )
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """The optimizer's own; backward passes so far are forgotten."""
        self._hvd.reset()
        self._synchronized = False
        groups = self.param_groups  # the user's optimizer has this list too, and schedules may know only that optimizer
        super().load_state_dict(*args, **kwargs)
        groups[:] = self.param_groups
        self.param_groups = groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """The optimizer's own; the new parameters are reduced too."""
        super().add_param_group(param_group)
        if self._hvd.entries:
            self._hvd.watch(self._hvd_parameters())

    def __reduce_ex__(self, protocol: Any) -> Any:
        # The class is made at run time, so pickle stores its base class.
        names = [name for name, _ in self._hvd_parameters()]
        groups = self._hvd_groups if isinstance(self._hvd_groups, int) else None
        return _restored, (type(self)._hvd_base, self._hvd.settings, names, groups, self.__getstate__())

    _hvd_base: type


def _restored(base: type, settings: Settings, names: list[str], groups: Any, state: dict[str, Any]) -> Any:
    optimizer: Any = object.__new__(_distributed_class(base))
    optimizer.__setstate__(state)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    optimizer._hvd_start(settings, {id(p): name for p, name in zip(parameters, names)}, groups)
    return optimizer


_classes: dict[type, type] = {}


def _distributed_class(base: type) -> type:
    """The user's class with _Distributed in front; one per class, under its name."""
    if base not in _classes:
        body = {"__module__": __name__, "__doc__": base.__doc__, "_hvd_base": base}
        _classes[base] = type(base.__name__, (_Distributed, base), body)
    return _classes[base]


def _check_kinds(optimizer: Any, compression: Any) -> None:
    _world.rank()  # raises if init() is missing
    if isinstance(optimizer, _Distributed):
        raise ValueError("this optimizer is distributed already: wrap the plain one, once")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"a torch.optim.Optimizer is needed, not a {type(optimizer).__name__}")
    if not hasattr(compression, "compress") and not isinstance(compression, PowerSGD):
        raise ValueError(f"compression is {compression!r}: it must be one of hvd.Compression, as hvd.Compression.fp16")


def _checked_passes(passes: int) -> int:
    if not isinstance(passes, int) or isinstance(passes, bool) or passes < 1:
        raise ValueError(f"backward_passes_per_step is {passes!r}: it must be at least 1")
    return passes


def _checked_names(optimizer: Any, named_parameters: Iterable[tuple[str, torch.Tensor]] | None) -> dict[int, str]:
    """Names by id of the parameter.  ValueError for duplicates and for parameters without a name."""
    if named_parameters is None:
        return {}
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise ValueError("named_parameters must be pairs of name and parameter, as model.named_parameters() gives")
    names: dict[int, str] = {}
    seen: set[str] = set()
    for name, parameter in pairs:
        if not isinstance(name, str) or "\0" in name:
            raise ValueError(f"named_parameters has the name {name!r}: it must be a string without zero bytes")
        if name in seen:
            raise ValueError(f"named_parameters has the name {name!r} twice")
        seen.add(name)
        names.setdefault(id(parameter), name)  # a shared parameter keeps its first name
    missing = sum(id(p) not in names for group in optimizer.param_groups for p in group["params"])
    if missing:
        raise ValueError(f"named_parameters lacks {missing} of the optimizer's parameters: give all of them, or none")
    return names


def _checked_groups(optimizer: Any, num_groups: int, groups: Any) -> Any:
    if num_groups:
        warnings.warn("num_groups is the older name of groups", DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    if groups is None or groups == 0:
        return None
    if isinstance(groups, int) and groups > 0:
        return groups
    if not isinstance(groups, list) or not all(isinstance(group, (list, tuple)) for group in groups):
        raise ValueError("groups must be a number of groups, or a list of lists of parameters")
    seen: set[int] = set()
    for parameter in (p for group in groups for p in group):
        if not isinstance(parameter, torch.Tensor):
            raise ValueError(f"groups must hold parameters, not a {type(parameter).__name__}")
        if id(parameter) in seen:
            raise ValueError("groups has one parameter twice")
        seen.add(id(parameter))
    return groups


def _lists_of_parameters(optimizer: Any, groups: Any) -> Sequence[Sequence[torch.Tensor]]:
    if not isinstance(groups, int):
        return list(groups)
    # The order of parameters may differ between ranks; rank 0's order counts.
    named = {name: p for name, p in optimizer._hvd_parameters() if p.requires_grad}
    set_of_ranks = optimizer.process_set
    order = broadcast_object(list(named), (set_of_ranks.ranks or [0])[0], process_set=set_of_ranks)
    parameters = [named[name] for name in order if name in named]
    count = min(groups, len(parameters)) or 1
    ends = [len(parameters) * i // count for i in range(count + 1)]
    return [parameters[start:end] for start, end in zip(ends, ends[1:])]


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] | PowerSGD = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """An optimizer of the same class that averages the gradients over all ranks before its step.

    The new optimizer takes over the given optimizer's parameter groups and state.  Gradients travel while backward() runs.

    named_parameters: model.named_parameters(); names tell ranks which gradients belong together.
    compression: Compression.none, .fp16, .bf16, or .powersgd(rank=2), which sends matrices as products of thin ones.
    backward_passes_per_step: number of backward() calls that are added up before a step.
    op: Average, Sum, or another reduce op.  Adasum reduces the changes of a step on this rank's own gradients.
    gradient_predivide_factor: divides by it before the sum and by size / it afterwards; Average only.
    groups: a number of groups, or lists of parameters, whose gradients run together (num_groups: its older name).
    sparse_as_dense: reduce sparse gradients as dense ones.
    Errors: ValueError for missing or duplicate names, an optimizer that is already distributed, and other wrong arguments;
    and before init().
    """
    _check_kinds(optimizer, compression)
    reduce_op(op, None)  # ValueError for an invalid op
    number_of(process_set)
    if not isinstance(gradient_predivide_factor, (int, float)) or not 0 < gradient_predivide_factor < float("inf"):
        raise ValueError(f"gradient_predivide_factor is {gradient_predivide_factor!r}: it must be a number above 0")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor works with op=Average only")
    if op == Adasum and isinstance(compression, PowerSGD):
        raise ValueError("PowerSGD works with op=Average only")
    passes = _checked_passes(backward_passes_per_step)
    names = _checked_names(optimizer, named_parameters)
    chosen = _checked_groups(optimizer, num_groups, groups)
    settings = Settings(compression, passes, op, float(gradient_predivide_factor), sparse_as_dense, process_set)
    made: Any = object.__new__(_distributed_class(type(optimizer)))
    # Copies the optimizer's attributes, state included, but not a scheduler's wrapper of the old step().
    made.__dict__.update({key: value for key, value in optimizer.__dict__.items() if key != "step"})
    made._hvd_start(settings, names, chosen)
    if "step" in optimizer.__dict__:
        # Otherwise a scheduler of the old object would warn that step() is never called there.
        vars(optimizer).update(_opt_called=True, _step_count=1)
    return made
