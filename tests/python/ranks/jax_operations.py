"""hvd.jax's operations against NumPy: all operations, outside jit and inside it, with gradients and vmap, on two ranks."""

import os
from unittest import SkipTest

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"  # to be refused

import jax
import jax.numpy as jnp
import numpy as np
from refusals import raises
from wrong_arguments import optimizer_refused_by, refused_by

import hvd.jax as hvd
from hvd.jax import _library

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32"]
FLOATS = ["float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2"]
MOVED = ["uint32", "complex64"]
COMPILES = _library._version(jax.lib.__version__) >= _library._FIRST
jit = jax.jit if COMPILES else lambda function, **_: function
BOTH = (lambda function: function, jit)


def data(dtype, shape=(4, 3), rank=None):
    """Small numbers that differ from rank to rank."""
    rank = RANK if rank is None else rank
    values = (np.arange(np.prod(shape, dtype=int)) * (rank + 2) + rank) % 7 + 1
    return values.reshape(shape).astype(jnp.dtype(dtype)) if dtype != "bool" else (values % 2 == 0).reshape(shape)


def everyone(dtype, shape=(4, 3)):
    return [data(dtype, shape, rank) for rank in range(SIZE)]


def same(out, expected):
    assert isinstance(out, jax.Array), type(out)
    assert out.dtype == expected.dtype and out.shape == expected.shape, (out.dtype, out.shape, expected.shape)
    np.testing.assert_array_equal(np.asarray(out).astype(np.complex64), np.asarray(expected).astype(np.complex64))


def all_dtypes(operation, dtypes, expected, shape=(4, 3)):
    """An operation on an array of each dtype, in one program, against expected(all ranks' arrays)."""
    arrays = [jnp.asarray(data(dtype, shape)) for dtype in dtypes]
    for way in BOTH:
        for out, dtype in zip(way(lambda arrays: [operation(array) for array in arrays])(arrays), dtypes):
            same(out, expected(everyone(dtype, shape)))


def total(arrays, divisor=1):
    """Returns the sum of the arrays divided by divisor, in their dtype. Integer results are truncated."""
    result = np.sum([array.astype(np.float64) for array in arrays], 0) / divisor
    return (np.trunc(result) if arrays[0].dtype.name in INTEGERS else result).astype(arrays[0].dtype)


def check_allreduce():
    """The sum of every dtype, the others with one of each kind, because XLA takes a second to compile each."""
    few = ["uint16", "int8", "bfloat16", "float8_e4m3fn"]
    all_dtypes(lambda x: hvd.allreduce(x, op=hvd.Sum), INTEGERS + FLOATS, total)
    all_dtypes(lambda x: hvd.allreduce(x), few, lambda arrays: total(arrays, SIZE))
    all_dtypes(lambda x: hvd.allreduce(x, op=hvd.Max), [*few, "bool"], lambda arrays: np.max(arrays, 0))
    all_dtypes(lambda x: hvd.allreduce(x, op=hvd.Min), [*few, "bool"], lambda arrays: np.min(arrays, 0))
    all_dtypes(lambda x: hvd.allreduce(x, op=hvd.Sum), ["complex64"], lambda arrays: np.sum(arrays, 0))
    all_dtypes(lambda x: hvd.allreduce(x, op=hvd.Product), ["float32"], lambda arrays: np.prod(arrays, 0))
    all_dtypes(lambda x: hvd.allreduce(x, op=hvd.Sum), ["bool"], lambda arrays: np.any(arrays, 0))
    scales = {"prescale_factor": 0.5, "postscale_factor": 4.0}
    all_dtypes(lambda x: hvd.allreduce(x, op=hvd.Sum, **scales), ["float32"], lambda arrays: 2 * total(arrays))
    zeros = {"prescale_factor": 0.0, "postscale_factor": 0.0}
    all_dtypes(lambda x: hvd.allreduce(x, op=hvd.Sum, **zeros), ["float32"], lambda arrays: 0 * total(arrays))


