"""Writes the digits job as a pickle for hvdrun: make_pickle.py [train.pkl [checkpoint]].

    python examples/make_pickle.py train.pkl
    hvdrun -np 2 -H localhost:2 train.pkl

The file contains the functions, so only the host where hvdrun starts needs it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cloudpickle
import torch_digits


def main() -> None:
    """See the top of this file."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "train.pkl")
    checkpoint = str(Path(sys.argv[2] if len(sys.argv) > 2 else "digits.pt").absolute())
    cloudpickle.register_pickle_by_value(torch_digits)  # by value, not as the name of a module that ranks lack
    path.write_bytes(cloudpickle.dumps((torch_digits.train, (), {"checkpoint": checkpoint})))
    print(f"{path}: torch_digits.train, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
