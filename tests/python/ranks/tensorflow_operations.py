"""The operations of hvd.tensorflow against NumPy: eagerly, in tf.function, in TF1-style graphs; gradients; errors."""

from unittest import SkipTest

import numpy as np
import tensorflow as tf
from refusals import raises
from wrong_arguments import optimizer_refused_by, refused_by

import horovod.tensorflow as hvd
from hvd.tensorflow import _library

tf.get_logger().setLevel("ERROR")
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
DTYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


def data(dtype="float32", shape=(3, 5), rank=None):
    rank = RANK if rank is None else rank
    count = int(np.prod(shape))
    return tf.cast(((np.arange(count) * (rank + 2) + rank) % 7 + 1).reshape(shape), dtype)


def everyone(shape=(3, 5)):
    return np.stack([data("float64", shape, rank).numpy() for rank in range(SIZE)])


def same(got, expected):
    got = got.numpy() if hasattr(got, "numpy") else np.asarray(got)
    np.testing.assert_allclose(got.astype(np.float64), np.asarray(expected, np.float64), rtol=1e-2, atol=1e-6)


def check_world():
    assert (hvd.size_op().numpy(), hvd.rank_op().numpy()) == (SIZE, RANK)
    assert (hvd.local_size_op().numpy(), hvd.local_rank_op().numpy()) == (hvd.local_size(), hvd.local_rank())
    assert tf.function(hvd.size_op)().numpy() == SIZE
    assert hvd.barrier() is None


def check_every_dtype():
    for name in DTYPES:
        out = hvd.allreduce(data(name), op=hvd.Sum)
        assert out.dtype.name == name and out.shape == (3, 5)
        same(out, everyone().sum(0))
        average = everyone().mean(0)
        same(hvd.allreduce(data(name)), average if tf.as_dtype(name).is_floating else np.trunc(average))
        same(hvd.allgather(data(name)), everyone().reshape(-1, 5))
        same(hvd.broadcast(data(name), 1), data("float64", rank=1))
        for op, expected in ((hvd.Min, everyone().min(0)), (hvd.Max, everyone().max(0))):
            same(hvd.allreduce(data(name), op=op), expected)
    same(hvd.allreduce(data("float64"), op=hvd.Product), everyone().prod(0))
    flags = tf.constant([True, False, RANK == 0])
    assert hvd.allreduce(flags, op=hvd.Max).numpy().tolist() == [True, False, True]
    assert hvd.broadcast(flags, 0).numpy().tolist() == [True, False, True]


def check_8_bit_floats():
    for name in ("float8_e4m3fn", "float8_e5m2"):
        if not _library.FLOAT8:
            raise SkipTest(f"this TensorFlow has no {name}")
        sums = [tf.cast(tf.cast(x, "float32"), name) for x in (everyone().sum(0), everyone().mean(0))]
        total, average = (tf.cast(x, "float32") for x in sums)
        mine = tf.cast(data("float32"), name)  # TensorFlow casts no integers to it
        for way in (hvd.allreduce, tf.function(hvd.allreduce)):
            out = way(mine, op=hvd.Sum)
            assert out.dtype.name == name
            same(out, total)
        same(hvd.allreduce(mine), average)
        same(hvd.allgather(mine), everyone().reshape(-1, 5))
        same(hvd.broadcast(mine, 1), data("float64", rank=1))


