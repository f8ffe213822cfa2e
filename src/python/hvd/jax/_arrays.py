"""JAX arrays outside jit: on a CPU the runtime reads them in place, and JAX adopts the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hvd._runtime.collectives import Collectives
from hvd._runtime.numpy_adapter import NumpyAdapter

collectives: Collectives[Any] = Collectives(NumpyAdapter())


def to_numpy(value: Any) -> np.ndarray[Any, Any]:
    """The values of a JAX array, a NumPy array or a Python number; read-only if that saves a copy."""
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        if getattr(value, "is_fully_addressable", True) is False:
            raise ValueError("an array that is spread over several processes cannot be exchanged: give this process's part")
        return np.asarray(value)
    if isinstance(value, (bool, int, float, complex)):
        return np.asarray(jnp.asarray(value))
    raise TypeError(f"a jax.Array is needed, not a {type(value).__name__} (jax.numpy.asarray makes one)")


def rows(value: Any) -> np.ndarray[Any, Any]:
    """to_numpy for gathering: a scalar is one row."""
    return np.atleast_1d(to_numpy(value))


def to_jax(array: np.ndarray[Any, Any], like: Any) -> jax.Array:
    """A result as a JAX array, on the device of its input."""
    if isinstance(like, jax.Array) and len(devices := like.devices()) == 1:
        out: jax.Array = jax.device_put(array, next(iter(devices)))
        return out
    return jnp.asarray(array)


def to_jax_all(arrays: Sequence[np.ndarray[Any, Any]], likes: Sequence[Any]) -> list[jax.Array]:
    """to_jax of each."""
    return [to_jax(array, like) for array, like in zip(arrays, likes)]
