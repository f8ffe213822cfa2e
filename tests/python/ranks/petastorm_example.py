"""The Petastorm example, unchanged."""

import pathlib
import runpy

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


def check_the_example():
    accuracy = runpy.run_path(str(EXAMPLES / "petastorm_digits.py"))["main"](epochs=12)
    assert accuracy > 0.9, accuracy
