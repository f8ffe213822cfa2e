"""Training on all ranks with hvd.tensorflow equals training on one with the whole batch: tapes, optimizers, graphs."""

import pickle
from unittest import mock

import numpy as np
import tensorflow as tf
from full_memory import Full, keeps_the_commit_before

import horovod.tensorflow as hvd
from hvd.tensorflow import _gradient_reduction

tf.get_logger().setLevel("ERROR")
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
EACH, STEPS = 6, 8
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(STEPS, SIZE, EACH, 5)).astype("float32")
Y = np.tanh(X @ RANDOM.normal(size=(5, 2))).astype("float32")
v1 = tf.compat.v1


class Net(tf.Module):
    """Two dense layers and, for sparse gradients, an embedding."""

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        self.table = tf.Variable(random.normal(size=(7, 5)).astype("float32"))
        self.w1 = tf.Variable(random.normal(size=(5, 8)).astype("float32"))
        self.b1 = tf.Variable(tf.zeros([8]))
        self.w2 = tf.Variable(random.normal(size=(8, 2)).astype("float32"))

    @property
    def all(self):
        return [self.table, self.w1, self.b1, self.w2]

    def loss(self, x, y):
        rows = tf.cast(tf.abs(x[:, 0]) * 3, tf.int32) % 7
        hidden = tf.tanh((x + tf.gather(self.table, rows)) @ self.w1 + self.b1)
        return tf.reduce_mean(tf.square(hidden @ self.w2 - y))


def one_rank(steps=STEPS, rate=0.2):
    net = Net(0)
    for step in range(steps):
        x, y = X[step].reshape(-1, 5), Y[step].reshape(-1, 2)
        with tf.GradientTape() as tape:
            loss = net.loss(x, y)
        for variable, grad in zip(net.all, tape.gradient(loss, net.all)):
            variable.assign_sub(rate * tf.convert_to_tensor(grad))
    return [variable.numpy() for variable in net.all]


def all_ranks(in_function, **options):
    net = Net(RANK)
    hvd.broadcast_variables(net.all, root_rank=0)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = net.loss(x, y)
        tape = hvd.DistributedGradientTape(tape, **options)
        for variable, grad in zip(net.all, tape.gradient(loss, net.all)):
            variable.assign_sub(0.2 * tf.convert_to_tensor(grad))

    if in_function:
        step = tf.function(step)
    for i in range(STEPS):
        step(tf.constant(X[i, RANK]), tf.constant(Y[i, RANK]))
    return [variable.numpy() for variable in net.all]


def close(got, expected, rtol=1e-4, atol=1e-5):
    for a, b in zip(got, expected):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def check_tape_equals_one_rank():
    expected = one_rank()
    for in_function in (False, True):
        close(all_ranks(in_function), expected)
        close(all_ranks(in_function, sparse_as_dense=True), expected)


def check_tape_options():
    expected = one_rank()
    close(all_ranks(True, gradient_predivide_factor=2.0), expected)
    close(all_ranks(True, num_groups=2), expected)
    close(all_ranks(False, compression=hvd.Compression.fp16), expected, 5e-2, 5e-3)
    try:
        all_ranks(False, gradient_predivide_factor=2.0, op=hvd.Sum)
    except ValueError:
        return
    raise AssertionError("no ValueError")


def check_gradients_of_different_variables_never_meet():
    """Where ranks have None for different variables, the names differ, eagerly and in a function."""
    a, b = tf.Variable([1.0, 1.0]), tf.Variable([2.0, 2.0])

    def names(kept, in_function):
        found = []

        def record(tensors, name, *args):
            found.append(name)
            return list(tensors)

        def step():
            grads = [tf.identity(v) if v is kept else None for v in (a, b)]
            return _gradient_reduction.reduce_gradients(grads, [a, b], _gradient_reduction.Settings())[0 if kept is a else 1]

        with mock.patch.object(_gradient_reduction, "many_allreduce", record):
            (tf.function(step) if in_function else step)()
        return found

    for in_function in (False, True):
        first, second = names(a, in_function), names(b, in_function)
        assert len(first) == 1 and first[0].endswith(".without.1") and second[0].endswith(".without.0"), (first, second)
        assert first == names(a, in_function)


def check_nested_sources_and_none():
    a, b, unused = tf.Variable([1.0 + RANK]), tf.Variable(2.0), tf.Variable(3.0)
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        loss = tf.reduce_sum(a * b * (RANK + 1))
    grads = tape.gradient(loss, {"a": a, "rest": (b, unused)})
    np.testing.assert_allclose(grads["a"], [2.0 * (SIZE + 1) / 2])
    np.testing.assert_allclose(grads["rest"][0], np.mean([(r + 1.0) ** 2 for r in range(SIZE)]))
    assert grads["rest"][1] is None
    np.testing.assert_allclose(tape.gradient(loss, a), [2.0 * (SIZE + 1) / 2])
    (in_list,), (in_tuple,) = tape.gradient(loss, [[a], (b,)])  # as long as the flat list
    np.testing.assert_allclose(in_list, grads["a"])
    np.testing.assert_allclose(in_tuple, grads["rest"][0])
    tape.register_local_source(a)
    np.testing.assert_allclose(tape.gradient(loss, [a])[0], [2.0 * (RANK + 1) / SIZE])
    (own,), (shared,) = tape.get_local_and_global_gradients(loss, [b, a])
    assert own[0] is a and shared[0] is b
    np.testing.assert_allclose(own[1], [2.0 * (RANK + 1) / SIZE])
    np.testing.assert_allclose(shared[1], grads["rest"][0])


