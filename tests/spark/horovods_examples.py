"""Horovod's estimator examples with small data: pytorch_spark_mnist, keras_spark_mnist, keras_spark_rossmann."""

from __future__ import annotations

import sys
from typing import Any

import numpy
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import OneHotEncoder
from pyspark.sql import functions as f
from pyspark.sql import types as t


def _digits(spark: Any, folder: str) -> tuple[Any, Any]:
    """scikit-learn's digits through libsvm's format, with additional one-hot labels: (training, test)."""
    from sklearn.datasets import dump_svmlight_file, load_digits

    data = load_digits()
    dump_svmlight_file(data.data[:800] / 16, data.target[:800], f"{folder}/digits", zero_based=False)
    df = spark.read.format("libsvm").option("numFeatures", "64").load(f"{folder}/digits")
    encoder = OneHotEncoder(inputCols=["label"], outputCols=["label_vec"], dropLast=False)
    train, test = encoder.fit(df).transform(df).randomSplit([0.9, 0.1], seed=1)
    return train, test


def _backend() -> Any:
    from horovod.spark.common.backend import SparkBackend

    return SparkBackend(num_proc=2, stdout=sys.stdout, stderr=sys.stderr, prefix_output_with_timestamp=True)


def _accuracy(df: Any) -> float:
    argmax = f.udf(lambda v: float(numpy.argmax(v)), returnType=t.DoubleType())
    found = df.withColumn("label_pred", argmax(df.label_prob))
    evaluator = MulticlassClassificationEvaluator(predictionCol="label_pred", labelCol="label", metricName="accuracy")
    return float(evaluator.evaluate(found))


def pytorch_mnist(spark: Any, folder: str) -> Any:
    """A convolution, a loss by lambda, sparse vectors as images."""
    import torch
    from torch import nn

    import horovod.spark.torch as hvd
    from horovod.spark.common.store import Store

    train, test = _digits(spark, folder)
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 10, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(90, 10), nn.LogSoftmax(1)
    )
    loss = nn.NLLLoss()
    estimator = hvd.TorchEstimator(
        backend=_backend(),
        store=Store.create(f"{folder}/work"),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5),
        loss=lambda input, target: loss(input, target.long()),
        input_shapes=[[-1, 1, 8, 8]],
        feature_cols=["features"],
        label_cols=["label"],
        batch_size=16,
        epochs=10,
        validation=0.1,
        backward_passes_per_step=2,
        verbose=1,
    )
    found = estimator.fit(train).setOutputCols(["label_prob"])
    return {"accuracy": _accuracy(found.transform(test)), "epochs": len(found.getHistory())}


def keras_mnist(spark: Any, folder: str) -> Any:
    """Images from sparse vectors, one-hot labels, a loss as a function."""
    import keras

    import horovod.spark.keras as hvd
    from horovod.spark.common.store import Store

    train, test = _digits(spark, folder)
    model = keras.models.Sequential()
    model.add(keras.Input((8, 8, 1)))
    model.add(keras.layers.Conv2D(16, kernel_size=(3, 3), activation="relu"))
    model.add(keras.layers.MaxPooling2D(pool_size=(2, 2)))
    model.add(keras.layers.Flatten())
    model.add(keras.layers.Dense(10, activation="softmax"))
    estimator = hvd.KerasEstimator(
        backend=_backend(),
        store=Store.create(f"{folder}/work"),
        model=model,
        optimizer=keras.optimizers.Adadelta(1.0),
        loss=keras.losses.categorical_crossentropy,
        metrics=["accuracy"],
        feature_cols=["features"],
        label_cols=["label_vec"],
        batch_size=16,
        epochs=4,
        random_seed=1,
        inmemory_cache_all=True,
        verbose=1,
    )
    fitted = estimator.fit(train).setOutputCols(["label_prob"])
    again = hvd.KerasEstimator(**{**dict.fromkeys(("backend", "store")), "model": fitted.getModel()})
    rate = float(again.getModel().optimizer.learning_rate)
    return {"accuracy": _accuracy(fitted.transform(test)), "rate": rate}


def rossmann(spark: Any, folder: str) -> Any:
    """Embeddings of whole numbers and real columns, a custom metric and activation, the best model, its file."""
    import keras
    from keras import ops

    import horovod.spark.keras as hvd
    from horovod.keras.callbacks import BestModelCheckpoint
    from horovod.spark.common.store import Store

    def exp_rmspe(y_true: Any, y_pred: Any) -> Any:
        real = ops.exp(y_true)
        return ops.sqrt(ops.mean(ops.square((real - ops.exp(y_pred)) / real)))

    def act_sigmoid_scaled(x: Any) -> Any:
        return ops.sigmoid(x) * 4.0

    columns = ["Store", "Promo", "Distance"]
    rows = [(i % 5, i % 2, float(i % 7), 1.0 + i % 5 / 4 + i % 2, i % 6 == 0) for i in range(240)]
    df = spark.createDataFrame(rows, "Store int, Promo int, Distance double, Sales double, Validation boolean")
    objects = {"exp_rmspe": exp_rmspe, "act_sigmoid_scaled": act_sigmoid_scaled}
    keras.utils.set_random_seed(1)
    inputs = {name: keras.Input((1,), name=name) for name in columns}
    store = keras.layers.Reshape((3,))(keras.layers.Embedding(5, 3)(inputs["Store"]))
    both = keras.layers.Concatenate()([store, inputs["Promo"], inputs["Distance"]])
    output = keras.layers.Dense(1, activation=act_sigmoid_scaled)(keras.layers.Dense(16, activation="relu")(both))
    estimator = hvd.KerasEstimator(
        backend=_backend(),
        store=Store.create(f"{folder}/work"),
        model=keras.Model([inputs[name] for name in columns], output),
        optimizer=keras.optimizers.Adam(0.01, epsilon=1e-3),
        loss="mae",
        metrics=[exp_rmspe],
        custom_objects=objects,
        feature_cols=columns,
        label_cols=["Sales"],
        validation="Validation",
        batch_size=10,
        epochs=15,
        verbose=2,
        checkpoint_callback=BestModelCheckpoint(monitor="val_exp_rmspe", mode="auto", save_freq="epoch"),
    )
    fitted = estimator.fit(df).setOutputCols(["Sales_output"])
    fitted.getModel().save(f"{folder}/best.keras")
    loaded = keras.models.load_model(f"{folder}/best.keras", custom_objects=objects)
    found = fitted.transform(df).select(*columns, "Sales", "Sales_output").toPandas()
    given = [found[name].to_numpy().reshape(-1, 1) for name in columns]
    same = numpy.allclose(loaded.predict(given, verbose=0).ravel(), found["Sales_output"], atol=1e-5)
    held = found["Sales"].to_numpy(), found["Sales_output"].to_numpy()
    error = float(numpy.sqrt(numpy.mean(((numpy.exp(held[0]) - numpy.exp(held[1])) / numpy.exp(held[0])) ** 2)))
    history = fitted.getHistory()
    return {"best": min(history["val_exp_rmspe"]), "first": history["val_exp_rmspe"][0], "error": error, "same": bool(same)}
