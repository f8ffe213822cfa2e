"""The parts of a Lightning estimator's Trainer: strategy, data, callbacks, and a module for plain torch models.

pl: the user's package of Lightning, lightning.pytorch or pytorch_lightning; their classes are not the same.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from hvd.spark.ml.readers import DataModuleReader, ShardReader
from hvd.spark.ml.torch_training import label_for, shaped, weighted
from hvd.spark.ml.training import Training, of_rows


def strategy_of(pl: Any, hvd: Any, device: Any, compression: Any) -> Any:
    """DDP on this rank's device, with the runtime's ranks; learning rates are multiplied by their number."""
    fabric = "lightning.fabric" if pl.__name__.startswith("lightning.") else "lightning_fabric"
    environments: Any = import_module(f"{fabric}.plugins.environments")

    class Ranks(environments.LightningEnvironment):  # type: ignore[misc]
        creates_processes_externally = True

        def world_size(self) -> int:
            return int(hvd.size())

        def global_rank(self) -> int:
            return int(hvd.rank())

        def local_rank(self) -> int:
            return int(hvd.local_rank())

        def node_rank(self) -> int:
            return int(hvd.cross_rank())

        def set_world_size(self, size: int) -> None:
            pass

        def set_global_rank(self, rank: int) -> None:
            pass

    class Strategy(pl.strategies.DDPStrategy):  # type: ignore[misc]
        root_device = device

        def setup_optimizers(self, trainer: Any) -> None:
            super().setup_optimizers(trainer)
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] *= hvd.size()

        def determine_ddp_device_ids(self) -> Any:
            return None if device.type == "cpu" else [device.index]

    hook = {}
    if compression is not None:
        hook = {"ddp_comm_hook": hvd.ddp_comm_hook, "ddp_comm_state": hvd.DDPSettings(compression)}
    return Strategy(cluster_environment=Ranks(), process_group_backend="hvd", **hook)


class _Loader:
    """Batches of an epoch as dictionaries of tensors, each time it is iterated."""

    def __init__(self, batches: Any, steps: int, shapes: dict[str, Any]) -> None:
        self.batches, self.steps, self.shapes = batches, steps, shapes

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        return map(self._tensors, self.batches())

    def _tensors(self, batch: Any) -> Any:
        import torch

        if not isinstance(batch, dict):
            return batch
        found = {}
        for name, value in batch.items():
            tensor = torch.as_tensor(value)
            tensor = tensor.float() if tensor.is_floating_point() else tensor
            shape = self.shapes.get(name)
            found[name] = tensor if shape is None else tensor.reshape(of_rows(shape))
        return found


def data_of(pl: Any, training: Training, hvd: Any) -> Any:
    """The data for Trainer.fit: the user's LightningDataModule, or one that reads this rank's rows."""
    given, settings = training.settings["data_module"], training.settings
    reader: Any = ShardReader(training, hvd)
    if given is not None:
        reader = DataModuleReader(
            training,
            hvd,
            num_reader_epochs=settings["loader_num_epochs"],
            transformation=settings["transformation_fn"],
            reader_worker_count=settings["train_reader_num_workers"],
            debug_data_loader=settings["debug_data_loader"],
            train_async_data_loader_queue_size=settings["train_async_data_loader_queue_size"],
            val_async_data_loader_queue_size=settings["val_async_data_loader_queue_size"],
            seed=settings["random_seed"],
        )
        if isinstance(reader.module, pl.LightningDataModule):
            return reader.module
    shapes = dict(zip(training.features, settings["input_shapes"] or ()))
    shapes |= dict(zip(training.labels, settings["label_shapes"] or ()))

    class Rows(pl.LightningDataModule):  # type: ignore[misc]
        epoch = 0

        def setup(self, stage: str) -> None:
            reader.__enter__()
            self.epoch = self.trainer.current_epoch

        def teardown(self, stage: str) -> None:
            reader.__exit__(None, None, None)

        def _train(self) -> Iterator[Any]:
            self.epoch += 1
            return iter(reader.train(self.epoch - 1))

        def train_dataloader(self) -> Any:
            return _Loader(self._train, reader.steps, shapes)

        def val_dataloader(self) -> Any:
            return _Loader(reader.validate, reader.val_steps, shapes) if reader.val_steps else []

    return Rows()


def callbacks_of(pl: Any, training: Training, hvd: Any, folder: pathlib.Path, name: str) -> tuple[list[Any], Any]:
    """The user's callbacks and ours; and the user's ModelCheckpoint, whose best model is the result, or None."""
    callbacks = list(training.settings["callbacks"] or ())
    theirs = next((one for one in callbacks if isinstance(one, pl.callbacks.ModelCheckpoint)), None)
    if theirs is not None:
        theirs.dirpath = str(folder)
        theirs.filename = theirs.filename or name

    class Checks(pl.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            if loss is not None and not math.isfinite(float(loss)):
                raise ValueError(f"the loss of step {trainer.global_step} is {float(loss)} (terminate_on_nan)")

    class Copies(pl.Callback):  # type: ignore[misc]
        """Rank 0 copies each epoch's checkpoint and logs into the store.  All ranks take part in making a checkpoint."""

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            trainer.save_checkpoint(folder / f"{name}.ckpt")
            if hvd.rank() == 0:
                store, run = training.store, training.run_id
                store.write(store.get_checkpoint_path(run), (folder / f"{name}.ckpt").read_bytes())
                for path in (folder / "logs").rglob("*"):
                    if path.is_file():
                        store.write(f"{store.get_logs_path(run)}/{path.relative_to(folder / 'logs')}", path.read_bytes())

    if training.settings["terminate_on_nan"]:
        callbacks.append(Checks())
    if training.store.saving_runs():
        callbacks.append(Copies())
    if theirs is None:
        callbacks.append(_no_checkpoints(pl, folder))
    return callbacks, theirs


def _no_checkpoints(pl: Any, folder: pathlib.Path) -> Any:
    """Replaces the Trainer's own ModelCheckpoint, which would write every epoch a second time."""
    return pl.callbacks.ModelCheckpoint(dirpath=str(folder / "own"), save_top_k=0)


def plain_module(pl: Any, training: Training, size: int) -> Any:
    """A LightningModule around a torch.nn.Module, its optimizer and losses."""
    work, settings = training.work, training.settings
    if work["losses"] is None:
        from hvd.spark.ml.torch_training import constructed

        work["losses"] = [constructed(make, work["model"]) for make in work["loss_constructors"]]
    weights = settings["loss_weights"] or [1 / len(work["losses"])] * len(work["losses"])
    label_shapes = settings["label_shapes"] or [None] * len(work["losses"])

    class Plain(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = work["model"]

        def _loss(self, batch: Any) -> Any:
            import torch

            outputs = self.model(*shaped([batch[name] for name in training.features], settings["input_shapes"]))
            outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
            rows = batch[training.weight].float() if training.weight else None
            terms = []
            for name, output, loss, weight, shape in zip(training.labels, outputs, work["losses"], weights, label_shapes):
                label = label_for(torch, output, batch[name], loss, shape)
                terms.append(weight * weighted(loss, output, label, rows))
            return sum(terms[1:], terms[0])

        def training_step(self, batch: Any, index: int) -> Any:
            loss = self._loss(batch)
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", self._loss(batch), sync_dist=size > 1)

        def configure_optimizers(self) -> Any:
            return work["optimizer"]

    return Plain()
