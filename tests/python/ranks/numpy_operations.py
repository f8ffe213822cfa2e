"""Every operation against NumPy itself, on NumPy arrays: two or more ranks, every dtype."""

import signal
import threading
import time

import numpy as np
from refusals import raises
from wrong_arguments import refused_by

import hvd.numpy as hvd

try:
    hvd.rank()
    BEFORE_INIT = "no error"
except ValueError as error:
    BEFORE_INIT = str(error)
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
INTEGERS = ["uint8", "int8", "uint16", "int16", "int32", "int64"]
FLOATS = ["float16", "float32", "float64"]


def data(dtype, shape=(3, 5), rank=None):
    """Small numbers that differ from rank to rank."""
    rank = RANK if rank is None else rank
    values = (np.arange(np.prod(shape, dtype=int)) * (rank + 2) + rank) % 7 + 1
    return values.reshape(shape).astype(dtype) if dtype != "bool" else (values % 2 == 0).reshape(shape)


def everyone(dtype, shape=(3, 5)):
    return [data(dtype, shape, rank) for rank in range(SIZE)]


def check_world():
    assert "init" in BEFORE_INIT
    assert 0 <= RANK < SIZE
    assert (hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()) == (RANK, SIZE, 0, 1)
    assert hvd.is_homogeneous() is True
    assert hvd.is_initialized()
    hvd.init()  # a second init() does nothing
    assert hvd.rank() == RANK


def check_sum():
    for dtype in INTEGERS + FLOATS:
        out = hvd.allreduce(data(dtype), op=hvd.Sum)
        assert out.dtype == np.dtype(dtype) and out.shape == (3, 5)
        np.testing.assert_array_equal(out, sum(everyone(dtype)).astype(dtype))


def check_average():
    for dtype in FLOATS:
        expected = sum(each.astype("float64") for each in everyone(dtype)) / SIZE
        np.testing.assert_allclose(hvd.allreduce(data(dtype)), expected, rtol=1e-3)
    for dtype in INTEGERS:
        expected = sum(each.astype("int64") for each in everyone(dtype)) // SIZE
        np.testing.assert_array_equal(hvd.allreduce(data(dtype)), expected)
    negative = hvd.allreduce(np.array([-3 - RANK], "int32"))
    total = sum(-3 - rank for rank in range(SIZE))
    assert negative[0] == int(total / SIZE)  # truncates, towards zero


def check_min_max_product():
    for dtype in INTEGERS + FLOATS:
        stack = np.stack(everyone(dtype))
        np.testing.assert_array_equal(hvd.allreduce(data(dtype), op=hvd.Min), stack.min(0))
        np.testing.assert_array_equal(hvd.allreduce(data(dtype), op=hvd.Max), stack.max(0))
        np.testing.assert_array_equal(hvd.allreduce(data(dtype), op=hvd.Product), np.prod(stack, 0, dtype=dtype))


def check_bool():
    stack = np.stack(everyone("bool"))
    np.testing.assert_array_equal(hvd.allreduce(data("bool"), op=hvd.Sum), stack.any(0))
    np.testing.assert_array_equal(hvd.allreduce(data("bool"), op=hvd.Max), stack.any(0))
    np.testing.assert_array_equal(hvd.allreduce(data("bool"), op=hvd.Min), stack.all(0))


