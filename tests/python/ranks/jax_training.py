"""Training with hvd.jax: ranks with parts of a batch get the same result as one rank with the whole batch."""

from unittest import SkipTest, mock

import jax
import jax.numpy as jnp
import numpy as np

import hvd.jax as hvd
from hvd.jax import _library, _primitive

try:
    import optax
except ImportError:
    optax = None

hvd.init()
COMPILES = _library._version(jax.lib.__version__) >= _library._FIRST
jit = jax.jit if COMPILES else lambda function: function
RANK, SIZE = hvd.rank(), hvd.size()
GENERATOR = np.random.default_rng(3)
X, Y = GENERATOR.normal(size=(8 * SIZE, 5)).astype("float32"), GENERATOR.normal(size=(8 * SIZE, 2)).astype("float32")
MINE = slice(8 * RANK, 8 * RANK + 8)


def parameters(seed=0):
    generator = np.random.default_rng(seed)
    w = [jnp.asarray(generator.normal(size=shape).astype("float32")) for shape in ((5, 7), (7,), (7, 2))]
    return {"first": {"w": w[0], "b": w[1]}, "second": w[2]}


def loss(params, x, y):
    hidden = jnp.tanh(x @ params["first"]["w"] + params["first"]["b"])
    return jnp.mean((hidden @ params["second"] - y) ** 2)


def close(a, b, **tolerance):
    jax.tree_util.tree_map(lambda x, y: np.testing.assert_allclose(x, y, **({"rtol": 2e-5, "atol": 1e-6} | tolerance)), a, b)


def trained(optimizer, x, y, steps=5, compiled=True):
    params = parameters()
    state = optimizer.init(params)

    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params, x, y), state, params)
        return jax.tree_util.tree_map(jnp.add, params, updates), state

    step = jit(step) if compiled else step
    for _ in range(steps):
        params, state = step(params, state)
    return params


def same_as_alone(make, **tolerance):
    alone = trained(make(), X, Y)
    for compiled in (True, False):
        close(trained(hvd.DistributedGradient(make()), X[MINE], Y[MINE], compiled=compiled), alone, **tolerance)


class Sgd:
    """A gradient transformation that does not come from optax."""

    def init(self, params):
        return ()

    def update(self, gradients, state, params=None):
        return jax.tree_util.tree_map(lambda g: -0.1 * g, gradients), state


def check_a_transformation_of_ones_own():
    same_as_alone(Sgd)


def check_optax_optimizers():
    if optax:
        same_as_alone(lambda: optax.sgd(0.1, momentum=0.9))
        same_as_alone(lambda: optax.adamw(1e-2), rtol=1e-3)


def check_in_a_chain():
    if optax:
        clipped = lambda *first: optax.chain(*first, optax.clip_by_global_norm(0.5), optax.sgd(0.1))  # noqa: E731
        close(trained(clipped(hvd.DistributedGradient()), X[MINE], Y[MINE]), trained(clipped(), X, Y))


def check_options():
    alone = trained(Sgd(), X, Y)
    for options in (
        {"gradient_predivide_factor": 2.0},
        {"op": hvd.Sum, "optimizer": type("Less", (Sgd,), {"update": lambda s, g, t, p=None: scaled(Sgd().update(g, t))})()},
        {"name": "mine"},
    ):
        optimizer = options.pop("optimizer", Sgd())
        close(trained(hvd.DistributedGradient(optimizer, **options), X[MINE], Y[MINE]), alone)
    for compression, tolerance in ((hvd.Compression.fp16, 2e-2), (hvd.Compression.bf16, 1e-1)):
        optimizer = hvd.DistributedGradient(Sgd(), compression=compression)
        close(trained(optimizer, X[MINE], Y[MINE]), alone, rtol=tolerance, atol=tolerance / 10)
    for wrong in ({"backward_passes_per_step": 0}, {"op": 9}):
        try:
            hvd.DistributedGradient(Sgd(), **wrong)
        except ValueError:
            continue
        raise AssertionError(f"{wrong} was accepted")


def scaled(result):
    return jax.tree_util.tree_map(lambda u: u / SIZE, result[0]), result[1]


def check_backward_passes_per_step():
    """Two passes over halves of this rank's part, then one step with their sum."""
    if not COMPILES:  # jax.lax.cond compiles
        raise SkipTest("operations inside compiled programs need jax 0.5")
    optimizer = hvd.DistributedGradient(Sgd(), backward_passes_per_step=2)
    params = parameters()
    state = optimizer.init(params)

    @jit
    def step(params, state, x, y):
        updates, state = optimizer.update(jax.grad(loss)(params, x, y), state, params)
        return jax.tree_util.tree_map(jnp.add, params, updates), state

    alone = trained(type("Twice", (Sgd,), {"update": lambda s, g, t, p=None: twice(Sgd().update(g, t))})(), X, Y, steps=2)
    for _ in range(2):
        for half in (0, 4):
            rows = slice(8 * RANK + half, 8 * RANK + half + 4)
            params, state = step(params, state, X[rows], Y[rows])
    close(params, alone)


