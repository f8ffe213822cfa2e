"""SyncBatchNormalization on all ranks equals BatchNormalization over the whole batch, in float64."""

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

tf.get_logger().setLevel("ERROR")
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
CHANNELS = 5
ROWS = [7 - 3 * rank for rank in range(SIZE)]
START = sum(ROWS[:RANK])
WEIGHTS = np.arange(1.0, 1.0 + CHANNELS)


def batch(shape, mean, dtype):
    """All ranks' rows, as values of dtype."""
    values = np.random.default_rng(3).normal(mean, 2.0, (sum(ROWS), *shape))
    return values.astype(dtype)


def mine(rows):
    return rows[START : START + ROWS[RANK]]


def run(layer, x, **call):
    """The result, gradients of a loss that is not symmetric, and the moments, which momentum=0 leaves in the layer."""
    x = tf.convert_to_tensor(x)
    if not layer.built:
        layer.build(x.shape)
    with tf.GradientTape() as tape:
        tape.watch(x)
        out = layer(x, training=True, **call)
        loss = tf.reduce_sum(tf.sin(out) * tf.cast(WEIGHTS, out.dtype))
    return [out, *tape.gradient(loss, [x, layer.gamma, layer.beta]), layer.moving_mean, layer.moving_variance]


def plain(rows, **call):
    rows = rows.astype("float64")
    layer = tf.keras.layers.BatchNormalization(momentum=0.0, dtype="float64", **FUSED)
    return [np.asarray(value) for value in run(layer, rows, **call)]


FUSED = {"fused": False} if hasattr(tf.keras.layers.BatchNormalization, "_fused_can_be_used") else {}


def compare(got, rows, rtol, **call):
    """rtol: relative to the size of x, because the layer subtracts the mean from x."""
    out, of_x, of_gamma, of_beta, mean, variance = plain(rows, **call)
    scale = float(np.abs(rows.astype("float64")).max())
    for value, expected in zip(got[:2], (out, of_x)):
        assert value.shape == mine(rows).shape
        np.testing.assert_allclose(np.asarray(value, "float64"), mine(expected), rtol=rtol, atol=rtol * scale)
    for value, expected in zip(got[2:4], (of_gamma, of_beta)):
        total = sum(hvd.allgather_object(np.asarray(value, "float64")))
        np.testing.assert_allclose(total, expected, rtol=100 * rtol, atol=100 * rtol * scale)
    np.testing.assert_allclose(np.asarray(got[4], "float64"), mean, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(np.asarray(got[5], "float64"), variance, rtol=2 * rtol)


def check_exact_whatever_the_mean():
    for dtype, rtol in (("float32", 1e-6), ("float64", 1e-12)):
        for mean in (0, 100, 3000):
            for shape in ((CHANNELS,), (3, 2, CHANNELS)):
                rows = batch(shape, mean, dtype)
                layer = hvd.SyncBatchNormalization(momentum=0.0, dtype=dtype)
                got = run(layer, mine(rows))
                assert got[0].dtype == dtype
                compare(got, rows, rtol)
    compare(tf.function(lambda x: run(layer, x))(mine(rows)), rows, rtol)


def check_mixed_precision():
    for dtype, rtol in (("float16", 2e-3), ("bfloat16", 2e-2)):
        layer = hvd.SyncBatchNormalization(momentum=0.0, dtype=f"mixed_{dtype}")
        rows = np.asarray(tf.cast(batch((CHANNELS,), 10, "float32"), dtype), "float32")
        got = run(layer, tf.cast(mine(rows), dtype))
        assert got[0].dtype == dtype
        compare(got, rows, rtol)


def check_other_axes():
    rows = batch((CHANNELS, 4), 100, "float64")
    layer = hvd.SyncBatchNormalization(axis=1, dtype="float64", momentum=0.0)
    expected = tf.keras.layers.BatchNormalization(axis=1, dtype="float64", momentum=0.0, **FUSED)
    np.testing.assert_allclose(layer(mine(rows), training=True), mine(expected(rows, training=True)), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(layer(rows, training=False), expected(rows, training=False), rtol=1e-12)


def check_masks():
    rows = batch((3, CHANNELS), 100, "float64")
    mask = np.random.default_rng(1).random(rows.shape[:2]) < 0.6
    rows[~mask] = np.nan
    layer = hvd.SyncBatchNormalization(momentum=0.0, dtype="float64")
    run(layer, mine(rows), mask=mine(mask))
    np.testing.assert_allclose(layer.moving_mean, rows[mask].mean(0), rtol=1e-12)
    np.testing.assert_allclose(layer.moving_variance, rows[mask].var(0), rtol=1e-12)


def check_no_rows():
    rows = batch((CHANNELS,), 100, "float32")
    layer = hvd.SyncBatchNormalization(momentum=0.0)
    out, of_x, *_ = run(layer, rows if RANK == SIZE - 1 else rows[:0])
    assert of_x.shape == out.shape and np.isfinite(of_x).all()
    np.testing.assert_allclose(layer.moving_variance, rows.astype("float64").var(0), rtol=1e-6)


def check_second_derivatives():
    rows = batch((CHANNELS,), 10, "float64")

    def second(layer, x):
        x = tf.convert_to_tensor(x)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(tf.sin(layer(x, training=True)) * WEIGHTS)
            penalty = tf.reduce_sum(tf.square(inner.gradient(loss, x)))
        return outer.gradient(penalty, x)

    expected = second(tf.keras.layers.BatchNormalization(dtype="float64"), rows)
    layer = hvd.SyncBatchNormalization(dtype="float64")
    for way in (second, tf.function(second)):
        np.testing.assert_allclose(way(layer, mine(rows)), mine(expected), rtol=1e-9, atol=1e-9)


def check_in_a_session():
    v1 = tf.compat.v1
    rows = batch((CHANNELS,), 3000, "float64")
    expected = plain(rows)[1]
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float64, [None, CHANNELS])
        layer = hvd.SyncBatchNormalization(dtype="float64")
        loss = tf.reduce_sum(tf.sin(layer(x, training=True)) * WEIGHTS)
        gradient = tf.gradients(loss, x)[0]
        session.run(v1.global_variables_initializer())
        got = session.run(gradient, {x: mine(rows)})
    np.testing.assert_allclose(got, mine(expected), rtol=1e-9, atol=1e-9)
