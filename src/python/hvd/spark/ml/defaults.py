"""The estimators' parameters: one table, Horovod's names.  No pyspark here."""

from __future__ import annotations

from typing import Any

# name: (default, description)
PARAMS: dict[str, tuple[Any, str]] = {
    "num_proc": (None, "ranks; None takes every slot"),
    "backend": (None, "where the ranks run; by default a SparkBackend with num_proc"),
    "backend_env": (None, "environment variables for the ranks"),
    "store": (None, "a Store, or its path"),
    "model": (None, "the model to train"),
    "optimizer": (None, "its optimizer"),
    "loss": (None, "a loss, or one for each label column"),
    "loss_constructors": (None, "torch: functions that make the losses on each rank, where there is no loss"),
    "loss_weights": (None, "weights of several losses; torch: equal ones, of sum 1, by default"),
    "metrics": (None, "metrics to keep for every epoch; torch: groups, a function for all labels or one for each"),
    "sample_weight_col": (None, "a column of weights: each row's loss is multiplied by its own, and their mean taken"),
    "feature_cols": (None, "columns that go into the model, one input each"),
    "label_cols": (None, "columns that the model shall predict"),
    "output_cols": (None, "names of the predictions' columns; LABEL__output by default"),
    "validation": (None, "a part of the rows (0 to 1), or a column that is true for validation rows"),
    "label_shapes": (None, "shape of each label column; that of the model's output by default"),
    "callbacks": (None, "callbacks of Keras or Lightning, or functions (epoch, model, logs) for torch"),
    "checkpoint_callback": (None, "Keras: a BestModelCheckpoint; the model returned is the best one that it kept"),
    "batch_size": (32, "rows a rank takes at a step"),
    "val_batch_size": (None, "likewise in validation; batch_size by default"),
    "epochs": (1, "times through the table"),
    "train_steps_per_epoch": (None, "steps of an epoch; all rows by default"),
    "validation_steps_per_epoch": (None, "steps of a validation; all rows by default"),
    "shuffle": (True, "draw a new order of a rank's rows for every epoch"),
    "shuffle_buffer_size": (None, "rows a rank holds to shuffle them, and at most; 0: no shuffling; 256 MiB by default"),
    "random_seed": (None, "makes training repeatable"),
    "transformation_fn": (None, "a function from a pandas table to one, called for each piece of a rank's rows"),
    "input_shapes": (None, "shape of each feature column's input, -1 for the rows; without -1: of one row"),
    "train_minibatch_fn": (None, "torch: does a batch's forward and backward pass, in place of the estimator"),
    "data_module": (None, "a subclass of DataModule that reads the tables, in place of the estimator"),
    "continuous_cols": (None, "for the data_module"),
    "categorical_cols": (None, "for the data_module"),
    "use_gpu": (True, "train on the GPUs that the ranks have"),
    "mp_start_method": (None, "how Python's multiprocessing starts processes on the ranks"),
    "run_id": (None, "name of the run; a run with a checkpoint goes on from it"),
    "verbose": (1, "0 keeps quiet"),
    "gradient_compression": (None, "hvd.Compression.fp16, …"),
    "backward_passes_per_step": (1, "batches whose mean gradient makes a step"),
    "custom_objects": (None, "Keras' names of classes of your own"),
    "logger": (None, "Lightning: a logger; TensorBoard's by default where it is installed, else CSV files"),
    "log_every_n_steps": (50, "Lightning: steps between two records of the logger"),
    "terminate_on_nan": (False, "Lightning: end at a loss that is no finite number (Keras: TerminateOnNaN())"),
    "profiler": (None, "Lightning: the Trainer's profiler"),
    "trainer_args": (None, "Lightning: further arguments of the Trainer, a dictionary"),
    "rows_per_group": (None, "rows in a row group of the Parquet files"),
}
# Parameters that are None or at least 1.
COUNTS = (
    "val_batch_size", "train_steps_per_epoch", "validation_steps_per_epoch", "rows_per_group",
)  # fmt: skip
# Horovod has them to speed up its reading.  Here each rank reads its rows with pyarrow, in its own process, and has one GPU.
# A rank uses the columns that transformation_fn returns.  A data_module gets the others.  Defaults as in Horovod.
ACCEPTED: dict[str, Any] = {
    "train_reader_num_workers": 2, "val_reader_num_workers": 2, "reader_pool_type": "thread",
    "inmemory_cache_all": False, "partitions_per_process": 10, "compress_sparse_cols": False,
    "transformation_edit_fields": None, "transformation_removed_fields": None,
    "num_gpus": None, "loader_num_epochs": None, "debug_data_loader": False,
    "train_async_data_loader_queue_size": None, "val_async_data_loader_queue_size": None,
}  # fmt: skip
LIGHTNING = (
    "logger", "log_every_n_steps", "terminate_on_nan", "profiler", "trainer_args", "num_gpus", "loader_num_epochs",
    "debug_data_loader", "train_async_data_loader_queue_size", "val_async_data_loader_queue_size",
)  # fmt: skip
