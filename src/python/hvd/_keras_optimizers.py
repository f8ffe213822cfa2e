"""The variables of Keras' optimizers: of Keras 3, and of both kinds that Keras 2 has.  No import of Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["build", "forget_passes", "variables_of"]


def build(optimizer: Any, variables: Sequence[Any]) -> bool:
    """Makes the optimizer's own variables for these ones, if it lacks them.  Returns False if that is not possible yet.

    Without this call Keras 2 makes them in the first step.
    """
    make = getattr(optimizer, "build", None) or getattr(optimizer, "_create_all_weights", None)  # Keras 2's older kind
    if make is None:
        return False
    if not getattr(optimizer, "built", False):
        make(variables)
    return True


def variables_of(optimizer: Any) -> list[Any]:
    """Returns the optimizer's present variables.  The learning rate is included if it is a variable, which Keras 2 stores
    separately."""
    found = getattr(optimizer, "variables", [])
    found = list(found() if callable(found) else found)
    rate = getattr(optimizer, "learning_rate", None)
    return found if not hasattr(rate, "assign") or any(v is rate for v in found) else [*found, rate]


def forget_passes(optimizer: Any) -> None:
    """Drops the gradients that an optimizer of hvd with backward_passes_per_step has added up since its last step.

    After a restore, these sums belong to other weights, and a new rank has none.
    """
    for one in (optimizer, getattr(optimizer, "inner_optimizer", None)):
        for name in ("_hvd_passes", "_hvd_aggregation"):
            passes = getattr(one, name, None)
            if passes is not None:
                passes.forget()
