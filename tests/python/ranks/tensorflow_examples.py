"""The TensorFlow and Keras examples, unchanged, on all ranks."""

import pathlib
import runpy

import tensorflow as tf

tf.get_logger().setLevel("ERROR")
EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


def trains(name, **arguments):
    accuracy = runpy.run_path(str(EXAMPLES / name))["main"](**arguments)
    assert accuracy > 0.9, f"{name}: accuracy {accuracy}"


def check_tape():
    trains("tensorflow_tape.py")


def check_session():
    trains("tensorflow_session.py")


def check_keras_fit():
    trains("keras_fit.py")
