"""HOROVOD_ENABLE_XLA_OPS=1: allreduce in functions that XLA compiles as a whole."""

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

tf.get_logger().setLevel("ERROR")
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
RANKS = sum(range(1, 1 + SIZE))


def compiled(function):
    return tf.function(function, jit_compile=True)


def raises(error, function, text):
    try:
        function()
    except error as raised:
        assert text in str(raised), raised
    else:
        raise AssertionError(f"no {error.__name__}")


def check_two_operations():
    function = compiled(lambda x: hvd.allreduce(x, op=hvd.Sum) * 2 + hvd.allreduce(x * 3, prescale_factor=2))
    np.testing.assert_allclose(function(tf.ones([2, 3]) * (RANK + 1)), np.full((2, 3), 2 * RANKS + 6 * RANKS / SIZE))


def check_a_group_of_several_dtypes():
    dtypes = (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.int8, tf.uint8)
    outs = compiled(lambda x: hvd.grouped_allreduce([tf.cast(x, dtype) for dtype in dtypes], op=hvd.Sum))(tf.ones(5))
    assert [out.dtype for out in outs] == list(dtypes)
    for out in outs:
        np.testing.assert_array_equal(tf.cast(out, tf.float32), np.full(5, SIZE))


def check_gradient():
    def of(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            out = tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum) ** 2)
        return tape.gradient(out, x)

    x = tf.constant([1.0, 2.0]) * (RANK + 1)
    np.testing.assert_allclose(compiled(of)(x), of(x))


def check_a_loop():
    def mean_of_means(x):
        for _ in tf.range(4):
            x = hvd.allreduce(x) + 1
        return x

    np.testing.assert_allclose(compiled(mean_of_means)(tf.ones(2) * RANK), np.full(2, (SIZE - 1) / 2 + 4))


def check_training_step():
    weights = tf.Variable(tf.zeros([4, 1]))
    random = np.random.default_rng(RANK)

    @compiled
    def step(x):
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((x @ weights - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
        (gradient,) = tape.gradient(loss, [weights])
        weights.assign_sub(0.1 * gradient)
        return loss

    losses = [float(step(tf.constant(random.normal(size=(16, 4)), tf.float32))) for _ in range(100)]
    assert losses[-1] < 1e-3 * losses[0]
    np.testing.assert_array_equal(weights, hvd.broadcast(weights, root_rank=0))


def check_ranks_disagree():
    function = compiled(lambda x: hvd.allreduce(x, name='a "bad\\näme"'))
    raises(tf.errors.FailedPreconditionError, lambda: function(tf.ones(3 + RANK)), 'a "bad\\näme"')


def check_what_xla_does_not_take():
    """Max: TensorFlow's own error; without XLA it works."""

    def largest(x):
        return hvd.allreduce(x, op=hvd.Max)

    raises(tf.errors.InvalidArgumentError, lambda: compiled(largest)(tf.ones(2)), "HvdAllreduce")
    np.testing.assert_array_equal(tf.function(largest)(tf.ones(2) * RANK), np.full(2, SIZE - 1))
