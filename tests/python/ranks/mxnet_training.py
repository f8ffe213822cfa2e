"""horovod.mxnet: the operations against NumPy, and training on parts of a batch against one rank with all of it."""

import mxnet as mx
import numpy as np
from refusals import raises
from wrong_arguments import predivide_refused_by, refused_by

import horovod.mxnet as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
DTYPES = ["uint8", "int8", "int32", "int64", "float16", "float32", "float64"]


def data(dtype="float32", shape=(4, 3), rank=None):
    """Small numbers that differ from rank to rank."""
    rank = RANK if rank is None else rank
    return ((np.arange(np.prod(shape, dtype=int)) * (rank + 2) + rank) % 7 + 1).reshape(shape).astype(dtype)


def everyone(dtype="float32", shape=(4, 3)):
    return [data(dtype, shape, rank) for rank in range(SIZE)]


def nd(array):
    return mx.nd.array(array, dtype=array.dtype)


def same(out, expected):
    assert isinstance(out, mx.nd.NDArray), type(out)
    assert np.dtype(out.dtype) == expected.dtype, (out.dtype, expected.dtype)
    np.testing.assert_array_equal(out.asnumpy(), expected)


def check_allreduce():
    for dtype in DTYPES:
        total = np.sum(everyone(dtype), 0).astype(dtype)
        mine = nd(data(dtype))
        same(hvd.allreduce(mine, average=False, priority=3), total)
        same(mine, data(dtype))
        same(hvd.allreduce(mine), (total // SIZE if np.dtype(dtype).kind in "iu" else total / SIZE).astype(dtype))
        assert hvd.allreduce_(mine, op=hvd.Max, name="in place") is mine
        same(mine, np.max(everyone(dtype), 0))
    same(hvd.allreduce(nd(data()), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), 2 * np.sum(everyone(), 0))
    scalar = hvd.allreduce(mx.nd.array([RANK]), op=hvd.Sum)
    assert scalar.asscalar() == SIZE * (SIZE - 1) / 2


def check_what_the_engine_has_under_way():
    """MXNet computes in the background: an exchange uses the results of all earlier calls."""
    for i in range(50):
        x = mx.nd.ones((200, 200)) * (RANK + 1)
        y = mx.nd.dot(x, x) + i
        hvd.allreduce_(y, op=hvd.Sum, name="background")
        z = y * 2
        expected = sum(200 * (r + 1) ** 2 + i for r in range(SIZE)) * 2
        assert float(z.min().asscalar()) == float(z.max().asscalar()) == expected


def check_other_operations():
    for dtype in DTYPES:
        mine = nd(data(dtype))
        same(hvd.allgather(mine), np.concatenate(everyone(dtype)))
        same(hvd.broadcast(mine, 1, priority=1), data(dtype, rank=1))
        swapped = np.concatenate([a[2 * RANK : 2 * RANK + 2] for a in everyone(dtype, (2 * SIZE, 3))])
        same(hvd.alltoall(nd(data(dtype, (2 * SIZE, 3)))), swapped)
        part = np.array_split(np.sum(everyone(dtype, (2 * SIZE + 1, 3)), 0).astype(dtype), SIZE)[RANK]
        same(hvd.reducescatter(nd(data(dtype, (2 * SIZE + 1, 3))), op=hvd.Sum), part)
        hvd.broadcast_(mine, 1)
        same(mine, data(dtype, rank=1))
    out, rows = hvd.alltoall(mx.nd.arange(SIZE + 1), splits=mx.nd.array([1] * (SIZE - 1) + [2], dtype="int32"))
    assert rows.asnumpy().tolist() == [1 + (RANK == SIZE - 1)] * SIZE and len(out) == sum(rows.asnumpy())
    hvd.barrier()


def check_groups():
    arrays = [nd(data(dtype)) for dtype in DTYPES]
    for out, dtype in zip(hvd.grouped_allreduce(arrays, average=False, name="group"), DTYPES):
        same(out, np.sum(everyone(dtype), 0).astype(dtype))
    for out, dtype in zip(hvd.grouped_allgather(arrays), DTYPES):
        same(out, np.concatenate(everyone(dtype)))
    assert [len(out) for out in hvd.grouped_reducescatter([mx.nd.ones(SIZE), mx.nd.ones(2 * SIZE)])] == [1, 2]
    assert all(out is array for out, array in zip(hvd.grouped_allreduce_(arrays), arrays))
    assert hvd.grouped_allreduce([]) == hvd.grouped_allgather([]) == hvd.grouped_reducescatter([]) == []


def check_numpy_style_arrays():
    out = hvd.allreduce(mx.np.ones((2, 2)) * RANK, op=hvd.Sum)
    assert isinstance(out, mx.np.ndarray) and out.asnumpy().tolist() == [[SIZE * (SIZE - 1) / 2] * 2] * 2
    assert isinstance(hvd.allgather(out), mx.np.ndarray)


def check_wrong_arguments():
    raises(TypeError, lambda: hvd.allreduce(np.ones(2)), "NDArray")
    raises(ValueError, lambda: hvd.allreduce(mx.nd.ones((2, 2)).tostype("row_sparse")), "tostype")
    raises(hvd.HorovodInternalError, lambda: hvd.allreduce(mx.nd.ones(2 + RANK), name="shapes"), "shape")
    raises(ValueError, lambda: hvd.broadcast_parameters([mx.nd.ones(2)]), "dict")
    for kind in (ValueError, mx.base.MXNetError):
        raises(kind, lambda: hvd.alltoall(mx.nd.ones(SIZE + 1)))
        raises(kind, lambda: hvd.alltoall(mx.nd.ones(SIZE - 1), mx.nd.ones(SIZE, dtype="int32")))
        raises(kind, lambda: hvd.alltoall(mx.nd.ones(SIZE), mx.nd.ones(SIZE, dtype="float32")))


def check_process_sets():
    sets = [hvd.add_process_set([rank]) for rank in range(SIZE)]
    mine = sets[RANK]
    same(hvd.allreduce(nd(data()), op=hvd.Sum, process_set=mine), data())
    for process_set in sets:
        hvd.remove_process_set(process_set)


def check_objects():
    assert hvd.broadcast_object({"rank": RANK}, root_rank=1) == {"rank": 1}
    assert hvd.allgather_object(RANK) == list(range(SIZE))


# ---- training

GENERATOR = np.random.RandomState(3)
X, Y = GENERATOR.normal(size=(8 * SIZE, 5)).astype("float32"), GENERATOR.randint(0, 3, 8 * SIZE).astype("float32")
MINE = slice(8 * RANK, 8 * RANK + 8)


def network(seed, units=7, in_units=0):
    mx.random.seed(seed)
    np.random.seed(seed)
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(mx.gluon.nn.Dense(units, activation="tanh", in_units=in_units), mx.gluon.nn.Dense(3, in_units=units))
    net.initialize(mx.init.Xavier(), force_reinit=True)
    return net


def values(net):
    return [parameter.data().asnumpy().copy() for _, parameter in sorted(net.collect_params().items())]


def train(net, trainer, x, y, steps=4):
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for _ in range(steps):
        with mx.autograd.record():
            error = loss(net(nd(x)), nd(y))
        error.backward()
        trainer.step(len(x))
    return values(net)


def alone(optimizer, options):
    net = network(1, in_units=5)
    return train(net, mx.gluon.Trainer(net.collect_params(), optimizer, options, kvstore=None), X, Y)


def together(optimizer, options, **more):
    net = network(1, in_units=5)
    return train(net, hvd.DistributedTrainer(net.collect_params(), optimizer, options, **more), X[MINE], Y[MINE])


def close(a, b, rtol=2e-5):
    for x, y in zip(a, b):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-6)


def check_trainer_equals_one_rank():
    for optimizer, options in (("sgd", {"learning_rate": 0.5, "momentum": 0.9}), ("adam", {"learning_rate": 0.01})):
        expected = alone(optimizer, options)
        close(together(optimizer, options), expected, rtol=1e-3 if optimizer == "adam" else 2e-5)
    sgd = ("sgd", {"learning_rate": 0.5})
    expected = alone(*sgd)
    close(together(*sgd, num_groups=2), expected)
    close(together(*sgd, gradient_predivide_factor=2.0, prefix="p"), expected)
    close(together(*sgd, compression=hvd.Compression.fp16), expected, rtol=5e-2)
    raises(ValueError, lambda: together(*sgd, gradient_predivide_factor=0.0), "greater than 0")


def check_a_rank_without_others_keeps_its_gradients():
    """The process set is one rank, or other ranks: nothing is exchanged, so nothing is scaled."""
    sgd = ("sgd", {"learning_rate": 0.5})
    net = network(1, in_units=5)
    expected = train(net, mx.gluon.Trainer(net.collect_params(), *sgd, kvstore=None), X[MINE], Y[MINE])
    sets = [hvd.add_process_set([rank]) for rank in range(SIZE)]
    for process_set in sets:
        close(together(*sgd, process_set=process_set, gradient_predivide_factor=2.0), expected)
        optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.5), 2.0, process_set=process_set)
        weight = mx.nd.ones(3)
        optimizer.update(0, weight, mx.nd.ones(3), optimizer.create_state(0, weight))
        np.testing.assert_allclose(weight.asnumpy(), 0.5, rtol=1e-6)
    for process_set in sets:
        hvd.remove_process_set(process_set)


