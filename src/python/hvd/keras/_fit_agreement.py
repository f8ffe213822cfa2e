"""--agreement inside fit(): compares the trainable variables, and the variables of a DistributedOptimizer.

Variables that are not trained, such as BatchNorm's statistics, may differ between ranks, and are not compared.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from hvd import _native
from hvd._agreement.comparison import Comparison
from hvd.keras import _backend

__all__ = ["after_batch", "after_training"]


_REFRESH = 64  # steps until the list of variables is made anew, which takes long


class _Variable(NamedTuple):
    """A variable that is compared.  state, at: its list in fit()'s state on JAX, and its place there."""

    name: str
    variable: Any
    state: str
    at: int


class _OfModel(Comparison):
    """The comparison of one model, over several calls of fit()."""

    def __init__(self, model: Any, optimizer: Any, local: set[int]) -> None:
        """local: variables that stay on their rank, by id()."""
        self._model = ref(model)
        self.optimizer = ref(optimizer)
        self._local = local
        self._owner: Any = None  # the first callback of this fit(), by a weak reference: only that one compares
        self._params: Any = None  # the object that all callbacks of this fit() share
        self._list: list[_Variable] = []
        # The names of equal variables differ, for example if one rank has made a model for itself before.
        super().__init__(_reduction(optimizer).process_set, has_common_names=False)

    def belongs_to(self, callback: Any) -> bool:
        """Returns whether this callback compares in this fit()."""
        if self._params is not callback.params or self._owner is None or self._owner() is None:
            self._params, self._owner = callback.params, ref(callback)
        return self._owner() is callback

    def after_batch(self, model: Any) -> None:
        """A step."""
        if not self._list or self._step % _REFRESH == 0:
            self._list = _compared(model, self._local)
        state = getattr(model, "_jax_state", None)
        if state and not getattr(model, "_jax_state_synced", True):  # fit() brings the variables up to date later
            values = [state[one.state][one.at] for one in self._list]
        else:
            values = [one.variable for one in self._list]
        self.step([one.name for one in self._list], values)

    def _forget(self) -> None:
        super()._forget()
        self._list = []

    def _overwrite(self, source: int) -> bool:
        model = self._model()
        if model is not None and hasattr(model, "jax_state_sync"):
            model.jax_state_sync()  # fit() takes the variables again for the next step
        self._values = [one.variable for one in self._list]
        return super()._overwrite(source)


_of_models: WeakKeyDictionary[Any, _OfModel] = WeakKeyDictionary()


def _reduction(optimizer: Any) -> Any:
    """The settings of our optimizer, also inside a LossScaleOptimizer; None: it is another's."""
    for one in (optimizer, getattr(optimizer, "inner_optimizer", None)):
        found = getattr(one, "_hvd_reduction", None)
        if found is not None:
            return found
    return None


def _compared(model: Any, local: set[int]) -> list[_Variable]:
    """The variables that are compared.  local: variables that stay on their rank, by id()."""
    optimizer = model.optimizer
    kept = local | _reduction(optimizer).local
    trained = list(model.trainable_variables)
    found = [
        _Variable(f"parameter {_name(v)}", v, "trainable_variables", at) for at, v in enumerate(trained) if id(v) not in kept
    ]
    if len(found) < len(trained):
        return found  # the optimizer's state of the others differs too
    of_optimizer = optimizer.variables
    sums = {id(v) for v in getattr(optimizer, "_accumulated_gradients", ())}  # each rank adds up its own gradients
    states = enumerate(of_optimizer() if callable(of_optimizer) else of_optimizer)
    return found + [
        _Variable(f"optimizer state {_name(v)}", v, "optimizer_variables", at) for at, v in states if id(v) not in sums
    ]


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name)


def after_batch(callback: Any, local: set[int]) -> None:
    """Compares the callback's model after a step of fit(), on all ranks.  local: variables that stay on their rank, by id().

    Errors, with --agreement stop: DivergedError.
    """
    model = callback.model
    optimizer = model.optimizer
    reduction = _reduction(optimizer)
    if reduction is None or reduction.op == _native.Adasum or _backend.in_graph():
        return  # ranks of other optimizers may differ; Adasum's state differs by design
    of_model = _of_models.get(model)
    if of_model is None or of_model.optimizer() is not optimizer:
        of_model = _of_models[model] = _OfModel(model, optimizer, local)
    if of_model.belongs_to(callback):
        of_model.after_batch(model)


def after_training(callback: Any) -> None:
    """Reports the comparison of the last step."""
    of_model = _of_models.get(callback.model)
    if of_model is not None and of_model.belongs_to(callback):
        of_model.finish()
