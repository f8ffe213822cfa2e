"""The requests of the tests of LightningEstimator for the driver process."""

from __future__ import annotations

import os
from typing import Any


def _rows(spark: Any) -> Any:
    from pyspark.ml.linalg import DenseVector

    rows = [(DenseVector([i % 2, i // 2 % 2]), float(i % 2 ^ i // 2 % 2), 1.0) for i in range(48)]
    return spark.createDataFrame(rows, ["features", "y", "weight"])


def _network() -> Any:
    import torch

    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1), torch.nn.Sigmoid())


def _module(package: str) -> Any:
    """Horovod's example of a LightningModule: exclusive or."""
    from importlib import import_module

    import torch

    pl: Any = import_module(package)

    class Xor(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = _network()

        def forward(self, features: Any) -> Any:
            return self.net(features.float())

        def _loss(self, batch: Any) -> Any:
            return torch.nn.functional.binary_cross_entropy(self(batch["features"]), batch["y"].unsqueeze(1))

        def training_step(self, batch: Any, index: int) -> Any:
            loss = self._loss(batch)
            self.log("train_loss", loss)
            return loss * float(os.environ.get("CHECK_FACTOR", "1"))

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", self._loss(batch), sync_dist=True)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.05)

    return Xor()


def _estimator(folder: str, model: Any, **given: Any) -> Any:
    from horovod.spark.lightning import TorchEstimator

    settings = {
        "store": f"{folder}/store", "model": model, "feature_cols": ["features"], "label_cols": ["y"], "batch_size": 4,
        "epochs": 2, "verbose": 0, "num_proc": 2, "random_seed": 3, "input_shapes": [[-1, 2]],
    }  # fmt: skip
    return TorchEstimator(**{**settings, **given})


def lightning_module(spark: Any, folder: str, resumes: bool) -> Any:
    """Two epochs with a validation and a callback; save, load, predict.  resumes: then the same run with four."""
    import lightning.pytorch as pl
    from pyspark.ml import PipelineModel

    df = _rows(spark)

    class Watch(pl.Callback):
        def on_train_end(self, trainer: Any, module: Any) -> None:
            with open(f"{folder}/rank{trainer.global_rank}", "a") as file:
                rate = trainer.optimizers[0].param_groups[0]["lr"]
                file.write(f"{trainer.world_size} {trainer.current_epoch} {rate} {trainer.global_step}\n")

    common = {"validation": 0.25, "run_id": "first", "callbacks": [Watch()], "trainer_args": {"gradient_clip_val": 5.0}}
    for epochs in (2, 4) if resumes else (2,):
        fitted = _estimator(folder, _module("lightning.pytorch"), epochs=epochs, **common).fit(df)
    PipelineModel([fitted]).write().overwrite().save(f"{folder}/saved")
    found = PipelineModel.load(f"{folder}/saved").transform(df).select("y", "y__output").collect()
    return {
        "watched": {rank: open(f"{folder}/rank{rank}").read().split("\n")[:-1] for rank in (0, 1)},
        "history": sorted(fitted.getHistory()),
        "logs": any(
            "metrics.csv" in files or any("tfevents" in f for f in files) for _, _, files in os.walk(f"{folder}/store")
        ),
        "error": sum(abs(row["y"] - row["y__output"]) for row in found) / len(found),
    }


def lightning_plain(spark: Any, folder: str) -> Any:
    """A plain module with weights, by pytorch_lightning's package; a ModelCheckpoint's best model."""
    import lightning.pytorch as pl
    import torch

    import hvd.torch as hvd

    model = _network()
    given = {
        "optimizer": torch.optim.Adam(model.parameters(), lr=0.05), "loss": torch.nn.functional.binary_cross_entropy,
        "sample_weight_col": "weight", "gradient_compression": hvd.Compression.fp16, "validation": 0.25,
    }  # fmt: skip
    best = pl.callbacks.ModelCheckpoint(monitor="val_loss")
    fitted = _estimator(folder, model, epochs=3, callbacks=[best], **given).fit(_rows(spark))
    first = fitted.transform(_rows(spark)).select("y__output").first()[0]
    return {"history": sorted(fitted.getHistory()), "first": first, "same": float(fitted.getModel()(torch.zeros(1, 2)))}


def lightning_refused(spark: Any, folder: str, trains: bool) -> Any:
    """Parameters that a LightningModule replaces, and a loss that is no number."""
    import torch

    def said(**given: Any) -> str:
        try:
            _estimator(folder, _module("pytorch_lightning"), **given).fit(_rows(spark))
        except Exception as error:
            return str(error)
        return "nothing"

    return {
        "loss": said(loss=torch.nn.MSELoss()),
        "minibatch": said(train_minibatch_fn=print),
        "nan": said(terminate_on_nan=True, backend_env={"CHECK_FACTOR": "nan"}) if trains else "",
    }
