"""Training with GlobalBatches in one of four frameworks: its output must not depend on killed ranks.

SHARES_FRAMEWORK: numpy, jax, tensorflow or keras.  Other variables: as in elastic_counter.py.
"""

import hashlib
import json
import os
import sys

import numpy as np
from elastic_faults import die_if_told

import hvd.numpy as hvd
from hvd import elastic

SAMPLES, BATCH, EPOCHS = 77, 3, 2  # with four shares: 6 batches, and one of 5 samples
FRAMEWORK = os.environ["SHARES_FRAMEWORK"]
WANTED = int(os.environ.get("ELASTIC_WANTED", "0"))

hvd.init()
x = np.random.default_rng(1).normal(size=(SAMPLES, 6)).astype(np.float32)
y = np.sin(x.sum(1, keepdims=True))
start = np.linspace(-0.5, 0.5, 6 * 33 + 33).astype(np.float32)
values = {
    "epoch": 0,
    "step": 0,
    "losses": [],
    "sizes": [],
    "seen": [[] for _ in range(EPOCHS)],
    "batches": elastic.GlobalBatches(SAMPLES, BATCH, seed=3),
}


def in_numpy():
    def both(weights, some, seed):
        noisy = x[some] * np.random.default_rng(seed).integers(0, 2, (len(some), 6)).astype(np.float32)
        first, second = weights["first"], weights["second"]
        hidden = np.tanh(noisy @ first)
        error = hidden @ second - y[some]
        up = 2 * error / len(some)
        gradients = {"second": hidden.T @ up, "first": noisy.T @ ((up @ second.T) * (1 - hidden**2))}
        return float((error**2).mean()), gradients

    def apply(weights, gradients):
        return {name: weights[name] - np.float32(0.05) * gradients[name] for name in weights}

    return both, apply, {"first": start[:198].reshape(6, 33), "second": start[198:, None]}


def in_jax():
    import jax
    import jax.numpy as jnp

    @jax.jit
    def both(weights, images, labels, key):
        def loss(weights):
            noisy = images * jax.random.bernoulli(key, 0.7, images.shape)
            return ((jnp.tanh(noisy @ weights[0]) @ weights[1] - labels) ** 2).mean()

        return jax.value_and_grad(loss)(weights)

    def of_samples(weights, some, seed):
        return both(weights, x[some], y[some], jax.random.key(seed & 0x7FFFFFFF))

    def apply(weights, gradients):
        return jax.tree.map(lambda w, g: w - 0.05 * g, weights, gradients)

    return of_samples, apply, (jnp.asarray(start[:198].reshape(6, 33)), jnp.asarray(start[198:, None]))


def reduces_over_ranks():
    """Calls of scripts that do not keep the batch."""
    if FRAMEWORK == "jax":
        import hvd.jax as of_jax

        of_jax.allreduce_gradients(state.weights)
    elif FRAMEWORK == "tensorflow":
        import tensorflow as tf

        import hvd.tensorflow as of_tf

        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(state.model.trainable_variables[0])
        of_tf.DistributedGradientTape(tape).gradient(loss, state.model.trainable_variables)
    elif FRAMEWORK == "keras":
        import keras

        import hvd.keras as of_keras

        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
        model.compile(of_keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
        model.fit(x, y, batch_size=7, verbose=0)


def is_refused():
    try:
        reduces_over_ranks()
    except RuntimeError as error:
        return "GlobalBatch.mean()" in str(error)
    return FRAMEWORK == "numpy"


def train(state, both, apply):
    assert is_refused()
    while state.epoch < EPOCHS:
        while not state.batches.processed and state.epoch == EPOCHS - 1 and hvd.size() < WANTED:
            state.check_host_updates()
        for batch in state.batches:
            found, seen = [], []
            for some in batch:
                die_if_told(state.step)
                found.append(both(state.weights, some, batch.seed))
                seen += some.tolist()
            die_if_told(state.step)
            loss, gradients = batch.mean(found)
            state.weights = apply(state.weights, gradients)
            state.losses.append(float(loss).hex())
            state.seen[state.epoch] += [one for part in hvd.allgather_object(seen) for one in part]
            state.sizes.append(hvd.size())
            state.step += 1
            state.commit()
        state.epoch += 1
        state.batches.set_epoch(state.epoch)
        state.commit()


def of_tensorflow():
    """A Keras model, in TensorFlow's own loop or in Keras' with its optimizer: state, both, apply."""
    import keras
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Embedding(20, 4), keras.layers.Flatten(), keras.layers.Dense(33, "tanh"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input([6], dtype="int32"), *layers])
    optimizer = keras.optimizers.Adam(0.01)

    @tf.function
    def compiled(words, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(words) - labels) ** 2)
        return loss, tape.gradient(loss, model.trainable_variables)  # for the embedding: IndexedSlices

    def both(_, some, seed):
        noise = np.random.default_rng(seed).integers(0, 3, (len(some), 6))
        return compiled(tf.constant((np.abs(x[some]) * 7 + noise).astype(np.int32) % 20), tf.constant(y[some]))

    def apply(weights, gradients):
        optimizer.apply(gradients, model.trainable_variables)
        return weights

    if FRAMEWORK == "keras":
        from hvd.keras.elastic import KerasState as State
    else:
        from hvd.tensorflow.elastic import TensorFlowKerasState as State
    return State(model, optimizer, weights=None, **values), both, apply


if FRAMEWORK in ("numpy", "jax"):
    both, apply, weights = in_jax() if FRAMEWORK == "jax" else in_numpy()
    state, run = elastic.ObjectState(elastic.broadcast_from_rank_0, hvd.rank, weights=weights, **values), elastic.run
else:
    if FRAMEWORK == "keras":
        from hvd.keras.elastic import run
    else:
        from hvd.tensorflow.elastic import run
    state, both, apply = of_tensorflow()
run(keep_global_batch=True)(train)(state, both, apply)
assert all(sorted(seen) == list(range(SAMPLES)) for seen in state.seen)
if hvd.rank() == 0:
    if FRAMEWORK == "jax":
        kept = state.weights
    elif FRAMEWORK == "numpy":
        kept = [state.weights["first"], state.weights["second"]]
    else:
        kept = [weight.numpy() for weight in state.model.weights]
    weights = hashlib.sha256(b"".join(np.asarray(weight).tobytes() for weight in kept)).hexdigest()
    print(json.dumps({"losses": state.losses, "weights": weights, "sizes": state.sizes}))
    sys.stdout.flush()