def check_wide_dtypes():
    jax.config.update("jax_enable_x64", True)
    try:
        all_dtypes(lambda x: hvd.allreduce(x, op=hvd.Sum), ["int64", "float64"], lambda arrays: np.sum(arrays, 0))
        all_dtypes(hvd.allgather, ["uint64", "complex128"], np.concatenate)
        all_dtypes(lambda x: hvd.allreduce(x, op=hvd.Sum), ["uint64", "complex128"], lambda arrays: np.sum(arrays, 0))
    finally:
        jax.config.update("jax_enable_x64", False)


def check_allgather():
    all_dtypes(hvd.allgather, [*INTEGERS, *FLOATS, *MOVED, "bool"], np.concatenate)
    all_dtypes(hvd.allgather, ["float32"], np.stack, ())
    all_dtypes(lambda x: hvd.grouped_allgather([x, x[:0]])[0], ["int32"], np.concatenate)
    all_dtypes(lambda x: hvd.grouped_allgather([x, x[:0]])[1], ["int32"], lambda arrays: arrays[0][:0])
    rows = hvd.allgather(jnp.full((RANK + 1, 2), RANK))  # different rows
    same(rows, np.concatenate([np.full((r + 1, 2), r, np.int32) for r in range(SIZE)]))


def check_broadcast():
    all_dtypes(lambda x: hvd.broadcast(x, 1), [*INTEGERS, *FLOATS, *MOVED, "bool"], lambda arrays: arrays[1])
    raises(ValueError, lambda: hvd.broadcast(jnp.ones(2), SIZE), "root_rank")


def check_alltoall():
    mine = lambda arrays: np.concatenate([a[2 * RANK : 2 * RANK + 2] for a in arrays])  # noqa: E731
    all_dtypes(hvd.alltoall, [*INTEGERS, *FLOATS, *MOVED, "bool"], mine, (2 * SIZE, 3))
    splits = [1] * (SIZE - 1) + [2]
    out, received = hvd.alltoall(jnp.arange(SIZE + 1), splits)
    assert received.tolist() == [splits[RANK]] * SIZE and out.shape == (sum(received),)
    raises(ValueError, lambda: hvd.alltoall(jnp.ones(2 * SIZE + 1)))
    if COMPILES:
        raises(ValueError, lambda: jit(lambda x: hvd.alltoall(x))(jnp.ones(2 * SIZE + 1)), "equally")
        raises(ValueError, lambda: jit(lambda x: hvd.alltoall(x, splits)[0])(jnp.arange(SIZE + 1)), "outside jit")


def check_reducescatter():
    mine = lambda arrays: np.array_split(total(arrays), SIZE)[RANK]  # noqa: E731
    all_dtypes(lambda x: hvd.reducescatter(x, op=hvd.Sum), INTEGERS + FLOATS, mine, (2 * SIZE + 1, 3))
    mean = lambda arrays: np.array_split(total(arrays, SIZE), SIZE)[RANK]  # noqa: E731
    all_dtypes(lambda x: hvd.grouped_reducescatter([x, x[:SIZE]])[0], ["float32"], mean, (2 * SIZE + 1, 3))
    for way in BOTH:
        raises(ValueError, lambda way=way: way(lambda x: hvd.reducescatter(x))(jnp.float32(1)), "dimension")


def check_groups():
    arrays = [jnp.asarray(data(dtype, (i + 1, 2))) for i, dtype in enumerate(INTEGERS + FLOATS)]
    for way in BOTH:
        outs = way(lambda arrays: hvd.grouped_allreduce(arrays, op=hvd.Sum))(arrays)
        for i, (out, dtype) in enumerate(zip(outs, INTEGERS + FLOATS)):
            same(out, total(everyone(dtype, (i + 1, 2))))
    raises(ValueError, lambda: hvd.grouped_allreduce([]))


def check_compression():
    for way in BOTH:
        for kind in (hvd.Compression.fp16, hvd.Compression.bf16):
            out = way(lambda x, kind=kind: hvd.allreduce(x, compression=kind, op=hvd.Sum))(jnp.full(5, 0.5 + RANK))
            same(out, np.full(5, sum(0.5 + r for r in range(SIZE)), np.float32))


