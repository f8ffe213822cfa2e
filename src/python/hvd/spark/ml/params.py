"""The estimators' parameters: one table, Horovod's names; set and get methods come from it."""

from __future__ import annotations

from typing import Any

from pyspark.ml.param import Param, Params

# name: (default, what it is)
PARAMS: dict[str, tuple[Any, str]] = {
    "num_proc": (None, "ranks; None takes every slot"),
    "backend": (None, "where the ranks run; by default a SparkBackend with num_proc"),
    "backend_env": (None, "environment variables for the ranks"),
    "store": (None, "a Store, or its path"),
    "model": (None, "the model to train"),
    "optimizer": (None, "its optimizer"),
    "loss": (None, "a loss, or one for each label column"),
    "loss_constructors": (None, "torch: functions that make the losses, where there is no loss"),
    "loss_weights": (None, "weights of several losses"),
    "metrics": (None, "metrics to keep for every epoch"),
    "sample_weight_col": (None, "a column with each row's weight"),
    "feature_cols": (None, "columns that go into the model, one input each"),
    "label_cols": (None, "columns that the model shall predict"),
    "output_cols": (None, "names of the predictions' columns; LABEL__output by default"),
    "validation": (None, "a part of the rows (0 to 1), or a column that is true for validation rows"),
    "callbacks": (None, "callbacks of Keras, or functions (epoch, model, logs) for torch"),
    "checkpoint_callback": (None, "Keras: a BestModelCheckpoint; the model returned is the best one that it kept"),
    "batch_size": (32, "rows a rank takes at a step"),
    "val_batch_size": (None, "likewise in validation; batch_size by default"),
    "epochs": (1, "times through the table"),
    "train_steps_per_epoch": (None, "steps of an epoch; all rows by default"),
    "validation_steps_per_epoch": (None, "steps of a validation; all rows by default"),
    "shuffle": (True, "draw a new order of a rank's rows for every epoch"),
    "shuffle_buffer_size": (None, "rows a rank holds to shuffle them, and at most; 256 MiB by default"),
    "random_seed": (None, "makes training repeatable"),
    "transformation_fn": (None, "a function from a pandas table to one, called for each piece of a rank's rows"),
    "input_shapes": (None, "shape of each feature column's input, -1 for the rows"),
    "run_id": (None, "name of the run; a run with a checkpoint goes on from it"),
    "verbose": (1, "0 keeps quiet"),
    "gradient_compression": (None, "hvd.Compression.fp16, …"),
    "backward_passes_per_step": (1, "batches whose gradients are added before they are exchanged"),
    "custom_objects": (None, "Keras' names of classes of your own"),
    "rows_per_group": (None, "rows in a row group of the Parquet files"),
}
# Those that may be None, but not less than 1.
COUNTS = (
    "val_batch_size", "train_steps_per_epoch", "validation_steps_per_epoch", "shuffle_buffer_size", "rows_per_group",
)  # fmt: skip
# Horovod has them; here they change nothing, since each rank reads its rows with pyarrow, in its own process.
ACCEPTED = (
    "partitions_per_process", "train_reader_num_workers", "val_reader_num_workers",
    "reader_pool_type", "label_shapes", "inmemory_cache_all", "use_gpu", "mp_start_method", "train_minibatch_fn",
    "terminate_on_nan", "profiler", "debug_data_loader", "train_async_data_loader_queue_size",
    "val_async_data_loader_queue_size", "num_workers", "data_module", "loader_num_epochs", "trainer_args",
    "continuous_cols", "categorical_cols", "compress_sparse_cols", "transformation_edit_fields",
    "transformation_removed_fields",
)  # fmt: skip


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


class EstimatorParams(Params):  # type: ignore[misc]
    """Parameters as attributes of the class, with setBatchSize(…) and getBatchSize() for each."""

    def _take(self, given: dict[str, Any]) -> None:
        unknown = [name for name in given if name not in PARAMS and name not in ACCEPTED]
        if unknown:
            raise TypeError(f"unknown parameter {', '.join(unknown)}; there are {', '.join(PARAMS)}")
        self._setDefault(**{name: default for name, (default, _) in PARAMS.items()}, **dict.fromkeys(ACCEPTED))
        self._set(**{name: value for name, value in given.items() if value is not None})

    def value(self, name: str) -> Any:
        """What is set, else the default."""
        return self.getOrDefault(self.getParam(name))


def _add(name: str, text: str) -> None:
    setattr(EstimatorParams, name, Param(Params._dummy(), name, text))  # type: ignore[no-untyped-call]

    def put(self: Any, value: Any) -> Any:
        return self._set(**{name: value})

    def get(self: Any) -> Any:
        return self.value(name)

    setattr(EstimatorParams, f"set{_camel(name)}", put)
    setattr(EstimatorParams, f"get{_camel(name)}", get)


for _name, (_default, _text) in PARAMS.items():
    _add(_name, _text)
for _name in ACCEPTED:
    _add(_name, "accepted as in Horovod; changes nothing")

__all__ = ["ACCEPTED", "COUNTS", "PARAMS", "EstimatorParams"]
