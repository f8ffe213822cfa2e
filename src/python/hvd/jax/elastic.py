"""Elastic states for JAX: any tree of arrays is a value of an ObjectState.  For the kinds of recovery see hvd.elastic."""

from __future__ import annotations

import functools
from typing import Any, Callable

from hvd import elastic as _elastic
from hvd.elastic import GlobalBatch, GlobalBatches, ObjectState
from hvd.jax._library import forget_failures, told_by_jax

__all__ = ["GlobalBatch", "GlobalBatches", "ObjectState", "run"]


def run(func: Callable[..., Any] | None = None, *, keep_global_batch: bool = False) -> Any:
    """hvd.elastic.run, which also recognises our errors in the form in which compiled functions raise them."""
    if func is None:
        return functools.partial(run, keep_global_batch=keep_global_batch)
    # forget_failures: the rank that failed first may also have a running step
    translated = _elastic.translating(func, (RuntimeError,), told_by_jax, forget_failures)
    return _elastic.run(translated, keep_global_batch=keep_global_batch)