def check_handles():
    handles = [
        hvd.allreduce_async(jnp.full(4, float(RANK)), op=hvd.Sum, name="h"),
        hvd.allgather_async(jnp.full(1, RANK)),
        hvd.broadcast_async(jnp.full(2, RANK), 1),
        hvd.alltoall_async(jnp.arange(SIZE) + RANK),
        hvd.reducescatter_async(jnp.ones(SIZE), op=hvd.Sum),
        hvd.grouped_allreduce_async([jnp.ones(2), jnp.ones(3)]),
    ]
    assert hvd.poll(handles[-1]) in (False, True)
    added, gathered, sent, (swapped, rows), part, group = [hvd.synchronize(handle) for handle in handles]
    same(added, np.full(4, SIZE * (SIZE - 1) / 2, np.float32))
    same(gathered, np.arange(SIZE, dtype=np.int32))
    same(sent, np.full(2, 1, np.int32))
    same(swapped, RANK + np.arange(SIZE, dtype=np.int32))
    assert rows.tolist() == [1] * SIZE and part.shape == (1,) and [a.shape for a in group] == [(2,), (3,)]
    if COMPILES:
        raises(TypeError, lambda: jit(lambda x: hvd.allreduce_async(x))(jnp.ones(2)), "inside jit call allreduce")


def check_wrong_arguments():
    raises(TypeError, lambda: hvd.allreduce([1.0, 2.0]), "jax.numpy.asarray")
    raises(ValueError, lambda: hvd.allreduce(jnp.ones(2), average=True, op=hvd.Sum))
    raises(ValueError, lambda: hvd.reducescatter(jnp.ones(2), op=hvd.Max))
    raises(ValueError, lambda: hvd.allreduce(jnp.ones(2, jnp.complex64), op=hvd.Max), "complex64")
    raises(ValueError, lambda: hvd.allreduce(jnp.ones(2), process_set=hvd.ProcessSet([0])), "add_process_set")


# ---- gradients: of the sum of all ranks' losses


def weights(shape, rank=None):
    rank = RANK if rank is None else rank
    return jnp.asarray(np.cos(np.arange(np.prod(shape)) + rank).reshape(shape), jnp.float32)


def total_loss(operation, shape_in, shape_out):
    """All ranks' arrays to the sum of all ranks' losses, computed on this rank: the reference for the gradient."""

    def loss(arrays):
        outs = operation(arrays)
        return sum(jnp.sum(weights(shape_out, rank) * out**2) for rank, out in enumerate(outs))

    arrays = [weights(shape_in, 10 + rank) for rank in range(SIZE)]
    return jax.grad(loss)(arrays)[RANK]


def gradient(function, operation, shape_in, shape_out):
    expected = total_loss(operation, shape_in, shape_out)
    for way in BOTH:
        grads = way(jax.grad(lambda x: jnp.sum(weights(shape_out) * function(x) ** 2)))(weights(shape_in, 10 + RANK))
        np.testing.assert_allclose(grads, expected, rtol=2e-5, atol=1e-5)


def check_gradient_of_allreduce():
    gradient(lambda x: hvd.allreduce(x, op=hvd.Sum), lambda xs: [sum(xs)] * SIZE, (3, 2), (3, 2))
    gradient(lambda x: hvd.allreduce(x), lambda xs: [sum(xs) / SIZE] * SIZE, (3, 2), (3, 2))
    gradient(lambda x: hvd.grouped_allreduce([x, x])[1], lambda xs: [sum(xs) / SIZE] * SIZE, (3, 2), (3, 2))
    scaled = {"prescale_factor": 0.5, "postscale_factor": 3.0}
    gradient(lambda x: hvd.allreduce(x, op=hvd.Sum, **scaled), lambda xs: [sum(xs) * 1.5] * SIZE, (4,), (4,))
    raises(NotImplementedError, lambda: jax.grad(lambda x: hvd.allreduce(x, op=hvd.Max).sum())(jnp.ones(2)), "Max")


