"""horovod.keras on Keras 2, eagerly and then in TF1-style graphs: training on all ranks equals training on one."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow import keras

import horovod.tensorflow.keras as hvd
from hvd.tensorflow.elastic import TensorFlowKerasState

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
ROWS, EACH = 96, 8
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(ROWS, 6)).astype("float32")
Y = (X @ RANDOM.normal(size=(6, 3)) > 0.3).astype("float32")


def sgd(of=keras.optimizers.legacy):
    return of.SGD(0.1, momentum=0.9)


def model_of(seed, optimizer):
    random = np.random.default_rng(seed)
    model = keras.Sequential([keras.layers.Dense(12, activation="tanh", input_shape=(6,)), keras.layers.Dense(3)])
    model.set_weights([random.normal(size=weight.shape) for weight in model.get_weights()])
    model.compile(optimizer=optimizer, loss="mse", metrics=["mae"])
    return model


def fit(seed, optimizer, rows, batch, *callbacks, epochs=2):
    model = model_of(seed, optimizer)
    history = model.fit(*rows, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks))
    return model, history.history


def mine():
    rows = np.arange(ROWS).reshape(-1, SIZE, EACH)[:, RANK].ravel()
    return X[rows], Y[rows]


def close(got, expected):
    for a, b in zip(got.get_weights(), expected if isinstance(expected, list) else expected.get_weights()):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def equals_one_rank(of=keras.optimizers.legacy):
    expected, one = fit(1, sgd(of), (X, Y), EACH * SIZE)
    callbacks = hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()
    got, all_ranks = fit(1 + RANK, hvd.DistributedOptimizer(sgd(of)), mine(), EACH, *callbacks)
    close(got, expected)
    np.testing.assert_allclose(all_ranks["loss"], one["loss"], rtol=1e-4)
    halves = hvd.DistributedOptimizer(sgd(of), backward_passes_per_step=2, average_aggregated_gradients=True)
    close(fit(1, halves, mine(), EACH // 2)[0], expected)


def warms_up():
    warmup = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.8, warmup_epochs=2)
    _, history = fit(1, hvd.DistributedOptimizer(sgd()), mine(), EACH, warmup, epochs=3)
    np.testing.assert_allclose(history["lr"], [0.8 / SIZE * (1 + (SIZE - 1) / 2), 0.8, 0.8], rtol=1e-5)


def keeps_its_state():
    model, _ = fit(RANK, hvd.DistributedOptimizer(sgd()), mine(), EACH)
    state = hvd.elastic.KerasState(model, epoch=RANK)
    state.sync()
    weights = model.get_weights()
    assert all(np.array_equal(w, weights[0]) for w in hvd.allgather_object(weights[0])) and state.epoch == 0
    model.set_weights([w + 1 for w in weights])
    state.restore()
    for a, b in zip(model.get_weights(), weights):
        np.testing.assert_array_equal(a, b)


def gradients_in_between(of, passes):
    """compute_gradients() returns the reduced gradients, and apply_gradients() applies gradients that the caller changed. Each
    backward pass counts as an iteration."""
    a, b = tf.Variable([0.0, 0.0]), tf.Variable([0.0])
    optimizer = hvd.DistributedOptimizer(of.SGD(1.0), backward_passes_per_step=passes, op=hvd.Sum)
    optimizer.register_local_var(b)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(a) * (RANK + 1) + tf.reduce_sum(b) * (RANK + 1)
        pairs = optimizer.compute_gradients(loss, [a, b], tape)
        optimizer.apply_gradients([(tf.minimum(grad, 2.5), v) for grad, v in pairs])
        return [grad for grad, _ in pairs]

    for i in range(2 * passes):
        shared, local = step()
        if (i + 1) % passes == 0:
            assert shared.numpy().tolist() == [passes * SIZE * (SIZE + 1) / 2] * 2
            assert local.numpy().tolist() == [passes * (RANK + 1) / SIZE]
        assert int(optimizer.iterations.numpy()) == i + 1
        assert a.numpy().tolist() == [-2.5 * ((i + 1) // passes)] * 2


def check_eagerly():
    equals_one_rank()
    equals_one_rank(keras.optimizers)
    for of in (keras.optimizers, keras.optimizers.legacy):
        for passes in (1, 2):
            gradients_in_between(of, passes)
    warms_up()
    keeps_its_state()


def check_every_callback_is_of_this_keras():
    from sparkdl.horovod.tensorflow.keras import LogCallback

    kinds = [getattr(hvd.callbacks, name) for name in hvd.callbacks.__all__]
    kinds += [getattr(hvd.elastic, name) for name in hvd.elastic.__all__ if name.endswith("Callback")]
    assert len(kinds) == 8
    assert all(issubclass(kind, keras.callbacks.Callback) for kind in [*kinds, LogCallback])
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    best.filepath = os.path.join(tempfile.mkdtemp(), "best.keras")
    schedule = hvd.callbacks.LearningRateScheduleCallback(0.1, multiplier=0.5, start_epoch=1)
    _, history = fit(1, hvd.DistributedOptimizer(sgd(keras.optimizers)), mine(), EACH, schedule, best)
    np.testing.assert_allclose(history["lr"], [0.1, 0.05], rtol=1e-5)
    assert os.path.exists(best.filepath)


class FailsOnce(keras.callbacks.Callback):
    """The last rank fails in its third batch; the others notice in the next step."""

    done = False

    def on_train_batch_end(self, batch, logs=None):
        fails, self.done = batch == 2 and not self.done, self.done or batch == 2
        if fails and RANK == SIZE - 1:
            raise hvd.HorovodInternalError("this rank alone")


def check_elastic_callbacks():
    model, _ = fit(RANK, hvd.DistributedOptimizer(sgd(keras.optimizers)), mine(), EACH, epochs=1)
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    update = [hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.UpdateBatchStateCallback(state)]
    callbacks = [FailsOnce(), *update, hvd.elastic.CommitStateCallback(state, batches_per_commit=2)]

    @hvd.elastic.run
    def train(state):
        model.fit(*mine(), batch_size=EACH, epochs=2 - state.epoch, shuffle=False, verbose=0, callbacks=callbacks)

    train(state)
    assert callbacks[0].done and (state.epoch, state.batch) == (2, 0)
    weights = hvd.allgather_object([w.tolist() for w in model.get_weights()])
    assert all(w == weights[0] for w in weights)


def goes_on_from_its_commit(kind, of):
    """The optimizer has made no step when the state is made.  Rank 0 alone has another learning rate."""
    x, y = mine()[0][:EACH], mine()[1][:EACH]
    model = model_of(RANK, hvd.DistributedOptimizer(sgd(of)))
    if RANK == 0:
        model.optimizer.learning_rate = 0.05
    state = kind(model, step=0)
    state.sync()
    assert abs(float(keras.backend.get_value(model.optimizer.learning_rate)) - 0.05) < 1e-7
    for _ in range(2):
        for _ in range(2):
            model.train_on_batch(x, y)
        reached = model.get_weights()
        state.restore()
        for _ in range(2):
            model.train_on_batch(x, y)
        close(model, reached)
        state.commit()


def check_a_state_made_before_the_first_step():
    for kind in (hvd.elastic.KerasState, TensorFlowKerasState):
        for of in (keras.optimizers, keras.optimizers.legacy):
            goes_on_from_its_commit(kind, of)


def check_load_model():
    for ending, of in ((".keras", keras.optimizers), (".h5", keras.optimizers.legacy)):
        model, _ = fit(1, hvd.DistributedOptimizer(of.Adam(0.01)), mine(), EACH, epochs=1)
        path = os.path.join(tempfile.mkdtemp(), "model" + ending)
        model.save(path)
        loaded = hvd.load_model(path)
        assert isinstance(loaded, keras.Model) and hasattr(loaded.optimizer, "register_local_var"), path
        assert int(loaded.optimizer.iterations) == ROWS // SIZE // EACH
        for each in (model, loaded):
            each.fit(*mine(), batch_size=EACH, epochs=1, shuffle=False, verbose=0)
        close(loaded, model)


def overflows_together(of, passes):
    """A hand-written loop, in which Keras' loss scaling looks at gradients before their reduction."""
    inner = hvd.DistributedOptimizer(of.SGD(1.0), backward_passes_per_step=passes, average_aggregated_gradients=True)
    optimizer = keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=8.0)
    a = tf.Variable([9.0, 9.0])

    def step(factor):
        with tf.GradientTape() as tape:
            scaled = optimizer.get_scaled_loss(tf.reduce_sum(a) * factor)
        optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients(tape.gradient(scaled, [a])), [a]))

    expected, scale = 9.0, 8.0
    for run in (step, tf.function(step)):
        for i in range(passes):
            run(tf.constant(np.inf if i == 0 and RANK == SIZE - 1 else 1.0))
        assert a.numpy().tolist() == [expected] * 2 and float(optimizer.loss_scale) == scale / 2
        for _ in range(passes):
            run(tf.constant(RANK + 1.0))
        expected, scale = expected - (SIZE + 1) / 2, scale / 2
        assert a.numpy().tolist() == [expected] * 2 and float(optimizer.loss_scale) == scale


def check_an_overflow_of_one_rank_is_everybodys():
    for of, passes in ((keras.optimizers, 1), (keras.optimizers.legacy, 1), (keras.optimizers, 2)):
        overflows_together(of, passes)
    optimizer = hvd.DistributedOptimizer(sgd(keras.optimizers))
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model, _ = fit(1, optimizer, mine(), EACH, epochs=1)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    weights, scale = model.get_weights(), float(model.optimizer.loss_scale)
    model.train_on_batch(mine()[0][:EACH] * np.float32(1e30 if RANK == SIZE - 1 else 1), mine()[1][:EACH])
    assert all(np.array_equal(w, v) for w, v in zip(model.get_weights(), weights))
    assert float(model.optimizer.loss_scale) == scale / 2


def check_in_a_graph():
    tf.compat.v1.disable_eager_execution()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.keras.backend.set_session(session)
        equals_one_rank()
        warms_up()
        keeps_its_state()
        variable = keras.backend.variable(float(RANK))
        assert float(hvd.allreduce(variable, op=hvd.Sum)) == SIZE * (SIZE - 1) / 2
        session.run(tf.compat.v1.global_variables_initializer())
        hvd.broadcast_global_variables(1)