def check_trainer_unwraps_an_optimizer():
    wrapped = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.5), gradient_predivide_factor=2.0)
    import warnings

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        close(together(wrapped, None), alone("sgd", {"learning_rate": 0.5}))
    assert any("DistributedTrainer" in str(warning.message) for warning in said)


def check_optimizer():
    """Loops over update(), as Module's."""
    for more in ({}, {"num_groups": 1}, {"gradient_predivide_factor": 2.0}):
        optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9), **more)
        assert optimizer.learning_rate == 0.5 and optimizer.momentum == 0.9
        weight, weight2 = mx.nd.ones(3), mx.nd.ones((2, 2))
        state, state2 = optimizer.create_state(0, weight), optimizer.create_state_multi_precision(1, weight2)
        for _ in range(2):
            optimizer.update(0, weight, mx.nd.ones(3) * RANK, state)
            optimizer.update([1], [weight2], [mx.nd.ones((2, 2)) * RANK], [state2])
        mean = (SIZE - 1) / 2
        for array in (weight, weight2):
            np.testing.assert_allclose(array.asnumpy(), 1 - 0.5 * mean - (0.5 * mean + 0.9 * 0.5 * mean), rtol=1e-6)
        optimizer.set_learning_rate(0.25)
        assert optimizer.learning_rate == 0.25


