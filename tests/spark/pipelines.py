"""What the estimators' tests ask the driver process for."""

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
from pyspark.sql import functions as f

# In each process that computes: two threads of torch on two shared cores only get into each other's way.
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
        # As Horovod's examples write it.
        "backend": SparkBackend(num_proc=2, stdout=sys.stdout, stderr=sys.stderr, prefix_output_with_timestamp=True),
        "store": store, "model": model, "optimizer": torch.optim.Adam(model.parameters(), lr=0.01),
        "loss": torch.nn.CrossEntropyLoss(), "feature_cols": ["scaled"], "label_cols": ["digit"], "batch_size": 32,
        "epochs": 4, "validation": 0.2, "random_seed": 3, "verbose": 0, "output_cols": ["logits"],
    }  # fmt: skip
    return TorchEstimator(**{**settings, **given})


def accuracy(df: Any) -> float:
    """Of the largest logit."""
    best = df.withColumn("prediction", f.expr("array_position(logits, array_max(logits)) - 1").cast("double"))
    evaluator = MulticlassClassificationEvaluator(labelCol="digit", metricName="accuracy")
    return float(evaluator.evaluate(best.withColumn("digit", f.col("digit").cast("double"))))


def correct(output: Any, label: Any) -> Any:
    """A metric."""
    return (output.argmax(1) == label).float().mean()


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
    """What another session makes of the saved pipeline."""
    _, test = digits(spark).randomSplit([0.8, 0.2], seed=5)
    found = PipelineModel.load(f"{folder}/pipeline").transform(test)
    return {"accuracy": accuracy(found), "first": [float(v) for v in found.select("logits").first()[0]]}


def resumed(spark: Any, folder: str) -> Any:
    """Two epochs, then the same run with four: it trains two more."""
    df = digits(spark, 200).withColumnRenamed("pixels", "scaled")
    torch_estimator(f"{folder}/store", run_id="again", epochs=2, validation=None).fit(df)
    began = time.monotonic()
    model = torch_estimator(f"{folder}/store", run_id="again", epochs=4, validation=None).fit(df)
    return {"epochs": len(model.getHistory()["loss"]), "seconds": time.monotonic() - began}


def by_framework(_spark: Any) -> Any:
    """HorovodEstimator's choice."""
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
        num_proc=2, store=f"{folder}/store", model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.03),
        loss=torch.nn.MSELoss(), feature_cols=["a", "b"], label_cols=["y"], epochs=12, batch_size=8, verbose=0,
        random_seed=0, rows_per_group=per_group,
    )  # fmt: skip
    fitted = estimator.fit(df)
    found = fitted.transform(df).select(f.avg(f.abs(f.col("y") - f.col("y__output")))).first()[0]
    return {"error": found, "type": dict(fitted.transform(df).dtypes)["y__output"], "loss": fitted.history["loss"]}


def bad_columns(spark: Any, folder: str, **given: Any) -> Any:
    """A fit that must say what is wrong with its columns."""
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
    return [isinstance(store, FilesystemStore), len(model.history["loss"]), store.exists(store.get_checkpoint_path("u"))]


def on_parquet(spark: Any, folder: str) -> Any:
    """fit_on_parquet with a table that Spark itself wrote."""
    shutil.rmtree(f"{folder}/made", ignore_errors=True)
    df = wine(spark).withColumn("digit", f.col("kind").cast("int")).withColumnRenamed("features", "scaled")
    df.write.parquet(f"{folder}/made/intermediate_train_data")
    import torch

    model = torch.nn.Linear(13, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fitted = torch_estimator(f"{folder}/made", model=model, optimizer=optimizer, validation=None).fit_on_parquet()
    return fitted.history["loss"]


def through_s3(spark: Any, options: dict[str, Any]) -> Any:
    """Two runs of one name with their store in S3, whose credentials travel with it."""
    from hvd.spark.store import Store

    store = Store.create("s3://bucket/runs", **options)
    df = digits(spark, 100).withColumnRenamed("pixels", "scaled")
    runs = [torch_estimator(store, epochs=epochs, validation=None, run_id="u").fit(df) for epochs in (1, 2)]
    return {"epochs": [len(run.history["loss"]) for run in runs], "left": store.list("s3://bucket/runs")}
