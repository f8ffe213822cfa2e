"""HorovodEstimator: the estimator of the model's framework."""

from __future__ import annotations

from typing import Any


def HorovodEstimator(**given: Any) -> Any:
    """A TorchEstimator for a torch.nn.Module, a KerasEstimator for a keras.Model; each has its own parameters.

    Errors: ValueError for another kind of model.
    """
    model = given.get("model")
    roots = [kind.__module__.split(".")[0] for kind in type(model).__mro__]
    if "keras" in roots:  # a Keras model with the torch backend is also a torch module
        from hvd.spark.keras import KerasEstimator

        return KerasEstimator(**given)
    if "torch" in roots:
        from hvd.spark.torch import TorchEstimator

        return TorchEstimator(**given)
    raise ValueError(f"model is a {type(model).__name__}: it must be a torch.nn.Module or a keras.Model")
