"""hvd.spark.keras: a Keras model as a stage of a Spark ML pipeline.  Works with Keras 3 on any backend, and tf_keras."""

from __future__ import annotations

from typing import Any

from hvd.spark.ml.defaults import LIGHTNING
from hvd.spark.ml.estimator import HorovodEstimatorBase, HorovodModelBase
from hvd.spark.ml.training import Training

__all__ = ["KerasEstimator", "KerasModel"]


class KerasEstimator(HorovodEstimatorBase):
    """Trains a keras.Model, or a tf.keras.Model if that is Keras 2.

    optimizer: a keras.optimizers.Optimizer or its name, by default that of a compiled model.  Its learning rate is that of
    one rank, and is multiplied by their number.  loss and metrics as for compile().  Each feature column is one input.
    custom_objects: {name: class} of your own layers.  The other parameters: hvd.spark.ml.defaults.
    """

    NOT_MINE = ("loss_constructors", "train_minibatch_fn", *LIGHTNING)

    def _work(self) -> Any:
        from hvd._keras_optimizers import variables_of
        from hvd.spark.ml.keras_kinds import array, package_of
        from hvd.spark.ml.keras_training import pack

        model = self.value("model")
        keras = package_of(model)
        if not model.built:
            raise ValueError("the model is not built yet: give it a keras.Input, or call build()")
        given = self.value("optimizer") or getattr(model, "optimizer", None)
        if given is None:
            raise ValueError("KerasEstimator needs an optimizer, or a compiled model, which has one")
        for what, specs in (("feature", getattr(model, "inputs", None)), ("label", getattr(model, "outputs", None))):
            names = self.value(f"{what}_cols")
            if specs and len(specs) != len(names):
                kind = "inputs" if what == "feature" else "outputs"
                raise ValueError(f"{len(names)} {what} columns for a model with {len(specs)} {kind}: give one for each")
        optimizer = keras.optimizers.get(given)
        built = getattr(optimizer, "built", True)  # Keras 2's optimizers have no such flag
        variables = [array(v) for v in variables_of(optimizer)] if built else None
        return {
            "model": pack(model),
            "optimizer": keras.optimizers.serialize(optimizer),
            "optimizer_state": variables,
            "loss": self.value("loss"),
            "metrics": self.value("metrics"),
        }

    def _environment(self) -> dict[str, str]:
        from hvd.spark.ml.keras_kinds import environment_for, package_of

        return environment_for(package_of(self.value("model")))

    def _train_function(self) -> Any:
        from hvd.spark.ml.keras_training import train

        return train

    def _model_of(self, result: dict[str, Any], training: Training) -> Any:
        from hvd.spark.ml.keras_kinds import package_of
        from hvd.spark.ml.keras_training import compiled, restore, unpack

        custom = self.value("custom_objects")
        keras = package_of(self.value("model"))
        model = unpack(training.work["model"], custom, keras.__name__)
        model.set_weights(result["weights"])
        restore(compiled(model, training, keras), model, result["optimizer"])
        extra = {"widths": result["widths"], "input_shapes": self.value("input_shapes"), "custom_objects": custom}
        extra |= {"backend": keras.backend.backend(), "package": keras.__name__}
        return KerasModel(
            model, training.features, training.labels, self.value("output_cols"), result["history"], training.run_id, extra
        )


class KerasModel(HorovodModelBase):
    """The result of KerasEstimator.fit."""

    def _packed(self) -> bytes:
        from hvd.spark.ml.keras_training import pack

        return pack(self._model)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> KerasModel:
        """The model of an earlier state()."""
        from hvd.spark.ml.keras_training import unpack

        keys = ("features", "labels", "outputs", "history", "run_id", "extra")
        extra = state["extra"]
        model = unpack(state["packed"], extra["custom_objects"], extra.get("package", "keras"))
        return cls(model, *(state[key] for key in keys))

    @staticmethod
    def _predictor(packed: bytes, extra: dict[str, Any]) -> Any:
        from hvd._runtime import environment as _environment

        _environment.whole.setdefault("KERAS_BACKEND", extra["backend"])
        from hvd.spark.ml.keras_training import shaped, unpack

        model = unpack(packed, extra["custom_objects"], extra.get("package", "keras"))

        def forward(inputs: list[Any]) -> list[Any]:
            given = shaped(inputs, extra["input_shapes"], model)
            outputs = model.predict(given if len(given) > 1 else given[0], verbose=0)
            return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]

        return forward