def check_gradient_of_allgather():
    gradient(hvd.allgather, lambda xs: [jnp.concatenate(xs)] * SIZE, (2, 3), (2 * SIZE, 3))
    gradient(hvd.allgather, lambda xs: [jnp.stack(xs)] * SIZE, (), (SIZE,))


def check_gradient_of_broadcast():
    gradient(lambda x: hvd.broadcast(x, 1), lambda xs: [xs[1]] * SIZE, (2, 3), (2, 3))


def check_gradient_of_alltoall():
    swap = lambda xs: [jnp.concatenate([x[2 * r : 2 * r + 2] for x in xs]) for r in range(SIZE)]  # noqa: E731
    gradient(hvd.alltoall, swap, (2 * SIZE, 3), (2 * SIZE, 3))


def check_gradient_of_reducescatter():
    rows = 2 * SIZE + 1
    expected = [np.array_split(np.arange(rows), SIZE)[r] for r in range(SIZE)]
    for op, factor in ((hvd.Sum, 1), (hvd.Average, SIZE)):
        weight = [weights((rows, 2), r) for r in range(SIZE)]
        for way in BOTH:
            loss = lambda x, op=op: jnp.sum(weight[RANK][expected[RANK]] * hvd.reducescatter(x, op=op))  # noqa: E731, B023
            grads = way(jax.grad(loss))(jnp.ones((rows, 2)))
            mine = jnp.concatenate([weight[r][expected[r]] for r in range(SIZE)]) / factor
            np.testing.assert_allclose(grads, mine, rtol=1e-6)


def check_second_and_forward_derivatives():
    def f(x):
        return hvd.allreduce(x**3, op=hvd.Sum).sum() / SIZE

    for way in BOTH:
        hessian = way(jax.grad(lambda x: jax.grad(f)(x).sum()))(jnp.asarray([1.0 + RANK, 2.0]))
        np.testing.assert_allclose(hessian, 6 * np.asarray([1.0 + RANK, 2.0]), rtol=1e-6)
        out, change = way(lambda x: jax.jvp(hvd.allgather, (x,), (2 * x,)))(jnp.full(1, RANK + 1.0))
        np.testing.assert_allclose(change, 2 * out)
        checkpointed = way(jax.grad(jax.checkpoint(lambda x: jnp.sin(hvd.allreduce(x)).sum())))(jnp.asarray([0.3 * RANK]))
        np.testing.assert_allclose(checkpointed, np.cos([0.3 * (SIZE - 1) / 2]), rtol=1e-5)


# ---- vmap


def check_vmap():
    x = jnp.asarray(data("float32", (5, 2 * SIZE, 3)))
    all_x = everyone("float32", (5, 2 * SIZE, 3))
    for way in BOTH:
        for axis in (0, 1, 2):
            moved = [jnp.moveaxis(jnp.asarray(a), 0, axis) for a in all_x]
            batched = jax.vmap(lambda x: (hvd.allreduce(x, op=hvd.Sum), hvd.broadcast(x, 0)), in_axes=axis)
            added, first = way(batched)(moved[RANK])
            same(added, np.sum(all_x, 0))
            same(first, all_x[0])
        same(way(jax.vmap(hvd.allgather))(x), np.concatenate(all_x, 1))
        same(way(jax.vmap(hvd.alltoall))(x), np.concatenate([a[:, 2 * RANK : 2 * RANK + 2] for a in all_x], 1))
        same(way(jax.vmap(lambda x: hvd.reducescatter(x, op=hvd.Sum)))(x), np.split(np.sum(all_x, 0), SIZE, 1)[RANK])
        scalars = way(jax.vmap(hvd.allgather))(jnp.arange(4.0) + RANK)
        same(scalars, np.arange(4.0, dtype=np.float32)[:, None] + np.arange(SIZE, dtype=np.float32))
        per_example = way(jax.vmap(jax.grad(lambda x: hvd.allreduce(x**2, op=hvd.Sum).sum())))(jnp.ones((3, 2)))
        same(per_example, np.full((3, 2), 2.0 * SIZE, np.float32))
    raises(NotImplementedError, lambda: jax.vmap(lambda x: hvd.allreduce(x, op=hvd.Adasum))(x), "Adasum")
    raises(ValueError, lambda: jax.vmap(hvd.reducescatter)(jnp.ones(3)), "scalar")


