"""horovod.keras on the backend that KERAS_BACKEND names: training on all ranks equals training on one."""

import contextlib
import importlib
import io
import os
import pathlib
import pickle
import tempfile
from unittest import mock

import keras
import numpy as np
from full_memory import Full, keeps_the_commit_before
from wrong_arguments import optimizer_refused_by

import horovod.keras as hvd
from hvd.keras import _backend

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
BACKEND = keras.backend.backend()
ROWS, EACH = 96, 8  # rows, and rows of a batch on each rank
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(ROWS, 6)).astype("float32")
Y = (X @ RANDOM.normal(size=(6, 3)) > 0.3).astype("float32")


def model_of(seed=1, first=12):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Input((6,)), keras.layers.Dense(first, activation="tanh"), keras.layers.Dense(3)]
    return keras.Sequential(layers)


def mine():
    """The rows of this rank: batch i of this rank is a part of the global batch i."""
    rows = np.arange(ROWS).reshape(-1, SIZE, EACH)[:, RANK].ravel()
    return X[rows], Y[rows]


def fit(model, optimizer, rows, batch, epochs=2, callbacks=(), **kwargs):
    model.compile(optimizer=optimizer, loss="mse", **kwargs)
    history = model.fit(*rows, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks))
    return model.get_weights(), history.history


def close(got, expected, rtol=2e-4, atol=2e-5):
    for a, b in zip(got, expected):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


OPTIMIZERS = [
    lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    lambda: keras.optimizers.AdamW(keras.optimizers.schedules.ExponentialDecay(0.01, 5, 0.9), clipnorm=1.0),
]


def check_fit_equals_one_rank():
    for make in OPTIMIZERS:
        expected, _ = fit(model_of(), make(), (X, Y), EACH * SIZE)
        start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        got, _ = fit(model_of(1 + RANK), hvd.DistributedOptimizer(make()), mine(), EACH, callbacks=[start])
        close(got, expected)


def check_metrics_and_epochs():
    expected, one = fit(model_of(), "sgd", (X, Y), EACH * SIZE, metrics=["mae"])
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD())
    got, all_ranks = fit(model_of(), optimizer, mine(), EACH, callbacks=callbacks, metrics=["mae"])
    close(got, expected)
    for name in ("loss", "mae"):
        np.testing.assert_allclose(all_ranks[name], one[name], rtol=1e-4)


def check_metrics_that_one_rank_lacks():
    """Every rank learns which ones, also if the ranks have equally many."""
    average = hvd.callbacks.MetricAverageCallback()
    last = RANK == SIZE - 1
    for mine, words in (
        (
            {"loss": 1.0} if last else {"loss": 1.0, "val_loss": 2.0, "val_mae": 3.0},
            f"rank {SIZE - 1} lacks val_loss, val_mae. ",
        ),
        ({"loss": 1.0, "f1": 1.0} if last else {"loss": 1.0, "mae": 1.0}, f"rank {SIZE - 1} lacks mae"),
        (None if last else {"loss": 1.0}, f"rank {SIZE - 1} lacks loss. "),
    ):
        try:
            average.on_epoch_end(0, mine)
        except hvd.HorovodInternalError as error:
            assert words in str(error) and error.code == "mismatch", error
        else:
            raise AssertionError(f"{words} was not said")
    logs = {"loss": float(RANK), "name": "a text"}
    average.on_epoch_end(1, logs)
    assert logs == {"loss": (SIZE - 1) / 2, "name": "a text"}


def check_options():
    expected, _ = fit(model_of(), keras.optimizers.SGD(0.1), (X, Y), EACH * SIZE)
    for options in (
        {"compression": hvd.Compression.fp16},
        {"gradient_predivide_factor": 2.0},
        {"num_groups": 2},
    ):
        got, _ = fit(model_of(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **options), mine(), EACH)
        close(got, expected, rtol=2e-2 if "compression" in options else 2e-4, atol=2e-3 if "compression" in options else 2e-5)
    summed = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 / SIZE), op=hvd.Sum)
    close(fit(model_of(), summed, mine(), EACH)[0], expected)


