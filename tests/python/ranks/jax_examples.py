"""The JAX examples, unchanged, on all ranks."""

import pathlib
import runpy

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


def check_digits():
    accuracy = runpy.run_path(str(EXAMPLES / "jax_digits.py"))["main"]()
    assert accuracy > 0.9, accuracy


def check_mixed_precision():
    took = runpy.run_path(str(EXAMPLES / "jax_mixed_precision.py"))["main"](layers=10, rounds=2)
    assert len(took) == 3
