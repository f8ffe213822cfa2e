"""The modules of this folder and those of scripts/test are importable in this suite."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "scripts/lib")]