def twice(result):
    return jax.tree_util.tree_map(lambda u: 2 * u, result[0]), result[1]


def check_value_and_grad():
    expected = jax.value_and_grad(loss)(parameters(), X, Y)
    for way in (lambda f: f, jit):
        close(way(hvd.value_and_grad(loss))(parameters(), X[MINE], Y[MINE]), expected)
        close(way(hvd.grad(loss))(parameters(), X[MINE], Y[MINE]), expected[1])
        with_aux = hvd.value_and_grad(lambda p, x, y: (loss(p, x, y), RANK), has_aux=True)
        (value, aux), gradients = way(with_aux)(parameters(), X[MINE], Y[MINE])
        assert int(aux) == RANK
        close((value, gradients), expected)


def check_a_whole_training_loop_in_one_program():
    if not COMPILES:
        raise SkipTest("operations inside compiled programs need jax 0.5")

    @jit
    def train(params):
        def step(params, _):
            value, gradients = hvd.value_and_grad(loss)(params, X[MINE], Y[MINE])
            return jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, params, gradients), value

        return jax.lax.scan(step, params, None, length=20)

    params, values = train(parameters())
    close(params, trained(Sgd(), X, Y, steps=20), rtol=1e-4)
    assert values[-1] < values[0]


def check_batches_of_gradients():
    import hvd.jax.gradients as module

    module.BATCH_BYTES = 100
    try:
        tree = [jnp.full((i,), float(RANK + i)) for i in range(1, 60, 7)]
        for i, out in zip(range(1, 60, 7), jit(hvd.allreduce_gradients)(tree)):
            np.testing.assert_array_equal(out, np.full(i, i + (SIZE - 1) / 2, np.float32))
    finally:
        module.BATCH_BYTES = 32 << 20


def check_gradients_of_different_parameters_never_meet():
    one, names = jnp.full((2,), RANK + 1.0), []
    trees = {"a": one, "b": None}, {"a": None, "b": one}, {"a": one}, {"b": one}, {"a": one, "b": one}
    for tree in trees:
        with mock.patch.object(_primitive, "bind", wraps=_primitive.bind) as spy:
            out = hvd.allreduce_gradients(tree)
        names.append(spy.call_args.args[0].name)
        close(out, jax.tree_util.tree_map(lambda g: jnp.full((2,), (SIZE + 1) / 2), tree))
        assert out.keys() == tree.keys()
    assert len(set(names)) == len(trees) and names[0].endswith(".without.['b']"), names


def check_mixed_dtypes_and_no_leaves():
    tree = {"a": jnp.ones(3, jnp.bfloat16), "b": None, "c": (jnp.ones(2, jnp.float16), jnp.ones((2, 2)))}
    out = jit(lambda tree: hvd.allreduce_gradients(tree, op=hvd.Sum))(tree)
    assert out["b"] is None and [out["a"].dtype, out["c"][0].dtype] == [jnp.bfloat16, jnp.float16]
    np.testing.assert_array_equal(out["c"][1], np.full((2, 2), SIZE))
    assert hvd.allreduce_gradients({}) == {}


def check_sparse_gradients():
    from jax.experimental import sparse

    gradient = sparse.BCOO.fromdense(jnp.eye(3) * (RANK + 1))
    try:
        hvd.allreduce_gradients({"embedding": gradient})
        raise AssertionError("a sparse gradient was accepted")
    except ValueError as error:
        assert "sparse_as_dense" in str(error)
    out = hvd.allreduce_gradients({"embedding": gradient}, op=hvd.Sum, sparse_as_dense=True)["embedding"]
    np.testing.assert_array_equal(out, np.eye(3) * SIZE * (SIZE + 1) / 2)


def check_broadcast_parameters():
    mine = {"model": parameters(RANK), "rate": 0.1 * (RANK + 1), "key": jax.random.key(RANK), "half": jnp.bfloat16(RANK)}
    got = hvd.broadcast_parameters({**mine, "name": f"rank {RANK}", "counts": np.full(2, RANK)}, root_rank=1)
    close(got["model"], parameters(1), rtol=0, atol=0)
    assert got["rate"] == 0.2 and got["name"] == "rank 1" and got["counts"].tolist() == [1, 1]
    assert got["half"].dtype == jnp.bfloat16 and float(got["half"]) == 1
    assert jax.random.uniform(got["key"]) == jax.random.uniform(jax.random.key(1))
    assert isinstance(got["model"]["second"], jax.Array) and isinstance(got["counts"], np.ndarray)
    if optax:
        state = optax.adam(1e-3).init(parameters(RANK))
        assert isinstance(hvd.broadcast_optimizer_state(state)[0], type(state[0]))
    try:
        hvd.broadcast_parameters([jnp.ones(2)] * (1 + RANK))
        raise AssertionError("different trees were accepted")
    except ValueError as error:
        assert "differ" in str(error)


def check_objects():
    assert hvd.broadcast_object({"rank": RANK}, 1) == {"rank": 1}
    assert hvd.allgather_object(RANK) == list(range(SIZE))