def check_batches():
    """Many small gradients travel in few operations."""
    variables = [tf.Variable(tf.fill([i + 1], float(RANK))) for i in range(120)]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(v * v) for v in variables])
        return hvd.DistributedGradientTape(tape).gradient(loss, variables)

    for i, grad in enumerate(step()):
        np.testing.assert_allclose(grad, np.full([i + 1], SIZE - 1.0))
    ops = [op for op in step.get_concrete_function().graph.get_operations() if op.type == "HvdAllreduce"]
    assert 1 <= len(ops) <= len(variables) // 6, f"{len(ops)} operations for {len(variables)} gradients"
    sizes = [tf.zeros([1 << 20]) for _ in range(20)]
    assert [len(batch) for batch in _gradient_reduction.batches(sizes)] == [8, 8, 4]


def graph_training(optimizer_of, hook, steps, rows, resource=False):
    """Weights after training in a MonitoredTrainingSession; rows: (x, y) for a step."""
    with tf.Graph().as_default():
        x, y = v1.placeholder(tf.float32, [None, 5]), v1.placeholder(tf.float32, [None, 2])
        initial = np.random.default_rng(RANK if hook else 0).normal(size=(5, 2)).astype("float32")
        w = v1.get_variable("w", initializer=initial, use_resource=resource)
        b = v1.get_variable("b", initializer=np.zeros(2, "float32"), use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.tanh(x @ w + b) - y))
        step = v1.train.get_or_create_global_step()
        train = optimizer_of().minimize(loss, global_step=step)
        hooks = [hvd.BroadcastGlobalVariablesHook(0)] if hook else []
        with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            for i in range(steps):
                feed = rows(i)
                session.run(train, {x: feed[0], y: feed[1]})
            return session.run([w, b, step])


def check_monitored_session():
    def plain():
        return v1.train.MomentumOptimizer(0.2, 0.9)

    expected = graph_training(plain, False, STEPS, lambda i: (X[i].reshape(-1, 5), Y[i].reshape(-1, 2)))
    got = graph_training(lambda: hvd.DistributedOptimizer(plain()), True, STEPS, lambda i: (X[i, RANK], Y[i, RANK]))
    close(got, expected)


