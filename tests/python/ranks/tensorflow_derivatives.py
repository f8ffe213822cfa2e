"""Every operation's gradient: the same eagerly, in tf.function and in a session, which runs only required ops.

A gradient without an exchange on some ranks (zeros on all but root) would be pruned there, and the others would wait.
"""

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

tf.get_logger().setLevel("ERROR")
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
v1 = tf.compat.v1
WEIGHTS = np.arange(1.0, 1.0 + 12 * SIZE).reshape(3 * SIZE, 4).astype("float32")
MINE = np.float32((np.arange(12).reshape(3, 4) * (RANK + 2) + RANK) % 5)


def loss_of(call, x):
    """The sum of call(x)'s elements, each with its own weight."""
    outs = call(x)
    weighted = [out * tf.constant(WEIGHTS)[: tf.shape(out)[0]] for out in (outs if isinstance(outs, list) else [outs])]
    return sum(tf.reduce_sum(out) for out in weighted) * (RANK + 1.0)


def eagerly(call):
    x = tf.constant(MINE)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = loss_of(call, x)
    return tape.gradient(loss, x)


def in_a_session(call):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.get_variable("x", initializer=MINE)
        gradient = tf.gradients(loss_of(call, x), x)[0]
        session.run(v1.global_variables_initializer())
        return session.run(gradient)


def compare(**calls):
    for what, call in calls.items():
        expected = eagerly(call).numpy()
        assert expected.shape == MINE.shape, what
        for run in (tf.function(eagerly), in_a_session):
            np.testing.assert_allclose(run(call), expected, rtol=1e-5, atol=1e-5, err_msg=what)


def check_reductions():
    compare(
        **{f"op {op}": lambda x, op=op: hvd.allreduce(x, op=op) for op in (hvd.Average, hvd.Sum, hvd.Min, hvd.Max)},
        product=lambda x: hvd.allreduce(x + 1.0, op=hvd.Product),
        zeros=lambda x: hvd.allreduce(x, op=hvd.Product, prescale_factor=2.0),
        nothing=lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.0),
        group=lambda x: hvd.grouped_allreduce([x, 2.0 * x, x * x], op=hvd.Sum),
        some=lambda x: hvd.grouped_allreduce([x, 2.0 * x, x * x], op=hvd.Sum)[1],
    )


def check_broadcasts():
    compare(**{f"root {root}": lambda x, root=root: hvd.broadcast(x, root) for root in range(SIZE)})
    np.testing.assert_allclose(
        in_a_session(lambda x: hvd.broadcast(x, 1)), (RANK == 1) * WEIGHTS[:3] * (SIZE + 1) / 2, rtol=1e-5
    )


def check_gathers():
    compare(
        rows=hvd.allgather,
        uneven=lambda x: hvd.allgather(x[: 3 - RANK]),
        nothing=lambda x: hvd.allgather(x[: 2 * RANK]),
        group=lambda x: hvd.grouped_allgather([x[: 1 + RANK], x * x]),
        scalars=lambda x: hvd.allgather(tf.reduce_sum(x * x))[:, tf.newaxis],
        sparse=lambda x: hvd.allreduce(tf.IndexedSlices(x, tf.range(3), [3, 4]), op=hvd.Sum).values,
    )


def check_exchanges():
    compare(
        equal=lambda x: hvd.alltoall(x[:SIZE]),
        splits=lambda x: hvd.alltoall(x, [3] + [0] * (SIZE - 1))[0],
        shares=lambda x: hvd.reducescatter(x, op=hvd.Sum),
        one_row=lambda x: hvd.reducescatter(x[:1]),
        group=lambda x: hvd.grouped_reducescatter([x, x[:1] * 2.0]),
    )


def check_process_sets():
    alone = hvd.add_process_set([SIZE - 1])
    if RANK == SIZE - 1:
        compare(
            broadcast=lambda x: hvd.broadcast(x, RANK, process_set=alone),
            allgather=lambda x: hvd.allgather(x, process_set=alone),
            reducescatter=lambda x: hvd.reducescatter(x, process_set=alone),
        )
    assert hvd.remove_process_set(alone)


def check_shapes_that_are_known_at_run_time_only():
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, None)
        gradient = tf.gradients(tf.reduce_sum(hvd.allgather(x) * WEIGHTS), x)[0]
        got = session.run(gradient, {x: MINE})
        np.testing.assert_allclose(got, WEIGHTS[3 * RANK : 3 * RANK + 3], rtol=1e-5)
