"""The tensors of nested dicts, lists and tuples, or of any tree of JAX, with their names."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["leaves_of"]


def leaves_of(tree: Any) -> tuple[list[str], list[Any]]:
    """Names such as "layers.0.weight", and the leaves.  The order is the same on all ranks."""
    jax = sys.modules.get("jax")
    if jax is None or not hasattr(jax, "tree_util"):
        pairs = list(_walk(tree, ()))
        return [name for name, _ in pairs], [leaf for _, leaf in pairs]
    leaves, structure = jax.tree_util.tree_flatten(tree)
    return _jax_names(structure), leaves


@functools.lru_cache(maxsize=64)
def _jax_names(structure: Any) -> list[str]:
    jax = sys.modules["jax"]
    places = jax.tree_util.tree_unflatten(structure, range(structure.num_leaves))
    with_paths, _ = jax.tree_util.tree_flatten_with_path(places)
    return [_joined(map(_word, path)) for path, _ in with_paths]


def _word(key: Any) -> str:
    for name in ("key", "idx", "name"):
        if hasattr(key, name):
            return str(getattr(key, name))
    return str(key)


def _joined(words: Any) -> str:
    return ".".join(words) or "tensor"


def _walk(tree: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for key in sorted(tree, key=str):
            yield from _walk(tree[key], (*path, str(key)))
    elif isinstance(tree, (list, tuple)):
        words = getattr(tree, "_fields", None) or map(str, range(len(tree)))
        for word, one in zip(words, tree):
            yield from _walk(one, (*path, word))
    elif tree is not None:
        yield _joined(path), tree
