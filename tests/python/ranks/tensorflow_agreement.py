"""hvd.agreement.compare with TensorFlow's variables; see agreement_checks.py."""

import os

import tensorflow as tf
from agreement_checks import RANK, STEPS, error_of, flip_in, found_so_far, fresh_name, names
from refusals import raises

import hvd.tensorflow as hvd
from hvd._agreement import exchange, memory


def fresh():
    tf.random.set_seed(3)
    matrix = tf.Variable(tf.random.normal((50, 40)), name="matrix")
    return [matrix, tf.Variable(tf.zeros(40)), tf.Variable(tf.ones(600, tf.bfloat16)), tf.Variable(["text"])]


@tf.function
def _step(matrix, bias):
    x = tf.ones((4, 50))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ matrix + bias) ** 2)
    for variable, gradient in zip((matrix, bias), tape.gradient(loss, (matrix, bias))):
        variable.assign_sub(0.1 * gradient)


def train(variables, steps, name):
    for _ in range(steps):
        _step(*variables[:2])
        hvd.agreement.compare({"variables": variables}, name=name)


def check_equal_ranks_are_not_reported():
    train(fresh(), 10 * STEPS, fresh_name())
    assert found_so_far() == 0


def check_flips_are_found_where_they_are():
    for culprit in range(3):
        variables, name = fresh(), fresh_name()
        train(variables, 3, name)
        if culprit == RANK:
            flip_in(variables[culprit], 33)
        names(
            error_of(lambda of=variables, n=name: hvd.agreement.compare({"variables": of}, name=n)),
            rf"variables\.{culprit}",
            culprit,
        )


def check_the_comparison_leaves_memory_to_the_next_step():
    """The comparison must not keep a variable's tensor: TensorFlow would allocate new memory for the variable in each step."""
    variable = tf.Variable(tf.ones(1 << 16))
    one, name = tf.ones(1 << 16), fresh_name()
    variable.assign_add(one)
    before = memory.address_of(variable)[0]
    for _ in range(3):
        hvd.agreement.compare([variable], name=name)
        variable.assign_add(one)
        assert memory.address_of(variable)[0] == before


def check_repair():
    os.environ["HVD_AGREEMENT"] = "repair"
    try:
        exchange._repairs = 0
        variables = fresh()
        variables[0].assign_add(tf.fill((50, 40), float(RANK == 1)))
        train(variables, 2 * STEPS, fresh_name())
        told = hvd.allgather_object(variables[0].numpy().tolist())
        assert told[0] == told[1] == told[2] and exchange._repairs == (RANK == 1)
    finally:
        os.environ["HVD_AGREEMENT"] = "stop"


def check_inside_a_function():
    variables = fresh()
    raises(TypeError, lambda: tf.function(lambda: hvd.agreement.compare(variables, name="inside"))(), "outside tf.function")