def check_several_backward_passes():
    if BACKEND == "jax":
        return  # Keras' own gradient_accumulation_steps does this there
    expected, _ = fit(model_of(), keras.optimizers.SGD(0.1), (X, Y), EACH * SIZE)
    half = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2, average_aggregated_gradients=True)
    got, _ = fit(model_of(), half, mine(), EACH // 2)
    close(got, expected)


def check_every_backward_pass_is_an_iteration():
    if BACKEND == "jax":
        return
    rates = keras.optimizers.schedules.PiecewiseConstantDecay([3], [1.0, 0.5])
    a = keras.Variable(np.zeros(2, "float32"))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(rates), backward_passes_per_step=2)
    optimizer.build([a])
    for done, value in enumerate((0.0, -2.0, -2.0, -4.0, -4.0, -5.0), 1):
        optimizer.apply([keras.ops.ones((2,))], [a])
        assert int(keras.ops.convert_to_numpy(optimizer.iterations)) == done
        assert float(keras.ops.convert_to_numpy(a)[0]) == value, (done, value)


def check_from_config():
    """An optimizer's class makes further optimizers of its kind."""
    expected, _ = fit(model_of(), keras.optimizers.SGD(0.1), (X, Y), EACH * SIZE)
    first = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), gradient_predivide_factor=2.0)
    again = type(first).from_config(first.get_config())
    assert again.get_config() == first.get_config()
    close(fit(model_of(), again, mine(), EACH)[0], expected)
    assert again.variables() == again.variables and len(again.variables()) >= 2


def check_several_backward_passes_of_parts():
    """Alternating lists of variables: each list has its own sums."""
    if BACKEND == "jax":
        return
    a, b = (keras.Variable(np.ones(n, "float32")) for n in (2, 3))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    optimizer.build([a, b])
    for variables, values in (([a], (1, 1)), ([b], (1, 1)), ([a, b], (1, 1)), ([a], (1 - SIZE - 1, 1)), ([b], (-SIZE, -SIZE))):
        optimizer.apply([keras.ops.full(v.shape, RANK + 1.0) for v in variables], variables)
        assert [float(keras.ops.convert_to_numpy(v)[0]) for v in (a, b)] == list(map(float, values)), (variables, values)


def check_gradients_of_different_variables_never_meet():
    """The name of an exchange depends on the set of variables with gradients, without local variables."""
    owner, method, name_of = {
        "tensorflow": lambda: (_module("tensorflow._gradient_reduction"), "many_allreduce", lambda args: args[1]),
        "torch": lambda: (_module("torch.ops").collectives, "_submit_many", lambda args: args[2][0]),
        "jax": lambda: (_module("jax._primitive"), "bind", lambda args: args[0].name),
    }[BACKEND]()
    variables = [keras.Variable(np.ones(2, "float32")) for _ in range(3)]
    reduction = _backend.Reduction(hvd.Compression.none, False, hvd.Average, 1.0, None, hvd.global_process_set, False)
    reduction.local.add(id(variables[0]))
    names = []
    for local, *given in ((1, 1, 0), (0, 1, 0), (1, 0, 1)):
        grads = [keras.ops.full((2,), RANK + 1.0) if there else None for there in (local, *given)]
        with mock.patch.object(owner, method, wraps=getattr(owner, method)) as spy:
            outs = reduction(grads, variables)
        names.append(name_of(spy.call_args.args))
        means = [None if out is None else float(keras.ops.convert_to_numpy(out)[0]) for out in outs]
        assert means == [RANK + 1.0 if local else None, *((SIZE + 1) / 2 if there else None for there in given)], means
    assert names[0] == names[1] != names[2], names


def _module(name):
    return importlib.import_module(f"hvd.{name}")