def check_scales():
    out = hvd.allreduce(data("float32"), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    np.testing.assert_allclose(out, sum(everyone("float32")) * 1.5, rtol=1e-6)
    np.testing.assert_array_equal(hvd.allreduce(data("float32"), prescale_factor=0.0, postscale_factor=0.0), 0)


def check_shapes():
    for shape in [(), (1,), (0,), (2, 0, 3), (1, 1, 1, 7), (100_003,), (1 << 20,)]:
        out = hvd.allreduce(data("float32", shape), op=hvd.Sum)
        assert out.shape == shape
        np.testing.assert_array_equal(out, sum(everyone("float32", shape)))


def check_forms():
    expected = sum(everyone("float64"))
    original = data("float64")
    assert hvd.allreduce_(original, op=hvd.Sum) is original
    np.testing.assert_array_equal(original, expected)
    handle = hvd.allreduce_async(data("float64"), op=hvd.Sum)
    assert isinstance(handle, int)
    np.testing.assert_array_equal(hvd.synchronize(handle), expected)
    assert hvd.synchronize(handle) is None  # it is over
    original = data("float64")
    handle = hvd.allreduce_async_(original, op=hvd.Sum)
    assert hvd.synchronize(handle) is original
    np.testing.assert_array_equal(original, expected)


def check_input_is_left_alone():
    original = data("float32")
    hvd.allreduce(original, op=hvd.Sum)
    np.testing.assert_array_equal(original, data("float32"))


def check_layouts():
    expected = sum(everyone("float32", (4, 6)))
    for make in (lambda a: a.T, lambda a: a[::2, ::3], lambda a: a.astype(">f4"), np.asfortranarray):
        array = make(data("float32", (4, 6)))
        np.testing.assert_array_equal(hvd.allreduce(array, op=hvd.Sum), make(expected))
        array = make(data("float32", (4, 6)).copy())
        assert hvd.allreduce_(array, op=hvd.Sum) is array
        np.testing.assert_array_equal(array, make(expected))


def check_groups():
    shapes = [(3,), (2, 2), (), (0,)]
    arrays = [data("float32", shape) for shape in shapes]
    for call in (hvd.grouped_allreduce, hvd.grouped_allreduce_):
        outs = call([array.copy() for array in arrays], op=hvd.Sum, name="group")
        for out, shape in zip(outs, shapes):
            np.testing.assert_array_equal(out, sum(everyone("float32", shape)))
    mixed = hvd.grouped_allreduce([data("int32"), data("float64")], op=hvd.Max)
    np.testing.assert_array_equal(mixed[0], np.stack(everyone("int32")).max(0))
    np.testing.assert_array_equal(mixed[1], np.stack(everyone("float64")).max(0))
    handle = hvd.grouped_allgather_async([data("int8"), data("float32", (RANK, 2))])
    first, second = hvd.synchronize(handle)
    np.testing.assert_array_equal(first, np.concatenate(everyone("int8")))
    np.testing.assert_array_equal(second, np.concatenate([data("float32", (rank, 2), rank) for rank in range(SIZE)]))
    raises(ValueError, lambda: hvd.grouped_allreduce([]))


def check_allgather():
    for dtype in [*INTEGERS, *FLOATS, "bool"]:
        out = hvd.allgather(data(dtype, (RANK + 1, 4)))
        assert out.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(out, np.concatenate([data(dtype, (r + 1, 4), r) for r in range(SIZE)]))
    assert hvd.allgather(np.zeros((0, 3), "float32")).shape == (0, 3)
    big = hvd.allgather(np.full(300_000, RANK, "float64"))
    np.testing.assert_array_equal(big, np.repeat(np.arange(SIZE), 300_000))
    big[0] = 1  # the result is writable and ours


def check_broadcast():
    for dtype in [*INTEGERS, *FLOATS, "bool"]:
        for root in range(SIZE):
            np.testing.assert_array_equal(hvd.broadcast(data(dtype), root), data(dtype, rank=root))
    array = data("float32")
    assert hvd.broadcast_(array, SIZE - 1) is array
    np.testing.assert_array_equal(array, data("float32", rank=SIZE - 1))
    assert hvd.synchronize(hvd.broadcast_async_(np.array(RANK), 0)) == 0
    assert hvd.synchronize(hvd.broadcast_async(np.array(RANK), 0)) == 0


def check_poll_is_false_right_after_the_call():
    hvd.barrier()
    polled = []
    for _ in range(20):  # a rank that the machine delays between the two calls may see the end
        handle = hvd.allreduce_async(np.ones(4))
        polled.append(hvd.poll(handle))
        hvd.synchronize(handle)
    assert False in polled, polled
    handle = hvd.allreduce_async(np.ones(4))
    limit = time.monotonic() + 30
    while not hvd.poll(handle):  # only right after the call
        assert time.monotonic() < limit
        time.sleep(0.001)
    hvd.synchronize(handle)
    raises(ValueError, lambda: hvd.poll(handle), "handle")


def check_many_under_way():
    arrays = [data("float32", (1 + i % 50,)) for i in range(400)]
    order = list(range(400))
    if RANK % 2:
        order.reverse()  # the order of submissions may differ between ranks
    handles = {i: hvd.allreduce_async(arrays[i], op=hvd.Sum, name=f"many.{i}") for i in order}
    for i, handle in handles.items():
        np.testing.assert_array_equal(hvd.synchronize(handle), sum(everyone("float32", (1 + i % 50,))))


def check_repeats_of_a_name():
    for step in range(50):
        np.testing.assert_array_equal(hvd.allreduce(np.full(3, float(step)), name="again", op=hvd.Sum), step * SIZE)


class _Breaks:
    def __reduce__(self):
        return int, ("no number",)


def check_objects():
    gathered = hvd.allgather_object({"rank": RANK, "text": "é" * RANK})
    assert gathered == [{"rank": rank, "text": "é" * rank} for rank in range(SIZE)]
    assert hvd.broadcast_object(("root", [1, 2]) if RANK == 1 else None, root_rank=1) == ("root", [1, 2])
    assert hvd.broadcast_object(bytes(3_000_000) if RANK == 0 else b"", name="large") == bytes(3_000_000)
    assert hvd.allgather_object(None) == [None] * SIZE
    raises(ValueError, lambda: hvd.broadcast_object(1, root_rank=SIZE), "root_rank")
    unpicklable = (i for i in range(3)) if RANK == 1 else 0
    raises(ValueError, lambda: hvd.allgather_object(unpicklable), "pickle", "generator")
    raises(ValueError, lambda: hvd.broadcast_object(unpicklable, root_rank=1), "pickle", "generator")
    raises(ValueError, lambda: hvd.allgather_object(_Breaks() if RANK == 1 else 0), "rank 1 cannot be unpickled", "int()")


def check_wrong_arguments():
    raises(ValueError, lambda: hvd.allreduce(np.zeros(2, "complex64"), op=hvd.Max), "complex64", "use Sum, Average or Product")
    raises(TypeError, lambda: hvd.allreduce([1.0, 2.0]), "ndarray")
    raises(ValueError, lambda: hvd.allreduce(np.zeros(2), average=True, op=hvd.Sum), "average")
    raises(ValueError, lambda: hvd.allreduce(np.zeros(2), op=17), "17")
    raises(ValueError, lambda: hvd.broadcast(np.zeros(2), SIZE))
    raises(ValueError, lambda: hvd.broadcast(np.zeros(2), -1))
    hvd.barrier()


def check_duplicate_name():
    if RANK > 0:
        hvd.barrier()  # rank 0's operation is certainly pending until the others submit theirs
    handle = hvd.allreduce_async(np.ones(3), name="twice", op=hvd.Sum)
    if RANK == 0:
        raises(ValueError, lambda: hvd.allreduce_async(np.ones(3), name="twice", op=hvd.Sum), "twice")
    other = hvd.allgather_async(np.ones(3), name="twice")  # another operation may have the name
    if RANK == 0:
        hvd.barrier()
    np.testing.assert_array_equal(hvd.synchronize(handle), SIZE)
    assert hvd.synchronize(other).shape == (3 * SIZE,)


def mismatch(call, *words):
    error = raises(hvd.HorovodInternalError, call, *words)
    assert isinstance(error, RuntimeError) and error.code == "mismatch", error.code
    np.testing.assert_array_equal(hvd.allreduce(np.ones(2), op=hvd.Sum), SIZE)  # the runtime continues


def check_mismatch_of_shape():
    mismatch(lambda: hvd.allreduce(np.zeros(3 + RANK), name="shapes"), "shapes", "3", "4")


def check_mismatch_of_dtype():
    array = np.zeros(3, "float32" if RANK == 0 else "float64")
    mismatch(lambda: hvd.allreduce(array, name="dtypes"), "dtypes", "32", "64")


def check_mismatch_of_op():
    mismatch(lambda: hvd.allreduce(np.zeros(3), name="ops", op=hvd.Sum if RANK else hvd.Max), "ops")


def check_mismatch_of_root():
    mismatch(lambda: hvd.broadcast(np.zeros(3), min(RANK, 1), name="roots"), "roots", "0", "1")


def check_mismatch_of_factors():
    mismatch(lambda: hvd.allreduce(np.zeros(3), name="factors", prescale_factor=1.0 + RANK), "factors")


def check_mismatch_of_rows():
    mismatch(lambda: hvd.allgather(np.zeros((2, 3 + RANK)), name="rows"), "rows")


def check_barrier():
    for _ in range(20):
        came = time.monotonic_ns()  # one clock for all ranks of the host
        hvd.barrier()
        left = time.monotonic_ns()
        assert left >= hvd.allreduce(np.array([came]), op=hvd.Max)[0], "somebody left before the last one came"


def check_signals_reach_a_wait():
    """Ctrl-C while peers are missing: a handler's exception ends the wait, and the operation continues."""

    class Alarm(Exception):
        pass

    for error in (KeyboardInterrupt, Alarm):

        def alarm(*_, error=error):
            raise error("the alarm")

        def leave(call, error=error):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            raises(error, call)

        calls = {
            "one": lambda: hvd.allreduce_async(np.ones(1000), name="one", op=hvd.Sum),
            "group": lambda: hvd.grouped_allreduce_async([np.ones(9), np.ones(1000)], name="group", op=hvd.Sum),
            "gathered": lambda: hvd.grouped_allgather_async([np.ones(9), np.ones(1000)], name="gathered"),
            "exchanged": lambda: hvd.alltoall_async(np.ones(SIZE), np.ones(SIZE, np.int64), name="exchanged"),
        }
        hvd.barrier()
        if RANK == 0:
            signal.signal(signal.SIGALRM, alarm)
            start = time.monotonic()
            leave(lambda: hvd.allreduce_(np.ones(1000), name="interrupted", op=hvd.Sum))
            handles = {name: call() for name, call in calls.items()}
            for handle in handles.values():
                leave(lambda handle=handle: hvd.synchronize(handle))
            assert time.monotonic() - start < 30
            assert hvd.allgather_object("now", name="meeting") == ["now"] * SIZE
        else:
            assert hvd.allgather_object("now", name="meeting") == ["now"] * SIZE
            np.testing.assert_array_equal(hvd.allreduce(np.ones(1000), name="interrupted", op=hvd.Sum), SIZE)
            handles = {name: call() for name, call in calls.items()}
        results = {name: hvd.synchronize(handle) for name, handle in handles.items()}
        np.testing.assert_array_equal(results["one"], SIZE)
        np.testing.assert_array_equal(results["group"][1], SIZE)
        assert len(results["gathered"][1]) == 1000 * SIZE
        np.testing.assert_array_equal(results["exchanged"][0], np.ones(SIZE))
        hvd.barrier()


def check_threads():
    """Operations from several threads at the same time."""
    failures = []

    def work(number):
        try:
            for step in range(30):
                out = hvd.allreduce(np.full(50, float(number)), name=f"thread.{number}", op=hvd.Sum)
                assert (out == number * SIZE).all(), (number, step)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def check_init_again():
    for _ in range(3):
        hvd.shutdown()
        assert not hvd.is_initialized()
        raises(ValueError, hvd.size, "init")
        raises(ValueError, lambda: hvd.allreduce(np.zeros(1)))
        raises(ValueError, hvd.barrier)
        hvd.shutdown()  # a second shutdown() does nothing
        hvd.init()
        assert (hvd.rank(), hvd.size()) == (RANK, SIZE)
        np.testing.assert_array_equal(hvd.allreduce(np.ones(2), op=hvd.Sum), SIZE)


def check_refused_arguments():
    refused_by(hvd, data("float32"))
    masked = np.ma.array(data("float32"), mask=data("bool"))
    for call in (hvd.allreduce, hvd.allreduce_, hvd.allgather, lambda x: hvd.broadcast(x, 0)):
        raises(TypeError, lambda: call(masked), "masked", "filled")  # noqa: B023
    raises(TypeError, lambda: hvd.broadcast(data("int8"), 1.0), "root_rank is 1.0")
    raises(ValueError, lambda: hvd.broadcast(data("int8"), 1 << 40), "root")
    raises(TypeError, lambda: hvd.allreduce(data("int8"), prescale_factor="x"), "prescale_factor is 'x'")
    np.testing.assert_array_equal(hvd.allreduce(data("int32"), op=hvd.Max), np.max(everyone("int32"), 0))