def check_complex_and_unsigned():
    mine = tf.complex(data("float32"), data("float32") * 2)
    assert np.array_equal(hvd.broadcast(mine, 1), tf.complex(data("float32", rank=1), data("float32", rank=1) * 2))
    rows = tf.cast(tf.fill([RANK + 1, 2], RANK), "complex128")
    gathered = hvd.allgather(rows)
    assert gathered.dtype == tf.complex128
    assert gathered.numpy()[:, 0].tolist() == [complex(r) for r in range(SIZE) for _ in range(r + 1)]
    assert hvd.allgather(tf.cast(RANK, "uint32")).numpy().tolist() == list(range(SIZE))
    total = sum(tf.complex(data("float32", rank=r), data("float32", rank=r) * 2) for r in range(SIZE))
    assert np.array_equal(hvd.allreduce(mine, op=hvd.Sum), total)
    assert np.array_equal(tf.function(hvd.reducescatter)(mine, op=hvd.Sum).shape[1:], mine.shape[1:])
    assert hvd.allreduce(tf.constant([RANK, 2**31], "uint32"), op=hvd.Max).numpy().tolist() == [SIZE - 1, 2**31]
    raises(ValueError, lambda: hvd.allreduce(mine, op=hvd.Min), "complex64")
    raises(ValueError, lambda: hvd.allgather(tf.constant("text")), "string")


def check_factors_and_compression():
    same(hvd.allreduce(data(), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0), everyone().sum(0) * 1.5)
    same(hvd.allreduce(data(), op=hvd.Sum, prescale_factor=0.0, postscale_factor=0.0), everyone().sum(0) * 0)
    exact = hvd.allreduce(tf.ones([2], tf.float64), op=hvd.Sum, prescale_factor=1 / 3)
    assert abs(exact.numpy()[0] - SIZE / 3) < 1e-15
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        out = hvd.allreduce(data(), compression=compression)
        assert out.dtype == tf.float32
        same(out, everyone().mean(0))
    assert hvd.allreduce(data("int32"), op=hvd.Sum, compression=hvd.Compression.fp16).dtype == tf.int32


def check_groups():
    tensors = [data("float32", (4,)), data("int64", (2, 3)), data("float16", ())]
    outs = hvd.grouped_allreduce(tensors, op=hvd.Sum, name="group")
    for out, tensor in zip(outs, tensors):
        same(out, everyone(tuple(tensor.shape)).sum(0))
    outs = hvd.grouped_allgather([data(), data("int32", (RANK + 1, 2))])
    same(outs[0], everyone().reshape(-1, 5))
    same(outs[1], np.concatenate([data("int32", (r + 1, 2), r) for r in range(SIZE)]))
    assert hvd.grouped_allreduce([]) == hvd.grouped_allgather([]) == hvd.grouped_reducescatter([]) == []


def check_shapes():
    for shape in ((), (0,), (0, 3), (1,), (1 << 18,)):
        same(hvd.allreduce(data("float32", shape), op=hvd.Sum), everyone(shape).sum(0))
    same(hvd.allgather(tf.constant(float(RANK))), range(SIZE))
    assert hvd.allgather(tf.zeros([0, 4])).shape == (0, 4)


def check_alltoall():
    rows = tf.reshape(tf.range(SIZE * 2) + 100 * RANK, [SIZE, 2])
    out = hvd.alltoall(rows)
    same(out, [[2 * RANK + 100 * r, 2 * RANK + 1 + 100 * r] for r in range(SIZE)])
    splits = [r + RANK for r in range(SIZE)]  # the number of rows for each rank

    def exchange(x):
        return hvd.alltoall(x, splits)

    for run in (exchange, tf.function(exchange)):
        out, counts = run(tf.fill([sum(splits), 3], float(RANK)))
        assert counts.numpy().tolist() == [RANK + r for r in range(SIZE)]
        same(out[:, 0], [r for r in range(SIZE) for _ in range(RANK + r)])
    x = tf.ones([sum(splits), 3])
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(exchange(x)[0] * (RANK + 1))
    same(tape.gradient(loss, x)[:, 0], [r + 1 for r in range(SIZE) for _ in range(splits[r])])
    raises(ValueError, lambda: hvd.alltoall(x, [1] * SIZE))
    raises(ValueError, lambda: hvd.alltoall(x, tf.ones([SIZE])))
    raises(ValueError, lambda: hvd.alltoall(x, tf.constant([2**32 + int(tf.shape(x)[0])] + [0] * (SIZE - 1), tf.int64)))