def check_local_layers():
    model = model_of()
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=model.layers[-1])
    fit(model, optimizer, mine(), EACH)
    first, last = (np.concatenate([w.ravel() for w in layer.get_weights()]) for layer in model.layers[-2:])
    gathered = hvd.allgather_object((first, last))
    assert all(np.array_equal(first, gathered[0][0]) for first, _ in gathered)
    assert not np.array_equal(gathered[0][1], gathered[1][1])


def check_load_model():
    folder = hvd.broadcast_object(tempfile.mkdtemp() if RANK == 0 else None, 0)
    path = pathlib.Path(folder, "model.keras")
    model = model_of()
    fit(model, hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), mine(), EACH, epochs=1)
    if RANK == 0:
        model.save(path)
    hvd.allgather_object(None)
    plain = keras.models.load_model(path)  # needs no hvd
    assert type(plain.optimizer).__name__ == "Adam" and not hasattr(plain.optimizer, "register_local_var")
    loaded = hvd.load_model(path)
    assert isinstance(loaded.optimizer, type(plain.optimizer)) and hasattr(loaded.optimizer, "register_local_var")
    assert int(keras.ops.convert_to_numpy(loaded.optimizer.iterations)) == ROWS // SIZE // EACH
    rows = mine()
    model.fit(*rows, batch_size=EACH, epochs=1, shuffle=False, verbose=0)
    loaded.fit(*rows, batch_size=EACH, epochs=1, shuffle=False, verbose=0)
    close(loaded.get_weights(), model.get_weights())
    plain.fit(X, Y, batch_size=EACH * SIZE, epochs=1, shuffle=False, verbose=0)
    close(plain.get_weights(), model.get_weights())


class OwnOptimizer(keras.optimizers.SGD):
    """An optimizer that Keras does not know."""


class OwnDistributed:
    """Values of custom_objects: the loaded optimizer is then distributed."""

    @staticmethod
    def from_config(config):
        return hvd.DistributedOptimizer(OwnOptimizer.from_config(config))


def check_load_model_with_an_optimizer_of_ones_own():
    model = model_of()
    fit(model, hvd.DistributedOptimizer(OwnOptimizer(0.3)), mine(), EACH, epochs=1)
    path = pathlib.Path(tempfile.mkdtemp(), "model.keras")
    model.save(path)
    for given in ({"custom_optimizers": [OwnOptimizer]}, {"custom_objects": {"OwnOptimizer": OwnDistributed}}):
        optimizer = hvd.load_model(path, **given).optimizer
        assert isinstance(optimizer, OwnOptimizer) and hasattr(optimizer, "register_local_var")
        assert abs(float(optimizer.learning_rate) - 0.3) < 1e-6


def check_learning_rates():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.8, momentum=0.5))
    callbacks = [
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.8, warmup_epochs=2, verbose=1),
        hvd.callbacks.LearningRateScheduleCallback(initial_lr=0.8, multiplier=0.1, start_epoch=3),
    ]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        _, history = fit(model_of(), optimizer, mine(), EACH, epochs=4, callbacks=callbacks)
    assert out.getvalue().count("warm-up is over") == (RANK == 0)
    constant = hvd.callbacks.LearningRateScheduleCallback(0.8, 0.1, staircase=False)
    constant.set_params({})
    constant.on_train_begin()  # needs no steps_per_epoch
    expected = [0.8 / SIZE * (1 + (SIZE - 1) / 2), 0.8, 0.8, 0.08]
    np.testing.assert_allclose(history["lr"], expected, rtol=1e-5)


def check_best_model():
    folder = tempfile.mkdtemp()
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    best.filepath = os.path.join(folder, "best.keras")
    fit(model_of(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), mine(), EACH, callbacks=[best])
    assert os.path.exists(best.filepath)


