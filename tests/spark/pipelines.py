"""The requests of the estimators' tests for the driver process."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import Any

import numpy
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import StandardScaler, VectorAssembler
from pyspark.ml.functions import vector_to_array
from pyspark.sql import functions as f

# In each computing process: two threads of torch on two shared cores only disturb each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def digits(spark: Any, rows: int = 600) -> Any:
    """scikit-learn's digits as a table: 64 columns and a label, prepared with Spark SQL."""
    from sklearn.datasets import load_digits

    data = load_digits()
    names = [f"p{i}" for i in range(64)]
    table = [(*map(float, x), int(y)) for x, y in zip(data.data[:rows], data.target[:rows])]
    spark.createDataFrame(table, [*names, "digit"]).createOrReplaceTempView("digits")
    df = spark.sql("SELECT *, p0 + p63 AS corners FROM digits WHERE digit IS NOT NULL")
    return VectorAssembler(inputCols=names, outputCol="pixels").transform(df).select("pixels", "digit")


def wine(spark: Any) -> Any:
    """scikit-learn's wine as a table with an array column."""
    from sklearn.datasets import load_wine

    data = load_wine()
    scaled = (data.data - data.data.mean(0)) / data.data.std(0)
    rows = [([float(v) for v in x], float(y), 1.0 + (i % 2), i) for i, (x, y) in enumerate(zip(scaled, data.target))]
    return spark.createDataFrame(rows, ["features", "kind", "weight", "row"])


def torch_estimator(store: str, **given: Any) -> Any:
    """A small classifier of digits."""
    import torch

    from horovod.spark.common.backend import SparkBackend
    from horovod.spark.torch import TorchEstimator

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    settings = {
        # As in Horovod's examples.
        "backend": SparkBackend(num_proc=2, stdout=sys.stdout, stderr=sys.stderr, prefix_output_with_timestamp=True),
        "store": store, "model": model, "optimizer": torch.optim.Adam(model.parameters(), lr=0.005),
        "loss": torch.nn.CrossEntropyLoss(), "feature_cols": ["scaled"], "label_cols": ["digit"], "batch_size": 32,
        "epochs": 4, "validation": 0.2, "random_seed": 3, "verbose": 0, "output_cols": ["logits"],
    }  # fmt: skip
    return TorchEstimator(**{**settings, **given})


def accuracy(df: Any) -> float:
    """The accuracy of the largest logit."""
    found = df.withColumn("array", vector_to_array("logits"))
    best = found.withColumn("prediction", f.expr("array_position(array, array_max(array)) - 1").cast("double"))
    evaluator = MulticlassClassificationEvaluator(labelCol="digit", metricName="accuracy")
    return float(evaluator.evaluate(best.withColumn("digit", f.col("digit").cast("double"))))


def correct(output: Any, label: Any) -> Any:
    """A metric."""
    return (output.argmax(1) == label).float().mean()


def losses(fitted: Any) -> list[float]:
    """The losses of a torch model's training."""
    return [epoch["train"]["loss"] for epoch in fitted.getHistory()]


def torch_pipeline(spark: Any, folder: str) -> Any:
    """Spark SQL → Pipeline(StandardScaler, estimator) → evaluate → save."""
    df = digits(spark)
    train, test = df.randomSplit([0.8, 0.2], seed=5)
    scaler = StandardScaler(inputCol="pixels", outputCol="scaled", withMean=True)
    estimator = torch_estimator(f"{folder}/store", metrics=[correct], run_id="first")
    fitted = Pipeline(stages=[scaler, estimator]).fit(train)
    fitted.write().overwrite().save(f"{folder}/pipeline")
    again = PipelineModel.load(f"{folder}/pipeline")
    found = again.transform(test)
    found.cache()
    return {
        "accuracy": accuracy(found),
        "history": fitted.stages[1].getHistory(),
        "loaded": [again.stages[1].getHistory() == fitted.stages[1].getHistory(), again.stages[1].uid == fitted.stages[1].uid],
        "first": [float(v) for v in found.select("logits").first()[0]],
        "left": sorted(os.listdir(f"{folder}/store")),
    }