def check_reducescatter():
    shares = np.array_split(np.arange(SIZE + 1), SIZE)  # the rows of each rank
    x, total = data("float32", (SIZE + 1, 3)), everyone((SIZE + 1, 3)).sum(0)
    for run in (hvd.reducescatter, tf.function(hvd.reducescatter)):
        same(run(x, op=hvd.Sum), total[shares[RANK]])
        same(run(x), total[shares[RANK]] / SIZE)
    outs = hvd.grouped_reducescatter([x, x * 2], op=hvd.Sum, compression=hvd.Compression.fp16)
    same(outs[1], 2 * total[shares[RANK]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(hvd.reducescatter(x) * (RANK + 1.0))
    same(tape.gradient(loss, x)[:, 0], [r + 1.0 for r in range(SIZE) for _ in shares[r]])


def check_process_sets():
    alone, both = hvd.add_process_set([1]), hvd.global_process_set
    assert hvd.size_op(alone.process_set_id).numpy() == 1 and hvd.size_op(both.process_set_id).numpy() == SIZE
    assert hvd.process_set_included_op(alone.process_set_id).numpy() == int(RANK == 1)
    if RANK == 1:
        same(hvd.allreduce(data(), op=hvd.Sum, process_set=alone), data())
        same(tf.function(lambda x: hvd.broadcast(x, 1, process_set=alone))(data()), data())
    else:
        raises(ValueError, lambda: hvd.allreduce(data(), process_set=alone))
    same(hvd.allreduce(data(), op=hvd.Sum), everyone().sum(0))
    variable = tf.Variable(float(RANK + 1))
    with tf.GradientTape() as tape:
        loss = variable * variable
    grad = hvd.DistributedGradientTape(tape, process_set=alone).gradient(loss, variable)
    assert grad.numpy() == 2 * (RANK + 1)  # a rank outside of the set keeps its own
    assert hvd.remove_process_set(alone)
    assert hvd.process_set_included_op(99).numpy() == -2


def check_join():
    """The last rank has two batches more than the others, which contribute zeros."""
    for _ in range(2 if RANK == SIZE - 1 else 0):
        same(hvd.allreduce(data(), op=hvd.Sum, name="uneven"), data())
    assert int(hvd.join().numpy()) == SIZE - 1  # a tensor, as in Horovod
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        assert session.run(hvd.join()) in range(SIZE)
    same(hvd.allreduce(data(), op=hvd.Sum, name="uneven"), everyone().sum(0))


def check_sparse():
    rows = tf.IndexedSlices(tf.fill([RANK + 1, 2], float(RANK + 1)), tf.range(RANK + 1), dense_shape=[SIZE, 2])
    expected = np.zeros((SIZE, 2))
    for rank in range(SIZE):
        expected[: rank + 1] += rank + 1
    same(tf.convert_to_tensor(hvd.allreduce(rows, op=hvd.Sum)), expected)
    same(tf.convert_to_tensor(hvd.allreduce(rows)), expected / SIZE)
    same(tf.convert_to_tensor(hvd.allreduce(rows, op=hvd.Sum, prescale_factor=3.0, postscale_factor=0.5)), expected * 1.5)
    raises(NotImplementedError, lambda: hvd.allreduce(rows, op=hvd.Min))


def check_in_a_function():
    @tf.function
    def step(x, n):
        total = hvd.allreduce(x, op=hvd.Sum)
        rows = hvd.allgather(tf.fill([n, 2], tf.cast(hvd.rank_op(), tf.float32)))
        pair = hvd.grouped_allreduce([x, x * 2], op=hvd.Sum)
        assert total.shape == x.shape and rows.shape[1] == 2
        return total, rows, pair, hvd.broadcast(x, 1)

    for _ in range(3):
        total, rows, pair, root = step(data(), tf.constant(RANK + 1))
        same(total, everyone().sum(0))
        same(rows[:, 0], [r for r in range(SIZE) for _ in range(r + 1)])
        same(pair[1], everyone().sum(0) * 2)
        same(root, data(rank=1))
    # A rank that traces again, for another shape, still matches the others.
    for round in range(3):
        same(step(data("float32", (2 + round // 2, 3)), tf.constant(1))[0], everyone((2 + round // 2, 3)).sum(0))


def check_any_order():
    """Independent operations: each rank requests them in a different order, and TensorFlow runs them in any."""
    if not _library.ASYNCHRONOUS:
        return  # blocking kernels, before TensorFlow 2.13: ranks must agree on the order

    @tf.function
    def many(xs):
        return [hvd.allreduce(xs[i], op=hvd.Sum, name=f"any.{i}") for i in (range(40) if RANK % 2 else reversed(range(40)))]

    for _ in range(5):
        outs = many([data("float32", (i + 1,)) for i in range(40)])
        for i, out in zip(range(40) if RANK % 2 else reversed(range(40)), outs):
            same(out, everyone((i + 1,)).sum(0))


def check_loops_and_branches():
    @tf.function
    def loop(x, n):
        for i in tf.range(n):
            if i % 2 == 0:  # noqa: SIM108
                x = hvd.allreduce(x, op=hvd.Sum)
            else:
                x = hvd.broadcast(x, 0) + hvd.allreduce(tf.ones_like(x))
        return x

    expected = everyone().sum(0)
    for i in range(1, 6):
        expected = expected + 1 if i % 2 else expected * SIZE
    same(loop(data(), tf.constant(6)), expected)

    @tf.function
    def independent(n):
        total = tf.zeros([])
        for i in tf.range(n):
            total += hvd.allreduce(tf.cast(i, tf.float32) * (RANK + 1), op=hvd.Sum)
        return total

    same(independent(tf.constant(50)), 1225 * SIZE * (SIZE + 1) / 2)


def check_not_folded_or_pruned():
    """The graph's optimiser must not run, merge or drop an operation."""

    @tf.function
    def constants():
        one = tf.constant([1.0, 2.0])
        hvd.allreduce(one, op=hvd.Sum, name="unused")  # the other ranks wait for it
        return hvd.allreduce(one, op=hvd.Sum, name="c1") + hvd.allreduce(one, op=hvd.Sum, name="c2"), hvd.size_op()

    for _ in range(2):
        same(constants()[0], np.array([1.0, 2.0]) * SIZE * 2)


def check_gradients():
    weights = tf.range(1.0, 16.0)
    weights = tf.reshape(weights, (3, 5))

    def gradient(call, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(call(x) * weights * (RANK + 1))
        return tape.gradient(loss, x)

    total = sum(r + 1 for r in range(SIZE))
    for run in (gradient, tf.function(gradient)):
        same(run(lambda x: hvd.allreduce(x, op=hvd.Sum), data()), weights * total)
        same(run(hvd.allreduce, data()), weights * total / SIZE)
        same(
            run(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25), data()), weights * total / 2
        )
        same(run(lambda x: hvd.grouped_allreduce([x, x], op=hvd.Sum)[1], data()), weights * total)
        same(run(lambda x: hvd.broadcast(x, 1), data()), weights * total / SIZE * (RANK == 1))
        same(run(lambda x: hvd.allgather(x)[3 * RANK : 3 * RANK + 3], data()), weights * (RANK + 1) / SIZE)
        holds = np.stack([everyone()[r] == everyone().max(0) for r in range(SIZE)])
        same(run(lambda x: hvd.allreduce(x, op=hvd.Max), data()), weights * total * holds[RANK] / holds.sum(0))
        others = everyone().prod(0) / everyone()[RANK]
        same(run(lambda x: hvd.allreduce(x, op=hvd.Product), data()), weights * total * others)


def check_variables():
    variables = [tf.Variable(data("float32", (2, i + 1))) for i in range(5)] + [tf.Variable(RANK)]
    hvd.broadcast_variables(variables, root_rank=1)
    for i, variable in enumerate(variables[:5]):
        same(variable, data("float32", (2, i + 1), rank=1))
    assert variables[5].numpy() == 1

    @tf.function
    def again():
        hvd.broadcast_variables(variables, root_rank=0)

    variables[5].assign(RANK + 10)
    again()
    assert variables[5].numpy() == 10


def check_objects():
    assert hvd.broadcast_object({"rank": RANK}, 1) == {"rank": 1}
    assert hvd.broadcast_object_fn(0)([RANK]) == [0]
    assert hvd.allgather_object(("r", RANK)) == [("r", r) for r in range(SIZE)]


def check_errors():
    error = raises(hvd.HorovodInternalError, lambda: hvd.allreduce(tf.ones([RANK + 1]), name="bad"), "bad")
    assert isinstance(error, tf.errors.FailedPreconditionError) and error.code == "mismatch"
    same(hvd.allreduce(tf.ones([2]), op=hvd.Sum, name="bad"), [SIZE, SIZE])  # the runtime continues
    raises(ValueError, lambda: hvd.broadcast(tf.ones([2]), SIZE))
    raises(ValueError, lambda: hvd.allreduce(tf.ones([2]), average=True, op=hvd.Sum))

    @tf.function
    def wrong():
        return hvd.allreduce(tf.ones([3 + RANK]), name="bad_too") + tf.ones([3 + RANK])

    raises(tf.errors.FailedPreconditionError, wrong, "bad_too")


def check_xla_refuses():
    """XLA has no kernel for these: TensorFlow raises an error at once, on all ranks."""

    @tf.function(jit_compile=True)
    def compiled(x):
        return hvd.allreduce(x) * 2

    if tf.config.list_physical_devices("FAKEGPU"):
        raise SkipTest("a pluggable device has no XLA")
    raises(tf.errors.InvalidArgumentError, lambda: compiled(data()), "HvdAllreduce")


def check_sessions():
    """TF1-style graphs: two operations of one session run, in any order; placeholders; explicit names."""
    v1 = tf.compat.v1
    threads = v1.ConfigProto(inter_op_parallelism_threads=16)  # enough for blocking kernels, before TensorFlow 2.13
    with tf.Graph().as_default(), v1.Session(config=threads) as session:
        fed = v1.placeholder(tf.float32, [None])
        outs = [hvd.allreduce(fed * float(i), op=hvd.Sum) for i in range(6)]
        gathered = hvd.allgather(fed)
        variable = v1.get_variable("v", initializer=float(RANK), use_resource=False)
        sync = hvd.broadcast_global_variables(1)
        grad = tf.gradients(hvd.allreduce(variable, op=hvd.Sum) * 3.0, variable)[0]
        session.run(v1.global_variables_initializer())
        session.run(sync)
        assert session.run(variable) == 1.0
        for _ in range(3):
            got = session.run([outs, gathered], {fed: [float(RANK + 1)]})
            same(got[0], [[i * SIZE * (SIZE + 1) / 2] for i in range(6)])
            same(got[1], range(1, SIZE + 1))
        assert session.run(grad) == 3.0 * SIZE


def check_refused_arguments():
    for way in (lambda function: function, tf.function):
        refused_by(hvd, data(), way)
    optimizer_refused_by(lambda **given: hvd.DistributedGradientTape(tf.GradientTape(), **given))
    plain = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    optimizer_refused_by(lambda **given: hvd.DistributedOptimizer(plain, **given))


def check_again():
    """After shutdown, an earlier traced graph still works."""
    global RANK, SIZE
    function = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))
    same(function(tf.ones([2])), [SIZE, SIZE])
    hvd.shutdown()
    raises(ValueError, lambda: hvd.allreduce(tf.ones([2])))
    hvd.init()
    same(function(tf.ones([2])), [SIZE, SIZE])
    same(hvd.allreduce(tf.ones([2])), [1, 1])
