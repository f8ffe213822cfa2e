"""hvd.spark.lightning: a module of Lightning 2 as a stage of a Spark ML pipeline."""

from __future__ import annotations

import io
from typing import Any

from hvd.spark.ml.training import Training
from hvd.spark.torch import TorchEstimator, TorchModel

__all__ = ["LightningEstimator", "LightningModel"]

_OF_PLAIN_MODULES = ("optimizer", "loss", "loss_constructors", "loss_weights", "metrics", "sample_weight_col")


class LightningEstimator(TorchEstimator):
    """Trains a LightningModule, of lightning or pytorch_lightning, with a Trainer on each rank.

    A step gets a batch: a dictionary of tensors by column.  The learning rate is that of one rank, and is multiplied by their
    number.  A plain torch.nn.Module is trained likewise, with an optimizer and a loss, as by a TorchEstimator.
    trainer_args: further arguments of the Trainer.  callbacks: Lightning's.  data_module: a class of a LightningDataModule,
    or of hvd.spark.ml.datamodule.DataModule.  The other parameters: hvd.spark.ml.defaults.
    """

    NOT_MINE = ("checkpoint_callback", "custom_objects", "train_minibatch_fn")

    def _is_module(self) -> bool:
        from hvd.spark.ml.lightning_training import package_of

        return package_of(self.value("model")) is not None

    def _needs(self) -> tuple[str, ...]:
        needs = super()._needs()
        return tuple(name for name in needs if name != "loss") if self._is_module() else needs

    def _work(self) -> Any:
        if not self._is_module():
            work = super()._work()
            if any(work["metrics"]):
                raise ValueError("metrics: a LightningEstimator has none; log them in a LightningModule (self.log)")
            return work
        if given := [name for name in _OF_PLAIN_MODULES if self.isSet(self.getParam(name))]:
            raise ValueError(
                f"{', '.join(given)}: cannot be given with a LightningModule, whose own steps and optimizers count"
            )
        return {"model": self.value("model")}

    def _train_function(self) -> Any:
        from hvd.spark.ml.lightning_training import train

        return train

    def _read_checkpoint(self, run_id: str) -> bytes | None:
        """The run's last checkpoint."""
        store = self._store()
        path = store.get_checkpoint_path(run_id)
        return store.read(path) if store.exists(path) else None

    def _train(self, training: Training) -> Any:
        training.work["checkpoint"] = self._read_checkpoint(training.run_id)
        return super()._train(training)

    def _model_of(self, result: dict[str, Any], training: Training) -> Any:
        import copy

        import torch

        model = copy.deepcopy(training.work["model"])
        model.load_state_dict(torch.load(io.BytesIO(result["state"]), map_location="cpu", weights_only=True))
        model.eval()
        extra = {"widths": result["widths"], "input_shapes": self.value("input_shapes")}
        names = training.features, training.labels, self.value("output_cols")
        return LightningModel(model, *names, result["history"], training.run_id, extra, None)


class LightningModel(TorchModel):
    """The result of LightningEstimator.fit.  Its history is the Trainer's logged_metrics after the last epoch.

    The module's own forward() predicts: each feature column is one argument.
    """
