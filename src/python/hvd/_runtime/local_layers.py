"""Layers whose gradients stay on their rank."""

from __future__ import annotations

from typing import Any

__all__ = ["local_variables"]


def local_variables(local_layers: Any) -> list[Any]:
    """The trainable variables of a Keras layer, or of a list of them.  ValueError for anything but layers."""
    layers = [] if local_layers is None else local_layers
    layers = layers if isinstance(layers, (list, tuple, set)) else [layers]
    for layer in layers:
        if not hasattr(layer, "trainable_weights"):
            raise ValueError(f"local_layers has a {type(layer).__name__}: it must be Keras layers")
    return [variable for layer in layers for variable in layer.trainable_weights]
