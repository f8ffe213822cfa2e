"""The common part of all frameworks' estimators: they write a table as Parquet, ranks train, and a model returns."""

from __future__ import annotations

import multiprocessing
import uuid
from collections.abc import Iterator
from typing import Any

from pyspark.ml import Estimator, Model

from hvd.spark._session import spark_context
from hvd.spark.backend import Backend, SparkBackend
from hvd.spark.ml import columns as c
from hvd.spark.ml.dataset import Dataset, enough
from hvd.spark.ml.defaults import ACCEPTED, COUNTS, PARAMS
from hvd.spark.ml.params import EstimatorParams
from hvd.spark.ml.persistence import Persistent
from hvd.spark.ml.tables import count_rows
from hvd.spark.ml.training import Training
from hvd.spark.store import Store

# Parameters that ranks get in another form, or not at all.
_OF_THE_DRIVER = ("model", "optimizer", "loss", "loss_constructors", "metrics", "store", "backend", "backend_env")


class HorovodEstimatorBase(Estimator, EstimatorParams, Persistent):  # type: ignore[misc]
    """fit(df) trains and returns a model; fit_on_parquet() trains on tables that are in the store already."""

    NOT_MINE: tuple[str, ...] = ()  # parameters of the other framework's estimator

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self._take(given)

    # ---- a framework's part ----

    def _work(self) -> Any:
        raise NotImplementedError

    def _train_function(self) -> Any:
        raise NotImplementedError

    def _model_of(self, result: dict[str, Any], training: Training) -> Any:
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        return {}

    # ---- all frameworks ----

    def state(self) -> dict[str, Any]:
        """The state for saving."""
        return {name: self.value(name) for name in (*PARAMS, *ACCEPTED) if self.isSet(self.getParam(name))}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Any:
        """The stage of an earlier state()."""
        return cls(**state)

    def _fit(self, dataset: Any) -> Any:
        self._check()
        if isinstance(self._backend(), SparkBackend):
            spark_context(dataset.sparkSession)  # refuses sessions that cannot run ranks, before a table is written
        features, labels = list(self.value("feature_cols")), list(self.value("label_cols"))
        training = self._training(features, labels)
        ranks = self._backend().num_processes()
        part = uuid.uuid4().hex[:12]
        training.train_path = training.store.get_train_data_path(part)
        training.val_path = training.store.get_val_data_path(part)
        data = Dataset(dataset, features, labels, training.weight, self.value("validation"), self.value("random_seed"))
        # A function may fill nulls, or pad arrays, and a module may read anything.
        strict = self.value("transformation_fn") is None and self.value("data_module") is None
        try:
            data.write(training.store, training.train_path, training.val_path, ranks, self.value("rows_per_group"), strict)
            return self._train(training)
        finally:
            training.store.delete(training.train_path)
            training.store.delete(training.val_path)

    def fit_on_parquet(self, params: dict[Any, Any] | None = None, dataset_idx: Any = None) -> Any:
        """Trains on the store's train_path (and val_path if it exists), as prepare_data or any other program wrote them.

        dataset_idx: the result of prepare_data.
        In tables that Petastorm wrote, arrays of NumPy's codecs are decoded; other codecs are not."""
        if params:
            return self.copy(params).fit_on_parquet(dataset_idx=dataset_idx)
        self._check()
        training = self._training(list(self.value("feature_cols")), list(self.value("label_cols")))
        training.train_path = training.store.get_train_data_path(dataset_idx)
        training.val_path = training.store.get_val_data_path(dataset_idx)
        ranks = self._backend().num_processes()
        if not training.store.exists(training.train_path):
            raise ValueError(f"there is no table at {training.train_path}")
        enough(count_rows(training.store, training.train_path), ranks, "training")
        training.validates = training.store.exists(training.val_path)
        return self._train(training)

    fitOnParquet = fit_on_parquet

    def _needs(self) -> tuple[str, ...]:
        return "store", "model", "loss", "feature_cols", "label_cols"

    def _check(self) -> None:
        for name in self._needs():
            if not self.value(name) and not (name == "loss" and self.value("loss_constructors")):
                raise ValueError(f"{type(self).__name__} needs {name}: {PARAMS[name][1]}")
        for name in ("batch_size", "epochs", "backward_passes_per_step", *COUNTS):
            value = self.value(name)
            if (name not in COUNTS or value is not None) and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} is {value!r}: it must be a whole number of at least 1")
        if foreign := [name for name in self.NOT_MINE if self.isSet(self.getParam(name))]:
            raise ValueError(f"{', '.join(foreign)}: not of a {type(self).__name__}; leave it out")
        if self.value("backend") is not None and self.value("num_proc") is not None:
            raise ValueError("there are both backend and num_proc: give num_proc to the backend")
        for name, of in (("input_shapes", "feature_cols"), ("label_shapes", "label_cols"), ("loss_weights", "label_cols")):
            value, columns = self.value(name), self.value(of)
            if value is not None and (not isinstance(value, (list, tuple)) or len(value) != len(columns)):
                raise ValueError(f"{name} is {value!r}: it must be a list, one for each of {', '.join(columns)}")
        methods = multiprocessing.get_all_start_methods()
        if self.value("mp_start_method") not in (None, *methods):
            raise ValueError(f"mp_start_method is {self.value('mp_start_method')!r}: it must be one of {', '.join(methods)}")

    def _backend(self) -> Backend:
        backend = self.value("backend")
        return backend if backend is not None else SparkBackend(self.value("num_proc"))

    def _store(self) -> Store:
        store = self.value("store")
        return store if isinstance(store, Store) else Store.create(store)

    def _training(self, features: list[str], labels: list[str]) -> Training:
        store = self._store()
        plain = {name: self.value(name) for name in (*PARAMS, *ACCEPTED) if name not in _OF_THE_DRIVER}
        run_id = self.value("run_id") or f"run-{uuid.uuid4().hex[:12]}"
        validates = bool(self.value("validation"))
        return Training(store, run_id, features, labels, self.value("sample_weight_col"), validates, plain, self._work())

    def _train(self, training: Training) -> Any:
        env = {**self._environment(), **(self.value("backend_env") or {})}
        results = self._backend().run(self._train_function(), args=(training,), env=env)
        return self._model_of(results[0], training)