def check_module_fit():
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc"), name="softmax")

    def fitted(x, y, optimizer):
        mx.random.seed(5)
        np.random.seed(5)
        module = mx.mod.Module(symbol)
        batches = mx.io.NDArrayIter(x, y, batch_size=len(x))
        module.fit(batches, num_epoch=3, optimizer=optimizer, kvstore=None, initializer=mx.init.Uniform(0.1))
        return [array.asnumpy() for _, array in sorted(module.get_params()[0].items())]

    expected = fitted(X, Y, mx.optimizer.SGD(learning_rate=0.5, rescale_grad=1 / len(X)))
    close(fitted(X[MINE], Y[MINE], hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.5, rescale_grad=1 / 8))), expected)


def check_broadcast_parameters():
    net = network(RANK, in_units=5)
    hvd.broadcast_parameters(net.collect_params(), root_rank=1)
    close(values(net), values(network(1, in_units=5)), rtol=0)
    arrays = {"a": mx.nd.ones(2) * RANK, "b": mx.nd.ones((2, 2)) * (RANK + 1)}
    hvd.broadcast_parameters(arrays, root_rank=1, prefix="module.")
    assert arrays["a"].asnumpy().tolist() == [1, 1] and arrays["b"].asnumpy().max() == 2


def check_deferred_initialisation():
    net = network(RANK)  # the first layer's shape is unknown
    hvd.broadcast_parameters(net.collect_params(), root_rank=1)
    net(nd(X))
    gathered = [hvd.allgather(nd(value[None])).asnumpy() for value in values(net)]
    assert all((every == every[:1]).all() for every in gathered)
    net.initialize(mx.init.Xavier(), force_reinit=True)  # later initialisations are the rank's own


def check_sparse_gradients():
    embedding = mx.gluon.nn.Embedding(6, 2, sparse_grad=True)
    embedding.initialize(mx.init.One())
    trainer = hvd.DistributedTrainer(embedding.collect_params(), "sgd", {"learning_rate": 1.0})
    with mx.autograd.record():
        out = embedding(mx.nd.array([RANK, 5])).sum()
    out.backward()
    trainer.step(1)
    expected = np.ones((6, 2), "float32")
    expected[:SIZE] -= 1 / SIZE
    expected[5] -= 1
    np.testing.assert_allclose(embedding.weight.data().asnumpy(), expected, rtol=1e-6)


def check_refused_arguments():
    refused_by(hvd, nd(data()))
    predivide_refused_by(lambda **given: hvd.DistributedOptimizer(mx.optimizer.SGD(), **given))


def check_made_distributed_twice():
    """A notebook's cell runs twice: the gradients are still averaged, once."""
    plain = mx.optimizer.SGD(rescale_grad=0.5)
    hvd.DistributedOptimizer(plain)
    again = hvd.DistributedOptimizer(hvd.DistributedOptimizer(plain))
    weight, grad = nd(np.zeros(2, "float32")), nd(np.full(2, RANK + 1, "float32"))
    again.set_learning_rate(1.0)
    again.update(0, weight, grad, None)
    same(weight, np.full(2, -0.5 * (SIZE + 1) / 2, "float32"))