# ---- programs


def check_fifty_independent_operations_in_one_program():
    if not COMPILES:
        raise SkipTest("operations inside compiled programs need jax 0.5")
    step = jit(lambda xs: [hvd.allreduce(x * 2, op=hvd.Sum) for x in xs])
    for again in range(10):
        outs = step([jnp.full(1000 + i, float(RANK + i + again)) for i in range(50)])
        for i, out in enumerate(outs):
            same(out, np.full(1000 + i, 2 * (SIZE * (i + again) + SIZE * (SIZE - 1) / 2), np.float32))


def check_order_in_branches_loops_and_functions():
    if not COMPILES:
        raise SkipTest("operations inside compiled programs need jax 0.5")
    mean = jit(lambda x: hvd.allreduce(x))  # one compiled function, called twice by another

    @jit
    def step(x):
        a, b = mean(x), mean(x * 10)
        (c, _) = jax.lax.scan(lambda c, i: (hvd.allreduce(c, op=hvd.Sum) / SIZE + i, None), x, jnp.arange(5.0))
        d = jax.lax.cond(a[0] < 100, lambda x: hvd.allreduce(x, op=hvd.Sum), lambda x: x, x)
        e = jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, hvd.allreduce(s[1])), (0, x))[1]
        return a, b, c, d, e

    x = jnp.full(3, float(RANK))
    middle = (SIZE - 1) / 2
    for _ in range(20):
        a, b, c, d, e = (float(out[0]) for out in step(x))
        assert (a, b, c, d, e) == (middle, 10 * middle, middle + 10, SIZE * middle, middle), (a, b, c, d, e)


def check_programs_under_way_at_once():
    if not COMPILES:
        raise SkipTest("operations inside compiled programs need jax 0.5")
    first, second = jit(lambda x: hvd.allreduce(x, op=hvd.Sum)), jit(lambda x: hvd.allreduce(x, op=hvd.Max))
    outs = [f(jnp.full(50_000, float(RANK + i))) for i in range(20) for f in (first, second)]
    eager = hvd.allreduce(jnp.ones(3), op=hvd.Sum)  # while they may still run
    for i in range(20):
        same(outs[2 * i], np.full(50_000, SIZE * (i + (SIZE - 1) / 2), np.float32))
        same(outs[2 * i + 1], np.full(50_000, SIZE - 1.0 + i, np.float32))
    same(eager, np.full(3, float(SIZE), np.float32))


def check_what_one_rank_compiles_again():
    if not COMPILES:
        raise SkipTest("operations inside compiled programs need jax 0.5")
    step = jit(lambda x: hvd.allreduce(x.sum(), op=hvd.Sum))
    for rows in ([2] * SIZE, range(3, 3 + SIZE), [2] * SIZE, range(5, 5 + 2 * SIZE, 2)):
        assert float(step(jnp.ones(rows[RANK]))) == sum(rows)


def check_a_result_that_one_rank_does_not_use():
    if not COMPILES:
        raise SkipTest("operations inside compiled programs need jax 0.5")
    step = jit(lambda x: (x + 1, hvd.allreduce(x) if RANK == 0 else (hvd.allreduce(x), None)[1]))
    for _ in range(3):
        same(step(jnp.ones(2))[0], np.full(2, 2.0, np.float32))


def check_barrier():
    for way in BOTH:
        same(way(lambda x: (hvd.barrier(), x)[1])(jnp.ones(1)), np.ones(1, np.float32))


