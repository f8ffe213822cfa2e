# mypy: disable-error-code="misc, no-any-return"
"""Optimizers with gradients of all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import mxnet as mx

from hvd._native import Average, Sum
from hvd._runtime import environment as _environment
from hvd._runtime.arguments import checked_predivide
from hvd.mxnet.compression import Compression, Compressor
from hvd.mxnet.ops import collectives
from hvd.process_sets import ProcessSet, global_process_set, number_of

__all__ = ["DistributedOptimizer", "DistributedTrainer"]


def _ranks(process_set: ProcessSet) -> int:
    """The number of ranks that exchange gradients with this one; 1: there is no exchange."""
    number_of(process_set)
    size = process_set.size()
    if size is None:
        raise ValueError("hvd is not initialised, or this process set was not added: call hvd.init() first")
    return size if process_set.included() else 1


def _averaging(predivide: float, process_set: ProcessSet) -> float:
    """The factor that makes the mean of _Exchange's sum."""
    ranks = _ranks(process_set)
    return predivide / ranks if ranks > 1 else 1.0


class _Exchange:
    """Sums arrays over all ranks, in place: each as soon as backward has made it, or in groups."""

    def __init__(self, predivide: float, num_groups: int, process_set: ProcessSet, compression: type[Compressor]) -> None:
        checked_predivide(predivide, Average)
        if num_groups < 0:
            raise ValueError(f"num_groups is {num_groups}: it must not be negative")
        self._scale = 1.0 / predivide
        self._groups = num_groups
        self.process_set = process_set
        self._compression = compression

    def __call__(self, arrays: Sequence[Any], names: Sequence[str]) -> None:
        if _ranks(self.process_set) == 1 or not arrays:
            return
        # Backward makes the last layer's first: gradients are awaited and sent in that order.
        order = range(len(arrays) - 1, -1, -1)
        dense = [array if array.stype == "default" else array.tostype("default") for array in arrays]
        small, contexts = zip(*(self._compression.compress(array) for array in dense))
        handles = []
        if self._groups:
            count = -(-len(arrays) // self._groups)
            for number, start in enumerate(range(0, len(arrays), count)):
                members = [small[i] for i in order[start : start + count]]
                call = (None, f"gradients.group.{number}", Sum, self._scale, 1.0, self.process_set)
                handles.append(collectives.grouped_allreduce_async_(members, *call))
        else:
            for i in order:
                handles.append(collectives.allreduce_async_(small[i], None, names[i], Sum, self._scale, 1.0, self.process_set))
        error = None
        for handle in handles:
            try:
                collectives.synchronize(handle)
            except Exception as failure:
                error = error or failure
        if error:
            raise error
        for array, out, context in zip(arrays, small, contexts):
            result = self._compression.decompress(out, context)
            if result is not array:
                (result if array.stype == "default" else result.tostype(array.stype)).copyto(array)


class DistributedOptimizer(mx.optimizer.Optimizer):
    """An optimizer whose update() first averages the gradients of all ranks; for Module.fit and hand-written loops.

    optimizer: does the update.  Its other methods and attributes are available here too.  num_groups: 0 exchanges the arrays
    of each update() together; n exchanges them in n parts.  For gluon: DistributedTrainer.
    """

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            optimizer = optimizer._optimizer
        own = self.__dict__
        own["_optimizer"] = optimizer
        own["_exchange"] = _Exchange(gradient_predivide_factor, num_groups, process_set, Compression.none)
        # The optimizer scales anyway, and so turns the sum into an average.
        own["_averaging"] = _averaging(gradient_predivide_factor, process_set)
        # Only once: the same optimizer may have been made distributed before.
        optimizer.rescale_grad *= self._averaging / getattr(optimizer, "_hvd_averaging", 1.0)
        optimizer._hvd_averaging = self._averaging

    def __getattr__(self, item: str) -> Any:
        return getattr(self._optimizer, item)

    def __setattr__(self, item: str, value: Any) -> None:
        setattr(self._optimizer, item, value)

    def create_state(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state_multi_precision(index, weight)

    def _reduce(self, index: Any, grad: Any) -> None:
        if isinstance(index, (tuple, list)):
            self._exchange(grad, [str(i) for i in index])
        else:
            self._exchange([grad], [str(index)])

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._reduce(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._reduce(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def set_learning_rate(self, lr: float) -> None:
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        self._optimizer.set_wd_mult(args_wd_mult)


class DistributedTrainer(mx.gluon.Trainer):
    """gluon's Trainer, with gradients averaged over all ranks in step() and allreduce_grads().

    step(batch_size) takes this rank's batch size.  optimizer: a name or an mxnet optimizer, not a DistributedOptimizer.
    prefix: put before the gradients' names, if there are two trainers.  num_groups: the number of groups of gradients that
    run together; 0: each as soon as it is ready.  A row_sparse gradient is made dense for sending.  With hvdrun --agreement,
    step() and update() compare the parameters between the ranks.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        compression: type[Compressor] = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn("DistributedTrainer averages the gradients itself: the optimizer inside is used", stacklevel=2)
            optimizer.rescale_grad /= optimizer._averaging
            optimizer = optimizer._optimizer
            del optimizer._hvd_averaging
        averaging = _averaging(gradient_predivide_factor, process_set)
        self._exchange = _Exchange(gradient_predivide_factor, num_groups, process_set, compression)
        self._prefix = prefix or ""
        self._comparison: Any = None
        super().__init__(params, optimizer, optimizer_params=optimizer_params, kvstore=None)
        self._scale *= averaging

    def _allreduce_grads(self) -> None:
        live = [(i, param) for i, param in enumerate(self._params) if param.grad_req != "null"]
        for param in (param for _, param in live):
            if len(param.list_ctx()) > 1:
                raise ValueError(f"parameter {param.name} is on {len(param.list_ctx())} devices: a rank has one device here")
        self._exchange([param.list_grad()[0] for _, param in live], [f"{self._prefix}{i}" for i, _ in live])

    def _update(self, ignore_stale_grad: bool = False) -> None:
        super()._update(ignore_stale_grad)
        if _environment.text("HVD_AGREEMENT") != "off":
            self._compare()

    def _compare(self) -> None:
        """--agreement: compares the parameters and their optimizer state between the ranks."""
        from hvd._agreement.comparison import Comparison
        from hvd._agreement.tree import leaves_of

        if self._comparison is None:  # names of equal parameters may differ between ranks
            self._comparison = Comparison(self._exchange.process_set, has_common_names=False)
        live = [(i, param) for i, param in enumerate(self._params) if param.grad_req != "null"]
        names, values = [f"parameter {param.name}" for _, param in live], [param.list_data()[0] for _, param in live]
        for i, param in live:
            keys, states = leaves_of(self._updaters[0].states.get(i))
            names += [f"optimizer state {key} of {param.name}" for key in keys]
            values += states
        self._comparison.step(names, values)