class HorovodModelBase(Model, Persistent):  # type: ignore[misc]
    """A trained model.  transform(df) adds a column for each label: a double, or a vector if the output has several
    values.  history has every epoch's figures."""

    def __init__(self, model: Any, features: list[str], labels: list[str], outputs: list[str] | None,
                 history: Any, run_id: str, extra: dict[str, Any]) -> None:  # fmt: skip
        super().__init__()
        self._model, self.features, self.labels = model, features, labels
        self.outputs = list(outputs or [f"{label}__output" for label in labels])
        self.history, self.run_id, self.extra = history, run_id, extra

    def getModel(self) -> Any:
        """The framework's own model, trained."""
        return self._model

    def getHistory(self) -> Any:
        """Keras: {name: a value for each epoch} of loss, val_loss and the metrics; torch: a list of epochs."""
        return self.history

    def getRunId(self) -> str:
        """The run's name, which also names its checkpoint in the store."""
        return self.run_id

    def getFeatureColumns(self) -> list[str]:
        """The columns of the model's inputs."""
        return self.features

    def getLabelColumns(self) -> list[str]:
        """The columns that the model was trained to predict."""
        return self.labels

    def getOutputCols(self) -> list[str]:
        """The predictions' columns."""
        return self.outputs

    def setOutputCols(self, names: list[str]) -> Any:
        """Sets other names for the predictions' columns."""
        self.outputs = list(names)
        return self

    def _packed(self) -> bytes:
        """The model as bytes for _predictor()."""
        raise NotImplementedError

    @staticmethod
    def _predictor(packed: bytes, extra: dict[str, Any]) -> Any:
        """In an executor: a function from a list of inputs to a list of outputs, NumPy arrays."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """The state for saving."""
        return {
            "packed": self._packed(), "features": self.features, "labels": self.labels, "outputs": self.outputs,
            "history": self.history, "run_id": self.run_id, "extra": self.extra,
        }  # fmt: skip

    def _transform(self, dataset: Any) -> Any:
        import pandas
        from pyspark.ml.functions import array_to_vector
        from pyspark.sql import functions as f

        columns = c.describe(dataset, self.features, "feature")
        names, outputs, predictor, extra = self.features, self.outputs, type(self)._predictor, self.extra
        packed = spark_context(dataset.sparkSession).broadcast(self._packed())
        scalar = [width == 1 for width in extra["widths"]]

        def predict(tables):  # type: ignore[no-untyped-def]
            import pyarrow

            forward = predictor(packed.value, extra)
            for table in tables:
                arrow = pyarrow.Table.from_pandas(table, preserve_index=False)
                found = forward([c.as_tensor_type(c.to_numpy(arrow.column(name), name)) for name in names])
                flat = [value.reshape(len(table), -1).astype("float64") for value in found]
                yield pandas.DataFrame({
                    name: value[:, 0] if one else list(value) for name, value, one in zip(outputs, flat, scalar)
                })  # fmt: skip

        kinds = ("double" if one else "array<double>" for one in scalar)
        kind = "struct<" + ",".join(f"{c.quoted(name)}:{kind}" for name, kind in zip(outputs, kinds)) + ">"
        # By hand: for a string, Spark would look for pandas among this module's names.
        predict.__annotations__ = {"tables": Iterator[pandas.DataFrame], "return": Iterator[pandas.DataFrame]}
        udf = f.pandas_udf(predict, kind)
        out = dataset.withColumn("__hvd", udf(f.struct(*[c.cell(dataset, column) for column in columns])))
        for name, one in zip(outputs, scalar):
            found = f.col(f"__hvd.{c.quoted(name)}")
            out = out.withColumn(name, found if one else array_to_vector(found))
        return out.drop("__hvd")