def check_disagreement():
    for _ in range(2):
        error = raises(hvd.HorovodInternalError, lambda: hvd.allreduce(jnp.ones(3 + RANK), name="shape"), "shape", "rank 1")
        assert error.code == "mismatch"
    if COMPILES:
        step = jit(lambda x: hvd.allreduce(x))
        for _ in range(3):
            error = raises(RuntimeError, lambda: step(jnp.ones(3 + RANK)).block_until_ready(), "FAILED_PRECONDITION", "shape")
            assert _library.told_by_jax(error).code == "mismatch" and _library.told_by_jax(ValueError("ABORTED: no")) is None
            same(step(jnp.ones(9)), np.ones(9, np.float32))  # later operations work
        large = jit(lambda x, y: hvd.allreduce(x + 0 * jnp.tanh(y @ jnp.tanh(y @ y)).sum()))  # it fails while it runs
        raises(RuntimeError, lambda: large(jnp.ones(3 + RANK), jnp.ones((400, 400))).block_until_ready(), "shape")
        hvd.forget_failures()
        same(large(jnp.ones(9), jnp.ones((400, 400))), np.ones(9, np.float32))
        gather = jit(lambda x: hvd.allgather(x))
        raises(RuntimeError, lambda: gather(jnp.ones(3 + RANK)).block_until_ready(), "compiled for")


def check_programs_for_gpus_call_us():
    """Compiled as far as possible without a GPU; jax_gpu_calls.py tests the handler itself."""
    if not COMPILES:
        raise SkipTest("operations inside compiled programs need jax 0.5")
    traced = jit(lambda x: hvd.allgather(hvd.allreduce(x))).trace(jnp.ones((2, 3)))
    for platform in ("cpu", "cuda"):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert text.count("@hvd_operation") == 2, text
    raises(NotImplementedError, lambda: traced.lower(lowering_platforms=("rocm",)), "not on rocm")


def check_several_devices_are_refused():
    if not COMPILES:
        raise SkipTest("operations inside compiled programs need jax 0.5")
    raises(ValueError, lambda: jax.pmap(lambda x: hvd.allreduce(x))(jnp.ones((2, 3))), "rdered effects")
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("d",))
    spread = jax.device_put(jnp.ones((2, 3)), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d")))
    raises(ValueError, lambda: jit(lambda x: hvd.allreduce(x))(spread), "rdered effects")
    same(hvd.allreduce(spread), np.ones((2, 3), np.float32))  # outside jit it is one array
    second = jax.device_put(jnp.ones(3), jax.devices()[1])
    assert jit(lambda x: hvd.allreduce(x))(second).devices() == hvd.allreduce(second).devices() == {jax.devices()[1]}


def check_process_sets():
    mine = [hvd.add_process_set([rank]) for rank in range(SIZE)][RANK]
    for way in BOTH:
        same(way(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=mine))(jnp.full(2, RANK)), np.full(2, RANK, np.int32))
        same(way(lambda x: hvd.allgather(x, process_set=mine))(jnp.full(2, RANK)), np.full(2, RANK, np.int32))
        same(way(lambda x: hvd.broadcast(x, RANK, process_set=mine))(jnp.full(2, RANK)), np.full(2, RANK, np.int32))
    other = hvd.ProcessSet([(RANK + 1) % SIZE])
    raises(ValueError, lambda: hvd.allreduce(jnp.ones(2), process_set=other))


def check_join():
    for step in range(1 + RANK):
        out = hvd.allreduce(jnp.full(2, 1.0 + step), op=hvd.Sum, name="uneven")
        same(out, np.full(2, (1.0 + step) * (SIZE - step), np.float32))
    assert hvd.join() == SIZE - 1


def check_refused_arguments():
    for way in BOTH:
        refused_by(hvd, jnp.ones((2, 2)), way)
    optimizer_refused_by(lambda **given: hvd.allreduce_gradients({"w": jnp.ones(2)}, **given))
    optimizer_refused_by(lambda **given: hvd.DistributedGradient(None, **given))