def load_pipeline(spark: Any, folder: str) -> Any:
    """The result of the saved pipeline in another session."""
    _, test = digits(spark).randomSplit([0.8, 0.2], seed=5)
    found = PipelineModel.load(f"{folder}/pipeline").transform(test)
    return {"accuracy": accuracy(found), "first": [float(v) for v in found.select("logits").first()[0]]}


def resumed(spark: Any, folder: str) -> Any:
    """Two epochs, then the same run with four: it trains two more."""
    df = digits(spark, 200).withColumnRenamed("pixels", "scaled")
    torch_estimator(f"{folder}/store", run_id="again", epochs=2, validation=None).fit(df)
    began = time.monotonic()
    model = torch_estimator(f"{folder}/store", run_id="again", epochs=4, validation=None).fit(df)
    return {"epochs": len(model.getHistory()), "seconds": time.monotonic() - began}


def by_framework(_spark: Any) -> Any:
    """HorovodEstimator's choice of the framework."""
    import keras
    import torch

    from sparkdl import HorovodEstimator

    models = (torch.nn.Linear(1, 1), keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
    return [type(HorovodEstimator(model=model)).__name__ for model in models]


def keras_wine(spark: Any, folder: str) -> Any:
    """Keras 3: an array column, weights, a validation column, callbacks, save and load."""
    import keras

    from horovod.spark.common.store import Store
    from horovod.spark.keras import KerasEstimator, KerasModel

    df = wine(spark).withColumn("held", f.rand(7) < 0.2)
    model = keras.Sequential([keras.Input((13,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(3, "softmax")])
    estimator = KerasEstimator(
        num_proc=2, store=Store.create(f"{folder}/store"), model=model, optimizer=keras.optimizers.Adam(0.02),
        loss="sparse_categorical_crossentropy", metrics=["accuracy"], feature_cols=["features"], label_cols=["kind"],
        sample_weight_col="weight", validation="held", epochs=6, batch_size=16, random_seed=1, verbose=0,
        callbacks=[keras.callbacks.TerminateOnNaN()],
    )  # fmt: skip
    fitted = estimator.fit(df)
    fitted.write().overwrite().save(f"{folder}/keras")
    again = KerasModel.load(f"{folder}/keras")
    one, two = (m.transform(df).orderBy("row").select("kind", "kind__output").collect() for m in (fitted, again))
    right = numpy.mean([numpy.argmax(row[1]) == row[0] for row in one])
    same = all(numpy.allclose(a[1], b[1], atol=1e-5) for a, b in zip(one, two))
    return {"history": {k: len(v) for k, v in fitted.getHistory().items()}, "right": float(right), "same": same}


def regression(spark: Any, folder: str, rows: int, partitions: int, per_group: int, nulls: bool = False) -> Any:
    """A line through points: several number columns, few row groups, empty partitions, nulls."""
    import torch

    from hvd.spark.torch import TorchEstimator

    class Sum(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, a: Any, b: Any) -> Any:
            return self.layer(torch.cat([a, b], dim=1))

    data = [(float(i % 7), int(i % 5), float(2 * (i % 7) - (i % 5)) if not (nulls and i == 3) else None) for i in range(rows)]
    df = spark.createDataFrame(data, "a double, b int, y double").repartition(partitions, "b")
    model = Sum()
    estimator = TorchEstimator(
        num_proc=2, store=f"{folder}/store", model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.015),
        loss=torch.nn.MSELoss(), feature_cols=["a", "b"], label_cols=["y"], epochs=12, batch_size=8, verbose=0,
        random_seed=0, rows_per_group=per_group,
    )  # fmt: skip
    fitted = estimator.fit(df)
    found = fitted.transform(df).select(f.avg(f.abs(f.col("y") - f.col("y__output")))).first()[0]
    return {"error": found, "type": dict(fitted.transform(df).dtypes)["y__output"], "loss": losses(fitted)}


def bad_columns(spark: Any, folder: str, **given: Any) -> Any:
    """A fit that must report the fault in its columns."""
    df = digits(spark, 40).withColumnRenamed("pixels", "scaled").withColumn("word", f.lit("x"))
    return torch_estimator(f"{folder}/store", **given).fit(df)


def by_url(spark: Any, folder: str) -> Any:
    """A store by URL, through fsspec's own local file system."""
    from hvd.spark.store import FilesystemStore, Store

    url = f"local://{folder}/by-url"
    store = Store.create(url)
    model = torch_estimator(url, epochs=1, validation=None, run_id="u").fit(
        digits(spark, 100).withColumnRenamed("pixels", "scaled")
    )
    return [isinstance(store, FilesystemStore), len(model.history), store.exists(store.get_checkpoint_path("u"))]


def on_parquet(spark: Any, folder: str) -> Any:
    """fit_on_parquet with a table that Spark itself wrote."""
    shutil.rmtree(f"{folder}/made", ignore_errors=True)
    df = wine(spark).withColumn("digit", f.col("kind").cast("int")).withColumnRenamed("features", "scaled")
    df.write.parquet(f"{folder}/made/intermediate_train_data")
    import torch

    model = torch.nn.Linear(13, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    fitted = torch_estimator(f"{folder}/made", model=model, optimizer=optimizer, validation=None).fit_on_parquet()
    return losses(fitted)


def through_s3(spark: Any, options: dict[str, Any]) -> Any:
    """Two runs of one name with their store in S3, and credentials that travel with it."""
    from hvd.spark.store import Store

    store = Store.create("s3://bucket/runs", **options)
    df = digits(spark, 100).withColumnRenamed("pixels", "scaled")
    runs = [torch_estimator(store, epochs=epochs, validation=None, run_id="u").fit(df) for epochs in (1, 2)]
    return {"epochs": [len(run.history) for run in runs], "left": store.list("s3://bucket/runs")}


def xor_model(outputs: int) -> Any:
    """The model of Horovod's own tests."""
    import torch

    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, outputs), nn.Sigmoid())


def xor(spark: Any) -> Any:
    """x1, x2, their vector under a name with a dot, a weight and y, in partitions of one size."""
    rows = [(i % 2, i // 2 % 2, 1.0 + i % 3, float(i % 2 != i // 2 % 2)) for i in range(64)]
    df = spark.createDataFrame(rows, "x1 int, x2 int, weight float, `y.true` float").repartitionByRange(4, "x1", "x2")
    return VectorAssembler(inputCols=["x1", "x2"], outputCol="the.features").transform(df)


def xor_estimator(folder: str, **given: Any) -> Any:
    """Horovod's test_fit_model: a functional loss, weights, a shape of one row, columns with dots in their names."""
    import torch

    from horovod.spark.torch import TorchEstimator

    model = xor_model(given.pop("outputs", 1))
    settings = {
        "num_proc": 2, "store": f"{folder}/store", "model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loss": torch.nn.functional.binary_cross_entropy, "input_shapes": [[2]], "feature_cols": ["the.features"],
        "label_cols": ["y.true"], "batch_size": 4, "epochs": 3, "verbose": 0, "sample_weight_col": "weight", "random_seed": 7,
    }  # fmt: skip
    return TorchEstimator(**{**settings, **given})


def xor_twice(spark: Any, folder: str) -> Any:
    """Two runs with one seed, and the second model's predictions for its rows."""
    from pyspark.ml.linalg import Vector

    df = xor(spark)
    fitted = [xor_estimator(folder, validation=0.25).fit(df) for _ in range(2)]
    one, two = ({name: value.tolist() for name, value in model.getModel().state_dict().items()} for model in fitted)
    pair = xor_estimator(folder, outputs=2, loss=pair_loss, sample_weight_col=None, epochs=1).fit(df)
    out, vector = fitted[1].transform(df).first()["y.true__output"], pair.transform(df).first()["y.true__output"]
    rate = fitted[0].getOptimizer().param_groups[0]["lr"]
    saved = f"{folder}/saved"
    fitted[0].write().overwrite().save(saved)
    again = type(fitted[0]).load(saved)
    mine = {id(p) for p in again.getModel().parameters()}
    together = all(id(p) in mine for group in again.getOptimizer().param_groups for p in group["params"])
    return [one == two, type(out).__name__, isinstance(vector, Vector), len(vector), rate, together]


def pair_loss(output: Any, label: Any) -> Any:
    """The loss of two outputs for one label."""
    return ((output.mean(1) - label) ** 2).mean()


def prepared(spark: Any, folder: str) -> Any:
    """Horovod's prepare_data: a permanent table, used now and later, and a nested one."""
    from horovod.spark.common import util
    from horovod.spark.common.store import Store

    store = Store.create(f"{folder}/kept", train_path=f"{folder}/mine", val_path=f"{folder}/other")
    df, columns = xor(spark), {"feature_columns": ["the.features"], "label_columns": ["y.true"], "validation": 0.25}
    estimator = xor_estimator(folder, sample_weight_col=None, epochs=1, store=store)
    with util.prepare_data(2, store, df, **columns) as first:
        one = estimator.fit_on_parquet()
        with util.prepare_data(2, store, df.limit(40), **{**columns, "validation": None}) as second:
            two = estimator.fit_on_parquet(dataset_idx=second)
    three = estimator.fit(df)  # writes and removes its own tables
    again = estimator.fit_on_parquet()
    stages = [sorted(set(model.getHistory()[0]) - {"epoch"}) for model in (one, two, three, again)]
    left = sorted(name for name in os.listdir(folder) if name not in ("store", "kept"))
    open(f"{folder}/mine/notes.txt", "w").close()
    try:
        with util.prepare_data(2, store, df, **columns):
            said = "replaced"
    except ValueError as error:
        said = str(error)
    return {"index": [first, second], "stages": stages, "left": left, "said": said}


def refused(_spark: Any, folder: str) -> Any:
    """The estimators' errors for unsuitable losses, metrics and models; and Horovod's names of methods."""
    import keras
    import torch

    from horovod.spark.keras import KerasEstimator

    def said(fit: Any) -> str:
        try:
            fit()
        except (ImportError, TypeError, ValueError) as error:
            return str(error)
        return "nothing"

    def bare(output: Any, label: Any) -> Any:
        return (output - label).mean()

    def nvtabular() -> None:
        from horovod.spark.keras.datamodule import NVTabularDataModule  # noqa: F401

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    own = {"store": folder, "model": model, "loss": "mse", "feature_cols": ["x"], "label_cols": ["y"]}
    keras_one = KerasEstimator(**own)
    torch_one = xor_estimator(folder)
    torch_one.setShufflingBufferSize(0).setParams(inmemory_cache_all=True)
    return {
        "weights": said(lambda: xor_estimator(folder, loss=bare)._work()),
        "both": said(lambda: xor_estimator(folder, loss_constructors=[torch.nn.MSELoss])._work()),
        "losses": said(lambda: xor_estimator(folder, loss=[bare, bare])._work()),
        "metrics": said(lambda: xor_estimator(folder, metrics=[[bare, bare]])._work()),
        "optimizer": said(keras_one._work),
        "inputs": said(KerasEstimator(**{**own, "optimizer": "sgd", "feature_cols": ["x", "z"]})._work),
        "foreign": said(KerasEstimator(**own, train_minibatch_fn=bare)._check),
        "module": said(nvtabular),
        "names": [torch_one.getShuffleBufferSize(), torch_one.getInMemoryCacheAll(), torch_one.getUseGpu()],
    }
