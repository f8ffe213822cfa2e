"""hvd.data: loaders, and readers of Parquet files and Petastorm's, on two ranks."""

import os

import pytest

from python.harness import checks_of, python


def _named(variable: str) -> str:
    named = os.environ.get(variable, "")
    return named if os.access(named, os.X_OK) else python()


SPARK = _named("HVD_TEST_SPARK")  # has pyarrow, and torch as a fallback
PETASTORM = _named("HVD_TEST_PETASTORM")

test_parquet = checks_of("data_readers.py", needs=("pyarrow", "torch", "sklearn"), interpreter=SPARK)
test_petastorm = pytest.mark.ci(checks_of("petastorm_example.py", needs=("petastorm", "sklearn"), interpreter=PETASTORM))
test_petastorm_written = pytest.mark.ci(checks_of("petastorm_written.py", needs=("petastorm",), interpreter=PETASTORM))
