"""hvd.tensorflow on a device that TensorFlow takes for a GPU: tests/gpu/fakes/tf_device.cc, over the fake driver.

Its kernel writes 2 ms after it was queued on its stream, so that a missing wait gives wrong numbers.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import SkipTest

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import load_library

plugin = os.environ["HVD_TEST_TF_DEVICE"]
fake = tf.load_op_library(plugin)
load_library.load_pluggable_device_library(plugin)

import hvd.tensorflow as hvd  # noqa: E402 - with the device there, as with TensorFlow's own
from hvd.tensorflow import _library  # noqa: E402

driver = ctypes.CDLL(os.environ["HVD_CUDA_LIBRARY"])
DEVICE = "/device:FAKEGPU:0"
hvd.init()
tf.random.set_seed(1)


@tf.RegisterGradient("HvdFakeScale")
def _gradient(op: Any, grad: tf.Tensor) -> tf.Tensor:
    return fake.hvd_fake_scale(tensor=grad, factor=op.get_attr("factor"))


def scaled(tensor: Any, factor: float) -> tf.Tensor:
    """The scaled tensor on the device, where it exists only some time after this returns."""
    return fake.hvd_fake_scale(tensor=tensor, factor=factor)


def on_device(tensor: Any) -> bool:
    return "FAKEGPU" in tensor.device


@contextmanager
def no_copies() -> Iterator[None]:
    before = driver.fake_cuda_copies_to_host()
    yield
    assert driver.fake_cuda_copies_to_host() == before, "a tensor went through host memory"


def mine(n: int, seed: int = 0) -> np.ndarray:
    return ((np.arange(n) + seed) % 17 + hvd.rank()).astype(np.float32)


def total(n: int, seed: int = 0) -> np.ndarray:
    return sum(((np.arange(n) + seed) % 17 + r).astype(np.float32) for r in range(hvd.size()))  # type: ignore[return-value]


SIZES = (1, 7, 1000, 0, 65536, 33)


def sums_of_scaled(tensors: list[tf.Tensor], reduce: Callable[[list[tf.Tensor]], list[tf.Tensor]]) -> list[tf.Tensor]:
    """4 * the sum: the reduction reads data that was just queued on the stream, and later work reads its result."""
    return [scaled(t, 2.0) for t in reduce([scaled(t, 2.0) for t in tensors])]


def check_eager_sums() -> None:
    for round in range(5):
        with tf.device(DEVICE):
            tensors = [tf.constant(mine(n, round)) for n in SIZES]
            with no_copies():
                out = sums_of_scaled(tensors, lambda ts: [hvd.allreduce(t, op=hvd.Sum, name=f"e{i}") for i, t in enumerate(ts)])
        for n, t in zip(SIZES, out):
            assert on_device(t)
            np.testing.assert_allclose(t.numpy(), 4 * total(n, round))


def check_eager_groups() -> None:
    for round in range(3):
        with tf.device(DEVICE):
            tensors = [tf.constant(mine(n, round)) for n in SIZES]
            with no_copies():
                out = sums_of_scaled(tensors, lambda ts: hvd.grouped_allreduce(ts, op=hvd.Average, name="g"))
        for n, t in zip(SIZES, out):
            assert on_device(t)
            np.testing.assert_allclose(t.numpy(), 4 * total(n, round) / hvd.size(), rtol=1e-6)


def check_sums_in_a_function() -> None:
    @tf.function
    def step(tensors: list[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        with tf.device(DEVICE):
            one = sums_of_scaled(tensors, lambda ts: [hvd.allreduce(t, op=hvd.Sum) for t in ts])
            return one, sums_of_scaled(tensors, lambda ts: hvd.grouped_allreduce(ts, op=hvd.Sum))

    for round in range(5):
        with tf.device(DEVICE):
            tensors = [tf.constant(mine(n, round)) for n in SIZES]
        with no_copies():
            single, grouped = step(tensors)
        for n, a, b in zip(SIZES, single, grouped):
            assert on_device(a) and on_device(b)
            np.testing.assert_allclose(a.numpy(), 4 * total(n, round))
            np.testing.assert_allclose(b.numpy(), 4 * total(n, round))


def check_types() -> None:
    for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int64):
        with tf.device("/device:CPU:0"):
            value = tf.cast(mine(50), dtype)
        with tf.device(DEVICE):
            there = tf.identity(value)
            with no_copies():
                out = hvd.allreduce(there, op=hvd.Sum, name=f"type.{dtype.name}")
        assert on_device(out) and out.dtype == dtype
        np.testing.assert_allclose(tf.identity(out).numpy().astype(np.float64), total(50))


def check_8_bit_floats_go_through_the_host() -> None:
    for name in ("float8_e4m3fn", "float8_e5m2"):
        if not _library.FLOAT8:
            raise SkipTest(f"this TensorFlow has no {name}")
        with tf.device("/device:CPU:0"):
            value = tf.cast(hvd.rank() + 1.0, name)
        there = value._copy(device_name=DEVICE)  # a pluggable device has no Identity of these
        with tf.device(DEVICE):
            out = hvd.allreduce(there, op=hvd.Sum, name=f"type.{name}")
        assert on_device(there) and "CPU" in out.device and out.dtype.name == name
        assert float(tf.cast(out, tf.float32)) == sum(range(hvd.size() + 1))


def check_ints_of_32_bits_stay_on_the_cpu() -> None:
    out = hvd.allreduce(tf.constant([hvd.rank(), 1]), op=hvd.Sum, name="int32")
    assert "CPU" in out.device
    assert out.numpy().tolist() == [sum(range(hvd.size())), hvd.size()]


def check_cpu_tensors_beside() -> None:
    for round in range(3):
        with tf.device("/device:CPU:0"):
            here = hvd.allreduce(tf.constant(mine(100, round)), op=hvd.Sum, name="here")
        with tf.device(DEVICE), no_copies():
            there = hvd.allreduce(scaled(tf.constant(mine(100, round)), 2.0), op=hvd.Sum, name="there")
        assert "CPU" in here.device and on_device(there)
        np.testing.assert_allclose(here.numpy(), total(100, round))
        np.testing.assert_allclose(there.numpy(), 2 * total(100, round))


def check_cpu_tensors_beside_in_a_function() -> None:
    @tf.function
    def step(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        with tf.device(DEVICE):
            there = hvd.allreduce(scaled(a, 2.0), op=hvd.Sum)
        with tf.device("/device:CPU:0"):
            here = hvd.allreduce(b, op=hvd.Sum)
            rows = hvd.allgather(b)
        return there, here, rows

    for round in range(3):
        with tf.device(DEVICE):
            a = tf.constant(mine(1000, round))
        with tf.device("/device:CPU:0"):
            b = tf.constant(mine(10, round))
        there, here, rows = step(a, b)  # TensorFlow moves b to and from the device, like any function's input
        np.testing.assert_allclose(there.numpy(), 2 * total(1000, round))
        np.testing.assert_allclose(here.numpy(), total(10, round))
        assert rows.shape[0] == 10 * hvd.size()


def check_variables_from_the_first_rank() -> None:
    with tf.device(DEVICE):
        variables = [tf.Variable(mine(n)) for n in (5, 3000)]
        with no_copies():
            hvd.broadcast_variables(variables, root_rank=1)
    for n, v in zip((5, 3000), variables):
        assert on_device(v)
        np.testing.assert_allclose(v.numpy(), np.arange(n) % 17 + 1)


def check_gradients_of_a_tape() -> None:
    with tf.device(DEVICE):
        variables = [tf.Variable(mine(n)) for n in (4, 2000)]
        seeds = [tf.constant(mine(n, 3)) for n in (4, 2000)]

    def gradients() -> list[tf.Tensor]:
        with tf.device(DEVICE):
            with tf.GradientTape() as tape:
                outs = [scaled(v, 3.0) for v in variables]
            return hvd.DistributedGradientTape(tape).gradient(outs, variables, output_gradients=seeds)  # type: ignore[no-any-return]

    for run in (gradients, tf.function(gradients)):
        for round in range(3):  # TensorFlow inspects a function's captures when it traces it
            with no_copies() if round else nullcontext():
                got = run()
            for n, g in zip((4, 2000), got):
                assert on_device(g)
                np.testing.assert_allclose(g.numpy(), 3 * total(n, 3) / hvd.size(), rtol=1e-6)


def check_a_disagreement_is_an_error_and_the_next_works() -> None:
    with tf.device(DEVICE):
        tensor = tf.constant(mine(3 + hvd.rank()))
        try:
            hvd.allreduce(tensor, op=hvd.Sum, name="odd")
            raise AssertionError("no error")
        except hvd.HorovodInternalError as error:
            assert "odd" in str(error)
        out = hvd.allreduce(tf.constant(mine(4)), op=hvd.Sum, name="even")
    np.testing.assert_allclose(out.numpy(), total(4))