def check_several_backward_passes():
    def plain():
        return v1.train.GradientDescentOptimizer(0.2)

    def doubled():
        return hvd.DistributedOptimizer(plain(), backward_passes_per_step=2, average_aggregated_gradients=True)

    expected = graph_training(plain, False, STEPS, lambda i: (X[i].reshape(-1, 5), Y[i].reshape(-1, 2)))
    half = EACH // 2

    def rows(i):
        part = slice(half * (i % 2), half * (i % 2) + half)
        return X[i // 2, RANK, part], Y[i // 2, RANK, part]

    got = graph_training(doubled, True, 2 * STEPS, rows, resource=True)
    close(got, [*expected[:2], 2 * STEPS])  # the global step counts passes, as in Horovod


def check_gradients_between_computing_and_applying():
    """Clipping sees the gradients of all ranks and passes, and the sums are neither broadcast nor saved."""
    for passes in (1, 3):
        with tf.Graph().as_default(), v1.Session() as session:
            w = v1.get_variable("w", initializer=np.zeros(2, "float32"), use_resource=True)
            plain = v1.train.GradientDescentOptimizer(1.0)
            optimizer = hvd.DistributedOptimizer(plain, backward_passes_per_step=passes)
            pairs = optimizer.compute_gradients(tf.reduce_sum(w * (RANK + 1.0)), [w])
            train = optimizer.apply_gradients([(tf.clip_by_value(grad, -1.0, 1.25), v) for grad, v in pairs])
            session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            assert [v.op.name for v in v1.global_variables()] == ["w"]
            for step in range(2 * passes):
                grad, _ = session.run([pairs[0][0], train])
                full = (step + 1) % passes == 0
                so_far = (RANK + 1.0) * ((step % passes) + 1)
                np.testing.assert_allclose(grad, np.full(2, passes * (SIZE + 1) / 2 if full else so_far))
                np.testing.assert_allclose(session.run(w), np.full(2, -1.25 * ((step + 1) // passes)))


def adasum_of_steps(rate, momentum):
    """Weights after steps of every rank with its own momentum, and Adasum of two changes, tensor by tensor."""
    w, b = np.random.default_rng(0).normal(size=(5, 2)).astype("float32"), np.zeros(2, "float32")
    kept = [[0.0, 0.0] for _ in range(SIZE)]
    for i in range(STEPS):
        changes = []
        for rank in range(SIZE):
            t = np.tanh(X[i, rank] @ w + b)
            d = 2 * (t - Y[i, rank]) * (1 - t * t) / t.size
            kept[rank] = [momentum * m + g for m, g in zip(kept[rank], (X[i, rank].T @ d, d.sum(0)))]
            changes.append([-rate * m for m in kept[rank]])
        w, b = (start + adasum(*parts) for start, parts in zip((w, b), zip(*changes)))
    return [w, b, STEPS]


def adasum(one, other):
    both = (one * other).sum()
    return one * (1 - both / (2 * (one * one).sum())) + other * (1 - both / (2 * (other * other).sum()))


def check_adasum_reduces_what_steps_change():
    def optimizer():
        return hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.2, 0.9), op=hvd.Adasum)

    expected = adasum_of_steps(0.2, 0.9)
    for resource in (False, True):
        close(graph_training(optimizer, True, STEPS, lambda i: (X[i, RANK], Y[i, RANK]), resource), expected)

    def doubled():
        return hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.2, 0.9), op=hvd.Adasum, backward_passes_per_step=2,
                                        average_aggregated_gradients=True)  # fmt: skip

    twice = graph_training(doubled, True, 2 * STEPS, lambda i: (X[i // 2, RANK], Y[i // 2, RANK]), resource=True)
    close(twice, [*expected[:2], 2 * STEPS])


def check_elastic_variables():
    net = Net(RANK)
    state = hvd.elastic.TensorFlowState(net.all, step=RANK)
    state.sync()
    close(net.all, Net(0).all)
    assert state.step == 0
    net.b1.assign_add(tf.ones([8]))
    state.commit()
    net.b1.assign_add(tf.ones([8]))
    state.step = 5
    state.restore()
    assert net.b1.numpy().tolist() == [1.0] * 8 and state.step == 0
    copy = pickle.loads(pickle.dumps(state.saved_copy()))  # the copy of --state-dir
    net.b1.assign_add(tf.ones([8]))
    state.save()
    state.use_saved_copy(copy)
    state.restore()
    assert net.b1.numpy().tolist() == [1.0] * 8


def check_a_commit_without_memory_for_it():
    variable, full = tf.Variable(0.0), Full()
    state = hvd.elastic.TensorFlowState([variable], step=0, full=full)
    keeps_the_commit_before(state, full, variable.assign, lambda: float(variable.numpy()))


def check_elastic_graph():
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("v", initializer=float(RANK), use_resource=True)
        session.run(v1.global_variables_initializer())
        state = hvd.elastic.TensorFlowState(session=session, step=3)
        state.sync()
        assert session.run(variable) == 0.0
        session.run(variable.assign(4.0))
        state.restore()
        assert session.run(variable) == 0.0 and state.step == 3


def check_elastic_model_goes_on_after_an_error_in_a_graph():
    model = tf.keras.Sequential([tf.keras.layers.Input((5,)), tf.keras.layers.Dense(2)])
    state = hvd.elastic.TensorFlowKerasState(model, tf.keras.optimizers.SGD(0.1), step=0)
    failed = []

    @tf.function
    def disagree():
        return hvd.allreduce(tf.ones([2 + RANK]), name="sizes differ")

    @hvd.elastic.run
    def train(state):
        while state.step < 4:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(X[state.step, RANK]) - Y[state.step, RANK]))
            tape = hvd.DistributedGradientTape(tape)
            grads = tape.gradient(loss, model.trainable_variables)
            state.optimizer.apply_gradients(zip(grads, model.trainable_variables))
            state.step += 1
            if state.step == 2 and not failed:
                failed.append(1)
                disagree()
            state.commit()
        return model.get_weights()

    weights = train(state)
    assert failed == [1]
    everyone = hvd.allgather_object([w.tolist() for w in weights])
    assert all(other == everyone[0] for other in everyone)


def check_partial_tape():
    model = tf.keras.Sequential([tf.keras.layers.Input((5,)), tf.keras.layers.Dense(3), tf.keras.layers.Dense(2)])
    hvd.broadcast_variables(model.variables, root_rank=0)

    def gradients(wrap):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(X[0, RANK]) - Y[0, RANK]))
        return wrap(tape).gradient(loss, model.trainable_variables)

    own = gradients(lambda tape: tape)
    means = [np.mean(both, 0) for both in zip(*hvd.allgather_object([g.numpy() for g in own]))]
    got = gradients(lambda tape: hvd.PartialDistributedGradientTape(tape, local_layers=model.layers[0]))
    close(got, [own[0] / SIZE, own[1] / SIZE, *means[2:]])
    unscaled = gradients(
        lambda tape: hvd.PartialDistributedGradientTape(tape, local_layers=[model.layers[0]], scale_local_gradients=False)
    )
    close(unscaled, [*own[:2], *means[2:]])
