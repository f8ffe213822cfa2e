"""Names that scripts import from horovod.tensorflow.util."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import tensorflow as tf

F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["refs_to_vars", "vars_to_refs"]


def _executing_eagerly() -> bool:
    return bool(tf.executing_eagerly())


def _make_subgraph(f: F) -> F:
    return tf.function(f)  # type: ignore[no-any-return]


def _cache(f: F) -> F:
    """Calls f once for the same arguments: once eagerly and once for graphs."""
    results: dict[Any, Any] = {}

    @wraps(f)
    def wrapper(*args: Any) -> Any:
        key = (args, _executing_eagerly())
        if key not in results:
            results[key] = f(*args)
        return results[key]

    return wrapper  # type: ignore[return-value]


def vars_to_refs(vars: Any) -> Any:
    """References to variables, which can be keys; a list becomes a tuple."""
    return tuple(map(vars_to_refs, vars)) if isinstance(vars, list) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """The variables of vars_to_refs."""
    return [refs_to_vars(ref) for ref in refs] if isinstance(refs, tuple) else refs.deref()