def check_values():
    assert float(hvd.allreduce(RANK + 1.0, op=hvd.Sum)) == SIZE * (SIZE + 1) / 2
    assert hvd.allgather(np.array([RANK])).tolist() == list(range(SIZE))
    tensor = keras.ops.convert_to_tensor(np.full((2,), RANK, "float32"))
    for out, expected in ((hvd.broadcast(tensor, 1), 1.0), (hvd.allreduce(tensor), (SIZE - 1) / 2)):
        assert type(out) is type(tensor) and keras.ops.convert_to_numpy(out).tolist() == [expected] * 2


@contextlib.contextmanager
def mixed_float16():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        yield
    finally:
        keras.config.set_dtype_policy("float32")


def policy_after():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05))
    with mixed_float16():
        model = model_of()
        model.compile(optimizer=optimizer, loss="mse")
    return model


def policy_of_the_model_alone():
    with mixed_float16():
        model = model_of()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), loss="mse")
    return model


def scaling_outside():
    with mixed_float16():
        model = model_of()
        inner = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05))
        model.compile(optimizer=keras.optimizers.LossScaleOptimizer(inner), loss="mse")
    return model


def scaling_inside():
    with mixed_float16():
        model = model_of()
        inner = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05))
        model.compile(optimizer=hvd.DistributedOptimizer(inner), loss="mse")
    return model


def check_an_overflow_of_one_rank_is_everybodys():
    """No rank steps, and all halve the scale; other steps are the same on all ranks."""
    x, y = mine()[0][:EACH], mine()[1][:EACH]
    for make in (policy_after, policy_of_the_model_alone, scaling_outside, scaling_inside):
        model = make()
        assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        start = model.get_weights()
        model.train_on_batch(x, y)
        weights, scale = model.get_weights(), float(model.optimizer.dynamic_scale)
        assert not np.array_equal(weights[0], start[0]), make
        model.train_on_batch(x * np.float32(1e30 if RANK == SIZE - 1 else 1), y)
        close(model.get_weights(), weights, 0, 0)
        assert float(model.optimizer.dynamic_scale) == scale / 2, make
        model.train_on_batch(x, y)
        for other in hvd.allgather_object(model.get_weights()):
            close(model.get_weights(), other, 0, 0)


def step(optimizer, grads, variables):
    """optimizer.apply(), which Keras' loss scaling cannot do on JAX."""
    if BACKEND != "jax":
        return optimizer.apply(grads, variables)
    results = optimizer.stateless_apply([v.value for v in optimizer.variables], grads, [v.value for v in variables])
    for some, values in zip((variables, optimizer.variables), results):
        for variable, value in zip(some, values):
            variable.assign(value)


def check_an_overflow_of_a_local_gradient_is_everybodys():
    shared, local = (keras.Variable(np.ones(2, "float32")) for _ in range(2))
    inner = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum)
    inner.register_local_var(local)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0)
    optimizer.build([shared, local])
    for grad, expected in ((np.inf if RANK == SIZE - 1 else 2.0, [1.0, 1.0]), (2.0, [1.0 - SIZE, 1.0 - 2 / SIZE])):
        step(optimizer, [keras.ops.full((2,), 1.0), keras.ops.full((2,), grad)], [shared, local])
        assert [float(keras.ops.convert_to_numpy(v)[0]) for v in (shared, local)] == expected, (grad, expected)
    assert float(optimizer.dynamic_scale) == 1.0


def check_loss_scaling_in_fit_and_from_config():
    with mixed_float16():
        model = model_of()
        _, history = fit(model, hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), mine(), EACH, epochs=4)
        assert history["loss"][-1] < 0.9 * history["loss"][0], history
    first = model.optimizer
    again = type(first).from_config(first.get_config())
    assert isinstance(again, keras.optimizers.LossScaleOptimizer) and hasattr(again, "register_local_var")
    assert not hasattr(again.inner_optimizer, "register_local_var")
    try:
        hvd.DistributedOptimizer(first)
    except ValueError:
        return
    raise AssertionError("distributed twice")


