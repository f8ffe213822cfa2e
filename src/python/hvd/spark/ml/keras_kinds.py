"""Differences between the two Keras packages: keras, and tf_keras, which is Keras 2 on a current TensorFlow."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy

from hvd._keras_package import LEGACY

__all__ = ["array", "environment_for", "package_of", "schedule_of"]


def package_of(model: Any) -> Any:
    """The package of a model.  ValueError for anything but Keras models."""
    for name in ("keras", "tf_keras"):
        package = sys.modules.get(name)  # the model's own import has loaded it
        if package is not None and isinstance(model, package.Model):
            return package
    if "keras" not in sys.modules:
        importlib.import_module("keras")
    raise ValueError(f"model is a {type(model).__name__}, not a keras.Model")


def environment_for(package: Any) -> dict[str, str]:
    """Variables that select the same Keras in other processes."""
    return {"KERAS_BACKEND": package.backend.backend(), LEGACY: "1" if package.__name__ == "tf_keras" else "0"}


def array(value: Any) -> numpy.ndarray[Any, Any]:
    """A variable, a tensor or a number as an array."""
    convert = getattr(sys.modules.get("keras"), "ops", None)
    if hasattr(value, "numpy") and not hasattr(value, "requires_grad"):
        return numpy.asarray(value.numpy())
    return numpy.asarray(convert.convert_to_numpy(value) if convert else value)


def schedule_of(optimizer: Any, package: Any) -> Any:
    """Returns the optimizer's learning rate if it is a schedule, else None."""
    rate = getattr(optimizer, "_learning_rate", None)
    rate = optimizer.learning_rate if rate is None else rate
    return rate if isinstance(rate, package.optimizers.schedules.LearningRateSchedule) else None