def check_errors():
    optimizer_refused_by(lambda **given: hvd.DistributedOptimizer(keras.optimizers.SGD(), **given))
    try:
        hvd.callbacks.MetricAverageCallback()._implements_train_batch_hooks()  # as Keras 2's fit() begins
    except TypeError as error:
        assert "this model is one of Keras 2: set TF_USE_LEGACY_KERAS=1" in str(error), error
    else:
        raise AssertionError("a callback of Keras 3 went into Keras 2")
    try:
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD()))
    except ValueError:
        return
    raise AssertionError("distributed twice")


class _FailsOnce(keras.callbacks.Callback):
    """Raises on one rank during an epoch. The other ranks get the error in their next compiled step."""

    def __init__(self):
        super().__init__()
        self.done = False
        self.steps = 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if batch == 2 and not self.done:
            self.done = True
            if RANK == SIZE - 1:
                raise hvd.HorovodInternalError("this rank alone")


def check_a_commit_without_memory_for_it():
    model, full = model_of(seed=RANK), Full()
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    state = hvd.elastic.KerasState(model, step=0, full=full)

    def fill(number):
        model.set_weights([np.full(w.shape, number, w.dtype) for w in model.get_weights()])

    keeps_the_commit_before(state, full, fill, lambda: float(model.get_weights()[0].ravel()[0]))


def check_elastic_state():
    model = model_of(seed=RANK)
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.5)), loss="mse")
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    once, resets = _FailsOnce(), []
    state.register_reset_callbacks([lambda: resets.append(1)])
    callbacks = [
        once,
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
    ]

    @hvd.elastic.run
    def train(state):
        left = 3 - state.epoch
        model.fit(*mine(), batch_size=EACH, epochs=left, shuffle=False, verbose=0, callbacks=callbacks)
        return state.epoch

    assert train(state) == 3 and resets == [1], (state.epoch, resets)
    # Three until the failure; the rest of that epoch after the committed batch 1; and two epochs.
    steps = len(mine()[0]) // EACH
    if RANK == SIZE - 1:  # another rank may end a step before it notices the failure
        assert once.steps == 3 + (steps - 1) + 2 * steps, once.steps
    weights = hvd.allgather_object([w.tolist() for w in model.get_weights()])
    assert all(w == weights[0] for w in weights)
    before = model.get_weights()
    state.commit()
    model.set_weights([w + 1 for w in before])
    state.restore()
    close(model.get_weights(), before)
    copy = pickle.loads(pickle.dumps(state.saved_copy()))  # the copy of --state-dir
    model.set_weights([w + 2 for w in before])
    state.save()
    state.use_saved_copy(copy)
    state.restore()
    close(model.get_weights(), before)


def check_a_restored_state_forgets_half_a_step():
    if BACKEND == "jax":
        return  # backward_passes_per_step is refused there
    x, y = mine()
    model, reached = model_of(), []
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2), "mse")
    state = hvd.elastic.KerasState(model, step=0)
    for go_back in (state.restore, state.sync, lambda: None):
        for step in range(2):
            model.train_on_batch(x[step * EACH :][:EACH], y[step * EACH :][:EACH])
        reached.append(model.get_weights())
        if len(reached) < 3:
            state.restore()
        model.train_on_batch(x[-EACH:], y[-EACH:])  # no step yet
        go_back()
    close(reached[1], reached[0])
    close(reached[2], reached[0])


def check_a_log_callback_tells_the_driver():
    from sparkdl.horovod.tensorflow.keras import LogCallback

    with contextlib.redirect_stdout(io.StringIO()) as out:
        fit(model_of(), keras.optimizers.SGD(0.1), mine(), EACH, callbacks=[LogCallback(per_batch_log=True)])
    lines = out.getvalue().splitlines()
    batches = ROWS // SIZE // EACH
    assert len(lines) == 2 * (2 + batches) and all("hvd-driver" in line for line in lines), lines
    assert "begin of epoch 0" in lines[0] and "end of epoch 1, logs: {'loss': 0." in lines[-1], lines
